//! The life of a holder's outer process once everything stands: it hears init, the machine and its own signals, and ends
//! when one of them does.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");
const control = @import("control.zig");

/// First byte of what init and Hermes' process say to outer before they end or become Hermes.
pub const says_pid = 'p';
pub const says_status = 's';
const says_failure = 'f';

pub const Watched = struct {
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

/// Watches until the end, which is Hermes' own wherever it has one.
pub fn run(start: Watched) noreturn {
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
