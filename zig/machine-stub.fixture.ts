/**
 * What the tests of confined-exec put in the machine's place: a unix socket that takes the `F` and `C` streams of
 * holders, with a file system in memory behind the first. It answers everybody; the gate is not part of it.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MemoryFiles, text } from './memory-files.fixture.ts';

export interface StubOptions {
  readonly token: string;
  /** Whether `go` follows at once on `pid N`. */
  readonly goes?: boolean;
}

/** The machine's end of the FUSE socket. */
export class MachineStub {
  readonly files = new MemoryFiles();
  readonly socket: string;
  readonly #directory = mkdtempSync(join(tmpdir(), 'edge-zig-'));
  readonly #server: net.Server;
  readonly #options: StubOptions;
  readonly #streams = new Set<net.Socket>();
  /** Lines on the control stream, in order. */
  readonly lines: string[] = [];
  readonly pid = Promise.withResolvers<number>();
  /** Called before each reply with the request's opcode. */
  beforeReply: (opcode: number) => void = () => {};
  /** Lookups of this name are never answered. */
  silentOn: string | null = null;
  /** Resolves when such a lookup has come. */
  readonly silenced = Promise.withResolvers<void>();
  control: net.Socket | null = null;
  fuse: net.Socket | null = null;

  private constructor(options: StubOptions) {
    this.#options = options;
    this.socket = join(this.#directory, 'fuse.sock');
    this.#server = net.createServer((stream) => this.#greet(stream));
    for (const path of ['/workspace', '/artifacts/inbound', '/home/skills/one', '/home/logs'])
      this.files.put(path, null);
    this.files.put('/workspace/hello.txt', 'hello from the machine\n');
    this.files.put('/home/.env', 'SECRET=1\n');
    this.files.put('/home/skills/one/SKILL.md', 'a skill\n');
  }

  static async listen(options: StubOptions): Promise<MachineStub> {
    const stub = new MachineStub(options);
    const listening = Promise.withResolvers<void>();
    stub.#server.once('error', listening.reject).listen(stub.socket, listening.resolve);
    await listening.promise;
    return stub;
  }

  #greet(stream: net.Socket): void {
    let pending = Buffer.alloc(0);
    this.#streams.add(stream);
    stream.on('error', () => stream.destroy()); // The holder's end is the subject of the tests, and is seen there.
    stream.on('close', () => this.#streams.delete(stream));
    const first = (data: Buffer): void => {
      pending = Buffer.concat([pending, data]);
      if (pending.length < 65) return;
      stream.off('data', first);
      const rest = pending.subarray(65);
      if (pending.toString('latin1', 0, 64) !== this.#options.token) stream.destroy();
      else if (pending[64] === 0x46) this.#serveFiles(stream, rest);
      else if (pending[64] === 0x43) this.#converse(stream, rest);
      else stream.destroy();
    };
    stream.on('data', first);
  }

  #converse(stream: net.Socket, rest: Buffer): void {
    this.control = stream;
    let pending = '';
    const take = (data: Buffer): void => {
      pending += data.toString();
      const lines = pending.split('\n');
      pending = lines.pop() ?? '';
      for (const line of lines) {
        this.lines.push(line);
        if (!line.startsWith('pid ')) continue;
        this.pid.resolve(Number(line.slice(4)));
        if (this.#options.goes ?? true) stream.write('go\n');
      }
    };
    stream.on('data', take);
    take(rest);
  }

  /** Tells the kernel to forget what it knows of `name` in `directory`. */
  invalidate(directory: string, name: string): void {
    const bytes = Buffer.from(`${name}\0`);
    const message = Buffer.alloc(16 + 16 + bytes.length);
    message.writeUInt32LE(message.length, 0);
    message.writeInt32LE(3, 4); // FUSE_NOTIFY_INVAL_ENTRY
    message.writeBigUInt64LE(BigInt(this.files.id(directory)), 16);
    message.writeUInt32LE(bytes.length - 1, 24);
    bytes.copy(message, 32);
    this.fuse?.write(message);
  }

  /** Tells the kernel to forget the attributes, and from `offset` on the pages, of a file. */
  invalidateInode(path: string, offset: bigint): void {
    const message = Buffer.alloc(16 + 24);
    message.writeUInt32LE(message.length, 0);
    message.writeInt32LE(2, 4); // FUSE_NOTIFY_INVAL_INODE
    message.writeBigUInt64LE(BigInt(this.files.id(path)), 16);
    message.writeBigInt64LE(offset, 24);
    this.fuse?.write(message);
  }

  #isSilentOn(opcode: number, body: Buffer): boolean {
    if (opcode !== 1 || this.silentOn === null || text(body, 0) !== this.silentOn) return false;
    this.silenced.resolve();
    return true;
  }

  #serveFiles(stream: net.Socket, rest: Buffer): void {
    this.fuse = stream;
    let pending = Buffer.alloc(0);
    const take = (data: Buffer): void => {
      pending = Buffer.concat([pending, data]);
      while (pending.length >= 40 && pending.length >= pending.readUInt32LE(0)) {
        const length = pending.readUInt32LE(0);
        const message = pending.subarray(0, length);
        pending = pending.subarray(length);
        const header = message.subarray(0, 40);
        if (this.#isSilentOn(header.readUInt32LE(4), message.subarray(40))) continue;
        const answer = this.files.answer(
          header.readUInt32LE(4),
          Number(header.readBigUInt64LE(16)),
          header,
          message.subarray(40),
        );
        this.beforeReply(header.readUInt32LE(4));
        if (answer !== null) stream.write(reply(header.readBigUInt64LE(8), answer));
      }
    };
    stream.on('data', take);
    take(rest);
  }

  close(): void {
    for (const stream of this.#streams) stream.destroy();
    this.#server.close();
    rmSync(this.#directory, { recursive: true, force: true });
  }
}

function reply(unique: bigint, answer: Buffer | number): Buffer {
  const body = typeof answer === 'number' ? Buffer.alloc(0) : answer;
  const header = Buffer.alloc(16);
  header.writeUInt32LE(16 + body.length, 0);
  header.writeInt32LE(typeof answer === 'number' ? -answer : 0, 4);
  header.writeBigUInt64LE(unique, 8);
  return Buffer.concat([header, body]);
}
