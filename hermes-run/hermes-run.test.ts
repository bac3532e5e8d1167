import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { createHash, randomBytes } from 'node:crypto';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type Attachment, AttachRefused, attach } from './client.ts';
import { maxFrameBytes } from './protocol.ts';
import { type Admissions, type RelayedChild, type RelayServer, serveHermesRun } from './server.ts';

const token = 'a'.repeat(64);
const conversation = `conv_${'x'.repeat(26)}`;
const other = `conv_${'y'.repeat(26)}`;

/** A real process whose raw ends are relayed, as the machine does it. */
class ProcessChild implements RelayedChild {
  readonly generation = 1;
  readonly process;
  readonly #reader;
  #pending: Promise<Uint8Array | null> | null = null;

  constructor(command: string[]) {
    this.process = Bun.spawn(command, { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' });
    this.#reader = this.process.stdout.getReader();
  }

  async write(bytes: Uint8Array): Promise<void> {
    this.process.stdin.write(bytes);
    await this.process.stdin.flush();
  }

  peek(): Promise<Uint8Array | null> {
    this.#pending ??= this.#reader.read().then((next) => (next.done ? null : next.value));
    return this.#pending;
  }

  take(): void {
    this.#pending = null;
  }
}

class OneChild implements Admissions {
  readonly released: string[] = [];
  readonly #waiting: (() => void)[] = [];
  #attached = false;
  readonly child: RelayedChild;

  constructor(child: RelayedChild) {
    this.child = child;
  }

  async admit(wanted: string) {
    if (wanted !== conversation) return refused('unknown-conversation');
    if (this.#attached) return refused('busy');
    this.#attached = true;
    return { outcome: 'admitted', child: this.child, admission: 'warm', admissionMs: 0 } as const;
  }

  release(_: RelayedChild, how: 'detached' | 'abandoned'): void {
    this.#attached = false;
    this.released.push(how);
    for (const resolve of this.#waiting.splice(0)) resolve();
  }

  async nextRelease(): Promise<string> {
    if (this.released.length === 0) await new Promise<void>((resolve) => this.#waiting.push(resolve));
    return this.released.shift() as string;
  }
}

const refused = (refusal: 'unknown-conversation' | 'busy') =>
  ({ outcome: 'refused', refusal, detail: refusal }) as const;

let directory: string;
let socketPath: string;
let server: RelayServer | null;
let children: ProcessChild[];
let troubles: string[];

beforeEach(() => {
  directory = mkdtempSync(join(tmpdir(), 'hermes-run-'));
  socketPath = join(directory, 's');
  server = null;
  children = [];
  troubles = [];
});

afterEach(() => {
  server?.stop();
  for (const child of children) child.process.kill('SIGKILL');
  rmSync(directory, { recursive: true });
});

function serve(command: string[], options: { stallMs?: number; prefaceMs?: number; maxPeers?: number } = {}) {
  const child = new ProcessChild(command);
  children.push(child);
  const admissions = new OneChild(child);
  server = serveHermesRun({
    socketPath,
    token,
    admissions,
    maxPeers: 8,
    onTrouble: (reason) => troubles.push(reason),
    ...options,
  });
  return admissions;
}

const connect = (overrides: Partial<Parameters<typeof attach>[0]> = {}) =>
  attach({ socketPath, token, conversation, session: null, signal: AbortSignal.timeout(10_000), ...overrides });

async function refusalOf(attempt: Promise<Attachment>): Promise<string> {
  try {
    (await attempt).abandon();
  } catch (error) {
    if (error instanceof AttachRefused) return error.refusal;
    throw error;
  }
  return 'attached';
}

/** Sends raw bytes as a stranger would; resolves with all that came back before the server closed. */
async function stranger(bytes: Uint8Array, halfClose = false): Promise<string> {
  const closed = Promise.withResolvers<void>();
  const received: Buffer[] = [];
  const socket = await Bun.connect({
    unix: socketPath,
    allowHalfOpen: true,
    socket: {
      data: (_, chunk) => void received.push(Buffer.from(chunk)),
      end: (peer) => void peer.end(),
      close: () => closed.resolve(),
    },
  });
  socket.write(bytes);
  if (halfClose) socket.shutdown();
  await closed.promise;
  return Buffer.concat(received).toString('latin1');
}

describe('relay', () => {
  test('50 MiB of random bytes, broken JSON and invalid UTF-8 keep their digest both ways (must show 2)', async () => {
    serve(['cat']);
    const peer = await connect();
    const sent = createHash('sha256');
    const received = createHash('sha256');
    const total = 50 * 1024 * 1024;
    const reading = (async () => {
      let count = 0;
      const reader = peer.readable.getReader();
      while (count < total) {
        const { value } = await reader.read();
        if (!value) break;
        received.update(value);
        count += value.length;
      }
      reader.releaseLock();
      return count;
    })();
    const writer = peer.writable.getWriter();
    const hostile = Buffer.from('{"jsonrpc":"2.0",\n\n\xff\xfe{"broken\r\n\0', 'latin1');
    let written = 0;
    while (written < total) {
      const chunk = Buffer.concat([hostile, randomBytes(1_000_003)]).subarray(0, total - written);
      sent.update(chunk);
      await writer.write(chunk);
      written += chunk.length;
    }
    expect(await reading).toBe(total);
    expect(received.digest('hex')).toBe(sent.digest('hex'));
  }, 60_000);

  test('a line cut at detach goes on at the next attach, no byte lost', async () => {
    const admissions = serve(['sh', '-c', 'printf "one\\ntw"; read x; printf "o\\nthree\\n"; read y']);
    const first = await connect();
    const reader = first.readable.getReader();
    const seen = Buffer.from((await reader.read()).value ?? []).toString();
    expect(seen).toBe('one\ntw');
    const left = await first.detach();
    expect(Buffer.from(left).toString()).toBe('tw');
    expect(await admissions.nextRelease()).toBe('detached');

    const second = await connect({ carried: { generation: 1, bytes: left } });
    const writer = second.writable.getWriter();
    await writer.write(Buffer.from('go\n'));
    let text = '';
    const again = second.readable.getReader();
    while (!text.endsWith('three\n')) text += Buffer.from((await again.read()).value ?? []).toString();
    expect(text).toBe('two\nthree\n');
  });

  test('left-over bytes of another child are not mixed in', async () => {
    serve(['sh', '-c', 'read x; echo "$x"']);
    const peer = await connect({ carried: { generation: 99, bytes: Buffer.from('old') } });
    await peer.writable.getWriter().write(Buffer.from('new\n'));
    const { value } = await peer.readable.getReader().read();
    expect(Buffer.from(value ?? []).toString()).toBe('new\n');
  });

  test('a child that floods while nobody is attached waits; its output is bounded and whole afterwards', async () => {
    const admissions = serve(['sh', '-c', 'read x; head -c 20000000 /dev/zero; echo end; read y']);
    const first = await connect();
    await first.writable.getWriter().write(Buffer.from('go\n'));
    // What came before the detach was complete has no line end yet: it is all left over for the next one.
    let count = (await first.detach()).length;
    await admissions.nextRelease();
    const before = process.memoryUsage.rss();
    await Bun.sleep(300);
    expect(process.memoryUsage.rss() - before).toBeLessThan(15_000_000);
    const second = await connect();
    const reader = second.readable.getReader();
    while (count < 20_000_004) {
      const { value, done } = await reader.read();
      if (done) break;
      count += value.length;
    }
    expect(count).toBe(20_000_004);
  });

  test('a peer that goes away without the orderly end has abandoned its child', async () => {
    const admissions = serve(['cat']);
    const peer = await connect();
    peer.abandon();
    expect(await admissions.nextRelease()).toBe('abandoned');
  });

  test('the end of the child closes the stream', async () => {
    serve(['sh', '-c', 'read x; echo bye']);
    const peer = await connect();
    await peer.writable.getWriter().write(Buffer.from('go\n'));
    const text = await new Response(peer.readable).text();
    expect(text).toBe('bye\n');
    await peer.closed;
  });
});

describe('refusals (must show 7)', () => {
  test('wrong token, wrong conversation, second attach', async () => {
    serve(['cat']);
    expect(await refusalOf(connect({ token: 'b'.repeat(64) }))).toBe('unauthorized');
    expect(await refusalOf(connect({ conversation: other }))).toBe('unknown-conversation');
    const attached = await connect();
    expect(await refusalOf(connect())).toBe('busy');
    // The one that is attached did not notice.
    await attached.writable.getWriter().write(Buffer.from('still here\n'));
    expect(Buffer.from((await attached.readable.getReader().read()).value ?? []).toString()).toBe('still here\n');
  });

  test.each([
    ['an oversized preface', frame('x'.repeat(maxFrameBytes + 1))],
    ['a length of 4 GiB', Buffer.from([255, 255, 255, 255])],
    ['no JSON', frame('hello')],
    ['invalid UTF-8', frame('"\xff"')],
    [
      'a further member',
      frame(JSON.stringify({ version: 1, token, conversation, session: null, path: '/etc/passwd' })),
    ],
    ['another version', frame(JSON.stringify({ version: 2, token, conversation, session: null }))],
    ['a file request', frame(JSON.stringify({ version: 1, token, read: '/workspace/a' }))],
    ['a hostile session', frame(JSON.stringify({ version: 1, token, conversation, session: "x'; --" }))],
    ['a hostile conversation', frame(JSON.stringify({ version: 1, token, conversation: '../../x', session: null }))],
  ])('%s is refused', async (_, bytes) => {
    serve(['cat']);
    expect(await stranger(bytes)).toContain('"refusal":"bad-preface"');
  });

  test('a half-open peer and one that never sends its preface are cut, others unharmed', async () => {
    serve(['cat'], { prefaceMs: 100 });
    const attached = await connect();
    expect(await stranger(Buffer.from([0, 0]), true)).toBe('');
    expect(await stranger(Buffer.from([0, 0, 0, 9, 123]))).toBe('');
    expect(troubles).toContain('cut: no preface in time');
    expect(troubles).toContain('cut: closed before it was attached');
    await attached.writable.getWriter().write(Buffer.from('ok\n'));
    expect(Buffer.from((await attached.readable.getReader().read()).value ?? []).toString()).toBe('ok\n');
  });

  test('a peer that takes no byte is cut and its child is abandoned', async () => {
    const admissions = serve(['sh', '-c', 'read x; yes'], { stallMs: 200 });
    const socket = await Bun.connect({
      unix: socketPath,
      allowHalfOpen: true,
      socket: {
        open: (peer) => void peer.write(frame(JSON.stringify({ version: 1, token, conversation, session: null }))),
        data() {},
      },
    });
    await Bun.sleep(50);
    socket.pause();
    socket.write('go\n');
    expect(await admissions.nextRelease()).toBe('abandoned');
    expect(troubles).toContain('cut: no byte taken in 200 ms');
    socket.terminate();
  });

  test('one peer more than allowed is closed at once', async () => {
    serve(['cat'], { maxPeers: 1 });
    const attached = await connect();
    await expect(connect()).rejects.toThrow('closed');
    await attached.writable.getWriter().write(Buffer.from('ok\n'));
    expect(Buffer.from((await attached.readable.getReader().read()).value ?? []).toString()).toBe('ok\n');
  });
});

function frame(latin1: string): Buffer {
  const body = Buffer.from(latin1, 'latin1');
  const header = Buffer.alloc(4);
  header.writeUInt32BE(body.length);
  return Buffer.concat([header, body]);
}
