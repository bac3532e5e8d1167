/** A repository of the tree: where it is, what it holds, and what of it is beyond the engine. */
import { fatal, leave } from '../endings.ts';
import type { Pace } from '../pace.ts';
import { binaryOfBytes } from '../text.ts';
import type { Tree } from '../tree/tree.ts';
import { Attributes } from './attributes.ts';
import { Config, type ConfigEntry, parseConfig } from './config.ts';
import { Ignores, parseIgnores } from './ignore.ts';
import { type IndexEntry, indexBytes, parseIndex } from './index-file.ts';
import { type ObjectCache, Objects } from './objects.ts';
import { type Commit, modeGitlink, parseCommit, parseTree, type TreeEntry } from './parse.ts';
import { Refs } from './refs.ts';

export interface Surroundings {
  readonly tree: Tree;
  readonly pace: Pace;
  readonly environment: Readonly<Record<string, string>>;
  /** Where the caller is, canonical. */
  readonly cwd: string;
  /** System, global and command-line configuration, weakest first; the repository's own goes between the last two. */
  readonly config: { readonly before: readonly ConfigEntry[]; readonly after: readonly ConfigEntry[] };
  /** `identity` tells two repositories apart that lie in the same place one after the other. */
  cacheFor(identity: string): RepositoryCache;
}

/** What is remembered of a repository between calls. */
export interface RepositoryCache {
  readonly objects: ObjectCache;
  index: { readonly stamp: string; readonly entries: readonly IndexEntry[] } | null;
}

export class Repository {
  readonly gitDirectory: string;
  /** Null for a bare one. */
  readonly workTree: string | null;
  readonly tree: Tree;
  readonly pace: Pace;
  readonly environment: Readonly<Record<string, string>>;
  readonly cwd: string;
  readonly config: Config;
  readonly objects: Objects;
  readonly refs: Refs;
  readonly #cache: RepositoryCache;
  #attributes: Promise<Attributes> | null = null;
  #ignores: Promise<Ignores> | null = null;
  #index: readonly IndexEntry[] | null = null;

  private constructor(
    around: Surroundings,
    gitDirectory: string,
    workTree: string | null,
    config: Config,
    cache: RepositoryCache,
  ) {
    this.gitDirectory = gitDirectory;
    this.workTree = workTree;
    this.tree = around.tree;
    this.pace = around.pace;
    this.environment = around.environment;
    this.cwd = around.cwd;
    this.config = config;
    this.#cache = cache;
    this.objects = new Objects(around.tree, gitDirectory, this.#cache.objects);
    this.refs = new Refs(
      around.tree,
      gitDirectory,
      () => config,
      () => this.objects.store(),
    );
  }

  /** Throws LeaveToNative for a repository with something that the engine does not know. */
  static async open(around: Surroundings, gitDirectory: string, workTree: string | null): Promise<Repository> {
    const { tree } = around;
    const path = `${gitDirectory}/config`;
    const file = await tree.lstat(path);
    const text = file?.kind === 'file' ? binaryOfBytes(await tree.read(path)) : '';
    const own = parseConfig(text, 'local', path);
    const config = new Config([...around.config.before, ...own, ...around.config.after]);
    requireKnown(config);
    for (const name of ['commondir', 'shallow', 'objects/info/alternates', 'info/grafts', 'info/sparse-checkout']) {
      const status = await tree.lstat(`${gitDirectory}/${name}`);
      if (status && status.size > 0) leave(`a repository with ${name}`);
    }
    const isBare = config.isTrue('core.bare') === true;
    const cache = around.cacheFor(`${gitDirectory} ${file?.ino ?? 0}`);
    return new Repository(around, gitDirectory, isBare ? null : workTree, config, cache);
  }

  /** The working tree; git's failure in a bare repository. */
  get root(): string {
    if (this.workTree === null) throw fatal('this operation must be run in a work tree');
    return this.workTree;
  }

  get indexPath(): string {
    return `${this.gitDirectory}/index`;
  }

  async index(): Promise<readonly IndexEntry[]> {
    if (this.#index) return this.#index;
    const status = await this.tree.lstat(this.indexPath);
    if (!status) return [];
    const stamp = `${status.ino} ${status.size} ${status.ctime.seconds} ${status.ctime.nanoseconds}`;
    if (status.ino === 0 || this.#cache.index?.stamp !== stamp) {
      const entries = parseIndex(await this.tree.read(this.indexPath));
      if (status.ino === 0) return entries;
      this.#cache.index = { stamp, entries };
    }
    this.#index = this.#cache.index!.entries;
    return this.#index;
  }

  /** Replaces the index. Files of the working tree that it speaks of must be flushed before. */
  async writeIndex(entries: readonly IndexEntry[]): Promise<void> {
    await this.requireUnlocked();
    await this.objects.store();
    await this.tree.write(this.indexPath, indexBytes(entries));
    this.#index = entries;
  }

  /** Leaves it to the native git where another git is at work on what a change goes through. */
  async requireUnlocked(): Promise<void> {
    const lock = `${this.gitDirectory}/index.lock`;
    if (await this.tree.lstat(lock)) leave('the index is locked');
    await this.refs.requireUnlocked('HEAD');
    const branch = await this.refs.final('HEAD');
    if (branch) await this.refs.requireUnlocked(branch.name);
  }

  /** Forgets the index: another engine has changed it. */
  forgetIndex(): void {
    this.#index = null;
  }

  async attributes(): Promise<Attributes> {
    this.#attributes ??= this.#readAttributes();
    return this.#attributes;
  }

  async ignores(): Promise<Ignores> {
    this.#ignores ??= this.#readIgnores();
    return this.#ignores;
  }

  async commit(hash: string): Promise<Commit> {
    const object = await this.objects.read(hash);
    if (object.kind !== 'commit') throw fatal(`object ${hash} is a ${object.kind}, not a commit`);
    const commit = parseCommit(hash, object.bytes);
    if (commit.encoding !== null && !/^utf-?8$/i.test(commit.encoding)) leave('a commit in another encoding');
    return commit;
  }

  async treeEntries(hash: string): Promise<TreeEntry[]> {
    return parseTree((await this.objects.read(hash, 'tree')).bytes);
  }

  /** Leaves to the native git what has submodules. */
  async requireNoSubmodules(): Promise<void> {
    if ((await this.index()).some(({ mode }) => mode === modeGitlink)) leave('submodules');
    if (this.workTree !== null && (await this.tree.lstat(`${this.workTree}/.gitmodules`))) leave('submodules');
  }

  /** Leaves to the native git what must know which branches other working trees have. */
  async requireOneWorkTree(): Promise<void> {
    if (await this.hasFile('worktrees')) leave('several working trees');
  }

  /** Leaves to the native git a command for which the repository has a hook: a hook is a program. */
  async requireNoHooks(...names: string[]): Promise<void> {
    if (this.config.has('core.hookspath')) leave('core.hooksPath');
    for (const name of names) {
      const status = await this.tree.stat(`${this.gitDirectory}/hooks/${name}`);
      if (status && (status.mode & 0o111) !== 0) leave(`the hook ${name}`);
    }
  }

  async hasFile(name: string): Promise<boolean> {
    return (await this.tree.lstat(`${this.gitDirectory}/${name}`)) !== null;
  }

  /** A small file of the git directory, binary; null where there is none. */
  async readFile(name: string): Promise<string | null> {
    const path = `${this.gitDirectory}/${name}`;
    if ((await this.tree.lstat(path))?.kind !== 'file') return null;
    return binaryOfBytes(await this.tree.read(path));
  }

  async removeFile(name: string): Promise<void> {
    if (await this.hasFile(name)) await this.tree.remove(`${this.gitDirectory}/${name}`);
  }

  async #readAttributes(): Promise<Attributes> {
    const directories = [''];
    for (const { path } of await this.index()) {
      if (path.endsWith('/.gitattributes')) directories.push(path.slice(0, -'/.gitattributes'.length));
    }
    return Attributes.open(this.tree, this.workTree, this.gitDirectory, directories);
  }

  async #readIgnores(): Promise<Ignores> {
    const path = this.config.get('core.excludesfile');
    if (path === null) return Ignores.open(this.tree, this.root, this.gitDirectory);
    if (!path.startsWith('/') || (await this.tree.stat(path))?.kind !== 'file') leave('core.excludesFile');
    const patterns = parseIgnores(binaryOfBytes(await this.tree.read(path)), '', path);
    return Ignores.open(this.tree, this.root, this.gitDirectory, patterns);
  }
}

/** Settings that change what commands do in ways that the engine does not have. */
const unknown = [
  /^extensions\.(?!objectformat$|worktreeconfig$)/,
  /^include(if)?\./,
  /^core\.(worktree|sparsecheckout|attributesfile|precomposeunicode|alternaterefscommand|gitproxy|sshcommand|pager)$/,
  /^index\.sparse$/,
  /^diff\.(external|orderfile|algorithm|noprefix|mnemonicprefix|context|interhunkcontext|renames|relative|colormoved|indentheuristic|submodule|suppressblankempty|wserrorhighlight|ignoresubmodules|statgraphwidth|dirstat|wordregex)$/,
  /^diff\..*\.(command|textconv|xfuncname|binary)$/,
  /^log\.(?!date$|decorate$)/,
  /^format\./,
  /^color\.(?!ui$)/,
  /^status\./,
  /^i18n\./,
  /^merge\.(?!conflictstyle$|ff$|tool)/,
  /^commit\.(?!gpgsign$)/,
  /^tag\./,
  /^rebase\./,
  /^stash\./,
  /^trace2?\./,
  /^gui\.encoding$/,
];

function requireKnown(config: Config): void {
  for (const { key, value } of config.entries) {
    if (unknown.some((pattern) => pattern.test(key))) leave(`the setting ${key}`);
    if (key === 'core.repositoryformatversion' && value !== '0' && value !== '1') leave(`the setting ${key}`);
    if (key === 'extensions.objectformat' && value !== 'sha1') leave(`the setting ${key}`);
    if (/^color\.ui$/.test(key) && value === 'always') leave(`the setting ${key}`);
  }
  if (config.get('core.autocrlf') !== null && config.get('core.autocrlf') !== 'false') leave('core.autocrlf');
  if (config.get('core.eol') !== null && config.get('core.eol') !== 'lf') leave('core.eol');
  for (const key of ['core.fsmonitor', 'core.splitindex', 'core.ignorecase', 'commit.gpgsign']) {
    if (config.get(key) !== null && !/^(false|0|no|off)$/i.test(config.get(key) ?? '')) leave(`the setting ${key}`);
  }
  for (const key of ['core.filemode', 'core.symlinks', 'core.quotepath', 'core.trustctime']) {
    if (config.isTrue(key) === false) leave(`the setting ${key}`);
  }
}
