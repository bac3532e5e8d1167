//! What a holder is given in memory: sealed memfds that nobody can change while or after they are read.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");

const F_GET_SEALS = 1034;
const F_ADD_SEALS = 1033;
/// SEAL, SHRINK, GROW, WRITE.
pub const all_seals = 0xf;
pub const MFD_CLOEXEC = 1;
pub const MFD_ALLOW_SEALING = 2;

/// Fails unless `fd` is a memfd with all four seals and at most `limit` bytes. Returns its size.
pub fn verify(fd: sys.Fd, what: []const u8, limit: usize) usize {
    const seals = sys.mustFor(linux.fcntl(fd, F_GET_SEALS, 0), what, "seals");
    if (seals & all_seals != all_seals) sys.fail(what, "is not sealed", .PERM);
    const size = sizeOf(fd, what);
    if (size > limit) sys.fail(what, "size", .FBIG);
    return size;
}

fn sizeOf(fd: sys.Fd, what: []const u8) usize {
    var status: linux.Statx = undefined;
    const rc = linux.statx(fd, "", linux.AT.EMPTY_PATH, .{ .SIZE = true }, &status);
    _ = sys.mustFor(rc, what, "size");
    return @intCast(status.size);
}

/// Reads exactly `size` bytes from the start, wherever the writer left the offset.
pub fn read(fd: sys.Fd, what: []const u8, into: []u8) void {
    var done: usize = 0;
    while (done < into.len) {
        const got = sys.mustFor(linux.pread(fd, into.ptr + done, into.len - done, @intCast(done)), what, "read");
        if (got == 0) sys.fail(what, "read", .IO);
        done += got;
    }
}

/// Copies all of `fd` into the new file `path` (relative to the current directory) with exactly `mode`.
pub fn copyToFile(fd: sys.Fd, path: [:0]const u8, mode: linux.mode_t) void {
    const flags: linux.O = .{ .ACCMODE = .WRONLY, .CREAT = true, .EXCL = true, .CLOEXEC = true };
    const out = sys.mustFd(linux.openat(linux.AT.FDCWD, path, flags, mode), "create", path);
    var offset: linux.off_t = 0;
    while (sys.mustFor(linux.sendfile(out, fd, &offset, 1 << 30), "copy", path) != 0) {}
    _ = linux.close(out);
}

/// Whether this kernel can make and seal a memfd.
pub fn works() linux.E {
    const made = linux.memfd_create("check", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    if (linux.errno(made) != .SUCCESS) return linux.errno(made);
    const fd: sys.Fd = @intCast(made);
    defer _ = linux.close(fd);
    return linux.errno(linux.fcntl(fd, F_ADD_SEALS, all_seals));
}
