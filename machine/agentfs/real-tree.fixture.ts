/** For tests: a whole tree as the store answers it, to compare with a model's. */
import type { OrganizationFiles } from './files.ts';
import type { Snapshot } from './history.fixture.ts';
import type { Inode } from './inode.ts';
import type { ModelNode } from './model.fixture.ts';
import { isDirectory, modeDirectory, modeFormat, modeRegular, modeSymlink } from './schema.ts';

export interface RealNode {
  readonly inode: Inode;
  readonly entries: ReadonlyMap<string, RealNode>;
}

type Inos = ReadonlyMap<ModelNode, number>;

const formats = { file: modeRegular, directory: modeDirectory, symlink: modeSymlink };

export async function readTree(files: OrganizationFiles, ino: number): Promise<RealNode> {
  const inode = (await files.store.inode(ino))!;
  const entries = new Map<string, RealNode>();
  if (isDirectory(inode.mode)) {
    for (const { name, inode: child } of await files.names.list(ino)) {
      entries.set(
        name,
        isDirectory(child.mode) ? await readTree(files, child.ino) : { inode: child, entries: new Map() },
      );
    }
  }
  return { inode, entries };
}

/** Whether a tree has the names and attributes of a snapshot. */
export function isThat({ inode, entries }: RealNode, node: ModelNode, snapshot: Snapshot, inos: Inos): boolean {
  const attributes = snapshot.get(node);
  if (!attributes || inode.ino !== inos.get(node) || entries.size !== attributes.entries.size) return false;
  const isSame =
    (inode.mode & modeFormat) === formats[node.kind] &&
    (inode.mode & 0o7777) === attributes.mode &&
    inode.nlink === attributes.nlink &&
    inode.uid === attributes.uid &&
    inode.gid === attributes.gid &&
    (attributes.mtime === null || attributes.mtime === nanoseconds(inode));
  if (!isSame) return false;
  return [...attributes.entries].every(([name, child]) => {
    const real = entries.get(name);
    return real !== undefined && isThat(real, child, snapshot, inos);
  });
}

/** Whether the files, by their numbers, have the contents of a snapshot. */
export function hasContents(contents: ReadonlyMap<number, Uint8Array>, snapshot: Snapshot, inos: Inos): boolean {
  return [...snapshot].every(([node, { data }]) => {
    if (node.kind !== 'file') return true;
    const real = contents.get(inos.get(node) ?? 0);
    return real !== undefined && Buffer.compare(real, data) === 0;
  });
}

/** For a message: which files have not what they had in a snapshot, and in how many later or earlier ones they have it. */
export function contentDifferences(
  contents: ReadonlyMap<number, Uint8Array>,
  [latest, ...earlier]: readonly Snapshot[],
  inos: Inos,
): string[] {
  const isIn = (snapshot: Snapshot | undefined, node: ModelNode, real: Uint8Array) =>
    Buffer.compare(snapshot?.get(node)?.data ?? new Uint8Array(1), real) === 0;
  return [...(latest ?? [])].flatMap(([node, { data }]) => {
    const real = contents.get(inos.get(node) ?? 0);
    if (node.kind !== 'file' || !real || isIn(latest, node, real)) return [];
    const then = earlier.findIndex((one) => isIn(one, node, real));
    return [
      `file ${inos.get(node)}: ${real.length} bytes for ${data.length}, as ${then + 1} of ${earlier.length} states before`,
    ];
  });
}

/** For a message: where a tree has not what the model has, one line each. */
export function differences(real: RealNode, model: ModelNode, inos: Inos): string[] {
  const got = new Map(lines(real).map((line) => [line.path, line]));
  const expected = new Map(modelLines(model, inos).map((line) => [line.path, line]));
  const isOther = (a: Line | undefined, b: Line | undefined) =>
    a?.what !== b?.what || (a !== undefined && b !== undefined && b.mtime !== null && a.mtime !== b.mtime);
  return [...new Set([...got.keys(), ...expected.keys()])]
    .filter((path) => isOther(got.get(path), expected.get(path)))
    .map((path) => `${path}: got ${said(got.get(path))}, expected ${said(expected.get(path))}`);
}

const said = (line: Line | undefined) => (line ? `${line.what} modified ${line.mtime ?? 'any time'}` : 'nothing');

interface Line {
  readonly path: string;
  readonly what: string;
  /** Nanoseconds; null for any. */
  readonly mtime: bigint | null;
}

function lines({ inode, entries }: RealNode, path = '/'): Line[] {
  const { ino, mode, nlink, uid, gid } = inode;
  const what = `${ino} ${(mode & 0o7777).toString(8)} ${nlink} ${uid}:${gid}`;
  const below = [...entries].flatMap(([name, child]) => lines(child, `${path}${name}/`));
  return [{ path, what, mtime: nanoseconds(inode) }, ...below];
}

function modelLines(node: ModelNode, inos: Inos, path = '/'): Line[] {
  const { mode, nlink, uid, gid, mtime } = node;
  const what = `${inos.get(node)} ${mode.toString(8)} ${nlink} ${uid}:${gid}`;
  const below = [...node.entries].flatMap(([name, child]) => modelLines(child, inos, `${path}${name}/`));
  return [{ path, what, mtime }, ...below];
}

function nanoseconds({ mtime }: Inode): bigint {
  return BigInt(mtime.seconds) * 1_000_000_000n + BigInt(mtime.nanoseconds);
}
