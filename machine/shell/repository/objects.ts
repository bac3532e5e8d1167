/** The objects of one repository: read from loose files and packs, written as loose files. */
import { createHash } from 'node:crypto';
import { deflateSync, inflateSync } from 'node:zlib';
import { BoundedCache } from '../../agentfs/bounded-cache.ts';
import { fatal, leave } from '../endings.ts';
import type { Tree } from '../tree/tree.ts';
import { PackWriter } from './pack-writer.ts';
import { Packs } from './packs.ts';

export type ObjectKind = 'commit' | 'tree' | 'blob' | 'tag';

export interface GitObject {
  readonly kind: ObjectKind;
  readonly bytes: Uint8Array;
}

/** Objects that may be remembered from one call to the next: they never change. */
export type ObjectCache = BoundedCache<string, GitObject>;

export const emptyTree = '4b825dc642cb6eb9a060e54bf8d69288fbee4904';
/** One object, inflated. */
const largestObject = 128 * 1024 ** 2;
const largestRemembered = 1024 ** 2;
/** So many new objects of one call become a pack; fewer become files of their own, as git makes them. */
const packFrom = 100;
/** Bytes of objects that one call may make. */
const largestPack = 1024 ** 3;
export const isHash = (text: string): boolean => /^[0-9a-f]{40}$/.test(text);

export function newObjectCache(bytes: number): ObjectCache {
  return new BoundedCache<string, GitObject>(bytes, (object) => object.bytes.length + 128);
}

export class Objects {
  readonly #tree: Tree;
  readonly #directory: string;
  readonly #cache: ObjectCache;
  readonly #packs: Packs;
  /** Written during this call; contents go when they are in a pack. */
  readonly #made = new Map<string, GitObject | null>();
  /** Of these, what is not yet meant for a file of its own. */
  #pending: string[] = [];
  #pack: PackWriter | null = null;
  #packedBytes = 0;
  readonly #fans = new Set<string>();

  constructor(tree: Tree, gitDirectory: string, cache: ObjectCache, packs?: Packs) {
    this.#tree = tree;
    this.#directory = `${gitDirectory}/objects`;
    this.#cache = cache;
    this.#packs = packs ?? new Packs(tree, this.#directory);
    tree.beforeFlush(() => this.store());
  }

  /** The object, or null where the repository has none of this name. */
  async find(hash: string): Promise<GitObject | null> {
    const known = this.#made.get(hash) ?? this.#cache.get(hash);
    if (known) return known;
    if (this.#pack && this.#made.has(hash)) await this.store();
    if (hash === emptyTree) return { kind: 'tree', bytes: new Uint8Array(0) };
    const object = (await this.#packs.find(hash, (base) => this.read(base))) ?? (await this.#loose(hash));
    if (object && object.bytes.length <= largestRemembered) this.#cache.set(hash, object);
    return object;
  }

  /** The object; git's failure where there is none. */
  async read(hash: string, kind?: ObjectKind): Promise<GitObject> {
    const object = await this.find(hash);
    if (!object) throw fatal(`unable to read ${hash}`);
    if (kind && object.kind !== kind) throw fatal(`object ${hash} is a ${object.kind}, not a ${kind}`);
    return object;
  }

  async has(hash: string): Promise<boolean> {
    // What is only remembered may be gone: another git may have collected it.
    if (this.#made.has(hash)) return true;
    if (await this.#packs.has(hash)) return true;
    return (await this.#tree.lstat(this.#path(hash))) !== null;
  }

  /** Names of objects that begin so, at least four digits. */
  async beginningWith(prefix: string): Promise<string[]> {
    const found = new Set<string>(await this.#packs.beginningWith(prefix));
    for (const hash of this.#made.keys()) if (hash.startsWith(prefix)) found.add(hash);
    const fan = `${this.#directory}/${prefix.slice(0, 2)}`;
    if ((await this.#tree.lstat(fan))?.kind === 'directory') {
      for (const { name } of await this.#tree.list(fan)) {
        const hash = prefix.slice(0, 2) + name;
        if (isHash(hash) && hash.startsWith(prefix)) found.add(hash);
      }
    }
    return [...found].sort();
  }

  /** Names an object and keeps it in the repository. */
  async write(kind: ObjectKind, bytes: Uint8Array): Promise<string> {
    const hash = hashOf(kind, bytes);
    if (await this.has(hash)) return hash;
    const object = { kind, bytes };
    if (bytes.length <= largestRemembered) this.#cache.set(hash, object);
    if (this.#pack) {
      this.#made.set(hash, null);
      this.#addToPack(hash, object);
      return hash;
    }
    this.#made.set(hash, object);
    this.#pending.push(hash);
    if (this.#pending.length >= packFrom) this.#startPack();
    return hash;
  }

  /** Hands everything that was written to the tree: before an index or a reference that speaks of it. */
  async store(): Promise<void> {
    const pending = this.#pending;
    this.#pending = [];
    for (const hash of pending) await this.#storeLoose(hash, this.#made.get(hash)!);
    if (!this.#pack) return;
    const { name, pack, index } = this.#pack.finish();
    this.#pack = null;
    const directory = `${this.#directory}/pack`;
    await this.#tree.makeDirectory(directory);
    await this.#tree.write(`${directory}/${name}.pack`, pack, 0o444);
    await this.#tree.write(`${directory}/${name}.idx`, index, 0o444);
    this.#packs.forget();
  }

  #startPack(): void {
    this.#pack = new PackWriter();
    for (const hash of this.#pending) {
      this.#addToPack(hash, this.#made.get(hash)!);
      this.#made.set(hash, null);
    }
    this.#pending = [];
  }

  #addToPack(hash: string, { kind, bytes }: GitObject): void {
    this.#packedBytes += bytes.length;
    if (this.#packedBytes > largestPack) leave('objects of more bytes than the engine holds');
    this.#pack!.add(hash, kind, bytes);
  }

  async #storeLoose(hash: string, { kind, bytes }: GitObject): Promise<void> {
    const fan = `${this.#directory}/${hash.slice(0, 2)}`;
    if (!this.#fans.has(fan)) {
      await this.#tree.makeDirectory(fan);
      this.#fans.add(fan);
    }
    const whole = Buffer.concat([Buffer.from(`${kind} ${bytes.length}\0`), bytes]);
    await this.#tree.write(this.#path(hash), deflateSync(whole, { level: 1 }), 0o444);
  }

  /** Loose files and packs, for `count-objects`. */
  async looseNames(): Promise<string[]> {
    const names: string[] = [];
    for (const fan of await this.#tree.list(this.#directory)) {
      if (!/^[0-9a-f]{2}$/.test(fan.name)) continue;
      for (const { name } of await this.#tree.list(`${this.#directory}/${fan.name}`)) names.push(fan.name + name);
    }
    return names.filter(isHash);
  }

  async hasPacks(): Promise<boolean> {
    return (await this.#packs.names()).length > 0;
  }

  /** Objects in packs, which is what git counts to choose the length of abbreviations. */
  packedCount(): Promise<number> {
    return this.#packs.count();
  }

  #path(hash: string): string {
    return `${this.#directory}/${hash.slice(0, 2)}/${hash.slice(2)}`;
  }

  async #loose(hash: string): Promise<GitObject | null> {
    const path = this.#path(hash);
    const status = await this.#tree.lstat(path);
    if (status?.kind !== 'file') return null;
    const whole = inflated(await this.#tree.read(path));
    const end = whole.indexOf(0);
    const [kind, size] = Buffer.from(whole.subarray(0, end)).toString('latin1').split(' ');
    const bytes = whole.subarray(end + 1);
    if (!isKind(kind) || bytes.length !== Number(size)) return leave(`loose object ${hash} is not what it says`);
    return { kind, bytes };
  }
}

/** Undoes zlib's compression, within the limit of one object. */
export function inflated(bytes: Uint8Array): Uint8Array {
  try {
    return inflateSync(bytes, { maxOutputLength: largestObject });
  } catch (error) {
    return leave(`an object cannot be inflated: ${error instanceof Error ? error.message : String(error)}`);
  }
}

export function hashOf(kind: ObjectKind, bytes: Uint8Array): string {
  return createHash('sha1').update(`${kind} ${bytes.length}\0`).update(bytes).digest('hex');
}

function isKind(text: string | undefined): text is ObjectKind {
  return text === 'commit' || text === 'tree' || text === 'blob' || text === 'tag';
}
