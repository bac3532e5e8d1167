//! The cgroups of a holder: made by the machine, with its limits and the guard of the network on them. Only the namespace's
//! first process enters, and with it all that comes from it: the processes around it stay outside, to tell how it ended.
const linux = @import("std").os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const manifest = @import("manifest.zig");

pub const Groups = struct {
    /// Opened by a process that may move others: the kernel asks who opened, not who writes.
    fds: [limits.manifest_cgroups]sys.Fd,
    count: usize,

    pub fn enter(self: *const Groups) void {
        for (self.fds[0..self.count]) |fd| {
            _ = sys.must(linux.write(fd, "0", 1), "enter the cgroup");
        }
        self.close();
        // From here on the holder's own cgroups look like the roots of their hierarchies.
        _ = sys.must(linux.unshare(sys.CLONE_NEWCGROUP), "unshare cgroup namespace");
    }

    pub fn close(self: *const Groups) void {
        for (self.fds[0..self.count]) |fd| _ = linux.close(fd);
    }
};

pub fn open(plan: *const manifest.Manifest) Groups {
    var groups: Groups = .{ .fds = undefined, .count = plan.cgroup_count };
    for (plan.cgroups[0..plan.cgroup_count], groups.fds[0..plan.cgroup_count]) |directory, *fd| {
        var path: [limits.path_bytes + file.len + 1]u8 = undefined;
        @memcpy(path[0..directory.len], directory);
        @memcpy(path[directory.len..][0..file.len], file);
        path[directory.len + file.len] = 0;
        const whole = path[0 .. directory.len + file.len :0];
        fd.* = sys.mustFd(linux.openat(linux.AT.FDCWD, whole, .{ .ACCMODE = .WRONLY, .CLOEXEC = true }, 0), "open", whole);
    }
    return groups;
}

const file = "/cgroup.procs";
