//! System calls that the standard library lacks or types too narrowly, and the one way in which this program fails:
//! `confined-exec <mode>: <what>: <ERRNO>` on standard error, exit code 126.
const std = @import("std");
const linux = std.os.linux;

pub const E = linux.E;
pub const Fd = i32;

/// Exit code of every failure of confined-exec itself.
pub const exit_failure: u8 = 126;
pub const exit_not_found: u8 = 127;

/// First word of every message: set once by each mode.
pub var mode: []const u8 = "";
/// Where a failure is also written as `fail <what>: <ERRNO>\n`; negative when nobody listens yet.
pub var report_fd: Fd = -1;

var message: [2048]u8 = undefined;

const Line = struct {
    len: usize = 0,

    fn add(line: *Line, text: []const u8) void {
        // One byte is kept for the line feed, so that a long path shortens the message and does not lose it.
        const room = message.len - 1 - line.len;
        const take = @min(room, text.len);
        @memcpy(message[line.len..][0..take], text[0..take]);
        line.len += take;
    }

    fn end(line: *Line) []const u8 {
        message[line.len] = '\n';
        return message[0 .. line.len + 1];
    }
};

pub fn errnoName(e: E) []const u8 {
    return std.enums.tagName(E, e) orelse "UNKNOWN";
}

fn describe(line: *Line, what: []const u8, object: []const u8, e: E) []const u8 {
    line.add(what);
    if (object.len > 0) {
        line.add(" ");
        line.add(object);
    }
    line.add(": E");
    line.add(errnoName(e));
    return line.end();
}

/// Names the failure on standard error and to whoever waits for it, without ending the process.
pub fn complain(what: []const u8, object: []const u8, e: E) void {
    var line: Line = .{};
    line.add("confined-exec ");
    line.add(mode);
    line.add(": ");
    const to_stderr = describe(&line, what, object, e);
    _ = linux.write(2, to_stderr.ptr, to_stderr.len);
    if (report_fd < 0) return;
    line = .{};
    line.add("fail ");
    const to_report = describe(&line, what, object, e);
    // Nobody may be listening any more; the message on standard error stands in any case.
    _ = linux.sendto(report_fd, to_report.ptr, to_report.len, MSG_NOSIGNAL, null, 0);
}

pub fn fail(what: []const u8, object: []const u8, e: E) noreturn {
    complain(what, object, e);
    linux.exit_group(exit_failure);
}

/// The result of a system call that has to succeed.
pub fn must(rc: usize, what: []const u8) usize {
    return mustFor(rc, what, "");
}

pub fn mustFor(rc: usize, what: []const u8, object: []const u8) usize {
    const e = linux.errno(rc);
    if (e != .SUCCESS) fail(what, object, e);
    return rc;
}

pub fn mustFd(rc: usize, what: []const u8, object: []const u8) Fd {
    return @intCast(mustFor(rc, what, object));
}

/// Holds in every build mode, unlike `std.debug.assert`, which a small release turns into a promise.
pub fn assert(holds: bool, comptime what: []const u8) void {
    if (!holds) fail("assertion " ++ what, "", .INVAL);
}

pub const MSG_NOSIGNAL = 0x4000;
pub const MSG_DONTWAIT = 0x40;
pub const O_CLOEXEC = 0x80000;

pub const CLONE_NEWNS = 0x00020000;
pub const CLONE_NEWCGROUP = 0x02000000;
pub const CLONE_NEWUTS = 0x04000000;
pub const CLONE_NEWIPC = 0x08000000;
pub const CLONE_NEWUSER = 0x10000000;
pub const CLONE_NEWPID = 0x20000000;
pub const CLONE_NEWNET = 0x40000000;

pub const PR_SET_PDEATHSIG = 1;
pub const PR_SET_DUMPABLE = 4;
pub const PR_SET_NAME = 15;
pub const PR_CAPBSET_READ = 23;
pub const PR_CAPBSET_DROP = 24;
pub const PR_SET_SECUREBITS = 28;
pub const PR_SET_NO_NEW_PRIVS = 38;
pub const PR_CAP_AMBIENT = 47;
pub const PR_CAP_AMBIENT_CLEAR_ALL = 4;

pub fn prctl(option: i32, argument: usize) usize {
    return linux.prctl(option, argument, 0, 0, 0);
}

/// At most 15 characters: what `ps` and `/proc/<pid>/comm` show.
pub fn nameProcess(comptime name: [:0]const u8) void {
    comptime std.debug.assert(name.len <= 15);
    _ = prctl(PR_SET_NAME, @intFromPtr(name.ptr)); // A label only: its failure changes nothing.
}

pub fn noNewPrivileges() void {
    _ = must(prctl(PR_SET_NO_NEW_PRIVS, 1), "no_new_privs");
}

/// Closes every descriptor from `first` on.
pub fn closeFrom(first: Fd) void {
    closeRange(first, -1, 0);
}

pub const CLOSE_RANGE_CLOEXEC = 4;

pub fn closeRange(first: Fd, last: Fd, flags: usize) void {
    const first_number: usize = @intCast(first);
    const last_number: usize = if (last < 0) std.math.maxInt(u32) else @intCast(last);
    _ = must(linux.syscall3(.close_range, first_number, last_number, flags), "close_range");
}

/// A path on the host, opened for reading and closed on exec.
pub fn openRead(path: [*:0]const u8) usize {
    return linux.openat(linux.AT.FDCWD, path, .{ .ACCMODE = .RDONLY, .CLOEXEC = true }, 0);
}

/// Writes all of a short text to a file of `/proc` or `/sys` with one call, as these files require.
pub fn writeFile(path: [*:0]const u8, text: []const u8) usize {
    const opened = linux.openat(linux.AT.FDCWD, path, .{ .ACCMODE = .WRONLY, .CLOEXEC = true }, 0);
    if (linux.errno(opened) != .SUCCESS) return opened;
    const fd: Fd = @intCast(opened);
    const written = linux.write(fd, text.ptr, text.len);
    _ = linux.close(fd);
    return written;
}

/// Decimal digits of `value`, written at the end of `buffer`.
pub fn decimal(value: u64, buffer: *[20]u8) []const u8 {
    var rest = value;
    var at: usize = buffer.len;
    while (true) {
        at -= 1;
        buffer[at] = '0' + @as(u8, @intCast(rest % 10));
        rest /= 10;
        if (rest == 0) return buffer[at..];
    }
}

/// The whole of `bytes` to a stream socket, as long as the peer reads.
pub fn sendAll(fd: Fd, bytes: []const u8) usize {
    var sent: usize = 0;
    while (sent < bytes.len) {
        const rc = linux.sendto(fd, bytes.ptr + sent, bytes.len - sent, MSG_NOSIGNAL, null, 0);
        switch (linux.errno(rc)) {
            .SUCCESS => sent += rc,
            .INTR => {},
            else => return rc,
        }
    }
    return sent;
}
