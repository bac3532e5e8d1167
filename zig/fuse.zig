//! The little that the relay knows of FUSE messages.
const std = @import("std");
const limits = @import("limits.zig");

pub const request_header = 40;
pub const reply_header = 16;

/// `FUSE_DEV_IOC_CLONE`.
pub const clone_device = 0x8004e500;

const invalidate_inode = 2;
const increment_epoch = 8;

/// A notification of ours, not of the kernel's: it comes back as a message when all before it are done. Eight bytes, which
/// the machine knows it by, follow the header.
const barrier = 0x65646765;
pub const barrier_length = reply_header + 8;
const notify_reply = 41;

/// Two messages of ours about who reads the device, where the machine does: "it can be read" as a request that wants no
/// answer, and then nothing more until "watch it" comes as a notification.
const readable = 0x65646772;
const watch = 0x65646777;

/// What tells the machine that the device can be read.
pub const readable_message: [request_header]u8 = message: {
    var bytes: [request_header]u8 = @splat(0);
    std.mem.writeInt(u32, bytes[0..4], request_header, .little);
    std.mem.writeInt(u32, bytes[4..8], readable, .little);
    break :message bytes;
};

pub fn isWatch(notification: []const u8) bool {
    return notification.len == reply_header and std.mem.readInt(i32, notification[4..8], .little) == watch;
}

pub fn isBarrier(notification: []const u8) bool {
    return notification.len == barrier_length and std.mem.readInt(i32, notification[4..8], .little) == barrier;
}

/// What the machine is sent for a barrier that is reached: a message as the kernel's, that wants no reply.
pub fn barrierAnswer(number: *const [8]u8, into: *[request_header]u8) void {
    into.* = @splat(0);
    std.mem.writeInt(u32, into[0..4], request_header, .little);
    std.mem.writeInt(u32, into[4..8], notify_reply, .little);
    into[8..16].* = number.*;
}

/// The length that a message says of itself. At least four bytes must be there.
pub fn lengthOf(message: []const u8) u32 {
    return std.mem.readInt(u32, message[0..4], .little);
}

pub fn isReplyLength(length: u32) bool {
    return length >= reply_header and length <= limits.fuse_message;
}

/// A message that answers no request, by which the machine tells the kernel to forget something.
pub fn isNotification(message: []const u8) bool {
    return std.mem.readInt(u64, message[8..16], .little) == 0;
}

/// Whether the kernel may wait for a lock or a page before it has taken the notification. Two kinds never wait: a new epoch,
/// and the invalidation of an inode's attributes alone, which is one with a negative offset.
pub fn mayWait(notification: []const u8) bool {
    const code = std.mem.readInt(i32, notification[4..8], .little);
    if (code == increment_epoch) return false;
    if (code != invalidate_inode or notification.len < reply_header + 16) return true;
    return std.mem.readInt(i64, notification[reply_header + 8 ..][0..8], .little) >= 0;
}

const testing = std.testing;

fn example(code: i32, offset: i64) [40]u8 {
    var message: [40]u8 = @splat(0);
    std.mem.writeInt(u32, message[0..4], message.len, .little);
    std.mem.writeInt(i32, message[4..8], code, .little);
    std.mem.writeInt(i64, message[24..32], offset, .little);
    return message;
}

test "what never waits stays in order with the replies" {
    try testing.expect(!mayWait(&example(increment_epoch, 0)));
    try testing.expect(!mayWait(example(increment_epoch, 0)[0..16]));
    try testing.expect(!mayWait(&example(invalidate_inode, -1)));
    try testing.expect(mayWait(&example(invalidate_inode, 0)));
    try testing.expect(mayWait(&example(3, -1)));
    try testing.expect(mayWait(example(invalidate_inode, -1)[0..16]));
}

test "a barrier" {
    var message = example(barrier, 7);
    try testing.expect(isBarrier(message[0..barrier_length]));
    try testing.expect(mayWait(message[0..barrier_length]));
    try testing.expect(!isBarrier(&message));
    try testing.expect(!isBarrier(example(invalidate_inode, 0)[0..barrier_length]));
    var answer: [request_header]u8 = undefined;
    barrierAnswer("12345678", &answer);
    try testing.expectEqual(request_header, lengthOf(&answer));
    try testing.expectEqual(notify_reply, std.mem.readInt(u32, answer[4..8], .little));
    try testing.expectEqualStrings("12345678", answer[8..16]);
}

test "who reads the device" {
    try testing.expectEqual(request_header, lengthOf(&readable_message));
    try testing.expectEqual(readable, std.mem.readInt(u32, readable_message[4..8], .little));
    try testing.expect(isWatch(example(watch, 0)[0..reply_header]));
    try testing.expect(!isWatch(&example(watch, 0)));
    try testing.expect(!isWatch(example(barrier, 0)[0..reply_header]));
}

test "lengths" {
    try testing.expectEqual(40, lengthOf(&example(0, 0)));
    try testing.expect(!isReplyLength(15));
    try testing.expect(isReplyLength(16));
    try testing.expect(isReplyLength(limits.fuse_message));
    try testing.expect(!isReplyLength(limits.fuse_message + 1));
}

test "a notification answers nothing" {
    var message = example(invalidate_inode, 0);
    try testing.expect(isNotification(&message));
    message[15] = 1;
    try testing.expect(!isNotification(&message));
}
