//! The launch manifest of a holder: one `key value` a line. A pure parser over a fixed buffer that it cuts in place.
//! Paths with spaces cannot be written. Whatever is not known, repeated or malformed is an error with its line.
const std = @import("std");
const limits = @import("limits.zig");

pub const first_line = "edge-holder 1";

pub const Bind = struct {
    source: [:0]const u8,
    target: [:0]const u8,
    /// `bind?`: skipped when the source does not exist.
    optional: bool,
};

pub const Problem = struct {
    /// Counted from 1; 0 when no line is to blame.
    line: u32,
    what: []const u8,
};

pub const Manifest = struct {
    /// Host id that `limits.inner_uid` maps to; null when the manifest names none.
    uid: ?u32 = null,
    fuse_socket: ?[:0]const u8 = null,
    fuse_token: ?[:0]const u8 = null,
    /// Whether the FUSE device goes through descriptor 8 to the machine, which reads it by itself.
    gives_device: bool = false,
    program: ?[:0]const u8 = null,
    binds: [limits.manifest_binds]Bind = undefined,
    bind_count: usize = 0,
    /// Directories of cgroups, one a hierarchy, that Hermes and all that it starts are put into.
    cgroups: [limits.manifest_cgroups][:0]const u8 = undefined,
    cgroup_count: usize = 0,
    args: [limits.manifest_args][:0]const u8 = undefined,
    arg_count: usize = 0,
    /// Where the machine listens for this holder's calls of git; null when it has none.
    git_socket: ?[:0]const u8 = null,
    /// The host's git, kept for what the machine leaves to it.
    native_git: ?[:0]const u8 = null,
    /// Programs of the bound directories that the client of git stands in the place of.
    git_places: [limits.manifest_git_places][:0]const u8 = undefined,
    git_place_count: usize = 0,
};

/// Places that confined-exec fills itself: nothing may be bound on them or below them.
const reserved = [_][]const u8{ "/proc", "/dev", "/sys", "/tmp", "/workspace", "/artifacts", "/hermes", "/opt/edge", "/etc" };

/// Fills `out` with slices of `text`. One byte after the text must be writable: it becomes the last line's zero.
/// Returns what is wrong, or null.
pub fn parse(text: []u8, out: *Manifest) ?Problem {
    out.* = .{};
    if (text.len == 0) return .{ .line = 0, .what = "empty" };
    if (text.len > limits.manifest_bytes) return .{ .line = 0, .what = "too long" };
    if (text[text.len - 1] != '\n') return .{ .line = 0, .what = "no line feed at the end" };

    var line_number: u32 = 0;
    var start: usize = 0;
    while (start < text.len) {
        line_number += 1;
        const length = std.mem.indexOfScalar(u8, text[start..], '\n').?;
        text[start + length] = 0;
        const line = text[start .. start + length :0];
        start += length + 1;
        const what = if (line_number == 1) checkFirst(line) else take(line, out);
        if (what) |problem| return .{ .line = line_number, .what = problem };
    }
    if (out.fuse_socket == null) return .{ .line = 0, .what = "no fuse-socket" };
    if (out.fuse_token == null) return .{ .line = 0, .what = "no fuse-token" };
    if (out.program == null) return .{ .line = 0, .what = "no exec" };
    return null;
}

fn checkFirst(line: []const u8) ?[]const u8 {
    return if (std.mem.eql(u8, line, first_line)) null else "unknown version";
}

fn take(line: [:0]u8, out: *Manifest) ?[]const u8 {
    for (line) |byte| if (byte < 0x20 or byte == 0x7f) return "control character";
    const space = std.mem.indexOfScalar(u8, line, ' ') orelse return "no value";
    const key = line[0..space];
    const value: [:0]u8 = line[space + 1 ..];
    if (std.mem.eql(u8, key, "uid")) return takeUid(value, out);
    if (std.mem.eql(u8, key, "fuse-socket")) return takeSocket(value, out);
    if (std.mem.eql(u8, key, "fuse-token")) return takeToken(value, out);
    if (std.mem.eql(u8, key, "fuse-device")) return takeDevice(value, out);
    if (std.mem.eql(u8, key, "bind")) return takeBind(value, false, out);
    if (std.mem.eql(u8, key, "bind?")) return takeBind(value, true, out);
    if (std.mem.eql(u8, key, "cgroup")) return takeCgroup(value, out);
    if (std.mem.eql(u8, key, "git-socket")) return takePath(value, "git-socket", limits.socket_path_bytes, &out.git_socket);
    if (std.mem.eql(u8, key, "native-git")) return takePath(value, "native-git", limits.path_bytes, &out.native_git);
    if (std.mem.eql(u8, key, "git-place")) return takeGitPlace(value, out);
    if (std.mem.eql(u8, key, "exec")) return takeProgram(value, out);
    if (std.mem.eql(u8, key, "arg")) return takeArgument(value, out);
    return "unknown key";
}

fn takeUid(value: []const u8, out: *Manifest) ?[]const u8 {
    if (out.uid != null) return "repeated uid";
    if (value.len == 0 or value.len > 10 or value[0] == '0') return "malformed uid";
    var number: u64 = 0;
    for (value) |byte| {
        if (byte < '0' or byte > '9') return "malformed uid";
        number = number * 10 + (byte - '0');
    }
    if (number < limits.host_uid_min or number > limits.host_uid_max) return "uid out of range";
    out.uid = @intCast(number);
    return null;
}

fn takeSocket(value: [:0]const u8, out: *Manifest) ?[]const u8 {
    if (out.fuse_socket != null) return "repeated fuse-socket";
    if (!plainPath(value)) return "malformed fuse-socket";
    if (value.len > limits.socket_path_bytes) return "fuse-socket too long";
    out.fuse_socket = value;
    return null;
}

fn takePath(value: [:0]const u8, comptime key: []const u8, longest: usize, out: *?[:0]const u8) ?[]const u8 {
    if (out.* != null) return "repeated " ++ key;
    if (!plainPath(value) or value.len > longest) return "malformed " ++ key;
    out.* = value;
    return null;
}

fn takeGitPlace(value: [:0]const u8, out: *Manifest) ?[]const u8 {
    if (out.git_place_count == limits.manifest_git_places) return "too many git-places";
    if (!plainPath(value)) return "malformed git-place";
    for (reserved) |place| if (isOrBelow(value, place)) return "git in a reserved place";
    out.git_places[out.git_place_count] = value;
    out.git_place_count += 1;
    return null;
}

fn takeToken(value: [:0]const u8, out: *Manifest) ?[]const u8 {
    if (out.fuse_token != null) return "repeated fuse-token";
    if (value.len != limits.token_bytes) return "malformed fuse-token";
    for (value) |byte| switch (byte) {
        '0'...'9', 'a'...'f' => {},
        else => return "malformed fuse-token",
    };
    out.fuse_token = value;
    return null;
}

fn takeDevice(value: []const u8, out: *Manifest) ?[]const u8 {
    if (out.gives_device) return "repeated fuse-device";
    if (!std.mem.eql(u8, value, "8")) return "malformed fuse-device";
    out.gives_device = true;
    return null;
}

fn takeBind(value: [:0]u8, optional: bool, out: *Manifest) ?[]const u8 {
    if (out.bind_count == limits.manifest_binds) return "too many binds";
    var source: [:0]const u8 = value;
    var target: [:0]const u8 = value;
    if (std.mem.indexOfScalar(u8, value, ' ')) |space| {
        value[space] = 0;
        source = value[0..space :0];
        target = value[space + 1 ..];
    }
    if (!plainPath(source) or !plainPath(target)) return "malformed bind";
    for (reserved) |place| if (isOrBelow(target, place)) return "bind to a reserved place";
    for (out.binds[0..out.bind_count]) |other| if (std.mem.eql(u8, other.target, target)) return "repeated bind";
    out.binds[out.bind_count] = .{ .source = source, .target = target, .optional = optional };
    out.bind_count += 1;
    return null;
}

fn takeCgroup(value: [:0]const u8, out: *Manifest) ?[]const u8 {
    if (out.cgroup_count == limits.manifest_cgroups) return "too many cgroups";
    if (!plainPath(value)) return "malformed cgroup";
    for (out.cgroups[0..out.cgroup_count]) |other| if (std.mem.eql(u8, other, value)) return "repeated cgroup";
    out.cgroups[out.cgroup_count] = value;
    out.cgroup_count += 1;
    return null;
}

fn takeProgram(value: [:0]const u8, out: *Manifest) ?[]const u8 {
    if (out.program != null) return "repeated exec";
    if (!plainPath(value)) return "malformed exec";
    out.program = value;
    return null;
}

fn takeArgument(value: [:0]const u8, out: *Manifest) ?[]const u8 {
    if (out.arg_count == limits.manifest_args) return "too many args";
    out.args[out.arg_count] = value;
    out.arg_count += 1;
    return null;
}

fn isOrBelow(path: []const u8, place: []const u8) bool {
    if (!std.mem.startsWith(u8, path, place)) return false;
    return path.len == place.len or path[place.len] == '/';
}

/// Absolute, below `/`, no spaces, and every component a real name: not empty, not `.`, not `..`.
fn plainPath(path: []const u8) bool {
    if (path.len < 2 or path.len > limits.path_bytes or path[0] != '/') return false;
    if (std.mem.indexOfScalar(u8, path, ' ') != null) return false;
    var names = std.mem.splitScalar(u8, path[1..], '/');
    while (names.next()) |name| {
        if (name.len == 0 or name.len > 255) return false;
        if (std.mem.eql(u8, name, ".") or std.mem.eql(u8, name, "..")) return false;
    }
    return true;
}

const testing = std.testing;

fn times(comptime text: []const u8, comptime count: usize) *const [text.len * count]u8 {
    @setEvalBranchQuota(100_000);
    comptime var all: [text.len * count]u8 = undefined;
    inline for (0..count) |index| @memcpy(all[index * text.len ..][0..text.len], text);
    const done = all;
    return &done;
}

const good_token = times("0123456789abcdef", 4);
const good = first_line ++ "\nuid 101000\nfuse-socket /run/x/fuse.sock\nfuse-token " ++ good_token ++
    "\nbind /usr\nbind? /nowhere\nbind /src /dst\ncgroup /sys/fs/cgroup/x\nexec /opt/hermes/bin/python\narg -u\narg a b  c\narg \n";

fn expectProblem(text: []const u8, line: u32, what: []const u8) !void {
    var buffer: [limits.manifest_bytes + 4096]u8 = undefined;
    @memcpy(buffer[0..text.len], text);
    var out: Manifest = .{};
    const problem = parse(buffer[0..text.len], &out) orelse return error.Accepted;
    try testing.expectEqualStrings(what, problem.what);
    try testing.expectEqual(line, problem.line);
}

test "a whole manifest" {
    var buffer: [limits.manifest_bytes]u8 = undefined;
    @memcpy(buffer[0..good.len], good);
    var out: Manifest = .{};
    try testing.expectEqual(null, parse(buffer[0..good.len], &out));
    try testing.expectEqual(101000, out.uid.?);
    try testing.expectEqualStrings("/run/x/fuse.sock", out.fuse_socket.?);
    try testing.expectEqualStrings(good_token, out.fuse_token.?);
    try testing.expectEqual(3, out.bind_count);
    try testing.expectEqualStrings("/usr", out.binds[0].target);
    try testing.expect(out.binds[1].optional);
    try testing.expectEqualStrings("/src", out.binds[2].source);
    try testing.expectEqualStrings("/dst", out.binds[2].target);
    try testing.expectEqual(0, out.binds[2].target.ptr[4]);
    try testing.expect(!out.gives_device);
    try testing.expectEqual(1, out.cgroup_count);
    try testing.expectEqualStrings("/sys/fs/cgroup/x", out.cgroups[0]);
    try testing.expectEqualStrings("/opt/hermes/bin/python", out.program.?);
    try testing.expectEqual(3, out.arg_count);
    try testing.expectEqualStrings("a b  c", out.args[1]);
    try testing.expectEqualStrings("", out.args[2]);
}

test "the uid may be absent, the rest not" {
    const rest = "fuse-socket /s\nfuse-token " ++ good_token ++ "\n";
    var buffer: [limits.manifest_bytes]u8 = undefined;
    const text = first_line ++ "\n" ++ rest ++ "exec /p\n";
    @memcpy(buffer[0..text.len], text);
    var out: Manifest = .{};
    try testing.expectEqual(null, parse(buffer[0..text.len], &out));
    try testing.expectEqual(null, out.uid);
    try expectProblem(first_line ++ "\n" ++ rest, 0, "no exec");
    try expectProblem(first_line ++ "\nexec /p\nfuse-socket /s\n", 0, "no fuse-token");
    try expectProblem(first_line ++ "\nexec /p\n", 0, "no fuse-socket");
}

test "malformed text" {
    try expectProblem("", 0, "empty");
    try expectProblem("edge-holder 1", 0, "no line feed at the end");
    try expectProblem("edge-holder 2\n", 1, "unknown version");
    try expectProblem("\n", 1, "unknown version");
    try expectProblem(first_line ++ "\n\n", 2, "no value");
    try expectProblem(first_line ++ "\nuid\n", 2, "no value");
    try expectProblem(first_line ++ "\narg a\tb\n", 2, "control character");
    try expectProblem(first_line ++ "\narg a\x00b\n", 2, "control character");
    try expectProblem(first_line ++ "\r\n", 1, "unknown version");
    try expectProblem(first_line ++ "\nUID 5\n", 2, "unknown key");
    try expectProblem(first_line ++ "\n uid 5\n", 2, "unknown key");
    try expectProblem(good ++ "more 1\n", 13, "unknown key");
}

test "single keys are not repeated" {
    try expectProblem(good ++ "uid 101000\n", 13, "repeated uid");
    try expectProblem(good ++ "fuse-socket /s\n", 13, "repeated fuse-socket");
    try expectProblem(good ++ "fuse-token " ++ good_token ++ "\n", 13, "repeated fuse-token");
    try expectProblem(good ++ "exec /p\n", 13, "repeated exec");
    try expectProblem(good ++ "cgroup /sys/fs/cgroup/x\n", 13, "repeated cgroup");
    try expectProblem(good ++ "bind /other /dst\n", 13, "repeated bind");
}

test "ids, tokens and paths" {
    const h = first_line ++ "\n";
    for ([_][]const u8{ "0", "01000", "+1000", "1_000", "-1", "1000 ", "", "99999999999" }) |uid| {
        var buffer: [64]u8 = undefined;
        try expectProblem(try std.fmt.bufPrint(&buffer, h ++ "uid {s}\n", .{uid}), 2, "malformed uid");
    }
    try expectProblem(h ++ "uid 999\n", 2, "uid out of range");
    try expectProblem(h ++ "uid 4294967295\n", 2, "uid out of range");
    try expectProblem(h ++ "fuse-token " ++ good_token[0..63] ++ "\n", 2, "malformed fuse-token");
    try expectProblem(h ++ "fuse-token " ++ good_token[0..63] ++ "G\n", 2, "malformed fuse-token");
    try expectProblem(h ++ "fuse-socket relative\n", 2, "malformed fuse-socket");
    try expectProblem(h ++ "fuse-socket /" ++ comptime times("s", 107) ++ "\n", 2, "fuse-socket too long");
    for ([_][]const u8{ "/", "usr", "/usr/", "//usr", "/a//b", "/a/../b", "/a/.", "/a /b /c", "/a b", "/a  /b", "" }) |path| {
        var buffer: [64]u8 = undefined;
        try expectProblem(try std.fmt.bufPrint(&buffer, h ++ "bind {s}\n", .{path}), 2, "malformed bind");
    }
    for ([_][]const u8{ "/proc", "/etc/ssl", "/x /hermes", "/x /opt/edge/start.py", "/x /dev/kmsg", "/tmp" }) |path| {
        var buffer: [64]u8 = undefined;
        try expectProblem(try std.fmt.bufPrint(&buffer, h ++ "bind {s}\n", .{path}), 2, "bind to a reserved place");
    }
    try expectProblem(h ++ "exec python\n", 2, "malformed exec");
    try expectProblem(h ++ "cgroup /sys/../proc\n", 2, "malformed cgroup");
}

test "git" {
    const more = good ++ "git-socket /run/x/git.sock\nnative-git /usr/bin/git\ngit-place /usr/bin/git\ngit-place /usr/local/bin/git\n";
    var buffer: [limits.manifest_bytes]u8 = undefined;
    @memcpy(buffer[0..more.len], more);
    var out: Manifest = .{};
    try testing.expectEqual(null, parse(buffer[0..more.len], &out));
    try testing.expectEqualStrings("/run/x/git.sock", out.git_socket.?);
    try testing.expectEqualStrings("/usr/bin/git", out.native_git.?);
    try testing.expectEqual(2, out.git_place_count);
    const h = first_line ++ "\n";
    try expectProblem(more ++ "git-socket /s\n", 17, "repeated git-socket");
    try expectProblem(more ++ "native-git /s\n", 17, "repeated native-git");
    try expectProblem(h ++ "git-socket /" ++ comptime times("s", 107) ++ "\n", 2, "malformed git-socket");
    try expectProblem(h ++ "native-git relative\n", 2, "malformed native-git");
    try expectProblem(h ++ "git-place /hermes/git\n", 2, "git in a reserved place");
    try expectProblem(h ++ comptime times("git-place /usr/bin/git\n", limits.manifest_git_places + 1), limits.manifest_git_places + 2, "too many git-places");
}

test "the device" {
    const more = good ++ "fuse-device 8\n";
    var buffer: [limits.manifest_bytes]u8 = undefined;
    @memcpy(buffer[0..more.len], more);
    var out: Manifest = .{};
    try testing.expectEqual(null, parse(buffer[0..more.len], &out));
    try testing.expect(out.gives_device);
    try expectProblem(more ++ "fuse-device 8\n", 14, "repeated fuse-device");
    try expectProblem(good ++ "fuse-device 9\n", 13, "malformed fuse-device");
}

test "limits" {
    const h = first_line ++ "\n";
    try expectProblem(h ++ "arg " ++ comptime times("x", limits.manifest_bytes) ++ "\n", 0, "too long");
    try expectProblem(h ++ comptime times("arg x\n", limits.manifest_args) ++ "arg x\n", limits.manifest_args + 2, "too many args");
    var buffer: [limits.manifest_bytes]u8 = undefined;
    var length: usize = h.len;
    @memcpy(buffer[0..h.len], h);
    for (0..limits.manifest_binds + 1) |index| {
        length += (try std.fmt.bufPrint(buffer[length..], "bind /d{d}\n", .{index})).len;
    }
    try expectProblem(buffer[0..length], limits.manifest_binds + 2, "too many binds");
    try expectProblem(h ++ "cgroup /a\ncgroup /b\ncgroup /c\ncgroup /d\ncgroup /e\n", 6, "too many cgroups");
    try expectProblem(h ++ "bind /" ++ comptime times("d", 256) ++ "\n", 2, "malformed bind");
}
