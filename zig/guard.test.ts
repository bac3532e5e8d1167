/** The guard of the network, and the cgroups that a holder enters. They need root and cgroups that can be made. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, mkdirSync, readFileSync, rmdirSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { holderTests, scriptManifest, spawnPlain, token } from './holder.fixture.ts';

const { binary, machine, spawn } = holderTests();

const unified = ['/sys/fs/cgroup/unified', '/sys/fs/cgroup'].find((place) =>
  existsSync(join(place, 'cgroup.controllers')),
);
const possible = process.getuid?.() === 0 && unified !== undefined && existsSync('/usr/bin/python3');
const group = join(unified ?? '', `edge-guard-test.${process.pid}`);

/** Listens on two ports of every address, enters the cgroup, and prints how each attempt ended: `denied` and `open` port. */
const attempts = `
import errno, json, os, socket, sys
group, addresses = sys.argv[1], json.loads(sys.argv[2])
def listener(family, port):
    s = socket.socket(family, socket.SOCK_STREAM); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if family == socket.AF_INET6: s.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    s.bind(('::' if family == socket.AF_INET6 else '0.0.0.0', port)); s.listen(16); return s
denied, open_ = listener(socket.AF_INET, 0), listener(socket.AF_INET, 0)
ports = [s.getsockname()[1] for s in (denied, open_)]
six = [listener(socket.AF_INET6, port) for port in ports]
print(ports[0], flush=True); sys.stdin.readline()
with open(group + '/cgroup.procs', 'w') as f: f.write('0')
def name(e): return errno.errorcode.get(e.errno, 'timed out') if e.errno else 'timed out'
def tcp(address, port):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_STREAM); s.settimeout(0.4)
    try: s.connect((address, port)); return 'connected'
    except OSError as e: return name(e)
def udp(address, port):
    s = socket.socket(socket.AF_INET6 if ':' in address else socket.AF_INET, socket.SOCK_DGRAM)
    try: s.sendto(b'x', (address, port)); return 'sent'
    except OSError as e: return name(e)
def fast(address, port):
    s = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    try: s.sendto(b'x', 0x20000000, (address, port)); return 'sent'
    except OSError as e: return name(e)
out = {}
for a in addresses['here']: out[a] = [tcp(a, p) for p in ports] + [udp(a, p) for p in ports]
for a in addresses['away']: out[a] = [tcp(a, 80), udp(a, 80), udp(a, 53)]
out['fast open'] = [fast('127.0.0.1', ports[0])]
print(json.dumps(out))
`;

const own = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
const ownAddresses = own
  .filter(({ internal, address }) => !internal && !address.startsWith('fe80'))
  .map((one) => one.address);
const loopback = ['127.0.0.1', '127.8.9.10', '0.0.0.0', '::1', '::', '::ffff:127.0.0.1', '::ffff:0.0.0.0'];
const away = [
  '169.254.169.254',
  '169.254.170.2',
  '100.100.100.200',
  '168.63.129.16',
  '192.0.0.192',
  'fe80::1',
  'fd00:ec2::254',
  'fd20:ce::254',
  '::ffff:169.254.169.254',
  '64:ff9b::169.254.169.254',
  '::169.254.169.254',
];

describe.skipIf(!possible)('the guard', () => {
  let results: Record<string, string[]>;

  beforeAll(async () => {
    mkdirSync(group);
    const mapped = ownAddresses.filter((address) => !address.includes(':')).map((address) => `::ffff:${address}`);
    const here = [...loopback, ...ownAddresses, ...mapped];
    const child = spawnPlain(['python3', '-c', attempts, group, JSON.stringify({ here, away })]);
    const denied = await child.line();
    const guard = spawnPlain([binary(), 'guard', group, '1', String(denied), '65535']);
    expect({ code: await guard.exited, said: await guard.stderr }).toEqual({ code: 0, said: '' });
    child.write('\n');
    results = JSON.parse(await child.rest()) as Record<string, string[]>;
    expect(await child.exited).toBe(0);
  }, 60_000);
  afterAll(() => rmdirSync(group));

  test.each(loopback)('%s: the denied port refuses, the other does not', (address) => {
    expect(results[address]).toEqual(['EPERM', 'connected', 'EPERM', 'sent']);
  });

  test("this host's other addresses: nothing arrives at the denied port", () => {
    expect(ownAddresses.length).toBeGreaterThan(0);
    for (const address of [
      ...ownAddresses,
      ...ownAddresses.filter((one) => !one.includes(':')).map((one) => `::ffff:${one}`),
    ]) {
      expect(results[address], address).toEqual(['timed out', 'connected', 'EPERM', 'sent']);
    }
  });

  test.each(away)('%s: refused but for name servers', (address) => {
    expect(results[address]?.slice(0, 2)).toEqual(['EPERM', 'EPERM']);
    expect(results[address]?.[2]).not.toBe('EPERM');
  });

  test('a connection that is made by sending is refused like any other', () => {
    expect(results['fast open']).toEqual(['EPERM']);
  });
});

test.skipIf(!possible)('it names what is wrong and attaches nothing', async () => {
  for (const [args, what] of [
    [['/sys/fs/cgroup/nowhere', '80'], 'open /sys/fs/cgroup/nowhere: ENOENT'],
    [['/usr', '80'], 'attach the program for connect4: EBADF'],
    [['/usr', '0'], 'port 0: EINVAL'],
    [['/usr', '65536'], 'port 65536: EINVAL'],
    [['/usr', '80x'], 'port 80x: EINVAL'],
  ] as const) {
    const child = spawnPlain([binary(), 'guard', ...args]);
    expect({ code: await child.exited, said: await child.stderr }).toEqual({
      code: 126,
      said: `confined-exec guard: ${what}\n`,
    });
  }
});

describe.skipIf(!possible)('the cgroups of a holder', () => {
  const place = join(unified ?? '', `edge-group-test.${process.pid}`);
  afterAll(() => {
    if (existsSync(place)) rmdirSync(place);
  });

  test('Hermes and all from it is in them, the processes around it are not, and inside they look like roots', async () => {
    mkdirSync(place);
    const stub = await machine();
    const script = 'cat /proc/self/cgroup; echo end; read -r line';
    const child = spawn({
      manifest: scriptManifest({ socket: stub.socket, token, script, extra: [`cgroup ${place}`] }),
    });
    const lines: string[] = [];
    for (let line = await child.line(); line !== null && line !== 'end'; line = await child.line()) lines.push(line);
    expect(lines).toContain('0::/');
    const inside = readFileSync(join(place, 'cgroup.procs'), 'utf8').trim().split('\n').map(Number);
    expect(inside).toContain(await stub.pid.promise);
    // Init and Hermes.
    expect(inside.length).toBe(2);
    expect(inside).not.toContain(child.pid);
    child.closeInput();
    await child.exited;
  });

  test('one that does not exist is the end of the start', async () => {
    const stub = await machine();
    const child = spawn({
      manifest: scriptManifest({
        socket: stub.socket,
        token,
        script: 'true',
        extra: ['cgroup /sys/fs/cgroup/nowhere'],
      }),
    });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toContain('open /sys/fs/cgroup/nowhere/cgroup.procs: ENOENT');
  });

  test('protocols that nobody needs have no socket', async () => {
    const stub = await machine();
    const program = `
import socket
for family, kind, protocol in [(2, 1, 0), (2, 1, 6), (2, 2, 17), (10, 1, 0), (16, 3, 0), (2, 1, 262), (2, 1, 132), (2, 2, 136), (16, 3, 9), (16, 3, 16)]:
    try: socket.socket(family, kind, protocol); print("made", end=" ")
    except OSError as e: print(e.errno, end=" ")
`;
    const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'exec python3 -' }) });
    child.write(program);
    child.closeInput();
    expect((await child.rest()).trim().split(' ')).toEqual([
      ...Array<string>(5).fill('made'),
      ...Array<string>(5).fill('93'),
    ]);
  });
});
