//! Two system-call filters that deny by name, and one that allows by name. Kernels newer than this file do not widen the
//! first two: a call number above the last one known here does not exist for the filtered process.
const std = @import("std");
const builtin = @import("builtin");
const linux = std.os.linux;
const sys = @import("sys.zig");

/// What neither the machine nor a holder has any use for: changing the kernel, its clock, its storage, other processes.
const denied_to_all = [_][]const u8{
    "kexec_load",        "kexec_file_load",  "init_module",       "finit_module",    "delete_module",
    "bpf",               "perf_event_open",  "reboot",            "swapon",          "swapoff",
    "ptrace",            "process_vm_readv", "process_vm_writev", "process_madvise", "kcmp",
    "pidfd_getfd",       "acct",             "quotactl",          "quotactl_fd",     "syslog",
    "settimeofday",      "clock_settime",    "clock_adjtime",     "adjtimex",        "iopl",
    "ioperm",            "modify_ldt",       "nfsservctl",        "uselib",          "vhangup",
    "keyctl",            "add_key",          "request_key",       "userfaultfd",     "open_by_handle_at",
    "name_to_handle_at", "fanotify_init",    "lookup_dcookie",    "io_uring_setup",  "io_uring_enter",
    "io_uring_register", "move_pages",       "migrate_pages",
};

/// What the machine needs to start holders, and a holder must not do again.
const denied_to_holder = [_][]const u8{
    "mount",       "umount2",       "pivot_root",  "chroot", "unshare",    "setns",         "open_tree", "open_tree_attr",
    "fsopen",      "fsconfig",      "fsmount",     "fspick", "move_mount", "mount_setattr", "statmount", "listmount",
    "sethostname", "setdomainname", "personality",
};

/// Socket families of a holder: unix, IPv4, IPv6, and netlink, which name resolution asks for addresses.
const holder_families = [_]u32{ 1, 2, 10, 16 };
/// Protocols of these: the family's own (of netlink the one about addresses), and TCP, UDP and ICMP by name. Others, such as
/// multipath TCP or SCTP, reach the same network by a path of the kernel's that fewer eyes have seen.
const holder_protocols = [_]u32{ 0, 1, 6, 17, 58 };

/// All that a relay does once it runs.
const allowed_to_relay = [_][]const u8{
    "read", "write", "sendto", "poll", "ppoll", "exit", "exit_group", "restart_syscall", "rt_sigreturn",
};

const allow: u32 = 0x7fff0000;
const kill_process: u32 = 0x80000000;
fn failWith(comptime e: linux.E) u32 {
    return 0x00050000 | @as(u32, @backingInt(e));
}

const namespace_flags: u32 = sys.CLONE_NEWNS | sys.CLONE_NEWCGROUP | sys.CLONE_NEWUTS | sys.CLONE_NEWIPC |
    sys.CLONE_NEWUSER | sys.CLONE_NEWPID | sys.CLONE_NEWNET;
const TIOCSTI = 0x5412;
const TIOCLINUX = 0x541c;

const architecture: u32 = switch (builtin.cpu.arch) {
    .x86_64 => 0xc000003e,
    .aarch64 => 0xc00000b7,
    else => @compileError("confined-exec has no seccomp filter for this architecture"),
};

const Instruction = extern struct { code: u16, jump_true: u8 = 0, jump_false: u8 = 0, k: u32 };
const Program = extern struct { length: u16, filter: [*]const Instruction };

const load_word: u16 = 0x20;
const jump_equal: u16 = 0x15;
const jump_greater: u16 = 0x25;
const jump_bits: u16 = 0x45;
const give: u16 = 0x06;
const at_number: u32 = 0;
const at_architecture: u32 = 4;
/// Offset of the low half of an argument, on the little-endian machines this file knows.
fn atArgument(comptime index: u32) u32 {
    return 16 + 8 * index;
}

/// Builds a filter at compile time. Every check either gives a verdict or leaves the call's number loaded.
const Builder = struct {
    list: [256]Instruction = undefined,
    length: usize = 0,

    fn add(self: *Builder, comptime instruction: Instruction) void {
        self.list[self.length] = instruction;
        self.length += 1;
    }

    fn verdict(self: *Builder, comptime k: u32) void {
        self.add(.{ .code = give, .k = k });
    }

    /// Another architecture's calls have other numbers: the process is ended.
    fn start(self: *Builder) void {
        self.add(.{ .code = load_word, .k = at_architecture });
        self.add(.{ .code = jump_equal, .jump_true = 1, .k = architecture });
        self.verdict(kill_process);
        self.add(.{ .code = load_word, .k = at_number });
    }

    /// Also refuses the x32 calls of x86-64, whose numbers are above all others.
    fn refuseUnknown(self: *Builder) void {
        self.add(.{ .code = jump_greater, .jump_false = 1, .k = last_known });
        self.verdict(failWith(.NOSYS));
    }

    fn onCall(self: *Builder, comptime name: []const u8, comptime k: u32) void {
        // Not every architecture has every call.
        if (!@hasField(linux.SYS, name)) return;
        self.add(.{ .code = jump_equal, .jump_false = 1, .k = @backingInt(@field(linux.SYS, name)) });
        self.verdict(k);
    }

    fn refuseNamespaceClone(self: *Builder) void {
        self.add(.{ .code = jump_equal, .jump_false = 4, .k = @backingInt(linux.SYS.clone) });
        self.add(.{ .code = load_word, .k = atArgument(0) });
        self.add(.{ .code = jump_bits, .jump_false = 1, .k = namespace_flags });
        self.verdict(failWith(.PERM));
        self.verdict(allow);
    }

    /// Limits of another process: a tool could take from Hermes, whose user it is, the descriptors and the memory it needs.
    fn refuseLimitsOfOthers(self: *Builder) void {
        self.add(.{ .code = jump_equal, .jump_false = 4, .k = @backingInt(linux.SYS.prlimit64) });
        self.add(.{ .code = load_word, .k = atArgument(0) });
        self.add(.{ .code = jump_equal, .jump_true = 1, .k = 0 });
        self.verdict(failWith(.PERM));
        self.verdict(allow);
    }

    /// Pushing characters into a terminal types commands for whoever reads it.
    fn refuseTerminalInjection(self: *Builder) void {
        self.add(.{ .code = jump_equal, .jump_false = 5, .k = @backingInt(linux.SYS.ioctl) });
        self.add(.{ .code = load_word, .k = atArgument(1) });
        self.add(.{ .code = jump_equal, .jump_true = 1, .k = TIOCSTI });
        self.add(.{ .code = jump_equal, .jump_false = 1, .k = TIOCLINUX });
        self.verdict(failWith(.PERM));
        self.verdict(allow);
    }

    fn refuseOtherSockets(self: *Builder) void {
        const skipped = holder_families.len + holder_protocols.len + 5;
        self.add(.{ .code = jump_equal, .jump_false = skipped, .k = @backingInt(linux.SYS.socket) });
        self.requireOneOf(atArgument(0), &holder_families, failWith(.AFNOSUPPORT));
        self.requireOneOf(atArgument(2), &holder_protocols, failWith(.PROTONOSUPPORT));
        self.verdict(allow);
    }

    /// Goes on behind itself when the word is one of `values`: `values.len + 2` instructions.
    fn requireOneOf(self: *Builder, comptime word: u32, comptime values: []const u32, comptime refusal: u32) void {
        self.add(.{ .code = load_word, .k = word });
        for (values, 0..) |value, index| {
            self.add(.{ .code = jump_equal, .jump_true = @intCast(values.len - index), .k = value });
        }
        self.verdict(refusal);
    }
};

const last_known: u32 = last: {
    @setEvalBranchQuota(10_000);
    var highest: u32 = 0;
    for (@typeInfo(linux.SYS).@"enum".field_values) |value| highest = @max(highest, value);
    break :last highest;
};

const machine_filter = filter: {
    @setEvalBranchQuota(100_000);
    var builder: Builder = .{};
    builder.start();
    builder.refuseUnknown();
    for (denied_to_all) |name| builder.onCall(name, failWith(.PERM));
    builder.verdict(allow);
    break :filter builder.list[0..builder.length].*;
};

const holder_filter = filter: {
    @setEvalBranchQuota(100_000);
    var builder: Builder = .{};
    builder.start();
    builder.refuseUnknown();
    // glibc falls back to clone, whose flags can be read here; those of clone3 cannot.
    builder.onCall("clone3", failWith(.NOSYS));
    for (denied_to_all) |name| builder.onCall(name, failWith(.PERM));
    for (denied_to_holder) |name| builder.onCall(name, failWith(.PERM));
    builder.refuseNamespaceClone();
    builder.refuseLimitsOfOthers();
    builder.refuseTerminalInjection();
    builder.refuseOtherSockets();
    builder.verdict(allow);
    break :filter builder.list[0..builder.length].*;
};

const relay_filter = filter: {
    @setEvalBranchQuota(100_000);
    var builder: Builder = .{};
    builder.start();
    for (allowed_to_relay) |name| builder.onCall(name, allow);
    builder.verdict(kill_process);
    break :filter builder.list[0..builder.length].*;
};

/// For the machine: it may still mount, unshare and enter namespaces.
pub fn confineMachine() void {
    install(&machine_filter);
}

/// For Hermes and all that it starts.
pub fn confineHolder() void {
    install(&holder_filter);
}

/// For the processes that only move FUSE messages.
pub fn confineRelay() void {
    install(&relay_filter);
}

const SECCOMP_SET_MODE_FILTER = 1;
const SECCOMP_GET_ACTION_AVAIL = 2;

fn install(filter: []const Instruction) void {
    const program: Program = .{ .length = @intCast(filter.len), .filter = filter.ptr };
    _ = sys.must(linux.seccomp(SECCOMP_SET_MODE_FILTER, 0, &program), "seccomp");
}

/// Whether this kernel can filter system calls.
pub fn works() linux.E {
    const action: u32 = kill_process;
    return linux.errno(linux.seccomp(SECCOMP_GET_ACTION_AVAIL, 0, &action));
}
