//! `check`: whether this host can run holders, one line a feature, with what to do where it cannot. Every test is made
//! by a child process, so that none changes the next.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const process = @import("process.zig");
const limits = @import("limits.zig");
const control = @import("control.zig");
const identity = @import("identity.zig");
const mounts = @import("mounts.zig");
const landlock = @import("landlock.zig");
const seccomp = @import("seccomp.zig");
const memfd = @import("memfd.zig");

const Feature = struct {
    name: []const u8,
    works: *const fn () linux.E,
    fix: []const u8,
};

const features = [_]Feature{
    .{
        .name = "user namespaces",
        .works = userNamespace,
        .fix = "allow them: sysctl user.max_user_namespaces and kernel.unprivileged_userns_clone=1, kernel.apparmor_restrict_unprivileged_userns=0; in a container a seccomp profile that allows unshare",
    },
    .{
        .name = "users of holders",
        .works = holderUser,
        .fix = "run as a root that has the host ids from 101000 on (in a container without user remapping, or with these ids in its range), or as an ordinary user",
    },
    .{
        .name = "mount namespaces",
        .works = mountNamespace,
        .fix = "in a container add the capability SYS_ADMIN and AppArmor and seccomp profiles that allow mount",
    },
    .{
        .name = "fresh /proc in a PID namespace",
        .works = freshProc,
        .fix = "in a container unmask /proc: --security-opt systempaths=unconfined",
    },
    .{
        .name = "/dev/fuse",
        .works = fuseMount,
        .fix = "load the fuse module, let this user open /dev/fuse (mode 0666, or run as root), in a container pass --device /dev/fuse",
    },
    .{
        .name = "Landlock",
        .works = hasLandlock,
        .fix = "a kernel of 5.13 or newer with CONFIG_SECURITY_LANDLOCK and landlock in the lsm= list",
    },
    .{
        .name = "seccomp filters",
        .works = seccomp.works,
        .fix = "a kernel with CONFIG_SECCOMP_FILTER",
    },
    .{
        .name = "sealed memfds",
        .works = memfd.works,
        .fix = "a kernel with CONFIG_MEMFD_CREATE, and a seccomp profile that allows memfd_create",
    },
};

pub fn run() noreturn {
    var all_work = true;
    for (features) |feature| {
        const e = inChild(feature.works);
        if (e == .SUCCESS) {
            say(&.{ "ok ", feature.name, "\n" });
            continue;
        }
        all_work = false;
        say(&.{ "missing ", feature.name, ": ", feature.fix, " (E", sys.errnoName(e), ")\n" });
    }
    linux.exit_group(if (all_work) 0 else 1);
}

fn say(parts: []const []const u8) void {
    for (parts) |part| _ = linux.write(1, part.ptr, part.len);
}

/// Error numbers fit into an exit code.
fn inChild(works: *const fn () linux.E) linux.E {
    const child = process.fork("check") orelse linux.exit_group(@intCast(@min(255, @backingInt(works()))));
    while (process.reap(true)) |ended| {
        if (ended.pid != child) continue;
        if (ended.status.signal() != 0) return .NOSYS; // Ended by a filter of calls around us.
        return @fromBackingInt(@as(u16, ended.status.code()));
    }
    return .CHILD;
}

fn userNamespace() linux.E {
    return enter(sys.CLONE_NEWUSER);
}

/// Root gives each holder a host user of its own; an ordinary user has only itself to give.
fn holderUser() linux.E {
    if (linux.geteuid() != 0) return .SUCCESS;
    const ends = control.pair();
    const child = process.fork("check") orelse {
        _ = linux.close(ends[0]);
        const e = linux.errno(linux.unshare(sys.CLONE_NEWUSER));
        control.send(ends[1], &[_]u8{@intCast(@min(255, @backingInt(e)))});
        var nothing: [1]u8 = undefined;
        _ = control.receive(ends[1], &nothing, true);
        linux.exit_group(0);
    };
    var entered: [1]u8 = undefined;
    _ = linux.close(ends[1]);
    const message = control.receive(ends[0], &entered, true) orelse return .CHILD;
    if (message.bytes[0] != 0) return @fromBackingInt(@as(u16, message.bytes[0]));
    return identity.canMapOther(child, limits.host_uid_first);
}

/// As a holder of this user does it: an ordinary user's namespaces are made inside a user namespace of its own.
fn enter(kinds: usize) linux.E {
    const uid = linux.geteuid();
    const gid = linux.getegid();
    const e = linux.errno(linux.unshare(sys.CLONE_NEWUSER));
    if (e != .SUCCESS) return e;
    if (uid != 0) identity.mapOwn(uid, gid, false);
    if (kinds == sys.CLONE_NEWUSER) return .SUCCESS;
    return linux.errno(linux.unshare(kinds));
}

fn mountNamespace() linux.E {
    const e = enter(sys.CLONE_NEWNS);
    if (e != .SUCCESS) return e;
    mounts.makePrivate();
    return linux.errno(linux.mount("tmpfs", "/dev", "tmpfs", mounts.MS_NOSUID | mounts.MS_NODEV, @intFromPtr("size=64k")));
}

fn freshProc() linux.E {
    // The supervisor gives the machine a new /proc first; without its namespaces the host's may be masked.
    const e = linux.errno(linux.unshare(if (linux.geteuid() == 0) sys.CLONE_NEWNS | sys.CLONE_NEWPID else sys.CLONE_NEWUSER | sys.CLONE_NEWNS | sys.CLONE_NEWPID));
    if (e != .SUCCESS) return e;
    mounts.makePrivate();
    return inChild(mountProc);
}

fn mountProc() linux.E {
    return linux.errno(linux.mount("proc", "/proc", "proc", mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC, 0));
}

/// The kernel's fixed numbers of /dev/fuse.
const fuse_major = 10;
const fuse_minor = 229;

fn fuseMount() linux.E {
    const e = enter(sys.CLONE_NEWNS);
    if (e != .SUCCESS) return e;
    const opened = linux.openat(linux.AT.FDCWD, "/dev/fuse", .{ .ACCMODE = .RDWR, .CLOEXEC = true }, 0);
    if (linux.errno(opened) != .SUCCESS) return linux.errno(opened);
    // Something else may stand in its place, such as the /dev/null with which containers mask a path.
    var status: linux.Statx = undefined;
    const found = linux.errno(linux.statx(@intCast(opened), "", linux.AT.EMPTY_PATH, .{ .TYPE = true }, &status));
    if (found != .SUCCESS) return found;
    return if (status.rdev_major == fuse_major and status.rdev_minor == fuse_minor) .SUCCESS else .NXIO;
}

fn hasLandlock() linux.E {
    return switch (landlock.version()) {
        .abi => .SUCCESS,
        .none => |e| e,
    };
}
