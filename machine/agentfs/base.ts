/**
 * The immutable layer below the organization's files: a small tree in memory, the same for everyone, that costs no row and
 * no pull. What of it an organization sees is decided by its delta (`overlay.ts`).
 */
import { createHash } from 'node:crypto';
import { readFileSync } from 'node:fs';
import { type ExposedFile, exposedFiles } from '../../bunfs-assets/skills.ts';
import type { Stamp } from './inode.ts';
import { modeDirectory, modeRegular } from './schema.ts';

/** Contents of the base are kept in memory: it must stay small. */
const maxBaseBytes = 8 * 1024 * 1024;
/** 2026-01-01: the base has no clock, and what Hermes remembers of a skill goes by its times. */
const baseSeconds = 1_767_225_600;

export interface BaseEntry {
  /** Absolute, in the organization's tree. */
  readonly path: string;
  readonly name: string;
  readonly mode: number;
  /** Empty for a directory. */
  readonly bytes: Uint8Array;
  /** The same for the same contents, another for others: a new release's file is a new version to every cache. */
  readonly mtime: Stamp;
  /** By name; empty for a file. */
  readonly children: ReadonlyMap<string, BaseEntry>;
}

interface Draft extends BaseEntry {
  readonly children: Map<string, Draft>;
}

export class BaseTree {
  readonly root: BaseEntry;
  readonly #entries = new Map<string, BaseEntry>();

  /** Of files given by absolute path; the directories above them are there too. */
  constructor(files: readonly { path: string; mode: number; bytes: Uint8Array }[]) {
    const size = files.reduce((sum, { bytes }) => sum + bytes.length, 0);
    if (size > maxBaseBytes)
      throw new Error(`the embedded base has ${size} bytes, of ${maxBaseBytes} that it may have`);
    const root = draft('/', '', modeDirectory | 0o755, new Uint8Array(0));
    this.#entries.set('/', root);
    this.root = root;
    for (const { path, mode, bytes } of files) {
      const names = path.split('/').slice(1);
      let directory = root;
      for (const name of names.slice(0, -1)) {
        const next =
          directory.children.get(name) ?? this.#add(directory, name, modeDirectory | 0o755, new Uint8Array(0));
        directory = next;
      }
      this.#add(directory, names.at(-1)!, modeRegular | mode, bytes);
    }
  }

  /** What the base has at an absolute path. */
  entry(path: string): BaseEntry | undefined {
    return this.#entries.get(path);
  }

  /** Everything but the root, each directory before what it holds. */
  entries(): readonly BaseEntry[] {
    return [...this.#entries.values()].slice(1);
  }

  #add(directory: Draft, name: string, mode: number, bytes: Uint8Array): Draft {
    const entry = draft(`${directory.path === '/' ? '' : directory.path}/${name}`, name, mode, bytes);
    directory.children.set(name, entry);
    this.#entries.set(entry.path, entry);
    return entry;
  }
}

function draft(path: string, name: string, mode: number, bytes: Uint8Array): Draft {
  const nanoseconds = createHash('sha256').update(bytes).digest().readUInt32BE(0) % 1_000_000_000;
  return { path, name, mode, bytes, mtime: { seconds: baseSeconds, nanoseconds }, children: new Map() };
}

const read = ({ path, asset, mode }: ExposedFile) => ({ path, mode, bytes: new Uint8Array(readFileSync(asset)) });

/** What this release exposes: the default skills. */
export const exposedBase = new BaseTree(exposedFiles.map(read));
/** Nothing: for a file system without a base. */
export const emptyBase = new BaseTree([]);
