//! The file tree of a holder. First everything that comes from the host is taken hold of as detached mounts, while the
//! process may still walk the host's directories; then the new root is built from them as the holder's user.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const memfd = @import("memfd.zig");
const manifest = @import("manifest.zig");

pub const MS_RDONLY = 1;
pub const MS_NOSUID = 2;
pub const MS_NODEV = 4;
pub const MS_NOEXEC = 8;
const MS_REC = 16384;
const MS_PRIVATE = 1 << 18;
const MNT_DETACH = 2;

const OPEN_TREE_CLONE = 1;
const AT_RECURSIVE = 0x8000;
const AT_EMPTY_PATH = 0x1000;
const MOVE_MOUNT_F_EMPTY_PATH = 4;
const at_cwd: usize = @bitCast(@as(isize, linux.AT.FDCWD));

const MountAttributes = extern struct { set: u64, clear: u64 = 0, propagation: u64 = 0, userns_fd: u64 = 0 };
const read_only_tree = MS_RDONLY | MS_NOSUID | MS_NODEV;
/// A device node must not be on a `nodev` mount. Read only protects its mode and owner, not what is written through it.
const device_node = MS_RDONLY | MS_NOSUID | MS_NOEXEC;

/// Where the new root is mounted while it is built: a directory that every host has, and that is not needed after the
/// capture.
const building_place = "/dev";
/// Where the FUSE file system is mounted until its directories have been bound to their places.
const fuse_place = ".fuse";

/// System files that programs need and that tell nothing of the host; the ones that exist.
const etc_files = [_][:0]const u8{
    "/etc/alternatives",   "/etc/bash.bashrc", "/etc/ca-certificates", "/etc/ca-certificates.conf", "/etc/crypto-policies",
    "/etc/debian_version", "/etc/fonts",       "/etc/gai.conf",        "/etc/host.conf",            "/etc/hosts",
    "/etc/inputrc",        "/etc/ld.so.cache", "/etc/ld.so.conf",      "/etc/ld.so.conf.d",         "/etc/localtime",
    "/etc/magic",          "/etc/mime.types",  "/etc/nsswitch.conf",   "/etc/os-release",           "/etc/pki",
    "/etc/protocols",      "/etc/resolv.conf", "/etc/services",        "/etc/ssl",                  "/etc/terminfo",
    "/etc/timezone",
};

/// Settings and data of single packages, without which they do not start or not rightly. What an administrator may write a
/// registry, a proxy or a password into is not here: gitconfig, npmrc, pip.conf, wgetrc, maven, php, apt, environment, profile.
const program_settings = [_][:0]const u8{
    "/etc/ImageMagick-6",   "/etc/ImageMagick-7",    "/etc/OpenCL",          "/etc/R",               "/etc/emacs",
    "/etc/ethertypes",      "/etc/ghostscript",      "/etc/glvnd",           "/etc/groff",           "/etc/iproute2",
    "/etc/java-11-openjdk", "/etc/java-17-openjdk",  "/etc/java-21-openjdk", "/etc/java-25-openjdk", "/etc/libreoffice",
    "/etc/lsb-release",     "/etc/mailcap",          "/etc/manpath.config",  "/etc/nanorc",          "/etc/networks",
    "/etc/papersize",       "/etc/perl",             "/etc/python3",         "/etc/python3.11",      "/etc/python3.12",
    "/etc/python3.13",      "/etc/rpc",              "/etc/shells",          "/etc/texmf",           "/etc/vim",
    "/etc/xml",             "/var/cache/fontconfig", "/var/lib/ghostscript", "/var/lib/texmf",       "/var/lib/xml-core",
};

const device_nodes = [_][:0]const u8{ "/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/tty" };

/// Directories that hold programs and libraries: links into `/usr` on most hosts, directories on some.
const system_directories = [_][:0]const u8{ "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32" };

const passwd =
    "root:x:0:0:root:/nonexistent:/usr/sbin/nologin\n" ++
    "agent:x:1000:1000:agent:/tmp/home:/bin/bash\n" ++
    "nobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n";
const group = "root:x:0:\nagent:x:1000:\nnogroup:x:65534:\n";

/// Where the client of git finds the machine, and the host's git (`git.zig`, `git-native.zig`).
const git_socket_target = "/opt/edge/git.sock";
const git_native_target = "/opt/edge/native-git";
const launcher = "/opt/edge/confined-exec";

const Captured = struct { target: [:0]const u8, fd: sys.Fd, is_directory: bool };
const Link = struct { path: [:0]const u8, target: [:0]const u8 };

var captured: [limits.captured_mounts]Captured = undefined;
var captured_count: usize = 0;
var links: [system_directories.len]Link = undefined;
var link_count: usize = 0;
var link_texts: [system_directories.len][limits.path_bytes:0]u8 = undefined;

/// From here on no mount of this process shows up elsewhere, and none of elsewhere here.
pub fn makePrivate() void {
    _ = sys.must(linux.mount(null, "/", null, MS_REC | MS_PRIVATE, 0), "make mounts private");
}

/// Takes hold of everything that comes from the host. Needs the credentials that may walk to it.
pub fn capture(wanted: *const manifest.Manifest) void {
    for (system_directories) |path| captureSystemDirectory(path, wanted);
    for (etc_files ++ program_settings) |path| _ = captureTree(path, path, read_only_tree, true);
    for (device_nodes) |path| _ = captureTree(path, path, device_node, false);
    for (wanted.binds[0..wanted.bind_count]) |bind| _ = captureTree(bind.source, bind.target, read_only_tree, bind.optional);
    if (wanted.git_socket) |path| _ = captureTree(path, git_socket_target, read_only_tree, false);
    if (wanted.native_git) |path| _ = captureTree(path, git_native_target, read_only_tree, true);
}

fn captureSystemDirectory(path: [:0]const u8, wanted: *const manifest.Manifest) void {
    for (wanted.binds[0..wanted.bind_count]) |bind| if (std.mem.eql(u8, bind.target, path)) return;
    const text = &link_texts[link_count];
    const rc = linux.readlink(path, text, text.len);
    switch (linux.errno(rc)) {
        .SUCCESS => {
            text[rc] = 0;
            links[link_count] = .{ .path = path, .target = text[0..rc :0] };
            link_count += 1;
        },
        .INVAL => _ = captureTree(path, path, read_only_tree, false), // A directory, not a link.
        .NOENT => {},
        else => sys.fail("read link", path, linux.errno(rc)),
    }
}

/// False when the source does not exist and that is allowed.
fn captureTree(source: [:0]const u8, target: [:0]const u8, flags: u64, optional: bool) bool {
    const rc = openTree(source);
    switch (linux.errno(rc)) {
        .NOENT, .NOTDIR => if (optional) return false,
        else => {},
    }
    const fd = sys.mustFd(rc, "bind", source);
    setFlags(fd, flags, source);
    sys.assert(captured_count < captured.len, "room for mounts");
    captured[captured_count] = .{ .target = target, .fd = fd, .is_directory = isDirectory(fd, source) };
    captured_count += 1;
    return true;
}

fn openTree(path: [:0]const u8) usize {
    return linux.syscall3(.open_tree, at_cwd, @intFromPtr(path.ptr), OPEN_TREE_CLONE | sys.O_CLOEXEC | AT_RECURSIVE);
}

fn setFlags(fd: sys.Fd, flags: u64, what: [:0]const u8) void {
    const attributes: MountAttributes = .{ .set = flags };
    const rc = linux.syscall5(.mount_setattr, @intCast(fd), @intFromPtr(""), AT_EMPTY_PATH | AT_RECURSIVE, @intFromPtr(&attributes), @sizeOf(MountAttributes));
    _ = sys.mustFor(rc, "mount_setattr", what);
}

fn isDirectory(fd: sys.Fd, what: [:0]const u8) bool {
    var status: linux.Statx = undefined;
    _ = sys.mustFor(linux.statx(fd, "", linux.AT.EMPTY_PATH, .{ .TYPE = true }, &status), "stat", what);
    return status.mode & linux.S.IFMT == linux.S.IFDIR;
}

fn attach(fd: sys.Fd, target: [:0]const u8) void {
    const rc = linux.syscall5(.move_mount, @intCast(fd), @intFromPtr(""), at_cwd, @intFromPtr(relative(target).ptr), MOVE_MOUNT_F_EMPTY_PATH);
    _ = sys.mustFor(rc, "mount", target);
    _ = linux.close(fd);
}

/// What confined-exec places into `/opt/edge`, as descriptors.
pub const Files = struct { program: sys.Fd, start_script: sys.Fd, ca_bundle: ?sys.Fd };

/// Builds everything but the FUSE mount and `/proc`. The current directory becomes the new root.
pub fn build(files: Files, wanted: *const manifest.Manifest) void {
    const options = @intFromPtr(limits.root_tmpfs);
    _ = sys.must(linux.mount("tmpfs", building_place, "tmpfs", MS_NOSUID | MS_NODEV, options), "mount the new root");
    _ = sys.mustFor(linux.chdir(building_place), "chdir", building_place);
    for ([_][:0]const u8{ "/dev", "/dev/pts", "/dev/shm", "/etc", "/proc", "/tmp", "/usr", "/var", "/opt", "/opt/edge", "/workspace", "/artifacts", "/hermes" }) |path| {
        makeDirectory(path);
    }
    for (links[0..link_count]) |link| makeLink(link.target, link.path);
    makeLink("../tmp", "/var/tmp");
    writeText("/etc/passwd", passwd);
    writeText("/etc/group", group);
    for (captured[0..captured_count]) |tree| {
        makeMountPoint(tree.target, tree.is_directory);
        attach(tree.fd, tree.target);
    }
    mountNew("devpts", "/dev/pts", "devpts", MS_NOSUID | MS_NOEXEC, "newinstance,ptmxmode=0666,mode=0620");
    mountNew("tmpfs", "/dev/shm", "tmpfs", MS_NOSUID | MS_NODEV, limits.shm_tmpfs);
    mountNew("tmpfs", "/tmp", "tmpfs", MS_NOSUID | MS_NODEV, limits.tmp_tmpfs);
    makeLink("pts/ptmx", "/dev/ptmx");
    makeLink("/proc/self/fd", "/dev/fd");
    makeLink("/proc/self/fd/0", "/dev/stdin");
    makeLink("/proc/self/fd/1", "/dev/stdout");
    makeLink("/proc/self/fd/2", "/dev/stderr");
    _ = sys.mustFor(linux.mkdir("tmp/home", 0o700), "mkdir", "/tmp/home");
    memfd.copyToFile(files.program, relative(launcher), 0o555);
    memfd.copyToFile(files.start_script, "opt/edge/start.py", 0o444);
    if (files.ca_bundle) |fd| memfd.copyToFile(fd, "opt/edge/ca.pem", 0o444);
    if (wanted.git_socket != null) placeGit(wanted.git_places[0..wanted.git_place_count]);
}

/// Puts the client of git first on the PATH, and in the place of the host's own git: tools also name that by its path.
fn placeGit(places: []const [:0]const u8) void {
    makeDirectory("/opt/edge/bin");
    makeLink("../confined-exec", "/opt/edge/bin/git");
    for (places) |path| {
        if (!isFile(path)) continue;
        const fd = sys.mustFd(openTree(relative(launcher)), "open", launcher);
        setFlags(fd, read_only_tree, launcher);
        attach(fd, path);
    }
}

/// Whether there is a file of its own at a place of the new root: over a link nothing can be mounted for certain.
fn isFile(path: [:0]const u8) bool {
    const AT_SYMLINK_NOFOLLOW = 0x100;
    var status: linux.Statx = undefined;
    const rc = linux.statx(linux.AT.FDCWD, relative(path), AT_SYMLINK_NOFOLLOW, .{ .TYPE = true }, &status);
    return linux.errno(rc) == .SUCCESS and status.mode & linux.S.IFMT == linux.S.IFREG;
}

/// Mounts the FUSE file system at its staging place. The first lookups need somebody who answers.
pub fn mountFuse(device: sys.Fd) void {
    makeDirectory("/" ++ fuse_place);
    var options: [128]u8 = undefined;
    const head = "fd=";
    const tail = ",rootmode=40000,user_id=1000,group_id=1000,default_permissions";
    comptime std.debug.assert(limits.inner_uid == 1000);
    var digits: [20]u8 = undefined;
    const number = sys.decimal(@intCast(device), &digits);
    @memcpy(options[0..head.len], head);
    @memcpy(options[head.len..][0..number.len], number);
    @memcpy(options[head.len + number.len ..][0..tail.len], tail);
    const length = head.len + number.len + tail.len;
    options[length] = 0;
    mountNew("edge", "/" ++ fuse_place, "fuse", MS_NOSUID | MS_NODEV, options[0..length :0]);
}

/// Binds the three directories of the FUSE file system to their places and takes the staging mount away.
pub fn placeFuse() void {
    for ([_][2][:0]const u8{
        .{ fuse_place ++ "/workspace", "/workspace" },
        .{ fuse_place ++ "/artifacts", "/artifacts" },
        .{ fuse_place ++ "/home", "/hermes" },
    }) |place| attach(sys.mustFd(openTree(place[0]), "open", place[0]), place[1]);
    _ = sys.mustFor(linux.umount2(fuse_place, MNT_DETACH), "umount", fuse_place);
    _ = sys.mustFor(linux.rmdir(fuse_place), "rmdir", fuse_place);
}

/// Kernel settings below `/proc` that are not per process: nothing inside may write them, whatever its ids.
const kernel_settings = [_][:0]const u8{ "/proc/sys", "/proc/sysrq-trigger", "/proc/irq", "/proc/bus", "/proc/fs", "/proc/acpi" };

/// Run by the PID namespace's first process: mounts its `/proc` while the host's is still there, makes the new root the
/// only one, and seals it.
pub fn enter() void {
    mountNew("proc", "/proc", "proc", MS_NOSUID | MS_NODEV | MS_NOEXEC, null);
    for (kernel_settings) |path| {
        const rc = openTree(relative(path));
        if (linux.errno(rc) == .NOENT) continue; // Not every kernel has every one.
        const fd = sys.mustFd(rc, "open", path);
        setFlags(fd, MS_RDONLY | MS_NOSUID | MS_NODEV | MS_NOEXEC, path);
        attach(fd, path);
    }
    // The old root ends up on top of the new one, at the same place, and is taken away from there.
    _ = sys.must(linux.pivot_root(".", "."), "pivot_root");
    _ = sys.must(linux.umount2(".", MNT_DETACH), "umount of the host");
    _ = sys.must(linux.chdir("/"), "chdir to the new root");
    const attributes: MountAttributes = .{ .set = read_only_tree };
    const rc = linux.syscall5(.mount_setattr, at_cwd, @intFromPtr("/"), 0, @intFromPtr(&attributes), @sizeOf(MountAttributes));
    _ = sys.must(rc, "read-only root");
}

/// The same place below the current directory, which is the new root.
fn relative(path: [:0]const u8) [:0]const u8 {
    sys.assert(path.len > 1 and path[0] == '/', "absolute path");
    return path[1..];
}

fn mountNew(source: [:0]const u8, target: [:0]const u8, kind: [:0]const u8, flags: u32, options: ?[:0]const u8) void {
    const data = if (options) |text| @intFromPtr(text.ptr) else 0;
    _ = sys.mustFor(linux.mount(source, relative(target), kind, flags, data), "mount", target);
}

fn makeLink(target: [:0]const u8, path: [:0]const u8) void {
    _ = sys.mustFor(linux.symlink(target, relative(path)), "symlink", path);
}

/// Creates a directory below the new root; one that is there already is as good.
fn makeDirectory(path: [:0]const u8) void {
    const rc = linux.mkdir(relative(path), 0o755);
    if (linux.errno(rc) == .EXIST) return;
    _ = sys.mustFor(rc, "mkdir", path);
}

fn makeMountPoint(path: [:0]const u8, is_directory: bool) void {
    var parent: [limits.path_bytes:0]u8 = undefined;
    for (path, 0..) |byte, index| {
        if (byte == '/' and index > 0) {
            parent[index] = 0;
            makeDirectory(parent[0..index :0]);
        }
        parent[index] = byte;
    }
    if (is_directory) return makeDirectory(path);
    const flags: linux.O = .{ .ACCMODE = .RDONLY, .CREAT = true, .CLOEXEC = true };
    const fd = sys.mustFd(linux.openat(linux.AT.FDCWD, relative(path), flags, 0o444), "create", path);
    _ = linux.close(fd);
}

fn writeText(path: [:0]const u8, text: []const u8) void {
    const flags: linux.O = .{ .ACCMODE = .WRONLY, .CREAT = true, .EXCL = true, .CLOEXEC = true };
    const fd = sys.mustFd(linux.openat(linux.AT.FDCWD, relative(path), flags, 0o444), "create", path);
    const written = sys.mustFor(linux.write(fd, text.ptr, text.len), "write", path);
    sys.assert(written == text.len, "a short file written at once");
    _ = linux.close(fd);
}
