/** References: their files, `packed-refs`, and the logs of what they were. */
import { fatal, leave } from '../endings.ts';
import { binaryOf, binaryOfBytes, bytesOf, compareBinary, textOf } from '../text.ts';
import type { Tree } from '../tree/tree.ts';
import type { Config } from './config.ts';
import { isHash } from './objects.ts';

export interface Ref {
  /** `refs/heads/main`, binary. */
  readonly name: string;
  readonly hash: string;
}

export const noHash = '0'.repeat(40);
const deepest = 5;

export interface LogLine {
  readonly from: string;
  readonly to: string;
  /** `name <email> seconds zone` */
  readonly who: string;
  readonly message: string;
}

export class Refs {
  readonly #tree: Tree;
  readonly #directory: string;
  readonly #config: () => Config;
  readonly #store: () => Promise<void>;
  #packed: Promise<Map<string, { hash: string; peeled: string | null }>> | null = null;

  /** `store` is called before a reference is written: the objects come first. */
  constructor(tree: Tree, gitDirectory: string, config: () => Config, store: () => Promise<void>) {
    this.#store = store;
    this.#tree = tree;
    this.#directory = gitDirectory;
    this.#config = config;
  }

  /** What the file of a reference says: a hash, or another reference's name; null where there is none. */
  async raw(name: string): Promise<{ hash: string } | { target: string } | null> {
    const path = `${this.#directory}/${textOf(name)}`;
    const status = await this.#tree.lstat(path);
    if (status?.kind === 'symlink') leave('a reference that is a symbolic link');
    if (status?.kind === 'file') {
      const text = binaryOfBytes(await this.#tree.read(path));
      if (text.startsWith('ref:')) return { target: text.slice(4).trim() };
      const hash = text.trim().split(/\s/)[0] ?? '';
      if (isHash(hash)) return { hash };
      return leave(`reference ${name} is not what it should be`);
    }
    const packed = (await this.#packedRefs()).get(name);
    return packed ? { hash: packed.hash } : null;
  }

  /** The hash that a reference stands for, through symbolic ones. */
  async hash(name: string): Promise<string | null> {
    const final = await this.final(name);
    return final?.hash ?? null;
  }

  /** The last of a chain of symbolic references, and its hash, if it has been born. */
  async final(name: string): Promise<{ name: string; hash: string | null } | null> {
    let current = name;
    for (let depth = 0; depth <= deepest; depth++) {
      const raw = await this.raw(current);
      if (!raw) return depth === 0 ? null : { name: current, hash: null };
      if ('hash' in raw) return { name: current, hash: raw.hash };
      current = raw.target;
    }
    return leave(`reference ${name} leads round in a circle`);
  }

  /** References below a prefix, sorted by name. */
  async list(prefix = 'refs/'): Promise<Ref[]> {
    const found = new Map<string, string>();
    for (const [name, { hash }] of await this.#packedRefs()) if (name.startsWith(prefix)) found.set(name, hash);
    const walk = async (directory: string): Promise<void> => {
      const path = `${this.#directory}/${textOf(directory)}`;
      if ((await this.#tree.lstat(path))?.kind !== 'directory') return;
      for (const { name, status } of await this.#tree.list(path)) {
        const full = `${directory}/${binaryOf(name)}`;
        if (status.kind === 'directory') await walk(full);
        else if (!name.endsWith('.lock') && full.startsWith(prefix)) {
          const hash = await this.hash(full);
          if (hash) found.set(full, hash);
        }
      }
    };
    const slash = prefix.lastIndexOf('/');
    await walk(slash < 0 ? 'refs' : prefix.slice(0, slash));
    return [...found]
      .map(([name, hash]) => ({ name, hash }))
      .sort((left, right) => compareBinary(left.name, right.name));
  }

  /** Points a reference to an object and logs it. `who` is the committer. */
  async write(name: string, hash: string, log: { who: string; message: string } | null): Promise<void> {
    const from = (await this.hash(name)) ?? noHash;
    await this.#requireNoConflict(name);
    await this.#put(name, `${hash}\n`);
    if (log) await this.appendLog(name, { from, to: hash, ...log });
  }

  /** Points a symbolic reference. */
  async writeSymbolic(name: string, target: string): Promise<void> {
    await this.#put(name, `ref: ${target}\n`);
  }

  async remove(name: string): Promise<void> {
    await this.requireUnlocked(name);
    if ((await this.#packedRefs()).has(name)) await this.requireUnlocked('packed-refs');
    const path = `${this.#directory}/${textOf(name)}`;
    if ((await this.#tree.lstat(path))?.kind === 'file') await this.#tree.remove(path);
    const log = `${this.#directory}/logs/${textOf(name)}`;
    if ((await this.#tree.lstat(log))?.kind === 'file') await this.#tree.remove(log);
    await this.#prune(path);
    await this.#prune(log);
    const packed = await this.#packedRefs();
    if (!packed.delete(name)) return;
    const lines = ['# pack-refs with: peeled fully-peeled sorted \n'];
    for (const [one, { hash, peeled }] of [...packed].sort(([left], [right]) => compareBinary(left, right))) {
      lines.push(`${hash} ${one}\n`, peeled ? `^${peeled}\n` : '');
    }
    await this.#tree.write(`${this.#directory}/packed-refs`, bytesOf(lines.join('')));
  }

  async log(name: string): Promise<LogLine[]> {
    const path = `${this.#directory}/logs/${textOf(name)}`;
    if ((await this.#tree.lstat(path))?.kind !== 'file') return [];
    const lines: LogLine[] = [];
    for (const line of binaryOfBytes(await this.#tree.read(path)).split('\n')) {
      const match = /^([0-9a-f]{40}) ([0-9a-f]{40}) ([^\t]*)(?:\t(.*))?$/s.exec(line);
      if (match) lines.push({ from: match[1]!, to: match[2]!, who: match[3]!, message: match[4] ?? '' });
    }
    return lines;
  }

  async hasLog(name: string): Promise<boolean> {
    return (await this.#tree.lstat(`${this.#directory}/logs/${textOf(name)}`))?.kind === 'file';
  }

  /** Adds to a reference's log, where it has one or the configuration wants one. */
  async appendLog(name: string, line: LogLine): Promise<void> {
    const path = `${this.#directory}/logs/${textOf(name)}`;
    const hasLog = (await this.#tree.lstat(path))?.kind === 'file';
    if (!hasLog && !this.#isLogged(name)) return;
    const before = hasLog ? binaryOfBytes(await this.#tree.read(path)) : '';
    const message = line.message.replace(/\s+/g, ' ').trim();
    const text = `${line.from} ${line.to} ${line.who}${message === '' ? '' : `\t${message}`}\n`;
    await this.#tree.makeDirectory(path.slice(0, path.lastIndexOf('/')));
    await this.#tree.write(path, bytesOf(before + text));
  }

  #isLogged(name: string): boolean {
    const config = this.#config();
    const setting = config.get('core.logallrefupdates');
    if (setting === 'always') return true;
    const isOn = config.isTrue('core.logallrefupdates') ?? config.isTrue('core.bare') !== true;
    return isOn && /^(HEAD$|refs\/(heads|remotes|notes)\/)/.test(name);
  }

  async #put(name: string, text: string): Promise<void> {
    await this.requireUnlocked(name);
    await this.#store();
    const path = `${this.#directory}/${textOf(name)}`;
    await this.#tree.makeDirectory(path.slice(0, path.lastIndexOf('/')));
    const there = await this.#tree.lstat(path);
    // What is left of references that had this name as a directory.
    if (there?.kind === 'directory') await this.#tree.remove(path);
    await this.#tree.write(path, bytesOf(text));
  }

  /** Another git is at work, or died: the native git says so. */
  async requireUnlocked(name: string): Promise<void> {
    if (await this.#tree.lstat(`${this.#directory}/${textOf(name)}.lock`)) leave(`reference ${name} is locked`);
  }

  async #requireNoConflict(name: string): Promise<void> {
    if (!name.startsWith('refs/') || (await this.raw(name))) return;
    const below = await this.list(`${name}/`);
    if (below[0]) {
      throw fatal(`cannot lock ref '${name}': '${below[0].name}' exists; cannot create '${name}'`);
    }
    const parts = name.split('/');
    for (let length = 3; length < parts.length; length++) {
      const above = parts.slice(0, length).join('/');
      if ((await this.#packedRefs()).has(above) || (await this.#isFile(above))) {
        throw fatal(`cannot lock ref '${name}': '${above}' exists; cannot create '${name}'`);
      }
    }
  }

  async #isFile(name: string): Promise<boolean> {
    return (await this.#tree.lstat(`${this.#directory}/${textOf(name)}`))?.kind === 'file';
  }

  /** Removes the empty directories of a removed reference, below `refs/heads` and its like. */
  async #prune(path: string): Promise<void> {
    for (let at = path.lastIndexOf('/'); ; at = path.lastIndexOf('/', at - 1)) {
      const directory = path.slice(0, at);
      if (
        directory
          .slice(this.#directory.length)
          .replace(/^\/logs/, '')
          .split('/').length <= 3
      )
        return;
      if ((await this.#tree.lstat(directory))?.kind !== 'directory') continue;
      if ((await this.#tree.list(directory)).length > 0) return;
      await this.#tree.remove(directory);
    }
  }

  #packedRefs() {
    this.#packed ??= this.#readPacked();
    return this.#packed;
  }

  async #readPacked(): Promise<Map<string, { hash: string; peeled: string | null }>> {
    const packed = new Map<string, { hash: string; peeled: string | null }>();
    const path = `${this.#directory}/packed-refs`;
    if ((await this.#tree.lstat(path))?.kind !== 'file') return packed;
    let last: string | null = null;
    for (const line of binaryOfBytes(await this.#tree.read(path)).split('\n')) {
      if (line === '' || line.startsWith('#')) continue;
      if (line.startsWith('^')) {
        if (last !== null) packed.set(last, { hash: packed.get(last)!.hash, peeled: line.slice(1) });
        continue;
      }
      last = line.slice(41);
      packed.set(last, { hash: line.slice(0, 40), peeled: null });
    }
    return packed;
  }
}
