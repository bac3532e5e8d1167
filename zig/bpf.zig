//! A small assembler for eBPF, and the three calls that this program needs of bpf(2). Programs are built at run time, because
//! they hold ports that only the gateway knows.
const std = @import("std");
const builtin = @import("builtin");
const linux = std.os.linux;
const sys = @import("sys.zig");

/// One of eBPF's registers. `r0` holds the verdict, `r1`–`r5` a call's arguments, which it destroys.
pub const Register = enum(u4) { r0, r1, r2, r3, r4, r5, r6, r7, r8, r9, frame };

const Instruction = extern struct { code: u8, registers: u8, offset: i16 = 0, immediate: i32 = 0 };

/// Where a jump goes: placed once, after all jumps to it.
pub const Label = struct {
    jumps: [256]u16 = undefined,
    count: usize = 0,
};

pub const Assembler = struct {
    list: [1024]Instruction = undefined,
    length: usize = 0,

    const Self = @This();

    fn add(self: *Self, code: u8, destination: Register, source: Register, offset: i16, immediate: i32) void {
        sys.assert(self.length < self.list.len, "room for an instruction");
        const registers = @as(u8, @backingInt(destination)) | @as(u8, @backingInt(source)) << 4;
        self.list[self.length] = .{ .code = code, .registers = registers, .offset = offset, .immediate = immediate };
        self.length += 1;
    }

    pub fn move(self: *Self, destination: Register, source: Register) void {
        self.add(0xbf, destination, source, 0, 0);
    }

    pub fn set(self: *Self, destination: Register, value: i32) void {
        self.add(0xb7, destination, .r0, 0, value);
    }

    pub fn addTo(self: *Self, destination: Register, value: i32) void {
        self.add(0x07, destination, .r0, 0, value);
    }

    pub fn mask(self: *Self, destination: Register, bits: i32) void {
        self.add(0x57, destination, .r0, 0, bits);
    }

    pub fn shiftLeft(self: *Self, destination: Register, bits: i32) void {
        self.add(0x67, destination, .r0, 0, bits);
    }

    pub fn shiftRight(self: *Self, destination: Register, bits: i32) void {
        self.add(0x77, destination, .r0, 0, bits);
    }

    /// Loads are 32 bits wide unless they say otherwise.
    pub fn load(self: *Self, destination: Register, base: Register, offset: i16) void {
        self.add(0x61, destination, base, offset, 0);
    }

    pub fn loadHalf(self: *Self, destination: Register, base: Register, offset: i16) void {
        self.add(0x69, destination, base, offset, 0);
    }

    pub fn loadByte(self: *Self, destination: Register, base: Register, offset: i16) void {
        self.add(0x71, destination, base, offset, 0);
    }

    /// A number in the network's byte order, of 16 or 32 bits, to this machine's.
    pub fn toHost(self: *Self, register: Register, bits: i32) void {
        self.add(0xdc, register, .r0, 0, bits);
    }

    pub fn call(self: *Self, function: i32) void {
        self.add(0x85, .r0, .r0, 0, function);
    }

    pub fn exit(self: *Self) void {
        self.add(0x95, .r0, .r0, 0, 0);
    }

    pub fn jump(self: *Self, label: *Label) void {
        self.mark(label);
        self.add(0x05, .r0, .r0, 0, 0);
    }

    /// Compares the low 32 bits.
    pub fn jumpIfEqual(self: *Self, register: Register, value: u32, label: *Label) void {
        self.mark(label);
        self.add(0x16, register, .r0, 0, @bitCast(value));
    }

    pub fn jumpUnlessEqual(self: *Self, register: Register, value: u32, label: *Label) void {
        self.mark(label);
        self.add(0x56, register, .r0, 0, @bitCast(value));
    }

    fn mark(self: *Self, label: *Label) void {
        sys.assert(label.count < label.jumps.len, "room for a jump");
        label.jumps[label.count] = @intCast(self.length);
        label.count += 1;
    }

    /// The jumps to `label` lead to what is added next.
    pub fn place(self: *Self, label: *Label) void {
        for (label.jumps[0..label.count]) |at| self.list[at].offset = @intCast(self.length - at - 1);
        label.count = 0;
    }

    pub fn program(self: *const Self) []const Instruction {
        return self.list[0..self.length];
    }
};

pub const ProgramType = enum(u32) { cgroup_packet = 8, cgroup_address = 18 };
pub const AttachType = enum(u32) { egress = 1, connect4 = 10, connect6 = 11, send4 = 14, send6 = 15 };

const BPF_PROG_LOAD = 5;
const BPF_PROG_ATTACH = 8;
const BPF_F_ALLOW_MULTI = 2;

const Load = extern struct {
    kind: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32 = 0,
    log_size: u32 = 0,
    log: u64 = 0,
    kernel_version: u32 = 0,
    flags: u32 = 0,
    name: [16]u8 = @splat(0),
    interface: u32 = 0,
    attach_type: u32,
};
const Attach = extern struct { target: u32, program: u32, kind: u32, flags: u32 };

/// The kernel's verifier has the last word on every program.
pub fn load(kind: ProgramType, attach_type: AttachType, instructions: []const Instruction) sys.Fd {
    const license = "";
    const request: Load = .{
        .kind = @backingInt(kind),
        .instruction_count = @intCast(instructions.len),
        .instructions = @intFromPtr(instructions.ptr),
        .license = @intFromPtr(license.ptr),
        .attach_type = @backingInt(attach_type),
    };
    const rc = linux.syscall3(.bpf, BPF_PROG_LOAD, @intFromPtr(&request), @sizeOf(Load));
    return sys.mustFd(rc, "load the program for", @tagName(attach_type));
}

/// Attaches to a cgroup (a descriptor of its directory) for as long as that exists, beside whatever is attached already.
pub fn attach(cgroup: sys.Fd, program: sys.Fd, kind: AttachType) void {
    const request: Attach = .{
        .target = @intCast(cgroup),
        .program = @intCast(program),
        .kind = @backingInt(kind),
        .flags = BPF_F_ALLOW_MULTI,
    };
    const rc = linux.syscall3(.bpf, BPF_PROG_ATTACH, @intFromPtr(&request), @sizeOf(Attach));
    _ = sys.mustFor(rc, "attach the program for", @tagName(kind));
}
