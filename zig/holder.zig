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
const watch = @import("watch.zig");
const cgroup = @import("cgroup.zig");

const manifest_fd: sys.Fd = 4;
const ca_bundle_fd: sys.Fd = 5;
const environment_fd: sys.Fd = 6;
const start_script_fd: sys.Fd = 7;
/// Hermes keeps 0, 1, 2 and this one: the machine channel.
const machine_channel_fd: sys.Fd = 3;
/// Where the FUSE device goes when the manifest says so.
const device_socket_fd: sys.Fd = 8;

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
    sys.closeFrom(device_socket_fd + 1);
    preferAsVictim();
    const files = takeDescriptors();
    const device_socket = takeDeviceSocket();
    const null_fd = process.openNull();
    const groups = cgroup.open(&plan);

    const words = control.connect(plan.fuse_socket.?, plan.fuse_token.?, .control);
    sys.report_fd = words;
    const stream = control.connect(plan.fuse_socket.?, plan.fuse_token.?, .fuse_stream);
    const host_uid: ?u32 = if (linux.geteuid() == 0) plan.uid orelse sys.fail("manifest: no uid, and this is root", "", .INVAL) else null;

    const link = control.pair();
    const relay_pid = process.fork("relay") orelse relay.run(.{ .stream = stream, .link = link[1], .device_socket = device_socket, .null_fd = null_fd, .host_uid = host_uid });
    if (device_socket) |fd| _ = linux.close(fd);
    _ = linux.close(link[1]);
    _ = linux.close(stream);

    enterNamespaces(host_uid, link[0]);
    buildTree(files, link[0]);
    process.notDumpable();
    process.dieWithParent();
    if (linux.getppid() != machine) sys.fail("the machine has gone", "", .SRCH);

    const inner = control.pair();
    const init = process.fork("init") orelse runInit(inner, null_fd, words, groups);
    _ = linux.close(inner[1]);
    groups.close();
    process.letGoOfPipes(null_fd);
    _ = linux.close(machine_channel_fd);
    identity.dropPrivileges();
    process.dieWithParent();
    seccomp.confineHolder();
    watch.run(.{ .init = init, .relay = relay_pid, .words = words, .inner = inner[0] });
}

/// When memory runs out, the kernel ends holders before the machine and the gateway. A wish, not a protection: where it
/// cannot be written nothing else changes.
fn preferAsVictim() void {
    _ = sys.writeFile("/proc/self/oom_score_adj", "500");
}

/// Verifies and reads the four memfds. What has been read is closed; what is copied later is returned.
fn takeDescriptors() mounts.Files {
    for ([_]sys.Fd{ 0, 1, 2, machine_channel_fd }) |fd| mustBeOpen(fd);
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

fn mustBeOpen(fd: sys.Fd) void {
    var digits: [20]u8 = undefined;
    const F_GETFD = 1;
    _ = sys.mustFor(linux.fcntl(fd, F_GETFD, 0), "descriptor", sys.decimal(@intCast(fd), &digits));
}

/// The socket that takes the FUSE device; null when the machine does not read it by itself.
fn takeDeviceSocket() ?sys.Fd {
    if (plan.gives_device) {
        mustBeOpen(device_socket_fd);
        return device_socket_fd;
    }
    _ = linux.close(device_socket_fd); // It may not even be open.
    return null;
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
    const kinds = sys.CLONE_NEWNS | sys.CLONE_NEWPID | sys.CLONE_NEWIPC | sys.CLONE_NEWUTS;
    _ = sys.must(linux.unshare(kinds), "unshare mount, PID, IPC and UTS namespace");
    mounts.makePrivate();
}

fn buildTree(files: mounts.Files, link: sys.Fd) void {
    // Inside the user namespace, as the mount will demand; and still as the user who may open it.
    const device = openFuse();
    const spare = openFuse();
    mounts.capture(&plan);
    identity.becomeInner();
    mounts.build(files, &plan);
    for ([_]sys.Fd{ files.program, ca_bundle_fd, start_script_fd }) |fd| _ = linux.close(fd);
    mounts.mountFuse(device);
    relay.cloneDevice(device, spare);
    control.sendDescriptors(link, 2, .{ device, spare });
    // From here on the relay holds the device, and the machine where it reads it: their end ends the file system.
    _ = linux.close(device);
    _ = linux.close(spare);
    mounts.placeFuse();
    _ = linux.close(link);
}

fn openFuse() sys.Fd {
    return sys.mustFd(linux.openat(linux.AT.FDCWD, "/dev/fuse", .{ .ACCMODE = .RDWR, .CLOEXEC = true }, 0), "open", "/dev/fuse");
}

fn runInit(inner: [2]sys.Fd, null_fd: sys.Fd, words: sys.Fd, groups: cgroup.Groups) noreturn {
    sys.nameProcess("edge-init");
    sys.report_fd = inner[1];
    process.dieWithParent();
    _ = linux.close(words);
    _ = linux.close(inner[0]);
    if (control.peerHasGone(inner[1])) linux.exit_group(sys.exit_failure);
    groups.enter();
    mounts.enter();
    const hermes = process.fork("Hermes") orelse becomeHermes(inner[1]);
    process.letGoOfPipes(null_fd);
    _ = linux.close(machine_channel_fd);
    identity.dropPrivileges();
    process.dieWithParent();
    seccomp.confineHolder();
    const status = process.reapUntil(hermes, false);
    var word: [5]u8 = undefined;
    word[0] = watch.says_status;
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
    control.send(outer, &[_]u8{watch.says_pid});
    var answer: [1]u8 = undefined;
    if (control.receive(outer, &answer, true) == null) linux.exit_group(sys.exit_failure);
    _ = sys.must(linux.chdir("/workspace"), "chdir /workspace");
    sys.closeRange(machine_channel_fd + 1, -1, sys.CLOSE_RANGE_CLOEXEC);
    process.restoreSignals();
    seccomp.confineHolder();
    const rc = linux.execve(plan.program.?, &hermes_argv, &hermes_environment.entries);
    sys.fail("exec", plan.program.?, linux.errno(rc));
}
