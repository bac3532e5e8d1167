/**
 * For tests: the same commands by a real git on a plain directory and by the engine on AgentFS, step by step, and what
 * became of both repositories.
 */
import {
  chmodSync,
  lstatSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  readlinkSync,
  rmSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { requireProgram } from '../../e2e/harness/programs.ts';
import { type LocalFiles, openLocalFiles } from '../agentfs/local.fixture.ts';
import type { HolderView } from '../agentfs/views.ts';
import { HypershGit } from './git.ts';
import type { GitOutcome } from './git-call.ts';
import { Listings } from './tree/listings.ts';
import { Tree } from './tree/tree.ts';

export type Step =
  | { readonly do: 'git'; readonly argv: readonly string[]; readonly in: string; readonly options: StepOptions }
  | { readonly do: 'write'; readonly path: string; readonly bytes: Uint8Array; readonly permissions: number }
  | { readonly do: 'remove'; readonly path: string }
  | { readonly do: 'chmod'; readonly path: string; readonly permissions: number }
  | { readonly do: 'link'; readonly path: string; readonly target: string }
  | { readonly do: 'directory'; readonly path: string };

export interface StepOptions {
  readonly stdin?: string;
  readonly environment?: Readonly<Record<string, string>>;
  /** Lines of standard error that are compared; default all but hints. */
  readonly ignoresStderr?: boolean;
}

/** `git …` in `/workspace/repo`. */
export const git = (...argv: string[]): Step => ({ do: 'git', argv, in: 'repo', options: {} });
export const gitIn = (directory: string, ...argv: string[]): Step => ({ do: 'git', argv, in: directory, options: {} });
export const gitWith = (options: StepOptions, ...argv: string[]): Step => ({ do: 'git', argv, in: 'repo', options });
export const write = (path: string, text: string | Uint8Array, permissions = 0o644): Step => ({
  do: 'write',
  path,
  bytes: typeof text === 'string' ? Buffer.from(text) : text,
  permissions,
});
export const remove = (path: string): Step => ({ do: 'remove', path });
export const chmod = (path: string, permissions: number): Step => ({ do: 'chmod', path, permissions });
export const link = (path: string, target: string): Step => ({ do: 'link', path, target });
export const directory = (path: string): Step => ({ do: 'directory', path });

export interface Scenario {
  readonly name: string;
  readonly steps: readonly Step[];
}

export interface Answer {
  readonly exitCode: number;
  readonly stdout: string;
  readonly stderr: string;
}

export interface Compared {
  readonly words: string;
  readonly native: Answer;
  /** Null where the engine left it to the native git. */
  readonly engine: Answer | null;
  readonly reason: string | null;
}

const start = 1_700_000_000;
const remote = 'http://remote';
/** Where there is none, what compares with it is skipped. */
export const hasGit = Bun.which('git') !== null;

/** One conversation's files and one plain directory. */
export class TwoWorlds {
  readonly root: string;
  readonly view: HolderView;
  readonly #local: LocalFiles;
  readonly engine: HypershGit;
  #step = 0;
  /** Where `http://remote` is. */
  remote = remote;
  #globalConfig: Uint8Array | null = null;

  private constructor(root: string, view: HolderView, local: LocalFiles, variables: Readonly<Record<string, string>>) {
    this.root = root;
    this.view = view;
    this.#local = local;
    this.engine = new HypershGit(view, {
      credentials: async () => variables,
      log: () => undefined,
      allowLoopback: true,
    });
  }

  static async open(variables: Readonly<Record<string, string>> = {}): Promise<TwoWorlds> {
    const root = mkdtempSync(join(tmpdir(), 'git-two-worlds-'));
    for (const name of ['workspace/repo', 'artifacts', 'home']) mkdirSync(join(root, name), { recursive: true });
    const local = await openLocalFiles();
    const { names } = local.files;
    const conversations = await names.makeDirectory({ parent: 1, name: 'conversations' }, 0o755);
    await names.makeDirectory({ parent: conversations.ino, name: 'c' }, 0o755);
    const view = (await local.files.view('c'))!;
    const worlds = new TwoWorlds(root, view, local, variables);
    await worlds.change(async (tree) => tree.makeDirectory('/workspace/repo'));
    return worlds;
  }

  async close(): Promise<void> {
    await this.#local.close();
    rmSync(this.root, { recursive: true, force: true });
  }

  async change(work: (tree: Tree) => Promise<void>): Promise<void> {
    const tree = new Tree(this.view, new Listings(this.view));
    await work(tree);
    await tree.flush();
  }

  /** Does a step in both worlds; answers with both results of a git step. */
  async step(step: Step): Promise<Compared | null> {
    this.#step += 1;
    if (step.do === 'git') return this.#git(step);
    const [plain, inside] = [join(this.root, 'workspace', step.path), `/workspace/${step.path}`];
    if (step.do === 'write') {
      mkdirSync(dirname(plain), { recursive: true });
      rmSync(plain, { force: true });
      writeFileSync(plain, step.bytes);
      chmodSync(plain, step.permissions);
    } else if (step.do === 'remove') rmSync(plain, { recursive: true });
    else if (step.do === 'chmod') chmodSync(plain, step.permissions);
    else if (step.do === 'link') {
      mkdirSync(dirname(plain), { recursive: true });
      rmSync(plain, { force: true });
      symlinkSync(step.target, plain);
    } else mkdirSync(plain, { recursive: true });
    await this.change(async (tree) => {
      if (step.do === 'write' || step.do === 'link') await tree.makeDirectory(dirname(inside));
      if (step.do === 'write') await tree.write(inside, step.bytes, step.permissions);
      else if (step.do === 'remove') await tree.remove(inside);
      else if (step.do === 'chmod') await tree.chmod(inside, step.permissions);
      else if (step.do === 'link') await tree.symlink(inside, step.target);
      else if (step.do === 'directory') await tree.makeDirectory(inside);
    });
    return null;
  }

  environment(home: string, more: Readonly<Record<string, string>> = {}): Record<string, string> {
    const date = `${start + this.#step * 60} +0200`;
    return {
      HOME: home,
      LC_ALL: 'C.UTF-8',
      TZ: 'UTC',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_AUTHOR_NAME: 'Ada Agent',
      GIT_AUTHOR_EMAIL: 'ada@example.org',
      GIT_COMMITTER_NAME: 'Ada Agent',
      GIT_COMMITTER_EMAIL: 'ada@example.org',
      GIT_AUTHOR_DATE: date,
      GIT_COMMITTER_DATE: date,
      GIT_MERGE_AUTOEDIT: 'no',
      GIT_EDITOR: 'true',
      GIT_TERMINAL_PROMPT: '0',
      ...more,
    };
  }

  async native(argv: readonly string[], cwd: string, options: StepOptions = {}): Promise<Answer> {
    const home = join(this.root, 'home');
    const words = argv.map((word) => word.replaceAll('/workspace/', `${this.root}/workspace/`));
    const child = Bun.spawn([requireProgram('git'), ...words.map((word) => word.replaceAll(remote, this.remote))], {
      cwd,
      env: { PATH: process.env.PATH ?? '', ...this.environment(home, options.environment) },
      stdin: options.stdin === undefined ? 'ignore' : Buffer.from(options.stdin),
      stdout: 'pipe',
      stderr: 'pipe',
    });
    const [stdout, stderr] = await Promise.all([
      new Response(child.stdout).bytes().then((bytes) => Buffer.from(bytes).toString('latin1')),
      new Response(child.stderr).bytes().then((bytes) => Buffer.from(bytes).toString('latin1')),
    ]);
    const exitCode = await child.exited;
    const shown = (text: string) => text.replaceAll(this.root, '').replaceAll(this.remote, remote);
    return { exitCode, stdout: shown(stdout), stderr: plain(shown(stderr)) };
  }

  async run(argv: readonly string[], cwd: string, options: StepOptions = {}): Promise<[GitOutcome, Answer]> {
    const [out, err]: [Uint8Array[], Uint8Array[]] = [[], []];
    const outcome = await this.engine.run({
      argv: argv.map((word) => word.replaceAll(remote, this.remote)),
      cwd,
      environment: this.environment('/tmp/home', options.environment),
      stdin: async () => Buffer.from(options.stdin ?? ''),
      stdout: async (bytes) => void out.push(Uint8Array.from(bytes)),
      stderr: async (bytes) => void err.push(Uint8Array.from(bytes)),
      signal: new AbortController().signal,
      globalConfig: {
        read: async () => this.#globalConfig,
        write: async (bytes) => {
          this.#globalConfig = bytes;
        },
      },
    });
    const text = (parts: Uint8Array[]) => Buffer.concat(parts).toString('latin1').replaceAll(this.remote, remote);
    const exitCode = outcome.kind === 'done' ? outcome.exitCode : -1;
    return [outcome, { exitCode, stdout: text(out), stderr: plain(text(err)) }];
  }

  async #git(step: Step & { do: 'git' }): Promise<Compared> {
    const words = `git ${step.argv.join(' ')}`;
    const native = await this.native(step.argv, join(this.root, 'workspace', step.in), step.options);
    const [outcome, engine] = await this.run(step.argv, `/workspace/${step.in}`, step.options);
    if (outcome.kind === 'done') return { words, native, engine, reason: null };
    await this.import();
    return { words, native, engine: null, reason: outcome.reason };
  }

  /** Makes the tree what the plain directory is: the native git has done something there. */
  async import(): Promise<void> {
    const home = join(this.root, 'home', '.gitconfig');
    this.#globalConfig = await Bun.file(home)
      .bytes()
      .catch(() => null);
    await this.change(async (tree) => {
      for (const { name } of await tree.list('/workspace')) await tree.remove(`/workspace/${name}`);
    });
    await this.change(async (tree) => {
      const copy = async (from: string, to: string): Promise<void> => {
        for (const name of readdirSync(from)) {
          const [source, target] = [join(from, name), `${to}/${name}`];
          const status = lstatSync(source);
          if (status.isDirectory()) {
            await tree.makeDirectory(target);
            await copy(source, target);
          } else if (status.isSymbolicLink()) await tree.symlink(target, readlinkSync(source));
          else await tree.write(target, readFileSync(source), status.mode & 0o777);
        }
      };
      await copy(join(this.root, 'workspace'), '/workspace');
    });
  }

  /** A plain copy of the tree, below a new directory that the caller removes. */
  async export(): Promise<string> {
    const to = mkdtempSync(join(tmpdir(), 'git-exported-'));
    const tree = new Tree(this.view, new Listings(this.view));
    const copy = async (from: string, target: string): Promise<void> => {
      mkdirSync(target, { recursive: true });
      for (const { name, status } of await tree.list(from)) {
        const [source, place] = [`${from}/${name}`, join(target, name)];
        if (status.kind === 'directory') await copy(source, place);
        else if (status.kind === 'symlink') symlinkSync(await tree.readlink(source), place);
        else {
          writeFileSync(place, await tree.read(source));
          chmodSync(place, status.mode & 0o777);
        }
      }
    };
    await copy('/workspace', join(to, 'workspace'));
    return to;
  }
}

/** Without hints. */
function plain(text: string): string {
  return text
    .split('\n')
    .filter((line) => !line.startsWith('hint:'))
    .join('\n')
    .replace(
      'not a git repository (or any of the parent directories): .git',
      'not a git repository (or any parent up to mount point /)\nStopping at filesystem boundary (GIT_DISCOVERY_ACROSS_FILESYSTEM not set).',
    );
}

/** What a repository is, in words that two equal ones have in common. */
export async function described(worlds: TwoWorlds, root: string, name = 'repo'): Promise<Record<string, string>> {
  const cwd = join(root, 'workspace', name);
  const ask = async (...argv: string[]) => (await worlds.native(argv, cwd)).stdout;
  return {
    head: await ask('rev-parse', 'HEAD'),
    symbolic: await ask('symbolic-ref', '-q', 'HEAD'),
    index: await ask('ls-files', '-s'),
    refs: await ask('for-each-ref'),
    status: await ask('status', '--porcelain', '--ignored'),
    stash: await ask('stash', 'list'),
    faults: (await ask('fsck', '--no-dangling', '--no-progress')).replace(/^notice:.*\n/gm, ''),
  };
}
