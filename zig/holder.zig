//! `holder`: one conversation's Hermes in namespaces of its own. Three processes stand around it: this one ("outer") in
//! the machine's PID namespace, the relay, and the first process of the new PID namespace ("init"). When any of them, or
//! the machine, is gone, everything inside dies.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");
const memfd = @import("memfd.zig");
const manifest = @import("manifest.zig");
const environment = @import("environment.zig");
const identity = @import("identity.zig");
const mounts = @import("mounts.zig");
const control = @import("control.zig");
const relay = @import("relay.zig");
const seccomp = @import("seccomp.zig");

const manifest_fd: sys.Fd = 4;
const ca_bundle_fd: sys.Fd = 5;
const environment_fd: sys.Fd = 6;
const start_script_fd: sys.Fd = 7;
/// Hermes keeps 0, 1, 2 and this one: the machine channel.
const machine_channel_fd: sys.Fd = 3;

var manifest_text: [limits.manifest_bytes + 1]u8 = undefined;
var environment_text: [limits.environment_bytes]u8 = undefined;
var plan: manifest.Manifest = .{};
var hermes_environment: environment.Environment = .{};
var hermes_argv: [limits.manifest_args + 1:null]?[*:0]const u8 = @splat(null);

pub fn run() noreturn {
    sys.nameProcess("edge-holder");
    const machine = linux.getppid();
    process.dieWithParent();
    process.blockSignals();
    process.leaveTerminal();
    _ = linux.syscall1(.umask, 0o022);
    sys.closeFrom(start_script_fd + 1);
    preferAsVictim();
    const files = takeDescriptors();
    const null_fd = process.openNull();

    const words = control.connect(plan.fuse_socket.?, plan.fuse_token.?, .control);
    sys.report_fd = words;
    const stream = control.connect(plan.fuse_socket.?, plan.fuse_token.?, .fuse_stream);
    const host_uid: ?u32 = if (linux.geteuid() == 0) plan.uid orelse sys.fail("manifest: no uid, and this is root", "", .INVAL) else null;

    const link = control.pair();
    const relay_pid = process.fork("relay") orelse relay.run(.{ .stream = stream, .link = link[1], .null_fd = null_fd, .host_uid = host_uid });
    _ = linux.close(link[1]);
    _ = linux.close(stream);

    enterNamespaces(host_uid, link[0]);
    buildTree(files, link[0]);
    process.notDumpable();
    process.dieWithParent();
    if (linux.getppid() != machine) sys.fail("the machine has gone", "", .SRCH);

    const inner = control.pair();
    const init = process.fork("init") orelse runInit(inner, null_fd, words);
    _ = linux.close(inner[1]);
    process.letGoOfPipes(null_fd);
    _ = linux.close(machine_channel_fd);
    identity.dropPrivileges();
    process.dieWithParent();
    seccomp.confineHolder();
    watch(.{ .init = init, .relay = relay_pid, .words = words, .inner = inner[0] });
}

/// When memory runs out, the kernel ends holders before the machine and the gateway. A wish, not a protection: where it
/// cannot be written nothing else changes.
fn preferAsVictim() void {
    _ = sys.writeFile("/proc/self/oom_score_adj", "500");
}

/// Verifies and reads the four memfds. What has been read is closed; what is copied later is returned.
fn takeDescriptors() mounts.Files {
    for ([_]sys.Fd{ 0, 1, 2, machine_channel_fd }) |fd| {
        var digits: [20]u8 = undefined;
        const F_GETFD = 1;
        _ = sys.mustFor(linux.fcntl(fd, F_GETFD, 0), "descriptor", sys.decimal(@intCast(fd), &digits));
    }
    const manifest_size = memfd.verify(manifest_fd, "manifest", limits.manifest_bytes);
    const ca_bundle_size = memfd.verify(ca_bundle_fd, "CA bundle", limits.ca_bundle_bytes);
    const environment_size = memfd.verify(environment_fd, "private environment", limits.environment_bytes);
    _ = memfd.verify(start_script_fd, "start script", limits.start_script_bytes);

    memfd.read(manifest_fd, "manifest", manifest_text[0..manifest_size]);
    if (manifest.parse(manifest_text[0..manifest_size], &plan)) |problem| refuseManifest(problem);
    memfd.read(environment_fd, "private environment", environment_text[0..environment_size]);
    if (environment.parse(environment_text[0..environment_size], ca_bundle_size > 0, &hermes_environment)) |what| {
        sys.fail("private environment:", what, .INVAL);
    }
    _ = linux.close(manifest_fd);
    _ = linux.close(environment_fd);
    hermes_argv[0] = plan.program.?.ptr;
    for (plan.args[0..plan.arg_count], 1..) |argument, index| hermes_argv[index] = argument.ptr;
    return .{
        .program = sys.mustFd(sys.openRead("/proc/self/exe"), "open", "/proc/self/exe"),
        .start_script = start_script_fd,
        .ca_bundle = if (ca_bundle_size > 0) ca_bundle_fd else null,
    };
}

fn refuseManifest(problem: manifest.Problem) noreturn {
    if (problem.line == 0) sys.fail("manifest:", problem.what, .INVAL);
    var digits: [20]u8 = undefined;
    const number = sys.decimal(problem.line, &digits);
    var where: [64]u8 = undefined;
    const head = "manifest line ";
    @memcpy(where[0..head.len], head);
    @memcpy(where[head.len..][0..number.len], number);
    where[head.len + number.len] = ':';
    sys.fail(where[0 .. head.len + number.len + 1], problem.what, .INVAL);
}

fn enterNamespaces(host_uid: ?u32, link: sys.Fd) void {
    const uid = linux.geteuid();
    const gid = linux.getegid();
    if (host_uid != null) _ = sys.must(linux.setgroups(0, &[_]linux.gid_t{}), "setgroups");
    _ = sys.must(linux.unshare(sys.CLONE_NEWUSER), "unshare user namespace");
    if (host_uid != null) {
        control.send(link, "m");
        var answer: [1]u8 = undefined;
        if (control.receive(link, &answer, true) == null) sys.fail("relay: user mapping", "", .CONNRESET);
    } else {
        identity.mapOwn(uid, gid, false);
    }
    const kinds = sys.CLONE_NEWNS | sys.CLONE_NEWPID | sys.CLONE_NEWIPC | sys.CLONE_NEWUTS | sys.CLONE_NEWCGROUP;
    _ = sys.must(linux.unshare(kinds), "unshare mount, PID, IPC, UTS and cgroup namespace");
    mounts.makePrivate();
}

fn buildTree(files: mounts.Files, link: sys.Fd) void {
    // Inside the user namespace, as the mount will demand; and still as the user who may open it.
    const device = openFuse();
    const spare = openFuse();
    mounts.capture(&plan);
    identity.becomeInner();
    mounts.build(files);
    for ([_]sys.Fd{ files.program, ca_bundle_fd, start_script_fd }) |fd| _ = linux.close(fd);
    mounts.mountFuse(device);
    relay.cloneDevice(device, spare);
    control.sendDescriptors(link, .{ device, spare });
    // From here on the relay alone holds the device: its death ends the file system.
    _ = linux.close(device);
    _ = linux.close(spare);
    mounts.placeFuse();
    _ = linux.close(link);
}

fn openFuse() sys.Fd {
    return sys.mustFd(linux.openat(linux.AT.FDCWD, "/dev/fuse", .{ .ACCMODE = .RDWR, .CLOEXEC = true }, 0), "open", "/dev/fuse");
}

/// First byte of what init and Hermes' process say to outer before they end or become Hermes.
const says_pid = 'p';
const says_status = 's';
const says_failure = 'f';

fn runInit(inner: [2]sys.Fd, null_fd: sys.Fd, words: sys.Fd) noreturn {
    sys.nameProcess("edge-init");
    sys.report_fd = inner[1];
    process.dieWithParent();
    _ = linux.close(words);
    _ = linux.close(inner[0]);
    if (control.peerHasGone(inner[1])) linux.exit_group(sys.exit_failure);
    mounts.enter();
    const hermes = process.fork("Hermes") orelse becomeHermes(inner[1]);
    process.letGoOfPipes(null_fd);
    _ = linux.close(machine_channel_fd);
    identity.dropPrivileges();
    process.dieWithParent();
    seccomp.confineHolder();
    const status = process.reapUntil(hermes, false);
    var word: [5]u8 = undefined;
    word[0] = says_status;
    std.mem.writeInt(u32, word[1..], status.raw, .little);
    control.send(inner[1], &word);
    linux.exit_group(0);
}

fn becomeHermes(outer: sys.Fd) noreturn {
    _ = sys.must(linux.setsid(), "setsid");
    process.noCoreFiles();
    process.limitFiles(limits.holder_files);
    process.limitProcesses(limits.holder_processes);
    identity.dropPrivileges();
    control.send(outer, &[_]u8{says_pid});
    var answer: [1]u8 = undefined;
    if (control.receive(outer, &answer, true) == null) linux.exit_group(sys.exit_failure);
    _ = sys.must(linux.chdir("/workspace"), "chdir /workspace");
    sys.closeRange(machine_channel_fd + 1, -1, sys.CLOSE_RANGE_CLOEXEC);
    process.restoreSignals();
    seccomp.confineHolder();
    const rc = linux.execve(plan.program.?, &hermes_argv, &hermes_environment.entries);
    sys.fail("exec", plan.program.?, linux.errno(rc));
}

const Watched = struct {
    init: process.Pid,
    /// Null once it has ended and been reaped: its number may be another process' by then.
    relay: ?process.Pid,
    /// The machine's control stream.
    words: sys.Fd,
    /// This end of the pair with init and Hermes' process.
    inner: sys.Fd,
    /// Hermes, once it has said its pid.
    hermes: ?sys.Fd = null,
    machine: control.Machine = .{},
    /// Whether the machine has said `go`.
    went: bool = false,
    /// How Hermes ended, once init has said it.
    status: ?process.Status = null,
};

fn watch(start: Watched) noreturn {
    var watched = start;
    const signals = process.signalDescriptor();
    while (true) {
        var ready = [_]linux.pollfd{
            .{ .fd = signals, .events = linux.POLL.IN, .revents = 0 },
            .{ .fd = watched.words, .events = linux.POLL.IN, .revents = 0 },
            .{ .fd = watched.inner, .events = linux.POLL.IN, .revents = 0 },
        };
        const rc = linux.poll(&ready, ready.len, patience(&watched));
        if (linux.errno(rc) == .INTR) continue;
        if (sys.must(rc, "poll") == 0) onSilence(&watched);
        // What the inner processes said comes first: it explains their end.
        if (ready[2].revents != 0) hear(&watched);
        if (ready[0].revents != 0) onSignal(&watched, process.takeSignal(signals));
        if (ready[1].revents != 0) hearMachine(&watched);
    }
}

/// How long to wait for the next event, in milliseconds; -1 while there is nobody to be impatient with.
fn patience(watched: *const Watched) i32 {
    if (watched.inner < 0) return limits.end_ms;
    if (watched.hermes != null and !watched.went) return limits.machine_answer_ms;
    return -1;
}

fn onSilence(watched: *const Watched) void {
    if (watched.inner >= 0) end(watched, "wait for go", .TIMEDOUT);
    // Some process inside cannot die, because it waits for the machine's answer. Without the relay nobody waits.
    const relay_pid = watched.relay orelse return;
    sys.complain("the machine does not answer on the FUSE stream", "", .TIMEDOUT);
    process.killNow(relay_pid);
}

fn hearMachine(watched: *Watched) void {
    switch (watched.machine.hear(watched.words)) {
        .incomplete => {},
        .closed => end(watched, "the machine closed the control stream", .CONNRESET),
        .unknown => end(watched, "word of the machine", .PROTO),
        .go => {
            if (watched.hermes == null) end(watched, "go before the pid", .PROTO);
            watched.went = true;
            // Hermes' process may have died while it waited; then init tells how.
            if (watched.inner >= 0) control.sendIfHeard(watched.inner, "g");
        },
    }
}

var inner_message: [2048]u8 = undefined;

fn hear(watched: *Watched) void {
    // Looked at first: whatever was said before the other end closed is still there to be heard.
    const last_words = control.peerHasGone(watched.inner);
    while (control.receive(watched.inner, &inner_message, false)) |message| switch (message.bytes[0]) {
        says_pid => startHermes(watched, message.pid),
        says_status => {
            sys.assert(message.bytes.len == 5, "length of a status");
            watched.status = .{ .raw = std.mem.readInt(u32, message.bytes[1..5], .little) };
        },
        says_failure => _ = sys.sendAll(watched.words, message.bytes), // Said on standard error already.
        else => end(watched, "word of an inner process", .PROTO),
    };
    if (!last_words) return;
    // Init is ending: the signal of its end follows, once everything inside has died.
    _ = linux.close(watched.inner);
    watched.inner = -1;
}

fn startHermes(watched: *Watched, pid: process.Pid) void {
    sys.assert(pid > 0 and watched.hermes == null, "one pid of Hermes");
    watched.hermes = sys.mustFd(linux.pidfd_open(pid, 0), "pidfd of Hermes", "");
    control.announce(watched.words, pid);
}

fn onSignal(watched: *Watched, signal: u32) void {
    if (signal != process.SIGCHLD) {
        if (!watched.went) endBefore(watched, signal);
        // It may have ended already; then its end is on its way here.
        _ = linux.syscall4(.pidfd_send_signal, @intCast(watched.hermes.?), signal, 0, 0);
        return;
    }
    while (process.reap(false)) |ended| {
        if (ended.pid == watched.relay) {
            watched.relay = null;
            // Once init is ending, the relay may end first.
            if (watched.inner >= 0) end(watched, "the relay ended", .PIPE);
        }
        if (ended.pid == watched.init) onInitEnd(watched, ended.status);
    }
}

fn onInitEnd(watched: *Watched, init_status: process.Status) noreturn {
    if (watched.inner >= 0) hear(watched);
    if (watched.relay) |relay_pid| process.killNow(relay_pid);
    while (process.reap(true)) |_| {}
    if (watched.status) |status| process.endLike(status);
    // Init failed and said why, or was killed.
    if (init_status.signal() != 0) sys.fail("init was killed", "", .OWNERDEAD);
    linux.exit_group(sys.exit_failure);
}

/// Ends everything inside. Without the relay no process there can wait for the file system any more.
fn killAll(watched: *const Watched) void {
    process.killNow(watched.init);
    if (watched.relay) |relay_pid| process.killNow(relay_pid);
    while (process.reap(true)) |_| {}
}

fn end(watched: *const Watched, what: []const u8, e: sys.E) noreturn {
    killAll(watched);
    sys.fail(what, "", e);
}

/// A signal before Hermes runs is meant for this process alone.
fn endBefore(watched: *const Watched, signal: u32) noreturn {
    killAll(watched);
    process.endLike(.{ .raw = signal });
}
