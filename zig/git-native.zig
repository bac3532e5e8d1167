//! The native git in the client's place: its child, with everything that the client was given. The client stays to pass
//! signals on and to tell how it ended.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const process = @import("process.zig");

/// Where a holder keeps the host's git, beside which the client stands under git's own names.
pub const program = "/opt/edge/native-git";

/// With which no output waits for a reader at a terminal.
const no_pager = "GIT_PAGER=cat";

pub fn isInstalled() bool {
    const X_OK = 1;
    return linux.errno(linux.access(program, X_OK)) == .SUCCESS;
}

pub const Call = struct {
    /// As the client was given them.
    argv: [*:null]const ?[*:0]const u8,
    variables: [*:null]const ?[*:0]const u8,
    signals: *const process.Interrupts,
};

var environment: [limits.native_variables + 1:null]?[*:0]const u8 = @splat(null);

/// Runs it to its end.
pub fn run(call: Call) process.Status {
    const variables = withoutPager(call.variables);
    // An ignored SIGCHLD, inherited, would take the child's end away unseen.
    process.defaultAction(process.SIGCHLD);
    const parent = linux.getpid();
    const child = process.fork("native git") orelse {
        process.dieWithParent();
        if (linux.getppid() != parent) linux.exit_group(sys.exit_failure);
        call.signals.restore();
        sys.fail("exec", program, linux.errno(linux.execve(program, call.argv, variables)));
    };
    return waitFor(child, call.signals);
}

/// The same variables, and none that makes git start a pager. An environment too large to copy stays as it is.
fn withoutPager(variables: [*:null]const ?[*:0]const u8) [*:null]const ?[*:0]const u8 {
    var count: usize = 0;
    var index: usize = 0;
    while (variables[index]) |entry| : (index += 1) {
        if (std.mem.startsWith(u8, std.mem.span(entry), "GIT_PAGER=")) continue;
        if (count == limits.native_variables) return variables;
        environment[count] = entry;
        count += 1;
    }
    environment[count] = no_pager;
    environment[count + 1] = null;
    return &environment;
}

fn waitFor(child: process.Pid, signals: *const process.Interrupts) process.Status {
    while (true) {
        const signal = signals.wait();
        if (signal.number == process.SIGCHLD) {
            while (process.reap(false)) |ended| if (ended.pid == child) return ended.status;
        } else if (signal.from_process) {
            // One of the terminal's has reached the child as well.
            process.kill(child, signal.number);
        }
    }
}
