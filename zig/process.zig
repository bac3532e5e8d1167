//! Processes and their ends: forks, signals that are waited for instead of handled, parent-death signals, the loop of a
//! namespace's first process, and the passing on of an exit.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

pub const Pid = i32;

const SIGHUP = 1;
const SIGINT = 2;
const SIGQUIT = 3;
const SIGKILL = 9;
const SIGUSR1 = 10;
const SIGUSR2 = 12;
pub const SIGPIPE = 13;
pub const SIGTERM = 15;
pub const SIGCHLD = 17;
const last_signal = 64;
const SIGSTOP = 19;

/// The kernel's signal set: one bit a signal, from signal 1.
const Set = u64;
const set_bytes = @sizeOf(Set);

fn bit(signal: u6) Set {
    return @as(Set, 1) << (signal - 1);
}

const waited = bit(SIGCHLD) | bit(SIGTERM) | bit(SIGINT) | bit(SIGHUP) | bit(SIGQUIT) | bit(SIGUSR1) | bit(SIGUSR2);

fn setMask(set: Set) void {
    const SIG_SETMASK = 2;
    _ = sys.must(linux.syscall4(.rt_sigprocmask, SIG_SETMASK, @intFromPtr(&set), 0, set_bytes), "sigprocmask");
}

/// From here on the signals of this program are waited for, never handled: no code runs between other code.
pub fn blockSignals() void {
    setMask(waited);
}

/// What a program expects to find: no signal blocked, none ignored.
pub fn restoreSignals() void {
    var signal: usize = 1;
    const default = std.mem.zeroes([4]usize);
    while (signal <= last_signal) : (signal += 1) {
        if (signal == SIGKILL or signal == SIGSTOP) continue;
        _ = sys.must(linux.syscall4(.rt_sigaction, signal, @intFromPtr(&default), 0, set_bytes), "sigaction");
    }
    setMask(0);
}

/// A descriptor that becomes readable when one of the waited signals is pending.
pub fn signalDescriptor() sys.Fd {
    const set: Set = waited;
    const SFD_CLOEXEC = 0x80000;
    const rc = linux.syscall4(.signalfd4, std.math.maxInt(usize), @intFromPtr(&set), set_bytes, SFD_CLOEXEC);
    return sys.mustFd(rc, "signalfd", "");
}

/// Takes one pending signal from a descriptor of `signalDescriptor` that is readable.
pub fn takeSignal(fd: sys.Fd) u32 {
    var info: [128]u8 align(8) = undefined;
    const got = sys.must(linux.read(fd, &info, info.len), "signalfd read");
    sys.assert(got == info.len, "signalfd record");
    return std.mem.readInt(u32, info[0..4], .little);
}

fn waitSignal() u32 {
    const set: Set = waited;
    while (true) {
        const rc = linux.syscall4(.rt_sigtimedwait, @intFromPtr(&set), 0, 0, set_bytes);
        if (linux.errno(rc) == .INTR) continue;
        return @intCast(sys.must(rc, "sigtimedwait"));
    }
}

/// Back to what a signal does by itself.
pub fn defaultAction(signal: u32) void {
    const default = std.mem.zeroes([4]usize);
    _ = sys.must(linux.syscall4(.rt_sigaction, signal, @intFromPtr(&default), 0, set_bytes), "sigaction");
}

fn isIgnored(signal: u32) bool {
    const SIG_IGN = 1;
    var action: [4]usize = undefined;
    _ = sys.must(linux.syscall4(.rt_sigaction, signal, 0, @intFromPtr(&action), set_bytes), "sigaction");
    return action[0] == SIG_IGN;
}

/// The signals that ask a program to end, waited for instead of suffered; what the caller had made it ignore stays ignored.
pub const Interrupts = struct {
    fd: sys.Fd,
    set: Set,
    /// The mask that the program was started with.
    before: Set,

    pub const Signal = struct {
        number: u32,
        /// Sent by a process to this one; the kernel sends those of the terminal to all of its group.
        from_process: bool,
    };

    pub fn take() Interrupts {
        var set: Set = bit(SIGCHLD);
        for ([_]u6{ SIGHUP, SIGINT, SIGQUIT, SIGTERM }) |signal| if (!isIgnored(signal)) {
            set |= bit(signal);
        };
        var before: Set = 0;
        const SIG_BLOCK = 0;
        _ = sys.must(linux.syscall4(.rt_sigprocmask, SIG_BLOCK, @intFromPtr(&set), @intFromPtr(&before), set_bytes), "sigprocmask");
        const SFD_CLOEXEC = 0x80000;
        const rc = linux.syscall4(.signalfd4, std.math.maxInt(usize), @intFromPtr(&set), set_bytes, SFD_CLOEXEC);
        return .{ .fd = sys.mustFd(rc, "signalfd", ""), .set = set, .before = before };
    }

    /// The next one.
    pub fn wait(self: *const Interrupts) Signal {
        var info: [128]u8 align(8) = undefined;
        while (true) {
            const rc = linux.read(self.fd, &info, info.len);
            if (linux.errno(rc) == .INTR) continue;
            const got = sys.must(rc, "signalfd read");
            sys.assert(got == info.len, "signalfd record");
            const code = std.mem.readInt(i32, info[8..12], .little);
            return .{ .number = std.mem.readInt(u32, info[0..4], .little), .from_process = code <= 0 };
        }
    }

    pub fn restore(self: *const Interrupts) void {
        setMask(self.before);
    }
};

/// Null in the child.
pub fn fork(what: []const u8) ?Pid {
    const pid: Pid = @intCast(sys.mustFor(linux.fork(), "fork", what));
    return if (pid == 0) null else pid;
}

/// Dies with its parent: the parent thread that forked it. A change of ids forgets this, so it is said again after one.
pub fn dieWithParent() void {
    _ = sys.must(sys.prctl(sys.PR_SET_PDEATHSIG, SIGKILL), "parent-death signal");
}

/// Whether the parent, which alone keeps the reading end of a pipe, died before `dieWithParent` could notice.
pub fn readerHasGone(write_end: sys.Fd) bool {
    var watched = [_]linux.pollfd{.{ .fd = write_end, .events = 0, .revents = 0 }};
    _ = sys.must(linux.poll(&watched, watched.len, 0), "poll");
    return watched[0].revents & (linux.POLL.ERR | linux.POLL.HUP) != 0;
}

pub fn notDumpable() void {
    _ = sys.must(sys.prctl(sys.PR_SET_DUMPABLE, 0), "not dumpable");
}

/// The state in which `waitpid` left a process.
pub const Status = struct {
    raw: u32,

    pub fn signal(self: Status) u32 {
        return self.raw & 0x7f;
    }

    pub fn code(self: Status) u8 {
        return @intCast((self.raw >> 8) & 0xff);
    }
};

pub const Ended = struct { pid: Pid, status: Status };

/// One ended child, or null: when there is none (`wait` false), or no child at all.
pub fn reap(wait: bool) ?Ended {
    const WNOHANG = 1;
    var raw: u32 = 0;
    while (true) {
        const flags: usize = if (wait) 0 else WNOHANG;
        const rc = linux.syscall4(.wait4, @bitCast(@as(isize, -1)), @intFromPtr(&raw), flags, 0);
        switch (linux.errno(rc)) {
            .SUCCESS => return if (rc == 0) null else .{ .pid = @intCast(rc), .status = .{ .raw = raw } },
            .INTR => {},
            .CHILD => return null,
            else => sys.fail("waitpid", "", linux.errno(rc)),
        }
    }
}

pub fn kill(pid: Pid, signal: u32) void {
    sys.assert(pid > 0, "kill one process");
    // An ended process cannot be signalled, which is as good.
    _ = linux.syscall2(.kill, @intCast(pid), signal);
}

pub fn killNow(pid: Pid) void {
    kill(pid, SIGKILL);
}

/// The life of a namespace's first process: reaps whatever ends, forwards signals to `main` where `forwards`, and returns
/// how `main` ended. Everything else in the namespace dies when the caller exits.
pub fn reapUntil(main: Pid, forwards: bool) Status {
    while (true) {
        const signal = waitSignal();
        if (signal == SIGCHLD) {
            while (reap(false)) |ended| if (ended.pid == main) return ended.status;
        } else if (forwards) {
            kill(main, signal);
        }
    }
}

/// Ends this process in the way in which the other ended.
pub fn endLike(status: Status) noreturn {
    const signal = status.signal();
    if (signal == 0) linux.exit_group(status.code());
    restoreSignals();
    _ = linux.syscall2(.kill, @intCast(linux.getpid()), signal);
    // Reached by a signal whose default is not to end the process, and by the first process of a namespace.
    linux.exit_group(@intCast(128 + (signal & 0x7f)));
}

/// Out of the terminal's process group: a Ctrl-C is the gateway's to answer, which ends the others in order. The leader of
/// a group, started by hand, stays in it.
pub fn leaveTerminal() void {
    const rc = linux.setsid();
    if (linux.errno(rc) != .PERM) _ = sys.must(rc, "setsid");
}

/// Puts `/dev/null` where standard input, output or error is closed, so that nothing else that is opened gets their numbers.
pub fn fillStandard() void {
    while (true) {
        const fd = openNull();
        if (fd > 2) {
            _ = linux.close(fd);
            return;
        }
        const F_SETFD = 2;
        _ = sys.must(linux.fcntl(fd, F_SETFD, 0), "standard descriptor");
    }
}

pub fn openNull() sys.Fd {
    const path = "/dev/null";
    return sys.mustFd(linux.openat(linux.AT.FDCWD, path, .{ .ACCMODE = .RDWR, .CLOEXEC = true }, 0), "open", path);
}

/// Puts `/dev/null` on standard input and output, so that a waiting process holds nobody's pipe open.
pub fn letGoOfPipes(null_fd: sys.Fd) void {
    _ = sys.must(linux.dup3(null_fd, 0, 0), "dup3");
    _ = sys.must(linux.dup3(null_fd, 1, 0), "dup3");
}

const RLIMIT_CORE = 4;
const RLIMIT_NPROC = 6;
const RLIMIT_NOFILE = 7;
const Limit = extern struct { soft: u64, hard: u64 };

/// Sets both limits of `resource`, or the hard limit that already stands when it is lower and may not be raised.
fn setLimit(resource: usize, value: u64, what: []const u8) void {
    const wanted: Limit = .{ .soft = value, .hard = value };
    const rc = linux.syscall4(.prlimit64, 0, resource, @intFromPtr(&wanted), 0);
    if (linux.errno(rc) != .PERM) {
        _ = sys.must(rc, what);
        return;
    }
    var now: Limit = undefined;
    _ = sys.must(linux.syscall4(.prlimit64, 0, resource, 0, @intFromPtr(&now)), what);
    sys.assert(now.hard < value, "only a raise is refused");
    const highest: Limit = .{ .soft = now.hard, .hard = now.hard };
    _ = sys.must(linux.syscall4(.prlimit64, 0, resource, @intFromPtr(&highest), 0), what);
}

pub fn limitFiles(files: u64) void {
    setLimit(RLIMIT_NOFILE, files, "limit of files");
}

pub fn limitProcesses(processes: u64) void {
    setLimit(RLIMIT_NPROC, processes, "limit of processes");
}

pub fn noCoreFiles() void {
    setLimit(RLIMIT_CORE, 0, "limit of core files");
}
