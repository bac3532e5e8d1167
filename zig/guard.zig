//! `guard <cgroup directory> port…`: keeps all processes of a cgroup from parts of the network that they share with the host.
//! Refused are the addresses at which clouds and hosts speak to their own machines (link-local and metadata; name servers on
//! port 53 excepted), and the given ports of this host, whatever of its addresses they are asked for by.
//!
//! Two kinds of programs do it. Those for connect(2) and sendmsg(2) see the address and refuse with EPERM. The one for packets
//! sees where they are routed, so that it knows this host's own addresses, today's and tomorrow's; it drops.
const std = @import("std");
const linux = std.os.linux;
const sys = @import("sys.zig");
const limits = @import("limits.zig");
const bpf = @import("bpf.zig");

var ports: [limits.guard_ports]u16 = undefined;
var port_count: usize = 0;

pub fn run(args: []const ?[*:0]const u8) noreturn {
    if (args.len < 1 or args.len > 1 + limits.guard_ports) sys.fail("usage: guard directory port..", "", .INVAL);
    for (args[1..]) |text| {
        ports[port_count] = parsePort(std.mem.span(text.?)) orelse sys.fail("port", std.mem.span(text.?), .INVAL);
        port_count += 1;
    }
    const path = args[0].?;
    const cgroup = sys.mustFd(sys.openRead(path), "open", std.mem.span(path));
    guardAddresses(cgroup, .connect4, addresses4);
    guardAddresses(cgroup, .send4, addresses4);
    guardAddresses(cgroup, .connect6, addresses6);
    guardAddresses(cgroup, .send6, addresses6);
    guardPackets(cgroup);
    linux.exit_group(0);
}

fn parsePort(text: []const u8) ?u16 {
    const port = std.fmt.parseUnsigned(u16, text, 10) catch return null;
    return if (port == 0) null else port;
}

const Assembler = bpf.Assembler;
const Label = bpf.Label;

/// Where a check may end.
const Verdicts = struct {
    allow: Label = .{},
    refuse: Label = .{},

    const yes = 1;
    const no = 0;

    fn end(self: *Verdicts, into: *Assembler) void {
        into.place(&self.allow);
        into.set(.r0, yes);
        into.exit();
        into.place(&self.refuse);
        into.set(.r0, no);
        into.exit();
    }
};

/// Offsets in the kernel's `struct bpf_sock_addr`.
const at_address4 = 4;
const at_address6 = 8;
const at_port = 24;

var assembler: Assembler = .{};

fn guardAddresses(cgroup: sys.Fd, kind: bpf.AttachType, check: *const fn (*Assembler, *Verdicts) void) void {
    assembler = .{};
    var verdicts: Verdicts = .{};
    assembler.move(.r6, .r1);
    assembler.load(.r3, .r6, at_port);
    assembler.toHost(.r3, 16);
    check(&assembler, &verdicts);
    verdicts.end(&assembler);
    bpf.attach(cgroup, bpf.load(.cgroup_address, kind, assembler.program()), kind);
}

fn addresses4(into: *Assembler, verdicts: *Verdicts) void {
    into.load(.r2, .r6, at_address4);
    into.toHost(.r2, 32);
    checkAddress4(into, verdicts);
}

fn octets(a: u32, b: u32, c: u32, d: u32) u32 {
    return a << 24 | b << 16 | c << 8 | d;
}

/// Where clouds answer outside of link-local: Alibaba, Azure, Oracle.
const metadata4 = [_]u32{ octets(100, 100, 100, 200), octets(168, 63, 129, 16), octets(192, 0, 0, 192) };
const name_server_port = 53;

/// The address in `r2` and the port in `r3`, both in this machine's order.
fn checkAddress4(into: *Assembler, verdicts: *Verdicts) void {
    var this_host: Label = .{};
    // 0.0.0.0 is this host, too.
    into.jumpIfEqual(.r2, 0, &this_host);
    into.move(.r4, .r2);
    into.shiftRight(.r4, 24);
    into.jumpIfEqual(.r4, 127, &this_host);
    into.jumpIfEqual(.r3, name_server_port, &verdicts.allow);
    into.move(.r4, .r2);
    into.shiftRight(.r4, 16);
    into.jumpIfEqual(.r4, 169 << 8 | 254, &verdicts.refuse);
    for (metadata4) |address| into.jumpIfEqual(.r2, address, &verdicts.refuse);
    into.jump(&verdicts.allow);
    into.place(&this_host);
    checkPort(into, verdicts);
}

fn checkPort(into: *Assembler, verdicts: *Verdicts) void {
    for (ports[0..port_count]) |port| into.jumpIfEqual(.r3, port, &verdicts.refuse);
    into.jump(&verdicts.allow);
}

/// First words of whole networks: fd00:ec2::/32 (Amazon) and fd20:ce::/32 (Google).
const metadata6 = [_]u32{ 0xfd000ec2, 0xfd2000ce };

fn addresses6(into: *Assembler, verdicts: *Verdicts) void {
    const words = [_]bpf.Register{ .r7, .r8, .r9, .r2 };
    for (words, 0..) |word, index| {
        into.load(word, .r6, at_address6 + 4 * @as(i16, @intCast(index)));
        into.toHost(word, 32);
    }
    var outside: Label = .{};
    var embedded: Label = .{};
    var this_host: Label = .{};
    into.jumpUnlessEqual(.r8, 0, &outside);
    // 64:ff9b::/96 is how IPv6 networks write IPv4 addresses.
    var not_translated: Label = .{};
    into.jumpUnlessEqual(.r7, 0x0064ff9b, &not_translated);
    into.jumpIfEqual(.r9, 0, &embedded);
    into.place(&not_translated);
    into.jumpUnlessEqual(.r7, 0, &outside);
    into.jumpIfEqual(.r9, 0xffff, &embedded);
    into.jumpUnlessEqual(.r9, 0, &outside);
    // `::` and `::1`, and the old way of writing an IPv4 address.
    into.jumpIfEqual(.r2, 1, &this_host);
    into.jump(&embedded);

    into.place(&outside);
    into.jumpIfEqual(.r3, name_server_port, &verdicts.allow);
    for (metadata6) |network| into.jumpIfEqual(.r7, network, &verdicts.refuse);
    into.shiftRight(.r7, 22);
    into.jumpIfEqual(.r7, 0xfe80 >> 6, &verdicts.refuse);
    into.jump(&verdicts.allow);

    into.place(&this_host);
    checkPort(into, verdicts);
    into.place(&embedded);
    checkAddress4(into, verdicts);
}

/// Offsets in the kernel's `struct __sk_buff`.
const at_protocol = 16;
const at_interface = 40;
/// The loopback interface of a network namespace is always its first.
const loopback_interface = 1;
const load_bytes = 26;
const tcp = 6;
const udp = 17;
const icmp6 = 58;

fn guardPackets(cgroup: sys.Fd) void {
    assembler = .{};
    var verdicts: Verdicts = .{};
    packets(&assembler, &verdicts);
    verdicts.end(&assembler);
    bpf.attach(cgroup, bpf.load(.cgroup_packet, .egress, assembler.program()), .egress);
}

/// Packets to any of this host's addresses leave through the loopback interface.
fn packets(into: *Assembler, verdicts: *Verdicts) void {
    var version6: Label = .{};
    var ports_at: Label = .{};
    into.move(.r6, .r1);
    into.load(.r2, .r6, at_interface);
    into.jumpUnlessEqual(.r2, loopback_interface, &verdicts.allow);
    into.load(.r2, .r6, at_protocol);
    into.toHost(.r2, 16);
    into.jumpIfEqual(.r2, 0x86dd, &version6);

    take(into, verdicts, 9, 1);
    into.loadByte(.r7, .frame, slot);
    var has_ports4: Label = .{};
    into.jumpIfEqual(.r7, tcp, &has_ports4);
    into.jumpIfEqual(.r7, udp, &has_ports4);
    into.jump(&verdicts.allow);
    into.place(&has_ports4);
    take(into, verdicts, 0, 1);
    // The header's length in words of four bytes.
    into.loadByte(.r7, .frame, slot);
    into.mask(.r7, 0x0f);
    into.shiftLeft(.r7, 2);
    into.jump(&ports_at);

    into.place(&version6);
    take(into, verdicts, 6, 1);
    into.loadByte(.r7, .frame, slot);
    into.jumpIfEqual(.r7, icmp6, &verdicts.allow);
    var has_ports6: Label = .{};
    into.jumpIfEqual(.r7, tcp, &has_ports6);
    // Nobody needs another header in front on the way to oneself; a port could hide behind it.
    into.jumpUnlessEqual(.r7, udp, &verdicts.refuse);
    into.place(&has_ports6);
    into.set(.r7, 40);

    into.place(&ports_at);
    into.addTo(.r7, 2);
    into.move(.r2, .r7);
    takeAt(into, verdicts, 2);
    into.loadHalf(.r3, .frame, slot);
    into.toHost(.r3, 16);
    checkPort(into, verdicts);
}

const slot = -8;

/// Copies bytes of the packet to the stack; a packet that is too short for them is nothing that may leave.
fn take(into: *Assembler, verdicts: *Verdicts, offset: i32, count: i32) void {
    into.set(.r2, offset);
    takeAt(into, verdicts, count);
}

fn takeAt(into: *Assembler, verdicts: *Verdicts, count: i32) void {
    into.move(.r1, .r6);
    into.move(.r3, .frame);
    into.addTo(.r3, slot);
    into.set(.r4, count);
    into.call(load_bytes);
    into.jumpUnlessEqual(.r0, 0, &verdicts.refuse);
}
