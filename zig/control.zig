//! A holder's words: with the machine over the unix socket of the manifest, and between its own processes.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");

pub const Purpose = enum(u8) { fuse_stream = 'F', control = 'C' };

const SocketAddress = extern struct { family: u16, path: [limits.socket_path_bytes + 1]u8 };

const SOCK_STREAM = 1;
const SOCK_SEQPACKET = 5;
const SOCK_CLOEXEC = 0x80000;
const SOL_SOCKET = 1;
const SO_SNDBUF = 7;
const SO_PASSCRED = 16;
const SO_SNDTIMEO = 21;
const SO_SNDBUFFORCE = 32;
const SCM_RIGHTS = 1;
const SCM_CREDENTIALS = 2;

/// Connects to the machine and says the 65 bytes by which it knows the holder and the purpose.
pub fn connect(path: [:0]const u8, token: []const u8, purpose: Purpose) sys.Fd {
    const fd = sys.mustFd(linux.socket(linux.AF.UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket", "");
    // A machine that no longer accepts must not hold a holder for ever.
    const patience: extern struct { seconds: i64, micros: i64 } = .{ .seconds = limits.machine_answer_ms / 1000, .micros = 0 };
    setOption(fd, SO_SNDTIMEO, std.mem.asBytes(&patience));
    var address: SocketAddress = .{ .family = linux.AF.UNIX, .path = @splat(0) };
    sys.assert(path.len <= limits.socket_path_bytes, "socket path");
    @memcpy(address.path[0..path.len], path);
    _ = sys.mustFor(linux.connect(fd, &address, @sizeOf(SocketAddress)), "connect fuse-socket", path);
    var hello: [limits.token_bytes + 1]u8 = undefined;
    @memcpy(hello[0..limits.token_bytes], token);
    hello[limits.token_bytes] = @backingInt(purpose);
    _ = sys.must(sys.sendAll(fd, &hello), "greet the machine");
    if (purpose == .fuse_stream) growBuffer(fd);
    return fd;
}

fn setOption(fd: sys.Fd, option: u32, value: []const u8) void {
    _ = sys.must(linux.setsockopt(fd, SOL_SOCKET, option, value.ptr, @intCast(value.len)), "setsockopt");
}

/// Lets one whole FUSE message fit into the socket where the host allows that. Smaller buffers only cost more turns.
fn growBuffer(fd: sys.Fd) void {
    const bytes: i32 = 2 * limits.fuse_message;
    const value = std.mem.asBytes(&bytes);
    const forced = linux.setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, value.ptr, value.len);
    if (linux.errno(forced) != .SUCCESS) _ = linux.setsockopt(fd, SOL_SOCKET, SO_SNDBUF, value.ptr, value.len);
}

/// Two ends that keep messages apart. The first end also learns the sender's pid.
pub fn pair() [2]sys.Fd {
    var ends: [2]sys.Fd = undefined;
    _ = sys.must(linux.socketpair(linux.AF.UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, &ends), "socketpair");
    const on: i32 = 1;
    setOption(ends[0], SO_PASSCRED, std.mem.asBytes(&on));
    return ends;
}

/// One message. The peer's death is an error like any other: whoever sends here cannot go on without it.
pub fn send(fd: sys.Fd, bytes: []const u8) void {
    const sent = sys.must(linux.sendto(fd, bytes.ptr, bytes.len, sys.MSG_NOSIGNAL, null, 0), "send within the holder");
    sys.assert(sent == bytes.len, "a whole message");
}

/// One message to a process that may have gone.
pub fn sendIfHeard(fd: sys.Fd, bytes: []const u8) void {
    const rc = linux.sendto(fd, bytes.ptr, bytes.len, sys.MSG_NOSIGNAL, null, 0);
    if (linux.errno(rc) != .PIPE) _ = sys.must(rc, "send within the holder");
}

const ControlHeader = extern struct { length: usize, level: i32, kind: i32 };
const Credentials = extern struct { pid: i32, uid: u32, gid: u32 };
const credential_space = @sizeOf(ControlHeader) + 16;

pub const Message = struct {
    bytes: []u8,
    /// The sender as this process's own PID namespace counts; 0 when the kernel attached none.
    pid: process.Pid,
};

/// The next message with its sender, or null: none now (`wait` false), or no sender left.
pub fn receive(fd: sys.Fd, buffer: []u8, wait: bool) ?Message {
    var control: [credential_space]u8 align(8) = @splat(0);
    var vector = [_]std.posix.iovec{.{ .base = buffer.ptr, .len = buffer.len }};
    var header: linux.msghdr = std.mem.zeroes(linux.msghdr);
    header.iov = &vector;
    header.iovlen = 1;
    header.control = &control;
    header.controllen = control.len;
    while (true) {
        const rc = linux.recvmsg(fd, &header, if (wait) 0 else sys.MSG_DONTWAIT);
        switch (linux.errno(rc)) {
            .SUCCESS => {
                if (rc == 0) return null;
                return .{ .bytes = buffer[0..rc], .pid = senderOf(&control) };
            },
            .INTR => {},
            .AGAIN, .CONNRESET => return null,
            else => sys.fail("receive within the holder", "", linux.errno(rc)),
        }
    }
}

fn senderOf(control: *align(8) const [credential_space]u8) process.Pid {
    const header: *const ControlHeader = @ptrCast(control);
    if (header.level != SOL_SOCKET or header.kind != SCM_CREDENTIALS) return 0;
    const credentials: *const Credentials = @ptrCast(@alignCast(control[@sizeOf(ControlHeader)..]));
    return credentials.pid;
}

/// Whether nobody holds the other end of a pair any more. What was sent before can still be received.
pub fn peerHasGone(fd: sys.Fd) bool {
    var watched = [_]linux.pollfd{.{ .fd = fd, .events = 0, .revents = 0 }};
    _ = sys.must(linux.poll(&watched, watched.len, 0), "poll");
    return watched[0].revents & (linux.POLL.ERR | linux.POLL.HUP) != 0;
}

fn Rights(comptime count: usize) type {
    return extern struct {
        header: ControlHeader,
        fds: [count]sys.Fd,

        /// Without what an odd number leaves unused behind it.
        const length = @sizeOf(ControlHeader) + count * @sizeOf(sys.Fd);
    };
}

/// One message with descriptors. The receiver's end is an error like any other.
pub fn sendDescriptors(fd: sys.Fd, comptime count: usize, fds: [count]sys.Fd) void {
    const Sent = Rights(count);
    var rights: Sent = .{ .header = .{ .length = Sent.length, .level = SOL_SOCKET, .kind = SCM_RIGHTS }, .fds = fds };
    const byte: [1]u8 = .{'f'};
    const vector = [_]std.posix.iovec_const{.{ .base = &byte, .len = 1 }};
    var header: linux.msghdr_const = std.mem.zeroes(linux.msghdr_const);
    header.iov = &vector;
    header.iovlen = 1;
    header.control = &rights;
    header.controllen = @sizeOf(Sent);
    _ = sys.must(linux.sendmsg(fd, &header, sys.MSG_NOSIGNAL), "send the FUSE device");
}

pub fn receiveDescriptors(fd: sys.Fd) [2]sys.Fd {
    const MSG_CMSG_CLOEXEC = 0x40000000;
    var rights: Rights(2) = undefined;
    var byte: [1]u8 = undefined;
    var vector = [_]std.posix.iovec{.{ .base = &byte, .len = 1 }};
    var header: linux.msghdr = std.mem.zeroes(linux.msghdr);
    header.iov = &vector;
    header.iovlen = 1;
    header.control = &rights;
    header.controllen = @sizeOf(Rights(2));
    const got = sys.must(linux.recvmsg(fd, &header, MSG_CMSG_CLOEXEC), "receive the FUSE device");
    // The holder failed before it came so far, and has said why.
    if (got == 0) linux.exit_group(sys.exit_failure);
    sys.assert(header.controllen >= Rights(2).length and rights.header.kind == SCM_RIGHTS, "two descriptors");
    return rights.fds;
}

/// Tells the machine Hermes' pid. Its `go` follows once the gate on the private files is armed.
pub fn announce(control: sys.Fd, pid: process.Pid) void {
    var line: [32]u8 = undefined;
    var digits: [20]u8 = undefined;
    const number = sys.decimal(@intCast(pid), &digits);
    @memcpy(line[0..4], "pid ");
    @memcpy(line[4..][0..number.len], number);
    line[4 + number.len] = '\n';
    _ = sys.must(sys.sendAll(control, line[0 .. 5 + number.len]), "tell the machine the pid");
}

/// What the machine says on the control stream: `go` once, and then nothing until its end.
pub const Machine = struct {
    heard: [expected.len]u8 = undefined,
    length: usize = 0,

    const expected = "go\n";

    pub const Word = enum { incomplete, go, closed, unknown };

    /// Reads from a stream that is readable.
    pub fn hear(self: *Machine, control: sys.Fd) Word {
        if (self.length == expected.len) {
            var more: [1]u8 = undefined;
            return if (read(control, &more) == 0) .closed else .unknown;
        }
        const got = read(control, self.heard[self.length..]);
        if (got == 0) return .closed;
        self.length += got;
        if (!std.mem.startsWith(u8, expected, self.heard[0..self.length])) return .unknown;
        return if (self.length == expected.len) .go else .incomplete;
    }

    fn read(control: sys.Fd, into: []u8) usize {
        const rc = linux.read(control, into.ptr, into.len);
        // A machine that dies with unread bytes resets the stream, which is an end like any other.
        if (linux.errno(rc) == .CONNRESET) return 0;
        return sys.must(rc, "read from the control stream");
    }
};
