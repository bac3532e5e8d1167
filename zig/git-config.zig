//! The user's own configuration file of git, found as git finds it. It lies in the holder's memory, where the machine cannot
//! look: its text goes with each call, and a new text comes back when the call changes it.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");

const suffix = ".lock";

/// The path that was found, or that a new file will have; empty when no variable says where.
var path: [limits.git_path_bytes + suffix.len:0]u8 = undefined;
var path_length: usize = 0;

const Place = struct { variable: []const u8, below: []const u8 };
const given: Place = .{ .variable = "GIT_CONFIG_GLOBAL", .below = "" };
const home: Place = .{ .variable = "HOME", .below = "/.gitconfig" };
const others = [_]Place{
    .{ .variable = "XDG_CONFIG_HOME", .below = "/git/config" },
    .{ .variable = "HOME", .below = "/.config/git/config" },
};

fn valueOf(variables: [*:null]const ?[*:0]const u8, name: []const u8) ?[]const u8 {
    var index: usize = 0;
    while (variables[index]) |entry| : (index += 1) {
        const text = std.mem.span(entry);
        if (text.len > name.len and text[name.len] == '=' and std.mem.startsWith(u8, text, name)) return text[name.len + 1 ..];
    }
    return null;
}

/// Makes `path` this place. False when its variable is not set, or the path is too long.
fn setPath(variables: [*:null]const ?[*:0]const u8, place: Place) bool {
    path_length = 0;
    const start = valueOf(variables, place.variable) orelse return false;
    if (start.len == 0 or start.len + place.below.len > limits.git_path_bytes) return false;
    @memcpy(path[0..start.len], start);
    @memcpy(path[start.len..][0..place.below.len], place.below);
    path_length = start.len + place.below.len;
    path[path_length] = 0;
    return true;
}

fn tryOpen() ?sys.Fd {
    const opened = sys.openRead(path[0..path_length :0]);
    return if (linux.errno(opened) == .SUCCESS) @intCast(opened) else null;
}

/// The file, opened for reading; null when there is none.
pub fn open(variables: [*:null]const ?[*:0]const u8) ?sys.Fd {
    if (valueOf(variables, given.variable) != null) return if (setPath(variables, given)) tryOpen() else null;
    if (setPath(variables, home)) if (tryOpen()) |fd| return fd;
    for (others) |place| if (setPath(variables, place)) if (tryOpen()) |fd| return fd;
    _ = setPath(variables, home);
    return null;
}

/// Replaces the file that `open` looked for, as git does: a lock file that becomes the file.
pub fn replace(text: []const u8) linux.E {
    if (path_length == 0) return .NOENT;
    var lock: [limits.git_path_bytes + suffix.len:0]u8 = undefined;
    @memcpy(lock[0..path_length], path[0..path_length]);
    @memcpy(lock[path_length..][0..suffix.len], suffix);
    lock[path_length + suffix.len] = 0;
    const lock_path = lock[0 .. path_length + suffix.len :0];
    const flags: linux.O = .{ .ACCMODE = .WRONLY, .CREAT = true, .EXCL = true, .CLOEXEC = true };
    const made = linux.openat(linux.AT.FDCWD, lock_path, flags, 0o666);
    if (linux.errno(made) != .SUCCESS) return linux.errno(made);
    const fd: sys.Fd = @intCast(made);
    var problem = writeAll(fd, text);
    _ = linux.close(fd);
    if (problem == .SUCCESS) problem = linux.errno(linux.rename(lock_path, path[0..path_length :0]));
    if (problem != .SUCCESS) _ = linux.unlink(lock_path);
    return problem;
}

fn writeAll(fd: sys.Fd, text: []const u8) linux.E {
    var done: usize = 0;
    while (done < text.len) {
        const rc = linux.write(fd, text.ptr + done, text.len - done);
        switch (linux.errno(rc)) {
            .SUCCESS => done += rc,
            .INTR => {},
            else => |e| return e,
        }
    }
    return .SUCCESS;
}

const testing = std.testing;

test "where the file is" {
    const variables = [_:null]?[*:0]const u8{ "HOMES=/no", "HOME=/tmp/home", "XDG_CONFIG_HOME=/x" };
    try testing.expectEqual(null, open(&variables));
    try testing.expectEqualStrings("/tmp/home/.gitconfig", path[0..path_length]);
    const with_given = [_:null]?[*:0]const u8{ "HOME=/tmp/home", "GIT_CONFIG_GLOBAL=/nowhere/y" };
    try testing.expectEqual(null, open(&with_given));
    try testing.expectEqualStrings("/nowhere/y", path[0..path_length]);
    const nothing = [_:null]?[*:0]const u8{"A=1"};
    try testing.expectEqual(null, open(&nothing));
    try testing.expectEqual(linux.E.NOENT, replace("x"));
}
