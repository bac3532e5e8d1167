/** A small file system in memory that answers the kernel's FUSE requests, for the tests of confined-exec. */

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

/** A zero-ended name in a request. */
export function text(body: Buffer, offset: number): string {
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
