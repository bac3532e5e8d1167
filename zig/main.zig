//! confined-exec: the one program that confines the others. Its mode is its first argument; under the name `git` it is the
//! client of HyperSH Git. See README.md.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const supervise = @import("supervise.zig");
const holder = @import("holder.zig");
const shell = @import("shell.zig");
const guard = @import("guard.zig");
const check = @import("check.zig");
const git = @import("git.zig");

/// A failed safety check ends the process at once; there is nothing to unwind.
pub const panic = std.debug.no_panic;
/// No handler that prints a stack nobody can read: it would be most of the program.
pub const std_options: std.Options = .{ .enable_segfault_handler = false };

const usage = "usage: confined-exec supervise -- program args.. | holder | shell n candidate1..n argv0.. | guard directory port.. | check\n";

pub fn main(init: std.process.Init.Minimal) noreturn {
    const args = init.args.vector;
    // The kernel ends both lists with null, which the functions below rely on.
    const argv: [*]const ?[*:0]const u8 = @ptrCast(args.ptr);
    const envp: [*:null]const ?[*:0]const u8 = @ptrCast(init.environ.block.slice.ptr);
    if (gitName(argv[0])) |first| {
        sys.mode = "git";
        git.run(.{ .first = first, .argv = @ptrCast(argv), .count = args.len, .variables = envp });
    }
    const mode: []const u8 = if (args.len > 1) std.mem.span(args[1]) else "";
    sys.mode = mode;
    if (std.mem.eql(u8, mode, "holder") and args.len == 2) holder.run();
    if (std.mem.eql(u8, mode, "check") and args.len == 2) check.run();
    if (std.mem.eql(u8, mode, "guard")) guard.run(argv[2..args.len]);
    if (std.mem.eql(u8, mode, "shell")) shell.run(argv[2..args.len], envp);
    if (std.mem.eql(u8, mode, "supervise") and args.len > 3 and std.mem.eql(u8, std.mem.span(args[2]), "--")) {
        supervise.run(@ptrCast(argv + 3), envp);
    }
    _ = linux.write(2, usage, usage.len);
    linux.exit_group(2);
}

/// Whether this is started as git: by its path, whatever the caller chose as the program's name, or by that name.
fn gitName(argv0: ?[*:0]const u8) ?[:0]const u8 {
    const executed = linux.getauxval(std.elf.AT.EXECFN);
    if (executed != 0) if (git.nameOfGit(std.mem.span(@as([*:0]const u8, @ptrFromInt(executed))))) |first| return first;
    return if (argv0) |name| git.nameOfGit(std.mem.span(name)) else null;
}
