//! `shell <n> <candidate 1..n> <argv0…>`: the door through which Hermes' Python starts every tool process. Confines
//! itself and becomes the first candidate that can be executed, as CPython's own search does.
//!
//! CPython's error pipe is closed on exec, so for it the start has succeeded once confined-exec runs; a program that
//! cannot be executed is told by exit code 126 or 127 and a message instead.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const landlock = @import("landlock.zig");

/// `args` is what follows the word `shell`, ended by null as the kernel gave it.
pub fn run(args: []const ?[*:0]const u8, envp: [*:null]const ?[*:0]const u8) noreturn {
    if (args.len == 0) sys.fail("usage: shell n candidate1..n argv0..", "", .INVAL);
    const count = parseCount(std.mem.span(args[0].?));
    if (args.len < 1 + count + 1) sys.fail("fewer arguments than candidates", "", .INVAL);
    const candidates = args[1 .. 1 + count];
    const argv: [*:null]const ?[*:0]const u8 = @ptrCast(args.ptr + 1 + count);

    sys.closeFrom(3);
    landlock.confine();
    var refusal: linux.E = .SUCCESS;
    for (candidates) |candidate| {
        const e = linux.errno(linux.execve(candidate.?, argv, envp));
        switch (e) {
            .NOENT, .NOTDIR => {},
            else => if (refusal == .SUCCESS) {
                refusal = e;
            },
        }
    }
    if (refusal == .SUCCESS) {
        sys.complain("exec", std.mem.span(candidates[count - 1].?), .NOENT);
        linux.exit_group(sys.exit_not_found);
    }
    sys.fail("exec", std.mem.span(candidates[count - 1].?), refusal);
}

fn parseCount(text: []const u8) usize {
    var number: usize = 0;
    if (text.len == 0 or text.len > 3) sys.fail("number of candidates", "", .INVAL);
    for (text) |byte| {
        if (byte < '0' or byte > '9') sys.fail("number of candidates", "", .INVAL);
        number = number * 10 + (byte - '0');
    }
    if (number == 0 or number > limits.shell_candidates) sys.fail("number of candidates", "", .INVAL);
    return number;
}
