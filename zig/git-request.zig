//! What the machine is told of one call of `git`: the words, the directory, the variables that git heeds, the user's own
//! configuration file. One frame, built in a fixed buffer.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const user_config = @import("git-config.zig");

const version: u32 = 1;
const fixed_bytes = 24;
const capacity = fixed_bytes + limits.git_path_bytes + limits.git_words_bytes + limits.git_variables_bytes + limits.git_config_bytes;

const flag_native = 1 << 3;
const flag_config = 1 << 4;

/// Variables that git or its pager, editor or transport look at. Credentials have no name here: the machine has its own.
const passed_names = [_][]const u8{
    "HOME",        "XDG_CONFIG_HOME", "EDITOR",      "VISUAL",   "PAGER",    "TERM",       "LANG",     "LANGUAGE",
    "TZ",          "EMAIL",           "USER",        "LOGNAME",  "NO_COLOR", "http_proxy", "no_proxy", "https_proxy",
    "HTTPS_PROXY", "NO_PROXY",        "CLICOLOR",
};
const passed_prefixes = [_][]const u8{ "GIT_", "LC_" };

pub fn passes(entry: []const u8) bool {
    const equals = std.mem.indexOfScalar(u8, entry, '=') orelse return false;
    const name = entry[0..equals];
    for (passed_prefixes) |prefix| if (std.mem.startsWith(u8, name, prefix)) return true;
    for (passed_names) |one| if (std.mem.eql(u8, name, one)) return true;
    return false;
}

/// The subcommand that is part of the name: `upload-pack` of `/usr/bin/git-upload-pack`; empty for plain `git`; null for
/// what is no name of git.
pub fn nameOfGit(path: [:0]const u8) ?[:0]const u8 {
    const start = if (std.mem.lastIndexOfScalar(u8, path, '/')) |slash| slash + 1 else 0;
    const name = path[start..];
    if (std.mem.eql(u8, name, "git")) return "";
    if (std.mem.startsWith(u8, name, "git-") and name.len > 4) return name[4..];
    return null;
}

pub const Problem = enum { too_long, no_directory };

var frame: [5 + capacity]u8 = undefined;
var length: usize = 5;

pub const Caller = struct {
    /// The subcommand that was part of the program's name, or empty.
    first: [:0]const u8,
    words: []const ?[*:0]const u8,
    variables: [*:null]const ?[*:0]const u8,
    has_native: bool,
};

pub const Frame = union(enum) { bytes: []const u8, problem: Problem };

/// The whole frame, header included.
pub fn build(caller: Caller) Frame {
    length = 5 + fixed_bytes;
    if (!addDirectory()) return .{ .problem = .no_directory };
    const words = addWords(caller) orelse return .{ .problem = .too_long };
    const variables = addVariables(caller.variables) orelse return .{ .problem = .too_long };
    const config = addConfig(caller.variables) orelse return .{ .problem = .too_long };
    var flags: u32 = 0;
    for (0..3) |fd| if (isTerminal(@intCast(fd))) {
        flags |= @as(u32, 1) << @intCast(fd);
    };
    if (caller.has_native) flags |= flag_native;
    if (config.exists) flags |= flag_config;
    putHeader('C', length - 5);
    for ([_]u32{ version, flags, currentUmask(), words, variables, config.bytes }, 0..) |number, index| {
        std.mem.writeInt(u32, frame[5 + 4 * index ..][0..4], number, .little);
    }
    return .{ .bytes = frame[0..length] };
}

fn putHeader(kind: u8, payload: usize) void {
    frame[0] = kind;
    std.mem.writeInt(u32, frame[1..5], @intCast(payload), .little);
}

/// A text and its ending zero. False when there is no room.
fn add(text: []const u8) bool {
    if (text.len + 1 > frame.len - length) return false;
    @memcpy(frame[length..][0..text.len], text);
    frame[length + text.len] = 0;
    length += text.len + 1;
    return true;
}

fn addDirectory() bool {
    const rc = linux.getcwd(frame[length..].ptr, limits.git_path_bytes);
    if (linux.errno(rc) != .SUCCESS) return false;
    // A directory outside of this process' root has a text in front of its path.
    if (frame[length] != '/') return false;
    length += rc;
    return true;
}

fn addWords(caller: Caller) ?u32 {
    const start = length;
    var count: u32 = 0;
    if (caller.first.len > 0) {
        if (!add(caller.first)) return null;
        count += 1;
    }
    for (caller.words) |word| {
        if (!add(std.mem.span(word.?))) return null;
        count += 1;
        if (length - start > limits.git_words_bytes or count > limits.git_words) return null;
    }
    return count;
}

fn addVariables(variables: [*:null]const ?[*:0]const u8) ?u32 {
    const start = length;
    var count: u32 = 0;
    var index: usize = 0;
    while (variables[index]) |entry| : (index += 1) {
        const text = std.mem.span(entry);
        if (!passes(text)) continue;
        if (!add(text)) return null;
        count += 1;
        if (length - start > limits.git_variables_bytes or count > limits.git_variables) return null;
    }
    return count;
}

const Config = struct { exists: bool, bytes: u32 };

/// The user's own configuration file: it lies in the holder's memory, where the machine cannot look.
fn addConfig(variables: [*:null]const ?[*:0]const u8) ?Config {
    const fd = user_config.open(variables) orelse return .{ .exists = false, .bytes = 0 };
    defer _ = linux.close(fd);
    const start = length;
    while (true) {
        const room = frame[length..];
        if (room.len == 0 or length - start > limits.git_config_bytes) return null;
        const rc = linux.read(fd, room.ptr, room.len);
        switch (linux.errno(rc)) {
            .SUCCESS => {},
            .INTR => continue,
            else => break, // A directory, or a file that cannot be read: as if there were none.
        }
        if (rc == 0) break;
        length += rc;
    }
    return .{ .exists = true, .bytes = @intCast(length - start) };
}

fn isTerminal(fd: sys.Fd) bool {
    const TCGETS = 0x5401;
    var settings: [64]u8 = undefined;
    return linux.errno(linux.ioctl(fd, TCGETS, @intFromPtr(&settings))) == .SUCCESS;
}

fn currentUmask() u32 {
    const mask = linux.syscall1(.umask, 0o077);
    _ = linux.syscall1(.umask, mask);
    return @intCast(mask);
}

const testing = std.testing;

test "names of git" {
    try testing.expectEqualStrings("", nameOfGit("git").?);
    try testing.expectEqualStrings("", nameOfGit("/usr/bin/git").?);
    try testing.expectEqualStrings("upload-pack", nameOfGit("/usr/bin/git-upload-pack").?);
    for ([_][:0]const u8{ "", "/", "git-", "gitk", "/git/x", "confined-exec", "/opt/edge/confined-exec" }) |other| {
        try testing.expectEqual(null, nameOfGit(other));
    }
}

test "variables that are passed" {
    for ([_][]const u8{ "GIT_DIR=/x", "GIT_=", "LC_ALL=C", "HOME=/tmp/home", "TZ=", "https_proxy=http://p" }) |entry| {
        try testing.expect(passes(entry));
    }
    for ([_][]const u8{ "GIT_DIR", "HOMES=/x", "PATH=/bin", "SSH_AUTH_SOCK=/x", "=x", "", "MY_GIT_DIR=/x", "OPENAI_API_KEY=k" }) |entry| {
        try testing.expect(!passes(entry));
    }
}

test "a frame" {
    const words = [_]?[*:0]const u8{ "status", "" };
    const variables = [_:null]?[*:0]const u8{ "A=1", "GIT_DIR=/x" };
    const bytes = build(.{ .first = "", .words = &words, .variables = &variables, .has_native = true }).bytes;
    try testing.expectEqual('C', bytes[0]);
    try testing.expectEqual(bytes.len - 5, std.mem.readInt(u32, bytes[1..5], .little));
    try testing.expectEqual(version, std.mem.readInt(u32, bytes[5..9], .little));
    try testing.expectEqual(flag_native, std.mem.readInt(u32, bytes[9..13], .little) & flag_native);
    try testing.expectEqual(2, std.mem.readInt(u32, bytes[17..21], .little));
    try testing.expectEqual(1, std.mem.readInt(u32, bytes[21..25], .little));
    try testing.expectEqualStrings("\x00status\x00\x00GIT_DIR=/x\x00", bytes[bytes.len - 20 ..]);
}

test "limits" {
    const word: [4096:0]u8 = @splat('x');
    const many: [limits.git_words_bytes / 4096 + 1]?[*:0]const u8 = @splat(&word);
    const none = [_:null]?[*:0]const u8{};
    const caller: Caller = .{ .first = "", .words = &many, .variables = &none, .has_native = false };
    try testing.expectEqual(Problem.too_long, build(caller).problem);
    const variable: [limits.git_variables_bytes:0]u8 = ("GIT_X=" ++ @as([limits.git_variables_bytes - 6]u8, @splat('x'))).*;
    const variables = [_:null]?[*:0]const u8{&variable};
    const other: Caller = .{ .first = "", .words = &.{}, .variables = &variables, .has_native = false };
    try testing.expectEqual(Problem.too_long, build(other).problem);
}
