/**
 * What the tests of confined-exec put in the machine's place: a unix socket that takes the `F` and `C` streams of
 * holders, and a small file system in memory behind the first. It answers everybody; the gate is not part of it.
 */
import { mkdtempSync, rmSync } from 'node:fs';
import net from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';

interface Node {
  readonly id: number;
  mode: number;
  data: Buffer;
  readonly children: Map<string, Node> | null;
}

const directoryMode = 0o040755;
const fileMode = 0o100644;
const errno = { ENOENT: 2, ENOSYS: 38, ENOTDIR: 20 } as const;
const maxWrite = 1024 * 1024;

/** One request of the kernel, as far as a stub looks at it. */
interface Request {
  readonly opcode: number;
  readonly unique: bigint;
  readonly node: Node | undefined;
  readonly pid: number;
  readonly uid: number;
  readonly body: Buffer;
}

export class MemoryFiles {
  readonly #nodes = new Map<number, Node>();
  readonly #root = this.#make(directoryMode);
  /** Every pid and uid that asked for something, as the kernel named them. */
  readonly callers = new Set<string>();

  #make(mode: number): Node {
    const isDirectory = (mode & 0o170000) === 0o040000;
    const node: Node = {
      id: this.#nodes.size + 1,
      mode,
      data: Buffer.alloc(0),
      children: isDirectory ? new Map() : null,
    };
    this.#nodes.set(node.id, node);
    return node;
  }

  /** Creates or replaces a file, or a directory when `content` is null, with its parents. */
  put(path: string, content: string | null): void {
    const names = path.split('/').filter((name) => name !== '');
    let node = this.#root;
    for (const [index, name] of names.entries()) {
      const mode = index === names.length - 1 && content !== null ? fileMode : directoryMode;
      const next = node.children?.get(name) ?? this.#make(mode);
      node.children?.set(name, next);
      node = next;
    }
    if (content !== null) node.data = Buffer.from(content);
  }

  #find(path: string): Node | undefined {
    let node: Node | undefined = this.#root;
    for (const name of path.split('/').filter((part) => part !== '')) node = node?.children?.get(name);
    return node;
  }

  /** The content of a file; empty when there is none. */
  bytes(path: string): Buffer {
    return this.#find(path)?.data ?? Buffer.alloc(0);
  }

  /** The content of a file as text, or null. */
  get(path: string): string | null {
    const node = this.#find(path);
    return node?.children === null ? node.data.toString() : null;
  }

  /** The node id of a path; 0 when there is none. */
  id(path: string): number {
    return this.#find(path)?.id ?? 0;
  }

  /** The bytes that follow the reply header, an errno, or null for requests without a reply. */
  answer(opcode: number, nodeId: number, header: Buffer, body: Buffer): Buffer | number | null {
    const request: Request = {
      opcode,
      unique: header.readBigUInt64LE(8),
      node: this.#nodes.get(nodeId),
      uid: header.readUInt32LE(24),
      pid: header.readUInt32LE(32),
      body,
    };
    if (request.pid !== 0) this.callers.add(`${request.pid}:${request.uid}`);
    if (opcode === 2 || opcode === 36 || opcode === 42) return null; // FORGET, INTERRUPT, BATCH_FORGET
    if (opcode === 26) return this.#initialize(body);
    if (request.node === undefined) return errno.ENOENT;
    return this.#onNode(request, request.node);
  }

  #initialize(body: Buffer): Buffer {
    const reply = Buffer.alloc(64);
    reply.writeUInt32LE(7, 0);
    reply.writeUInt32LE(31, 4);
    reply.writeUInt32LE(128 * 1024, 8);
    const bigWrites = (1 << 5) | (1 << 22); // FUSE_BIG_WRITES, FUSE_MAX_PAGES
    reply.writeUInt32LE((body.readUInt32LE(12) & bigWrites) >>> 0, 12);
    reply.writeUInt16LE(16, 16);
    reply.writeUInt16LE(12, 18);
    reply.writeUInt32LE(maxWrite, 20);
    reply.writeUInt32LE(1, 24);
    reply.writeUInt16LE(maxWrite / 4096, 28);
    return reply;
  }

  #onNode(request: Request, node: Node): Buffer | number {
    const { body } = request;
    switch (request.opcode) {
      case 1: // LOOKUP
        return this.#entry(node.children?.get(text(body, 0)));
      case 3: // GETATTR
        return this.#attributes(node);
      case 4: // SETATTR: a new size
        if ((body.readUInt32LE(0) & 8) !== 0) node.data = resize(node.data, Number(body.readBigUInt64LE(16)));
        return this.#attributes(node);
      case 9: // MKDIR
        return this.#entry(this.#add(node, text(body, 8), directoryMode));
      case 14: // OPEN
      case 27: // OPENDIR
        return Buffer.alloc(16);
      case 15: // READ
        return node.data.subarray(Number(body.readBigUInt64LE(8))).subarray(0, body.readUInt32LE(16));
      case 16: // WRITE
        return this.#write(node, Number(body.readBigUInt64LE(8)), body.subarray(40, 40 + body.readUInt32LE(16)));
      case 28: // READDIR
        return this.#list(node, Number(body.readBigUInt64LE(8)), body.readUInt32LE(16));
      case 35: // CREATE
        return Buffer.concat([this.#entry(this.#add(node, text(body, 16), fileMode)), Buffer.alloc(16)]);
      case 18: // RELEASE
      case 20: // FSYNC
      case 25: // FLUSH
      case 29: // RELEASEDIR
        return Buffer.alloc(0);
      case 17: // STATFS
        return Buffer.alloc(80);
      default:
        return errno.ENOSYS;
    }
  }

  #add(parent: Node, name: string, mode: number): Node {
    const node = this.#make(mode);
    parent.children?.set(name, node);
    return node;
  }

  #write(node: Node, offset: number, bytes: Buffer): Buffer {
    if (offset + bytes.length > node.data.length) node.data = resize(node.data, offset + bytes.length);
    bytes.copy(node.data, offset);
    const reply = Buffer.alloc(8);
    reply.writeUInt32LE(bytes.length, 0);
    return reply;
  }

  #list(node: Node, offset: number, size: number): Buffer {
    const out: Buffer[] = [];
    let length = 0;
    for (const [index, [name, child]] of [...(node.children ?? [])].entries()) {
      if (index < offset) continue;
      const bytes = Buffer.from(name);
      const entry = Buffer.alloc(24 + ((bytes.length + 7) & ~7));
      if (length + entry.length > size) break;
      entry.writeBigUInt64LE(BigInt(child.id), 0);
      entry.writeBigUInt64LE(BigInt(index + 1), 8);
      entry.writeUInt32LE(bytes.length, 16);
      entry.writeUInt32LE(child.mode >> 12, 20);
      bytes.copy(entry, 24);
      out.push(entry);
      length += entry.length;
    }
    return Buffer.concat(out);
  }

  #entry(node: Node | undefined): Buffer {
    const reply = Buffer.alloc(128);
    if (node === undefined) return reply; // Node id 0: no such name.
    reply.writeBigUInt64LE(BigInt(node.id), 0);
    writeAttributes(reply, 40, node);
    return reply;
  }

  #attributes(node: Node): Buffer {
    const reply = Buffer.alloc(104);
    writeAttributes(reply, 16, node);
    return reply;
  }
}

function text(body: Buffer, offset: number): string {
  return body.toString('utf8', offset, body.indexOf(0, offset));
}

function resize(data: Buffer, size: number): Buffer {
  const out = Buffer.alloc(size);
  data.copy(out, 0, 0, Math.min(size, data.length));
  return out;
}

function writeAttributes(out: Buffer, at: number, node: Node): void {
  out.writeBigUInt64LE(BigInt(node.id), at);
  out.writeBigUInt64LE(BigInt(node.data.length), at + 8);
  out.writeUInt32LE(node.mode, at + 60);
  out.writeUInt32LE(1, at + 64);
  out.writeUInt32LE(1000, at + 68);
  out.writeUInt32LE(1000, at + 72);
  out.writeUInt32LE(4096, at + 80);
}

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
