/** Packs: objects by their index files, deltas resolved, read by ranges. */
import { leave } from '../endings.ts';
import type { Found, Tree } from '../tree/tree.ts';
import { applyDelta } from './delta.ts';
import { type GitObject, inflated, type ObjectKind } from './objects.ts';

const kinds: readonly (ObjectKind | 'offset' | 'reference' | null)[] = [
  null,
  'commit',
  'tree',
  'blob',
  'tag',
  null,
  'offset',
  'reference',
];
/** Deltas on deltas: git makes 50, and at most 4095. */
const deepest = 4096;

export class Packs {
  readonly #tree: Tree;
  readonly #directory: string;
  #packs: Promise<Pack[]> | null = null;

  constructor(tree: Tree, objectsDirectory: string) {
    this.#tree = tree;
    this.#directory = `${objectsDirectory}/pack`;
  }

  async find(hash: string, base: (hash: string) => Promise<GitObject>): Promise<GitObject | null> {
    for (const pack of await this.#all()) {
      const offset = pack.offsetOf(hash);
      if (offset !== null) return pack.read(offset, base);
    }
    return null;
  }

  async has(hash: string): Promise<boolean> {
    return (await this.#all()).some((pack) => pack.offsetOf(hash) !== null);
  }

  async beginningWith(prefix: string): Promise<string[]> {
    return (await this.#all()).flatMap((pack) => pack.beginningWith(prefix));
  }

  async count(): Promise<number> {
    return (await this.#all()).reduce((sum, pack) => sum + pack.count, 0);
  }

  async names(): Promise<string[]> {
    if ((await this.#tree.lstat(this.#directory))?.kind !== 'directory') return [];
    const listed = (await this.#tree.list(this.#directory)).map(({ name }) => name);
    if (listed.some((name) => name.endsWith('.promisor'))) leave('a partial clone');
    return listed.filter((name) => name.endsWith('.idx')).map((name) => name.slice(0, -4));
  }

  /** There is another one. */
  forget(): void {
    this.#packs = null;
  }

  #all(): Promise<Pack[]> {
    this.#packs ??= this.#open();
    return this.#packs;
  }

  async #open(): Promise<Pack[]> {
    const packs: Pack[] = [];
    for (const name of await this.names()) {
      const index = await this.#tree.read(`${this.#directory}/${name}.idx`);
      const file = await this.#tree.find(`${this.#directory}/${name}.pack`);
      if (file) packs.push(new Pack(this.#tree, file, index));
    }
    return packs;
  }
}

class Pack {
  readonly #tree: Tree;
  readonly #file: Found;
  readonly #index: Buffer;
  readonly count: number;
  #ends: Float64Array | null = null;

  constructor(tree: Tree, file: Found, index: Uint8Array) {
    this.#tree = tree;
    this.#file = file;
    this.#index = Buffer.from(index.buffer, index.byteOffset, index.byteLength);
    if (this.#index.length < 1072 || this.#index.readUInt32BE(0) !== 0xff744f63 || this.#index.readUInt32BE(4) !== 2) {
      leave('a pack index of another version');
    }
    this.count = this.#index.readUInt32BE(8 + 255 * 4);
  }

  offsetOf(hash: string): number | null {
    const wanted = Buffer.from(hash, 'hex');
    let [low, high] = this.#range(wanted[0]!);
    while (low < high) {
      const middle = (low + high) >>> 1;
      const at = 1032 + middle * 20;
      const order = this.#index.compare(wanted, 0, 20, at, at + 20);
      if (order === 0) return this.#offset(middle);
      if (order < 0) low = middle + 1;
      else high = middle;
    }
    return null;
  }

  beginningWith(prefix: string): string[] {
    const [low, high] = this.#range(Number.parseInt(prefix.slice(0, 2), 16));
    const found: string[] = [];
    for (let number = low; number < high; number++) {
      const hash = this.#index.toString('hex', 1032 + number * 20, 1052 + number * 20);
      if (hash.startsWith(prefix)) found.push(hash);
    }
    return found;
  }

  async read(offset: number, base: (hash: string) => Promise<GitObject>): Promise<GitObject> {
    const deltas: Uint8Array[] = [];
    for (let at = offset, depth = 0; depth < deepest; depth++) {
      const end = this.#end(at);
      const bytes = await this.#tree.readRange(this.#file, at, end - at);
      let position = 0;
      let byte = bytes[position++]!;
      const kind = kinds[(byte >> 4) & 7];
      while (byte & 0x80) byte = bytes[position++]!;
      if (kind === 'offset') {
        byte = bytes[position++]!;
        let back = byte & 0x7f;
        while (byte & 0x80) {
          byte = bytes[position++]!;
          back = (back + 1) * 128 + (byte & 0x7f);
        }
        deltas.push(inflated(bytes.subarray(position)));
        at -= back;
      } else if (kind === 'reference') {
        const hash = Buffer.from(bytes.subarray(position, position + 20)).toString('hex');
        deltas.push(inflated(bytes.subarray(position + 20)));
        const found = await base(hash);
        return { kind: found.kind, bytes: deltas.reduceRight(applyDelta, found.bytes) };
      } else if (kind) {
        const content = inflated(bytes.subarray(position));
        return { kind, bytes: deltas.reduceRight(applyDelta, content) };
      } else break;
    }
    return leave('a pack that is not as it should be');
  }

  #range(first: number): [number, number] {
    const low = first === 0 ? 0 : this.#index.readUInt32BE(8 + (first - 1) * 4);
    return [low, this.#index.readUInt32BE(8 + first * 4)];
  }

  #offset(number: number): number {
    const offsets = 1032 + this.count * 24;
    const small = this.#index.readUInt32BE(offsets + number * 4);
    if (small < 0x80000000) return small;
    return Number(this.#index.readBigUInt64BE(offsets + this.count * 4 + (small - 0x80000000) * 8));
  }

  /** Where the object at an offset ends: the next one begins, or the pack's checksum. */
  #end(offset: number): number {
    this.#ends ??= Float64Array.from({ length: this.count }, (_, number) => this.#offset(number)).sort();
    let [low, high] = [0, this.#ends.length];
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#ends[middle]! <= offset) low = middle + 1;
      else high = middle;
    }
    return this.#ends[low] ?? this.#file.status.size - 20;
  }
}
