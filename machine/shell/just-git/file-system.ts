/** The conversation's tree as just-bash and just-git ask for files: by text paths, each change held back in the tree. */
import type { IFileSystem } from 'just-bash';
import { FileError } from '../../agentfs/errors.ts';
import type { Pace } from '../pace.ts';
import type { Status } from '../tree/status.ts';
import type { Tree } from '../tree/tree.ts';

type FsStat = Awaited<ReturnType<IFileSystem['stat']>>;
type FileContent = Parameters<IFileSystem['writeFile']>[1];

export class TreeFileSystem implements IFileSystem {
  readonly #tree: Tree;
  readonly #pace: Pace;
  /** Files that were written, by the path they were written under. */
  readonly written = new Set<string>();

  constructor(tree: Tree, pace: Pace) {
    this.#tree = tree;
    this.#pace = pace;
  }

  async readFile(path: string): Promise<string> {
    return Buffer.from(await this.readFileBuffer(path)).toString('utf8');
  }

  async readFileBuffer(path: string): Promise<Uint8Array> {
    await this.#pace.rest();
    return this.#tree.read(path);
  }

  async writeFile(path: string, content: FileContent): Promise<void> {
    await this.#pace.rest();
    const bytes = typeof content === 'string' ? Buffer.from(content) : content;
    const before = await this.#tree.stat(path);
    this.written.add(path);
    // Through a link, as open(2) goes; what is there keeps its permissions.
    const target = (await this.#tree.resolve(path)) ?? path;
    await this.#tree.write(target, bytes, before?.kind === 'file' ? before.mode & 0o777 : 0o644);
  }

  async appendFile(path: string, content: FileContent): Promise<void> {
    const isThere = (await this.#tree.stat(path)) !== null;
    const before = isThere ? await this.#tree.read(path) : new Uint8Array(0);
    const more = typeof content === 'string' ? Buffer.from(content) : content;
    await this.writeFile(path, Buffer.concat([before, more]));
  }

  async exists(path: string): Promise<boolean> {
    await this.#pace.rest();
    return (await this.#tree.stat(path)) !== null;
  }

  async stat(path: string): Promise<FsStat> {
    await this.#pace.rest();
    return asStat(await this.#tree.stat(path), path);
  }

  async lstat(path: string): Promise<FsStat> {
    await this.#pace.rest();
    return asStat(await this.#tree.lstat(path), path);
  }

  async mkdir(path: string, options?: { recursive?: boolean }): Promise<void> {
    if (!options?.recursive && (await this.#tree.lstat(path))) throw new FileError('EEXIST', path);
    await this.#tree.makeDirectory(path);
  }

  async readdir(path: string): Promise<string[]> {
    await this.#pace.rest();
    return (await this.#tree.list(path)).map(({ name }) => name).sort();
  }

  async rm(path: string, options?: { recursive?: boolean; force?: boolean }): Promise<void> {
    const status = await this.#tree.lstat(path);
    if (!status) {
      if (options?.force) return;
      throw new FileError('ENOENT', path);
    }
    if (status.kind === 'directory' && !options?.recursive && (await this.#tree.list(path)).length > 0) {
      throw new FileError('ENOTEMPTY', path);
    }
    await this.#tree.remove(path);
  }

  async cp(source: string, target: string): Promise<void> {
    await this.writeFile(target, await this.#tree.read(source));
  }

  async mv(source: string, target: string): Promise<void> {
    const status = await this.#tree.lstat(source);
    if (status?.kind !== 'file') throw new FileError('EINVAL', source);
    await this.writeFile(target, await this.#tree.read(source));
    await this.#tree.remove(source);
  }

  resolvePath(base: string, path: string): string {
    const parts: string[] = [];
    for (const part of (path.startsWith('/') ? path : `${base}/${path}`).split('/')) {
      if (part === '..') parts.pop();
      else if (part !== '' && part !== '.') parts.push(part);
    }
    return `/${parts.join('/')}`;
  }

  getAllPaths(): string[] {
    return [];
  }

  async chmod(path: string, mode: number): Promise<void> {
    await this.#tree.chmod(path, mode & 0o777);
  }

  async symlink(target: string, path: string): Promise<void> {
    if (await this.#tree.lstat(path)) throw new FileError('EEXIST', path);
    this.written.add(path);
    await this.#tree.symlink(path, target);
  }

  link(): Promise<void> {
    return Promise.reject(new FileError('EPERM', 'hard links'));
  }

  async readlink(path: string): Promise<string> {
    return this.#tree.readlink(path);
  }

  async realpath(path: string): Promise<string> {
    return (await this.#tree.resolve(path)) ?? Promise.reject(new FileError('ENOENT', path));
  }

  utimes(): Promise<void> {
    return Promise.resolve();
  }
}

function asStat(status: Status | null, path: string): FsStat {
  if (!status) throw new FileError('ENOENT', path);
  return {
    isFile: status.kind === 'file',
    isDirectory: status.kind === 'directory',
    isSymbolicLink: status.kind === 'symlink',
    mode: status.mode,
    size: status.size,
    mtime: new Date(status.mtime.seconds * 1000),
  };
}
