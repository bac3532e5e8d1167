//! The relay: outside of every namespace of the holder, between the kernel's FUSE device and the machine's socket. It
//! knows of a message only its length, and whether it is a reply or a notification.
//!
//! Where the machine reads the device by itself, the relay only watches it while the machine does not: it says once that
//! there is something to read, and watches again when it is told to. Then the machine has the device too, and closes it when
//! this stream ends; so the end of either still ends the file system.
//!
//! A notification may wait in the kernel for a lock whose owner waits for a reply. So those go through a process of their
//! own, on a device of their own (`FUSE_DEV_IOC_CLONE`): the relay's death ends the requests it had read even
//! while that process is stuck.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");
const identity = @import("identity.zig");
const control = @import("control.zig");
const fuse = @import("fuse.zig");
const seccomp = @import("seccomp.zig");

pub const Start = struct {
    /// The `F` stream to the machine.
    stream: sys.Fd,
    /// This end of the pair with the holder's outer process.
    link: sys.Fd,
    /// Takes the device to the machine; null where the machine gets the requests from here.
    device_socket: ?sys.Fd,
    null_fd: sys.Fd,
    /// Host user to map and to become; null when the holder runs as an ordinary user.
    host_uid: ?u32,
};

/// A second descriptor of the same FUSE connection.
pub fn cloneDevice(device: sys.Fd, spare: sys.Fd) void {
    const number: u32 = @intCast(device);
    _ = sys.must(linux.ioctl(spare, fuse.clone_device, @intFromPtr(&number)), "clone the FUSE device");
}

/// The life of the relay process, forked by the holder's outer process before any namespace exists.
pub fn run(start: Start) noreturn {
    sys.nameProcess("edge-relay");
    // The control stream is outer's alone: this process ends with a message on standard error, and outer tells the machine.
    sys.report_fd = -1;
    const outer = linux.getppid();
    process.dieWithParent();
    process.letGoOfPipes(start.null_fd);
    const stream: sys.Fd = 3;
    const link: sys.Fd = 4;
    const device_socket: ?sys.Fd = if (start.device_socket == null) null else 5;
    keepOnly(&.{ start.stream, start.link, start.device_socket orelse -1 });
    if (start.host_uid) |uid| {
        if (control.receive(link, &request_byte, true) == null) linux.exit_group(sys.exit_failure);
        identity.mapOther(outer, uid);
        control.send(link, "m");
    }
    const devices = control.receiveDescriptors(link);
    if (start.host_uid) |uid| identity.becomeHostUser(uid);
    identity.dropPrivileges();
    process.notDumpable();
    process.dieWithParent();
    if (linux.getppid() != outer) linux.exit_group(sys.exit_failure);
    const notifier = startNotifier(devices, &.{ stream, link, device_socket orelse -1 });
    setNonBlocking(devices[0]);
    setNonBlocking(stream);
    setNonBlocking(notifier.takes);
    _ = linux.close(devices[1]);
    if (device_socket) |socket| {
        control.sendDescriptors(socket, 1, .{devices[0]});
        _ = linux.close(socket);
    }
    seccomp.confineRelay();
    const reader: Reader = if (device_socket == null) .relay else .machine_when_told;
    move(.{ .reader = reader, .device = devices[0], .stream = stream, .notifier = notifier.takes, .reached = notifier.reached, .link = link });
}

var request_byte: [1]u8 = undefined;

/// Puts the sockets, those that are there, on 3 and the numbers after it, and closes the rest: above all the control stream
/// and the memfds.
fn keepOnly(sockets: []const sys.Fd) void {
    const above: sys.Fd = 64;
    var kept: sys.Fd = 0;
    for (sockets) |socket| if (socket >= 0) {
        _ = sys.must(linux.dup3(socket, above + kept, linux_cloexec), "dup3");
        kept += 1;
    };
    var number: sys.Fd = 0;
    while (number < kept) : (number += 1) _ = sys.must(linux.dup3(above + number, 3 + number, linux_cloexec), "dup3");
    sys.closeFrom(3 + kept);
}

const linux_cloexec = sys.O_CLOEXEC;

fn setNonBlocking(fd: sys.Fd) void {
    const F_SETFL = 4;
    const O_NONBLOCK = 0x800;
    _ = sys.must(linux.fcntl(fd, F_SETFL, O_NONBLOCK), "non-blocking");
}

const Notifier = struct {
    /// Takes notifications.
    takes: sys.Fd,
    /// Gives the number of each barrier that was reached.
    reached: sys.Fd,
};

fn startNotifier(devices: [2]sys.Fd, sockets: []const sys.Fd) Notifier {
    var ends: [2]sys.Fd = undefined;
    var back: [2]sys.Fd = undefined;
    _ = sys.must(linux.pipe2(&ends, .{ .CLOEXEC = true }), "pipe");
    _ = sys.must(linux.pipe2(&back, .{ .CLOEXEC = true }), "pipe");
    const relay = linux.getpid();
    if (process.fork("notifier") == null) {
        sys.nameProcess("edge-notify");
        process.dieWithParent();
        if (linux.getppid() != relay) linux.exit_group(sys.exit_failure);
        for ([_]sys.Fd{ devices[0], ends[1], back[0] }) |fd| _ = linux.close(fd);
        for (sockets) |fd| if (fd >= 0) {
            _ = linux.close(fd);
        };
        seccomp.confineRelay();
        notify(devices[1], ends[0], back[1]);
    }
    _ = linux.close(ends[0]);
    _ = linux.close(back[1]);
    return .{ .takes = ends[1], .reached = back[0] };
}

fn notify(device: sys.Fd, source: sys.Fd, reached: sys.Fd) noreturn {
    const message = down.bytes[0..limits.notification_message];
    while (true) {
        readExactly(source, message[0..fuse.reply_header]);
        const length = fuse.lengthOf(message);
        sys.assert(length >= fuse.reply_header and length <= message.len, "notification length");
        readExactly(source, message[fuse.reply_header..length]);
        if (fuse.isBarrier(message[0..length])) {
            tellReached(reached, message[fuse.reply_header..fuse.barrier_length]);
            continue;
        }
        const rc = linux.write(device, message.ptr, length);
        switch (linux.errno(rc)) {
            // What is not cached needs no invalidation; what is busy or not empty is the machine's to ask again.
            .SUCCESS, .NOENT, .NOTEMPTY, .BUSY, .NOTDIR, .EXIST, .INTR => {},
            .NODEV, .NOTCONN, .PERM => linux.exit_group(0), // Unmounted.
            else => sys.fail("notify", "", linux.errno(rc)),
        }
    }
}

/// A pipe takes so little at once and whole; the relay's end is this process' own.
fn tellReached(reached: sys.Fd, number: []const u8) void {
    while (true) {
        const rc = linux.write(reached, number.ptr, number.len);
        if (linux.errno(rc) == .INTR) continue;
        sys.assert(sys.must(rc, "notifier write") == number.len, "a whole number");
        return;
    }
}

fn readExactly(fd: sys.Fd, into: []u8) void {
    var done: usize = 0;
    while (done < into.len) {
        const got = linux.read(fd, into.ptr + done, into.len - done);
        if (linux.errno(got) == .INTR) continue;
        if (sys.must(got, "notifier read") == 0) linux.exit_group(0);
        done += got;
    }
}

/// Bytes that came in and have not gone out.
fn Buffer(comptime capacity: usize) type {
    return struct {
        bytes: [capacity]u8 = undefined,
        start: usize = 0,
        end: usize = 0,

        const Self = @This();

        fn pending(self: *Self) []u8 {
            return self.bytes[self.start..self.end];
        }

        fn isEmpty(self: *const Self) bool {
            return self.start == self.end;
        }

        fn took(self: *Self, count: usize) void {
            sys.assert(count <= self.end - self.start, "bytes that are there");
            self.start += count;
            if (self.start == self.end) {
                self.start = 0;
                self.end = 0;
            }
        }

        /// Moves what is pending to the front, so that all room is behind it.
        fn compact(self: *Self) void {
            if (self.start == 0) return;
            const length = self.end - self.start;
            std.mem.copyForwards(u8, self.bytes[0..length], self.bytes[self.start..self.end]);
            self.start = 0;
            self.end = length;
        }

        fn room(self: *Self) []u8 {
            return self.bytes[self.end..];
        }

        fn got(self: *Self, count: usize) void {
            sys.assert(count <= capacity - self.end, "bytes that fit");
            self.end += count;
        }
    };
}

/// One request of the kernel on its way to the machine.
var up: Buffer(limits.fuse_message) = .{};
/// Replies of the machine; room for a whole one behind a part of one.
var down: Buffer(2 * limits.fuse_message) = .{};
var notifications: Buffer(limits.notification_queue) = .{};

/// Who takes requests from the device.
const Reader = enum {
    relay,
    /// The machine, which is told of the next request.
    machine_when_told,
    /// The machine, which waits for them by itself until it says otherwise.
    machine,
};

const Ways = struct {
    reader: Reader,
    device: sys.Fd,
    stream: sys.Fd,
    notifier: sys.Fd,
    /// From the notifier: numbers of barriers.
    reached: sys.Fd,
    /// To the outer process, which closes its end once the file system is in place.
    link: sys.Fd,
};

fn move(start: Ways) noreturn {
    var ways = start;
    const POLL = linux.POLL;
    while (true) {
        const write_wanted: i16 = if (up.isEmpty()) 0 else POLL.OUT;
        var watched = [_]linux.pollfd{
            .{ .fd = ways.stream, .events = POLL.IN | write_wanted, .revents = 0 },
            // While a request waits for the socket, no other is taken; a negative descriptor is not watched.
            .{ .fd = if (up.isEmpty() and ways.reader != .machine) ways.device else -1, .events = POLL.IN, .revents = 0 },
            .{ .fd = ways.notifier, .events = if (notifications.isEmpty()) 0 else POLL.OUT, .revents = 0 },
            .{ .fd = ways.link, .events = 0, .revents = 0 },
            .{ .fd = if (up.isEmpty()) ways.reached else -1, .events = POLL.IN, .revents = 0 },
        };
        // A process that waits for the file system cannot be killed. As long as that may be the outer process itself, this
        // one alone can end the wait.
        const patience: i32 = if (ways.link < 0) -1 else limits.machine_answer_ms;
        const ready = linux.poll(&watched, watched.len, patience);
        if (linux.errno(ready) == .INTR) continue;
        if (sys.must(ready, "poll") == 0) sys.fail("the machine does not answer on the FUSE stream", "", .TIMEDOUT);
        if (watched[0].revents & (POLL.IN | POLL.HUP | POLL.ERR) != 0) takeReplies(&ways);
        if (watched[1].revents != 0) switch (ways.reader) {
            .relay => takeRequest(ways.device),
            .machine_when_told => tellReadable(&ways, watched[1].revents),
            .machine => sys.assert(false, "a device that is watched"),
        };
        if (watched[4].revents & POLL.IN != 0 and up.isEmpty()) takeReached(ways.reached);
        if (!up.isEmpty()) sendRequest(ways.stream);
        if (watched[2].revents & POLL.ERR != 0) sys.fail("the notifier ended", "", .PIPE);
        if (!notifications.isEmpty()) sendNotifications(ways.notifier);
        if (watched[3].revents != 0) ways.link = -1;
    }
}

fn takeRequest(device: sys.Fd) void {
    const room = up.room();
    sys.assert(room.len == limits.fuse_message, "an empty request buffer");
    const rc = linux.read(device, room.ptr, room.len);
    switch (linux.errno(rc)) {
        .SUCCESS => {
            sys.assert(rc >= fuse.request_header, "request length");
            sys.assert(fuse.lengthOf(room) == rc, "one whole request");
            up.got(rc);
        },
        // Nothing there after all, or a request that was interrupted while it was read.
        .AGAIN, .INTR, .NOENT => {},
        .NODEV => linux.exit_group(0), // Unmounted: the holder has ended.
        else => sys.fail("read from the FUSE device", "", linux.errno(rc)),
    }
}

fn tellReadable(ways: *Ways, revents: i16) void {
    if (revents & linux.POLL.ERR != 0) linux.exit_group(0); // Unmounted: the holder has ended.
    @memcpy(up.room()[0..fuse.request_header], &fuse.readable_message);
    up.got(fuse.request_header);
    ways.reader = .machine;
}

fn takeReached(reached: sys.Fd) void {
    var number: [8]u8 = undefined;
    const rc = linux.read(reached, &number, number.len);
    if (linux.errno(rc) == .INTR) return;
    sys.assert(sys.must(rc, "read from the notifier") == number.len, "a whole number");
    fuse.barrierAnswer(&number, up.room()[0..fuse.request_header]);
    up.got(fuse.request_header);
}

fn sendRequest(stream: sys.Fd) void {
    const bytes = up.pending();
    const rc = linux.sendto(stream, bytes.ptr, bytes.len, sys.MSG_NOSIGNAL, null, 0);
    switch (linux.errno(rc)) {
        .SUCCESS => up.took(rc),
        .AGAIN, .INTR => {},
        else => sys.fail("write to the machine's FUSE stream", "", linux.errno(rc)),
    }
}

fn takeReplies(ways: *Ways) void {
    down.compact();
    const room = down.room();
    sys.assert(room.len > 0, "room for a reply");
    const rc = linux.read(ways.stream, room.ptr, room.len);
    switch (linux.errno(rc)) {
        .SUCCESS => {},
        .AGAIN, .INTR => return,
        else => sys.fail("read from the machine's FUSE stream", "", linux.errno(rc)),
    }
    if (rc == 0) sys.fail("the machine closed the FUSE stream", "", .CONNRESET);
    down.got(rc);
    while (down.pending().len >= fuse.reply_header) {
        const bytes = down.pending();
        const length = fuse.lengthOf(bytes);
        if (!fuse.isReplyLength(length)) sys.fail("length of a FUSE reply", "", .PROTO);
        if (bytes.len < length) break;
        take(ways, bytes[0..length]);
        down.took(length);
    }
}

fn take(ways: *Ways, message: []const u8) void {
    if (!fuse.isNotification(message)) return give(ways.device, message);
    if (fuse.isWatch(message)) {
        if (ways.reader == .relay) sys.fail("a word about a device that the machine does not have", "", .PROTO);
        ways.reader = .machine_when_told;
    } else if (fuse.mayWait(message)) queueNotification(message) else give(ways.device, message);
}

/// Replies, and notifications that the kernel takes at once: both in the machine's order.
fn give(device: sys.Fd, message: []const u8) void {
    while (true) {
        const rc = linux.write(device, message.ptr, message.len);
        switch (linux.errno(rc)) {
            .INTR => continue,
            .SUCCESS => {},
            // Nobody waits any more, because the request was interrupted; or the kernel does not know the inode.
            .NOENT => {},
            .NODEV => linux.exit_group(0),
            else => sys.fail("write to the FUSE device", "", linux.errno(rc)),
        }
        return;
    }
}

fn queueNotification(message: []const u8) void {
    if (message.len > limits.notification_message) sys.fail("length of a FUSE notification", "", .PROTO);
    notifications.compact();
    const room = notifications.room();
    if (message.len > room.len) sys.fail("queue of FUSE notifications", "", .NOBUFS);
    @memcpy(room[0..message.len], message);
    notifications.got(message.len);
}

fn sendNotifications(notifier: sys.Fd) void {
    const bytes = notifications.pending();
    const rc = linux.write(notifier, bytes.ptr, bytes.len);
    switch (linux.errno(rc)) {
        .SUCCESS => notifications.took(rc),
        .AGAIN, .INTR => {},
        else => sys.fail("write to the notifier", "", linux.errno(rc)),
    }
}
