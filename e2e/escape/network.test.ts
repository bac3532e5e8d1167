/**
 * The network that holders share with the host: the gateway's own doors, other sockets of this host, and where clouds tell
 * machines their secrets. Beside the refusals stands that the network as such works.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, readdirSync, statSync } from 'node:fs';
import { networkInterfaces } from 'node:os';
import { join } from 'node:path';
import { Cell, limitMs, planned } from './cell.fixture.ts';

/** The guard needs root and cgroups; without it these are the residual risk of THREAT_MODEL.md. */
const guarded =
  process.getuid?.() === 0 &&
  ['/sys/fs/cgroup', '/sys/fs/cgroup/unified'].some((place) => existsSync(join(place, 'cgroup.controllers')));

let cell: Cell;
let other: Bun.Server<undefined>;
let denied: Bun.Server<undefined>;
let abstract: Bun.UnixSocketListener<undefined>;
const abstractName = `edge-escape-${crypto.randomUUID()}`;
const own = Object.values(networkInterfaces()).flatMap((all) => all ?? []);
const outside = own.find(({ internal, family }) => !internal && family === 'IPv4')?.address;

const connect = (address: string, port: number) =>
  `(lambda s: (s.settimeout(2), s.connect(('${address}', ${port})), 'connected')[2])(socket.socket(socket.AF_INET${address.includes(':') ? '6' : ''}))`;
const send = (address: string, port: number) =>
  `(lambda s: s.sendto(b'x', ('${address}', ${port})))(socket.socket(socket.AF_INET${address.includes(':') ? '6' : ''}, socket.SOCK_DGRAM))`;

beforeAll(async () => {
  const serve = () => Bun.serve({ hostname: '0.0.0.0', port: 0, fetch: () => new Response('a service of the host') });
  other = serve();
  denied = serve();
  abstract = Bun.listen({ unix: `\0${abstractName}`, socket: { data: () => undefined } });
  cell = await Cell.start({
    // As in a container: then every address of the host is one of the gateway's.
    environment: { EDGE_HOST: '0.0.0.0', EDGE_DENIED_PORTS: String(denied.port) },
  });
}, limitMs);
afterAll(async () => {
  await cell?.stop();
  abstract?.stop(true);
  await other?.stop(true);
  await denied?.stop(true);
}, limitMs);

const port = () => Number(new URL(cell.gateway.url).port);

describe.skipIf(!guarded)('the gateway', () => {
  test.each(['127.0.0.1', '127.1.2.3', '0.0.0.0', '::ffff:127.0.0.1', '::1', '::'])('by %s', async (address) => {
    expect(await cell.tried(connect(address, port()))).toBe('EPERM');
  });

  test("by the host's own address", async () => {
    expect(outside).toBeDefined();
    expect(await cell.tried(connect(outside!, port()))).toMatch(/^(EPERM|ETIMEDOUT|timed out|.*timed out.*)$/);
    // It would answer, if asked by anybody else.
    expect((await fetch(`http://${outside}:${port()}/healthz`)).status).toBe(200);
  });

  test('by a name, with curl', async () => {
    const { output, code } = await cell.shell(`curl -sS -m 5 http://localhost:${port()}/metrics 2>&1`);
    expect(code).toBe(7);
    expect(output).not.toContain('# HELP');
  });

  test.each(['/healthz', '/readyz', '/metrics', '/openapi.json', '/docs'])(
    'by Hermes itself: the route %s, which asks for no token',
    async (path) => {
      const said = await cell.tool('vision_analyze', {
        image_url: `http://127.0.0.1:${port()}${path}`,
        question: 'what',
      });
      expect(said).not.toMatch(/"success": true/);
    },
  );

  test('every other route asks for a token', async () => {
    const { paths } = (await (await fetch(`${cell.gateway.url}/openapi.json`)).json()) as {
      paths: Record<string, Record<string, unknown>>;
    };
    const open: string[] = [];
    for (const [path, methods] of Object.entries(paths)) {
      for (const method of Object.keys(methods)) {
        const url = `${cell.gateway.url}${path.replaceAll(/\{[^}]+\}/g, 'x')}`;
        const answer = await fetch(url, { method: method.toUpperCase() });
        if (answer.status !== 401) open.push(`${method} ${path}: ${answer.status}`);
      }
    }
    expect(open.toSorted()).toEqual(
      ['/docs', '/healthz', '/metrics', '/openapi.json', '/readyz'].map((path) => `get ${path}: 200`),
    );
  });

  test('what those routes tell names no conversation, no person, no path and no secret', async () => {
    for (const path of ['/healthz', '/readyz', '/metrics']) {
      const text = await (await fetch(`${cell.gateway.url}${path}`)).text();
      for (const word of [
        cell.conversation,
        cell.neighbour,
        'Eleanora',
        cell.scratch,
        ...Object.values(cell.markers),
      ]) {
        expect(text).not.toContain(word);
      }
    }
  });
});

describe.skipIf(!guarded)('other doors of this host', () => {
  test('a port that the operator named', async () => {
    expect(await cell.tried(connect('127.0.0.1', denied.port!))).toBe('EPERM');
    expect(await cell.tried(connect('::ffff:127.0.0.1', denied.port!))).toBe('EPERM');
  });

  test('what nobody denied can be reached: the refusals are not a broken network', async () => {
    expect(await cell.tried(connect('127.0.0.1', other.port!))).toBe('connected');
    expect((await cell.shell(`curl -s -m 5 ${cell.model.url}/models`)).output).toContain('scripted');
  });

  test('what a tool serves itself it can reach', async () => {
    const said = await cell.python(`
import threading
s = socket.socket(); s.bind(('127.0.0.1', 0)); s.listen()
threading.Thread(target=lambda: s.accept()[0].send(b'own')).start()
print(socket.create_connection(s.getsockname()).recv(3).decode())`);
    expect(said).toBe('own');
  });
});

describe.skipIf(!guarded)('cloud metadata', () => {
  const places: readonly (readonly [string, string, number])[] = [
    ['Amazon, Google, Azure, OpenStack', '169.254.169.254', 80],
    ['Amazon ECS', '169.254.170.2', 80],
    ['Amazon EKS', '169.254.170.23', 80],
    ['link-local at large', '169.254.1.1', 8080],
    ['Alibaba', '100.100.100.200', 80],
    ["Azure's wire server", '168.63.129.16', 32526],
    ['Oracle', '192.0.0.192', 80],
    ['Amazon over IPv6', 'fd00:ec2::254', 80],
    ['Google over IPv6', 'fd20:ce::254', 80],
    ['written as IPv6', '::ffff:169.254.169.254', 80],
    ['through a translator', '64:ff9b::a9fe:a9fe', 80],
  ];
  const attempts = places.flatMap(([name, address, at]) => [
    [`${name}, by connecting`, connect(address, at)] as const,
    [`${name}, by sending`, send(address, at)] as const,
  ]);
  test.each(planned(...attempts))('%s', async (_name, expression) =>
    expect(await cell.answer(expression)).toBe('EPERM'),
  );

  test('by Hermes itself', async () => {
    const said = await cell.tool('vision_analyze', {
      image_url: 'http://169.254.169.254/latest/meta-data/',
      question: 'what',
    });
    expect(said).not.toMatch(/"success": true/);
  });

  test('by numbers that mean the same', async () => {
    const { output } = await cell.shell(
      "for u in http://2852039166/ http://0xa9fea9fe/ http://0251.0376.0251.0376/ http://169.254.43518/; do curl -s -m 3 -o /dev/null -w '%{http_code} %{errormsg}\\n' $u; done",
    );
    for (const line of output.split('\n')) expect(line).toStartWith('000 ');
  });
});

describe('unix sockets', () => {
  test('an abstract one of the host', async () => {
    expect(await cell.tried(`socket.socket(socket.AF_UNIX).connect('\\0${abstractName}')`)).toBe('EPERM');
    // It takes anybody else.
    await new Promise<void>((resolve, reject) => {
      Bun.connect({
        unix: `\0${abstractName}`,
        socket: {
          open: (socket) => {
            socket.end();
            resolve();
          },
          data: () => undefined,
          connectError: (_, error) => reject(error),
        },
      });
    });
  });

  test("those of the gateway, by their paths and by the kernel's list of them", async () => {
    const run = join(cell.gateway.dataDirectory, 'run');
    const sockets = readdirSync(run, { recursive: true, encoding: 'utf8' })
      .map((name) => join(run, name))
      .filter((path) => statSync(path).isSocket());
    expect(sockets.length).toBeGreaterThanOrEqual(3);
    const answers = await cell.triedAll(sockets.map((path) => `socket.socket(socket.AF_UNIX).connect('${path}')`));
    expect(answers).toEqual(sockets.map(() => 'ENOENT'));
    const listed = await cell.python(`
names = {line.split()[7] for line in open('/proc/net/unix') if len(line.split()) > 7}
def connect(name): socket.socket(socket.AF_UNIX).connect('\\0' + name[1:] if name.startswith('@') else name)
connected = [name for name in names if tried(lambda: connect(name)) == 'done']
print(len(names), connected)`);
    expect(listed).toMatch(/^\d+ \[\]$/);
  });

  test('one of its own in the workspace leads nowhere else, and passes only what it has', async () => {
    const said = await cell.python(`
import array
a, b = socket.socketpair()
fd = os.open('/workspace', os.O_RDONLY)
a.sendmsg([b'x'], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array('i', [fd]))])
_, got, *_ = b.recvmsg(1, 64)
mine = array.array('i', got[0][2][:4])[0]
print(tried(lambda: os.open('../hermes/.env', os.O_RDONLY, dir_fd=mine)))
print(tried(lambda: os.open('../..', os.O_PATH, dir_fd=mine) and os.readlink('/proc/self/fd/%d' % os.open('../..', os.O_PATH, dir_fd=mine))))`);
    expect(said.split('\n')).toEqual(['EACCES', '/']);
  });
});

test('a descriptor of Hermes cannot be asked for over a socket that it serves to tools', async () => {
  // execute_code gives its program a socket to call tools with; what comes back is text, never a descriptor.
  const said = await cell.tool('execute_code', {
    code: `
import os, socket, glob
found = [v for k, v in os.environ.items() if k.startswith('HERMES_RPC_') and v.startswith('/')]
print('socket' if found else 'none')
for path in found:
    s = socket.socket(socket.AF_UNIX); s.settimeout(5)
    try:
        s.connect(path); s.sendall(b'{"tool": "read_file", "args": {"path": "/hermes/.env"}}\\n')
        data, extra, *_ = s.recvmsg(65536, 1024)
        print(len(extra), data[:300])
    except OSError as e: print('refused', e.errno)
`,
  });
  expect(said).not.toContain(cell.markers.dotenv);
  expect(said).not.toMatch(/\\n[1-9]\d* b/);
});

test('after all that no secret is anywhere', async () => expect(await cell.leaks()).toEqual([]));
