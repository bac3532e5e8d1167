//! Who a holder is: one unprivileged host user that is `limits.inner_uid` inside, and nobody else. Host uid 0 is never
//! mapped, so there is no root in a holder at all.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");

const MapText = struct {
    buffer: [64]u8 = undefined,
    len: usize = 0,

    fn add(self: *MapText, text: []const u8) void {
        @memcpy(self.buffer[self.len..][0..text.len], text);
        self.len += text.len;
    }

    fn number(self: *MapText, value: u32) void {
        var digits: [20]u8 = undefined;
        self.add(sys.decimal(value, &digits));
    }
};

/// Writes the maps of the process whose `/proc` directory is `process` ("self" or a pid).
fn writeMaps(process: []const u8, inner_uid: u32, outer_uid: u32, inner_gid: u32, outer_gid: u32) void {
    // Without this an unprivileged process may not map groups; with it nobody inside can leave a group that denies access.
    writeOne(process, "setgroups", "deny");
    writeMap(process, "gid_map", inner_gid, outer_gid);
    writeMap(process, "uid_map", inner_uid, outer_uid);
}

fn writeMap(process: []const u8, file: []const u8, inner: u32, outer: u32) void {
    var text: MapText = .{};
    writeOne(process, file, mapLine(&text, inner, outer));
}

fn mapLine(text: *MapText, inner: u32, outer: u32) []const u8 {
    text.number(inner);
    text.add(" ");
    text.number(outer);
    text.add(" 1");
    return text.buffer[0..text.len];
}

fn writeOne(process: []const u8, file: []const u8, text: []const u8) void {
    var path: MapText = .{};
    const name = procPath(&path, process, file);
    _ = sys.mustFor(sys.writeFile(name, text), "write", name);
}

fn procPath(path: *MapText, process: []const u8, file: []const u8) [:0]const u8 {
    for ([_][]const u8{ "/proc/", process, "/", file, "\x00" }) |part| path.add(part);
    return path.buffer[0 .. path.len - 1 :0];
}

/// Whether `mapOther` would succeed for a process that has just entered a user namespace.
pub fn canMapOther(pid: i32, host_uid: u32) sys.E {
    var digits: [20]u8 = undefined;
    var path: MapText = .{};
    var text: MapText = .{};
    const name = procPath(&path, sys.decimal(@intCast(pid), &digits), "uid_map");
    return linux.errno(sys.writeFile(name, mapLine(&text, limits.inner_uid, host_uid)));
}

/// Maps the holder's user inside process `pid`, from outside of its user namespace: only a privileged parent may map
/// another id than its own.
pub fn mapOther(pid: i32, host_uid: u32) void {
    var digits: [20]u8 = undefined;
    writeMaps(sys.decimal(@intCast(pid), &digits), limits.inner_uid, host_uid, limits.inner_uid, host_uid);
}

/// Maps the caller's own ids, as an ordinary user may. `as_self` keeps their numbers.
pub fn mapOwn(uid: u32, gid: u32, as_self: bool) void {
    if (as_self) return writeMaps("self", uid, uid, gid, gid);
    writeMaps("self", limits.inner_uid, uid, limits.inner_uid, gid);
}

/// Becomes the holder's user, with whatever capabilities the process has in its user namespace: they do not go with the
/// change of ids, because the old id is not the namespace's root.
pub fn becomeInner() void {
    const id = limits.inner_uid;
    _ = sys.must(linux.setresgid(id, id, id), "setresgid");
    _ = sys.must(linux.setresuid(id, id, id), "setresuid");
}

/// Becomes an unprivileged host user for good (in the namespace of the caller).
pub fn becomeHostUser(uid: u32) void {
    _ = sys.must(linux.setgroups(0, &[_]linux.gid_t{}), "setgroups");
    _ = sys.must(linux.setresgid(uid, uid, uid), "setresgid");
    _ = sys.must(linux.setresuid(uid, uid, uid), "setresuid");
}

const CapHeader = extern struct { version: u32 = 0x20080522, pid: i32 = 0 };
const CapWord = extern struct { effective: u32 = 0, permitted: u32 = 0, inheritable: u32 = 0 };

/// NOROOT, NO_SETUID_FIXUP, NO_CAP_AMBIENT_RAISE and their locks, and the lock of KEEP_CAPS: no uid and no file ever
/// gives a capability again.
const secure_bits = 0b1110_1111;

/// Gives up every capability for good: ambient, bounding, inheritable, permitted and effective, and no_new_privs.
pub fn dropPrivileges() void {
    _ = sys.must(linux.prctl(sys.PR_CAP_AMBIENT, sys.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0), "ambient capabilities");
    dropBounding();
    const header: CapHeader = .{};
    const none: [2]CapWord = .{ .{}, .{} };
    _ = sys.must(linux.syscall2(.capset, @intFromPtr(&header), @intFromPtr(&none)), "capset");
    sys.noNewPrivileges();
}

fn dropBounding() void {
    var capability: usize = 0;
    var dropped = false;
    while (capability < 64) : (capability += 1) {
        const present = sys.prctl(sys.PR_CAPBSET_READ, capability);
        if (linux.errno(present) != .SUCCESS) break; // Above the last capability of this kernel.
        if (present == 0) continue;
        const rc = sys.prctl(sys.PR_CAPBSET_DROP, capability);
        // An ordinary user's relay stays outside of every namespace and has nothing that the bounding set could give back.
        if (linux.errno(rc) == .PERM and !dropped) return;
        _ = sys.must(rc, "bounding capabilities");
        dropped = true;
    }
    if (dropped) _ = sys.must(sys.prctl(sys.PR_SET_SECUREBITS, secure_bits), "securebits");
}
