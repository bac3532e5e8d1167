//! The environment of Hermes: the private `KEY=VALUE` entries of fd 6, then what only the sandbox knows about its own
//! layout, each where the private entries do not name it. Nothing comes from confined-exec's own environment.
const std = @import("std");
const limits = @import("limits.zig");

const layout = [_][:0]const u8{
    "HERMES_HOME=/hermes",
    "HOME=/tmp/home",
    "PATH=/opt/edge/bin:/opt/hermes/bin:/usr/local/bin:/usr/bin:/bin",
    "TMPDIR=/tmp",
};

/// Names under which programs look for certificates. Only set when a CA bundle was given.
const certificates = [_][:0]const u8{
    "CURL_CA_BUNDLE=/opt/edge/ca.pem",
    "GIT_SSL_CAINFO=/opt/edge/ca.pem",
    "NODE_EXTRA_CA_CERTS=/opt/edge/ca.pem",
    "REQUESTS_CA_BUNDLE=/opt/edge/ca.pem",
    "SSL_CERT_FILE=/opt/edge/ca.pem",
};

const room = limits.environment_entries + layout.len + certificates.len;

pub const Environment = struct {
    entries: [room:null]?[*:0]const u8 = @splat(null),
    count: usize = 0,

    fn add(self: *Environment, entry: [*:0]const u8) void {
        self.entries[self.count] = entry;
        self.count += 1;
    }

    fn has(self: *const Environment, name: []const u8) bool {
        for (self.entries[0..self.count]) |entry| {
            const text = std.mem.span(entry.?);
            if (text.len > name.len and text[name.len] == '=' and std.mem.startsWith(u8, text, name)) return true;
        }
        return false;
    }

    fn addMissing(self: *Environment, defaults: []const [:0]const u8) void {
        for (defaults) |entry| {
            const name = entry[0..std.mem.indexOfScalar(u8, entry, '=').?];
            if (!self.has(name)) self.add(entry.ptr);
        }
    }
};

/// Fills `out` with pointers into `text`, which is the whole of fd 6. Returns what is wrong, or null.
pub fn parse(text: []const u8, with_certificates: bool, out: *Environment) ?[]const u8 {
    out.* = .{};
    if (text.len > limits.environment_bytes) return "too long";
    if (text.len > 0 and text[text.len - 1] != 0) return "no zero at the end";
    var start: usize = 0;
    while (start < text.len) {
        const length = std.mem.indexOfScalar(u8, text[start..], 0).?;
        const entry = text[start .. start + length];
        const equals = std.mem.indexOfScalar(u8, entry, '=') orelse return "entry without =";
        if (equals == 0) return "entry without a name";
        if (out.has(entry[0..equals])) return "repeated name";
        if (out.count == limits.environment_entries) return "too many entries";
        out.add(@ptrCast(text.ptr + start));
        start += length + 1;
    }
    out.addMissing(&layout);
    if (with_certificates) out.addMissing(&certificates);
    return null;
}

const testing = std.testing;

test "private entries come first and win over the layout" {
    var out: Environment = .{};
    try testing.expectEqual(null, parse("A=1\x00HOME=/elsewhere\x00B=\x00", false, &out));
    try testing.expectEqual(6, out.count);
    try testing.expectEqualStrings("A=1", std.mem.span(out.entries[0].?));
    try testing.expectEqualStrings("HOME=/elsewhere", std.mem.span(out.entries[1].?));
    try testing.expect(out.has("TMPDIR"));
    try testing.expect(!out.has("SSL_CERT_FILE"));
    try testing.expect(!out.has("TMPDI"));
    try testing.expectEqual(null, out.entries[out.count]);
}

test "certificates are named only when there are some" {
    var out: Environment = .{};
    try testing.expectEqual(null, parse("", true, &out));
    try testing.expect(out.has("SSL_CERT_FILE"));
    try testing.expectEqual(layout.len + certificates.len, out.count);
}

test "malformed entries" {
    var out: Environment = .{};
    try testing.expectEqualStrings("no zero at the end", parse("A=1", false, &out).?);
    try testing.expectEqualStrings("entry without =", parse("A\x00", false, &out).?);
    try testing.expectEqualStrings("entry without =", parse("A=1\x00\x00", false, &out).?);
    try testing.expectEqualStrings("entry without a name", parse("=1\x00", false, &out).?);
    try testing.expectEqualStrings("repeated name", parse("A=1\x00A=2\x00", false, &out).?);
}

test "limits" {
    var text: [limits.environment_bytes + 1]u8 = @splat('x');
    var out: Environment = .{};
    try testing.expectEqualStrings("too long", parse(&text, false, &out).?);
    var length: usize = 0;
    for (0..limits.environment_entries + 1) |index| {
        length += (try std.fmt.bufPrint(text[length..], "V{d}=1\x00", .{index})).len;
    }
    try testing.expectEqualStrings("too many entries", parse(text[0..length], false, &out).?);
}
