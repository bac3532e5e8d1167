//! The Landlock domain of a tool process: everything a holder has, except the private home of Hermes.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");

const RulesetAttributes = extern struct { files: u64, network: u64 = 0, scopes: u64 = 0 };
/// The kernel reads 12 bytes.
const PathBeneath = extern struct { access: u64 align(1), parent: i32 align(1) };

const execute = 1 << 0;
const write_file = 1 << 1;
const read_file = 1 << 2;
const read_directory = 1 << 3;
const truncate = 1 << 14;
const device_ioctl = 1 << 15;

const read_only: u64 = execute | read_file | read_directory;
/// The rights that can be given on something that is not a directory.
const of_files: u64 = execute | write_file | read_file | truncate | device_ioctl;

/// Abstract unix sockets and signals to processes outside of the domain.
const scope_all: u64 = 0b11;

/// Places that a tool may write to; the mounts decide whether there is anything to write.
const writable = [_][]const u8{ "dev", "proc", "tmp", "workspace", "artifacts" };
const private_home = "hermes";
const open_skills = "/hermes/skills";

/// The Landlock ABI of this kernel, or the reason why there is none.
pub fn version() union(enum) { abi: u32, none: linux.E } {
    const LANDLOCK_CREATE_RULESET_VERSION = 1;
    const rc = linux.syscall3(.landlock_create_ruleset, 0, 0, LANDLOCK_CREATE_RULESET_VERSION);
    const e = linux.errno(rc);
    return if (e == .SUCCESS) .{ .abi = @intCast(rc) } else .{ .none = e };
}

/// All file rights that this ABI knows: what is handled and not granted is denied.
fn handledFiles(abi: u32) u64 {
    var rights: u64 = (1 << 13) - 1;
    // Without this right no rename leaves its directory at all.
    if (abi >= 2) rights |= 1 << 13;
    if (abi >= 3) rights |= truncate;
    if (abi >= 5) rights |= device_ioctl;
    return rights;
}

/// Enters the domain for good. A kernel without Landlock is an error, never an open door.
pub fn confine() void {
    const abi = switch (version()) {
        .abi => |abi| abi,
        .none => |e| sys.fail("landlock", "", e),
    };
    const all = handledFiles(abi);
    const attributes: RulesetAttributes = .{ .files = all, .scopes = if (abi >= 6) scope_all else 0 };
    // An older kernel takes a shorter structure, as long as the rest is zero.
    const made = linux.syscall3(.landlock_create_ruleset, @intFromPtr(&attributes), @sizeOf(RulesetAttributes), 0);
    const ruleset = sys.mustFd(made, "landlock_create_ruleset", "");
    grantRootEntries(ruleset, all);
    grant(ruleset, open_skills, read_only);
    sys.noNewPrivileges();
    _ = sys.must(linux.syscall2(.landlock_restrict_self, @intCast(ruleset), 0), "landlock_restrict_self");
    _ = linux.close(ruleset);
}

const entry_header = 19;

/// Grants every name in `/` but the private home: a rule on `/` itself would reach below all of them.
fn grantRootEntries(ruleset: sys.Fd, all: u64) void {
    const root = sys.mustFd(sys.openRead("/"), "open", "/");
    var buffer: [8192]u8 align(8) = undefined;
    var names: u32 = 0;
    while (true) {
        const got = sys.must(linux.getdents64(root, &buffer, buffer.len), "read /");
        if (got == 0) break;
        var at: usize = 0;
        while (at < got) {
            sys.assert(at + entry_header < got, "a whole directory entry");
            const length = std.mem.readInt(u16, buffer[at + 16 ..][0..2], .little);
            sys.assert(length > entry_header and at + length <= got, "length of a directory entry");
            const name = std.mem.sliceTo(buffer[at + entry_header .. at + length], 0);
            at += length;
            names += 1;
            if (names > limits.root_names) sys.fail("too many names in", "/", .OVERFLOW);
            grantRootEntry(ruleset, name, all);
        }
    }
    _ = linux.close(root);
}

fn grantRootEntry(ruleset: sys.Fd, name: []const u8, all: u64) void {
    for ([_][]const u8{ ".", "..", private_home }) |skipped| if (std.mem.eql(u8, name, skipped)) return;
    var path: [258]u8 = undefined;
    path[0] = '/';
    @memcpy(path[1..][0..name.len], name);
    path[1 + name.len] = 0;
    for (writable) |place| if (std.mem.eql(u8, name, place)) return grant(ruleset, path[0 .. 1 + name.len :0], all);
    grant(ruleset, path[0 .. 1 + name.len :0], read_only);
}

/// A place that is not there, or not shown to this process, is not granted.
fn grant(ruleset: sys.Fd, path: [:0]const u8, rights: u64) void {
    const opened = linux.openat(linux.AT.FDCWD, path, .{ .PATH = true, .CLOEXEC = true }, 0);
    switch (linux.errno(opened)) {
        .NOENT, .ACCES, .NOTDIR => return,
        else => {},
    }
    const fd = sys.mustFd(opened, "open", path);
    defer _ = linux.close(fd);
    var status: linux.Statx = undefined;
    _ = sys.mustFor(linux.statx(fd, "", linux.AT.EMPTY_PATH, .{ .TYPE = true }, &status), "stat", path);
    const is_directory = status.mode & linux.S.IFMT == linux.S.IFDIR;
    const rule: PathBeneath = .{ .access = if (is_directory) rights else rights & of_files, .parent = fd };
    const LANDLOCK_RULE_PATH_BENEATH = 1;
    const rc = linux.syscall4(.landlock_add_rule, @intCast(ruleset), LANDLOCK_RULE_PATH_BENEATH, @intFromPtr(&rule), 0);
    _ = sys.mustFor(rc, "landlock_add_rule", path);
}
