/** What a command of the engine is given. */
import { fatal, leave } from './endings.ts';
import type { GitCall } from './git-call.ts';
import type { GlobalConfigFile } from './globals.ts';
import type { GuardOptions } from './guarded-fetch.ts';
import type { Pace } from './pace.ts';
import type { ConfigEntry } from './repository/config.ts';
import { type Moment, parseDate, present } from './repository/dates.ts';
import { openRepository, type Wanted } from './repository/discover.ts';
import type { Person } from './repository/parse.ts';
import type { Repository, Surroundings } from './repository/repository.ts';
import { binaryOf, bytesOf } from './text.ts';
import type { Tree } from './tree/tree.ts';

export interface CommandContext {
  readonly call: GitCall;
  readonly tree: Tree;
  readonly pace: Pace;
  /** Canonical directory that paths of the arguments are relative to. */
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly around: Surroundings;
  readonly wanted: Wanted;
  readonly output: Output;
  readonly globalConfig: readonly ConfigEntry[];
  /** Null where the caller's home cannot be seen. */
  readonly globalFile: GlobalConfigFile | null;
  /** The conversation's variables, for remotes. */
  credentials(): Promise<Readonly<Record<string, string>>>;
  /** What requests to other hosts may do. */
  readonly network: GuardOptions;
}

/** A command: its words without the name; answers with the exit code. */
export type Command = (context: CommandContext, argv: readonly string[]) => Promise<number>;

/** Held back until the call can no longer be left to the native git, then written as it comes. */
export class Output {
  readonly #call: GitCall;
  #held: { readonly stream: 'stdout' | 'stderr'; readonly text: string }[] = [];
  #weight = 0;

  constructor(call: GitCall) {
    this.#call = call;
  }

  /** Binary text for standard output. */
  out(text: string): void {
    this.#hold('stdout', text);
  }

  err(text: string): void {
    this.#hold('stderr', text);
  }

  /** Ordinary text for standard error. */
  say(text: string): void {
    this.err(binaryOf(text));
  }

  /** All that was written so far, in its order. */
  async flush(): Promise<void> {
    const held = this.#held;
    this.#held = [];
    this.#weight = 0;
    for (let at = 0; at < held.length; ) {
      const { stream } = held[at]!;
      let end = at;
      while (held[end]?.stream === stream) end += 1;
      const text = held
        .slice(at, end)
        .map((one) => one.text)
        .join('');
      if (text !== '') await this.#call[stream](bytesOf(text));
      at = end;
    }
  }

  discard(): void {
    this.#held = [];
    this.#weight = 0;
  }

  get weight(): number {
    return this.#weight;
  }

  #hold(stream: 'stdout' | 'stderr', text: string): void {
    const last = this.#held.at(-1);
    this.#weight += text.length;
    if (this.#weight > largestOutput) leave('more output than the engine holds');
    if (last?.stream === stream && last.text.length < 65_536) {
      this.#held[this.#held.length - 1] = { stream, text: last.text + text };
    } else this.#held.push({ stream, text });
  }
}

const largestOutput = 256 * 1024 ** 2;

export function repositoryOf(context: CommandContext): Promise<Repository> {
  return openRepository(context.around, context.wanted);
}

/** The directory of the arguments within the working tree: `sub/dir/` or empty; binary. */
export function prefixOf(context: CommandContext, repository: Repository): string {
  const root = repository.workTree;
  if (root === null || context.cwd === root) return '';
  if (context.cwd.startsWith(`${repository.gitDirectory}/`) || context.cwd === repository.gitDirectory) {
    throw fatal('this operation must be run in a work tree');
  }
  if (!context.cwd.startsWith(`${root}/`)) {
    if (context.wanted.workTree !== null) leave('a call from outside of the working tree');
    throw fatal('this operation must be run in a work tree');
  }
  return binaryOf(`${context.cwd.slice(root.length + 1)}/`);
}

/** A path of the arguments, from the root of the working tree, binary. Null where it leads out of it. */
export function pathInWorkTree(prefix: string, word: string): string | null {
  const parts: string[] = [];
  if (word.startsWith('/')) return null;
  for (const part of `${prefix}${binaryOf(word)}`.split('/')) {
    if (part === '' || part === '.') continue;
    if (part === '..') {
      if (parts.length === 0) return null;
      parts.pop();
    } else parts.push(part);
  }
  return parts.join('/');
}

/** A path of the root of the working tree as the caller sees it from where it is. */
export function shownPath(prefix: string, path: string): string {
  if (prefix === '') return path;
  const [from, to] = [prefix.slice(0, -1).split('/'), path.split('/')];
  let same = 0;
  while (same < from.length && same < to.length - 1 && from[same] === to[same]) same += 1;
  if (same === from.length && path === `${prefix.slice(0, -1)}`) return './';
  return '../'.repeat(from.length - same) + to.slice(same).join('/');
}

/** Author or committer of what is made now. */
export function personOf(context: CommandContext, repository: Repository, role: 'author' | 'committer'): Person {
  const upper = role.toUpperCase();
  const { environment } = context;
  const clean = (text: string) =>
    binaryOf(text)
      .replace(/[<>\n\0]/g, '')
      .replace(/^[\s.,:;"'\\]+|[\s.,:;"'\\]+$/g, '');
  const setting = (name: 'name' | 'email') =>
    environment[`GIT_${upper}_${name.toUpperCase()}`] ??
    repository.config.get(`${role}.${name}`) ??
    repository.config.get(`user.${name}`) ??
    (name === 'email' ? environment.EMAIL : undefined);
  const [name, email] = [setting('name'), setting('email')];
  if (name === undefined || email === undefined) leave('no name or address of who commits');
  if (clean(name) === '') leave('an empty name');
  const { seconds, zone } = momentOf(context, `GIT_${upper}_DATE`);
  return { name: clean(name), email: clean(email), seconds, zone };
}

function momentOf({ environment }: CommandContext, variable: string): Moment {
  const text = environment[variable];
  return text === undefined || text === '' ? present(environment) : parseDate(text, environment);
}
