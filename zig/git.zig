//! `git`: what the programs of a holder find under that name. It asks the machine to run the call on the conversation's
//! files, carries what the call reads and writes, and is the native git where the machine says so.
//!
//! Frames on the socket: a letter, four bytes of length (little endian), the payload. See `machine/shell/protocol.ts`.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");
const request = @import("git-request.zig");
const user_config = @import("git-config.zig");
const native = @import("git-native.zig");

/// Where the machine listens for this holder alone.
const socket_path = "/opt/edge/git.sock";
/// Git's own exit code of a failure that is not the command's.
const exit_fatal: u8 = 128;
const header_bytes = 5;

pub const nameOfGit = request.nameOfGit;

pub const Start = struct {
    /// The subcommand that was part of the program's name, or empty.
    first: [:0]const u8,
    argv: [*:null]const ?[*:0]const u8,
    count: usize,
    variables: [*:null]const ?[*:0]const u8,
};

pub fn run(start: Start) noreturn {
    process.fillStandard();
    const signals = process.Interrupts.take();
    const words = start.argv[1..@max(start.count, 1)];
    const has_native = native.isInstalled();
    const frame = request.build(.{ .first = start.first, .words = words, .variables = start.variables, .has_native = has_native });
    const local: native.Call = .{ .argv = start.argv, .variables = start.variables, .signals = &signals };
    const socket = switch (frame) {
        .problem => |problem| {
            if (has_native) process.endLike(native.run(local));
            switch (problem) {
                .too_long => fatal("the command line, the environment or the configuration file is too long", .@"2BIG"),
                .no_directory => fatal("Unable to read current working directory", .NOENT),
            }
        },
        .bytes => |bytes| connect(bytes) orelse {
            if (has_native) process.endLike(native.run(local));
            fatal("git cannot be reached here", unreachable_because);
        },
    };
    var call: Call = .{ .socket = socket, .signals = &signals };
    call.carry();
    const status = native.run(local);
    call.tellEnd(status);
    process.endLike(status);
}

var unreachable_because: linux.E = .SUCCESS;

const SocketAddress = extern struct { family: u16, path: [limits.socket_path_bytes + 1]u8 };

/// Connects and says the call. Null where that fails: then nothing of it has been run.
fn connect(frame: []const u8) ?sys.Fd {
    const SOCK_STREAM = 1;
    const SOCK_CLOEXEC = 0x80000;
    const SOL_SOCKET = 1;
    const SO_SNDTIMEO = 21;
    const fd = sys.mustFd(linux.socket(linux.AF.UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0), "socket", "");
    const patience: extern struct { seconds: i64, micros: i64 } = .{ .seconds = limits.git_connect_seconds, .micros = 0 };
    const bytes = std.mem.asBytes(&patience);
    _ = sys.must(linux.setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, bytes.ptr, bytes.len), "setsockopt");
    var address: SocketAddress = .{ .family = linux.AF.UNIX, .path = @splat(0) };
    @memcpy(address.path[0..socket_path.len], socket_path);
    unreachable_because = linux.errno(linux.connect(fd, &address, @sizeOf(SocketAddress)));
    if (unreachable_because == .SUCCESS) {
        unreachable_because = linux.errno(sys.sendAll(fd, frame));
        if (unreachable_because == .SUCCESS) return fd;
    }
    _ = linux.close(fd);
    return null;
}

var incoming: [header_bytes + limits.git_frame_bytes]u8 = undefined;
/// Standard input on its way to the machine.
var outgoing: [header_bytes + limits.git_frame_bytes]u8 = undefined;

const Call = struct {
    socket: sys.Fd,
    signals: *const process.Interrupts,
    /// Bytes of the frame that is coming in.
    got: usize = 0,
    /// The part of a frame of output that is not written yet, and where it goes.
    output: []const u8 = "",
    output_fd: sys.Fd = 1,
    /// The part of a frame of input that is not sent yet.
    input: []const u8 = "",
    input_wanted: bool = false,
    /// The signal that the call was given up for, and when.
    aborted: ?u32 = null,

    const Turn = enum { goes_on, native };

    /// Carries until the machine says that the native git must do it. Every other end is this process' own.
    fn carry(self: *Call) void {
        const POLL = linux.POLL;
        while (true) {
            const reads_input = self.input_wanted and self.input.len == 0;
            var watched = [_]linux.pollfd{
                .{ .fd = self.signals.fd, .events = POLL.IN, .revents = 0 },
                // Nothing more is taken from the machine before what came is written: it waits as the reader does.
                .{ .fd = if (self.output.len > 0) -1 else self.socket, .events = POLL.IN, .revents = 0 },
                .{ .fd = if (self.output.len > 0) self.output_fd else -1, .events = POLL.OUT, .revents = 0 },
                .{ .fd = if (reads_input) 0 else -1, .events = POLL.IN, .revents = 0 },
                .{ .fd = if (self.input.len > 0) self.socket else -1, .events = POLL.OUT, .revents = 0 },
            };
            const patience: i32 = if (self.aborted != null) limits.git_abort_ms else -1;
            const rc = linux.poll(&watched, watched.len, patience);
            if (linux.errno(rc) == .INTR) continue;
            if (sys.must(rc, "poll") == 0) self.endAborted();
            if (watched[0].revents != 0) self.onSignal(self.signals.wait());
            if (watched[2].revents != 0) self.writeOutput();
            if (watched[3].revents != 0) self.readInput();
            if (watched[4].revents != 0) self.sendInput();
            if (watched[1].revents != 0 and self.receive() == .native) return;
        }
    }

    fn onSignal(self: *Call, signal: process.Interrupts.Signal) void {
        if (signal.number == process.SIGCHLD) return; // Of a child that the program before this one had.
        if (self.aborted != null) process.endLike(.{ .raw = signal.number });
        self.aborted = signal.number;
        self.output = "";
        self.input_wanted = false;
        if (self.input.len > 0) process.endLike(.{ .raw = signal.number }); // In the middle of a frame: closing says it too.
        const abort = [_]u8{ 'K', 1, 0, 0, 0, @intCast(signal.number) };
        const rc = linux.sendto(self.socket, &abort, abort.len, sys.MSG_NOSIGNAL | sys.MSG_DONTWAIT, null, 0);
        if (linux.errno(rc) != .SUCCESS or rc != abort.len) self.endAborted();
    }

    /// As git ends when it is interrupted.
    fn endAborted(self: *const Call) noreturn {
        process.endLike(.{ .raw = self.aborted.? });
    }

    fn writeOutput(self: *Call) void {
        // A pipe that has room takes this much at once; more could keep signals waiting.
        const part = self.output[0..@min(self.output.len, limits.git_write_bytes)];
        const rc = linux.write(self.output_fd, part.ptr, part.len);
        switch (linux.errno(rc)) {
            .SUCCESS => self.output = self.output[rc..],
            .AGAIN, .INTR => {},
            // Reached where the caller ignores the signal: git, too, ends by it then.
            .PIPE => process.endLike(.{ .raw = process.SIGPIPE }),
            else => |e| fatal("write error", e),
        }
    }

    fn readInput(self: *Call) void {
        const rc = linux.read(0, outgoing[header_bytes..].ptr, limits.git_frame_bytes);
        const count = switch (linux.errno(rc)) {
            .SUCCESS => rc,
            .AGAIN, .INTR => return,
            else => 0, // Closed, or a terminal that is not this process': nothing more to read.
        };
        outgoing[0] = 'I';
        std.mem.writeInt(u32, outgoing[1..5], @intCast(count), .little);
        self.input = outgoing[0 .. header_bytes + count];
        if (count == 0) self.input_wanted = false;
    }

    fn sendInput(self: *Call) void {
        const rc = linux.sendto(self.socket, self.input.ptr, self.input.len, sys.MSG_NOSIGNAL | sys.MSG_DONTWAIT, null, 0);
        switch (linux.errno(rc)) {
            .SUCCESS => self.input = self.input[rc..],
            .AGAIN, .INTR => {},
            // The machine wants no more; what it has to say is still to be read.
            else => {
                self.input = "";
                self.input_wanted = false;
            },
        }
    }

    /// Reads from the socket, at most to the end of one frame.
    fn receive(self: *Call) Turn {
        const wanted = if (self.got < header_bytes) header_bytes else header_bytes + self.payloadLength();
        const rc = linux.recvfrom(self.socket, incoming[self.got..].ptr, wanted - self.got, sys.MSG_DONTWAIT, null, null);
        switch (linux.errno(rc)) {
            .SUCCESS => {},
            .AGAIN, .INTR => return .goes_on,
            else => |e| self.lost(e),
        }
        if (rc == 0) self.lost(.CONNRESET);
        self.got += rc;
        if (self.got < header_bytes) return .goes_on;
        if (self.payloadLength() > limits.git_frame_bytes) fatal("a frame of git's machine", .PROTO);
        if (self.got < header_bytes + self.payloadLength()) return .goes_on;
        self.got = 0;
        return self.take(incoming[0], incoming[header_bytes..][0..self.payloadLength()]);
    }

    fn payloadLength(_: *const Call) usize {
        return std.mem.readInt(u32, incoming[1..5], .little);
    }

    fn lost(self: *const Call, e: linux.E) noreturn {
        if (self.aborted != null) self.endAborted();
        fatal("the connection to git's machine was lost", e);
    }

    fn take(self: *Call, kind: u8, payload: []const u8) Turn {
        switch (kind) {
            'O', 'R' => if (self.aborted == null) {
                self.output_fd = if (kind == 'O') 1 else 2;
                self.output = payload;
            },
            'S' => self.input_wanted = self.aborted == null,
            'P' => self.putConfig(payload),
            'X' => {
                if (self.aborted != null) self.endAborted();
                if (payload.len != 1) fatal("a frame of git's machine", .PROTO);
                linux.exit_group(payload[0]);
            },
            'N' => {
                if (self.aborted != null) self.endAborted();
                return .native;
            },
            else => fatal("a frame of git's machine", .PROTO),
        }
        return .goes_on;
    }

    fn putConfig(self: *Call, text: []const u8) void {
        self.tell('W', @backingInt(user_config.replace(text)));
    }

    /// Says how the native git ended; the machine keeps the ledger. Nobody may be listening any more.
    fn tellEnd(self: *const Call, status: process.Status) void {
        self.tell('E', status.raw);
    }

    fn tell(self: *const Call, kind: u8, number: u32) void {
        var frame: [header_bytes + 4]u8 = undefined;
        frame[0] = kind;
        std.mem.writeInt(u32, frame[1..5], 4, .little);
        std.mem.writeInt(u32, frame[5..9], number, .little);
        _ = sys.sendAll(self.socket, &frame);
    }
};

/// `fatal: <what>: <ERRNO>`, as git says what is not the command's own failure.
fn fatal(what: []const u8, e: linux.E) noreturn {
    var line: [256]u8 = undefined;
    var length: usize = 0;
    for ([_][]const u8{ "fatal: ", what, ": E", sys.errnoName(e), "\n" }) |part| {
        const take = @min(part.len, line.len - length);
        @memcpy(line[length..][0..take], part[0..take]);
        length += take;
    }
    _ = linux.write(2, &line, length);
    linux.exit_group(exit_fatal);
}
