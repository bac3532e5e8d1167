//! `supervise -- program args…`: the machine in its own mount and PID namespace. The caller's process stays outside as
//! the supervisor; the first process inside reaps and forwards. Whichever of the two dies, everything inside dies.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");
const identity = @import("identity.zig");
const mounts = @import("mounts.zig");
const seccomp = @import("seccomp.zig");

pub fn run(argv: [*:null]const ?[*:0]const u8, envp: [*:null]const ?[*:0]const u8) noreturn {
    sys.nameProcess("edge-supervise");
    const parent = linux.getppid();
    process.dieWithParent();
    process.blockSignals();
    process.leaveTerminal();
    sys.closeFrom(3);
    enterNamespaces();
    // Entering a user namespace changes the credentials, which forgets the parent-death signal.
    process.dieWithParent();
    if (linux.getppid() != parent) sys.fail("parent", "has gone", .SRCH);

    var ends: [2]sys.Fd = undefined;
    _ = sys.must(linux.pipe2(&ends, .{ .CLOEXEC = true }), "pipe");
    const init = process.fork("init") orelse runInit(argv, envp, ends);
    _ = linux.close(ends[1]);
    process.letGoOfPipes(process.openNull());
    endAsMachine(init, ends[0]);
}

fn enterNamespaces() void {
    const uid = linux.geteuid();
    const gid = linux.getegid();
    if (uid != 0) {
        _ = sys.must(linux.unshare(sys.CLONE_NEWUSER), "unshare user namespace");
        identity.mapOwn(uid, gid, true);
    }
    _ = sys.must(linux.unshare(sys.CLONE_NEWNS | sys.CLONE_NEWPID), "unshare mount and PID namespace");
    mounts.makePrivate();
}

fn runInit(argv: [*:null]const ?[*:0]const u8, envp: [*:null]const ?[*:0]const u8, ends: [2]sys.Fd) noreturn {
    sys.nameProcess("edge-init");
    process.dieWithParent();
    _ = linux.close(ends[0]);
    if (process.readerHasGone(ends[1])) linux.exit_group(sys.exit_failure);
    _ = sys.must(linux.mount("proc", "/proc", "proc", mounts.MS_NOSUID | mounts.MS_NODEV | mounts.MS_NOEXEC, 0), "mount /proc");
    const machine = process.fork("machine") orelse runMachine(argv, envp);
    process.letGoOfPipes(process.openNull());
    const status = process.reapUntil(machine, true);
    // The supervisor reads how the machine ended: this process cannot end itself by a signal.
    _ = linux.write(ends[1], std.mem.asBytes(&status.raw).ptr, @sizeOf(u32));
    linux.exit_group(0);
}

fn runMachine(argv: [*:null]const ?[*:0]const u8, envp: [*:null]const ?[*:0]const u8) noreturn {
    process.noCoreFiles();
    process.limitFiles(limits.machine_files);
    process.restoreSignals();
    sys.closeFrom(3);
    sys.noNewPrivileges();
    seccomp.confineMachine();
    const program = argv[0].?;
    const e = linux.errno(linux.execve(program, argv, envp));
    sys.complain("exec", std.mem.span(program), e);
    linux.exit_group(if (e == .NOENT) sys.exit_not_found else sys.exit_failure);
}

fn endAsMachine(init: process.Pid, read_end: sys.Fd) noreturn {
    const signals = process.signalDescriptor();
    const init_ended = wait: while (true) {
        const signal = process.takeSignal(signals);
        if (signal != process.SIGCHLD) {
            process.kill(init, signal);
            continue;
        }
        while (process.reap(false)) |ended| if (ended.pid == init) break :wait ended.status;
    };
    var status: process.Status = .{ .raw = 0 };
    const got = linux.read(read_end, std.mem.asBytes(&status.raw).ptr, @sizeOf(u32));
    if (linux.errno(got) == .SUCCESS and got == @sizeOf(u32)) process.endLike(status);
    // Without a word from init it failed, and said so, or was killed.
    process.endLike(init_ended);
}
