/**
 * HyperSH Git: the `git` that an agent's tools find, run in the machine on the conversation's own tree. It neither goes
 * through the kernel nor starts a process; what it cannot do exactly as git does is left to a native git.
 */
import { FileError } from '../agentfs/errors.ts';
import type { HolderView } from '../agentfs/views.ts';
import { type CommandContext, Output } from './command.ts';
import { fatal, GitFailure, LeaveToNative, leave } from './endings.ts';
import type { GitCall, GitOutcome, HypershGitOptions } from './git-call.ts';
import { globalConfigFile, parseGlobals, readGlobalConfig } from './globals.ts';
import type { GuardOptions } from './guarded-fetch.ts';
import { Pace } from './pace.ts';
import { Config } from './repository/config.ts';
import { discover } from './repository/discover.ts';
import { newObjectCache } from './repository/objects.ts';
import type { RepositoryCache, Surroundings } from './repository/repository.ts';
import { binaryOf, binaryOfBytes } from './text.ts';
import { Listings } from './tree/listings.ts';
import { Tree } from './tree/tree.ts';

export type { GitCall, GitCredential, GitOutcome, HypershGitOptions } from './git-call.ts';

/** Bytes of objects that are remembered of one repository. */
const rememberedObjects = 16 * 1024 ** 2;
const rememberedRepositories = 4;
/** Aliases of aliases. */
const deepestAlias = 8;

export class HypershGit {
  readonly #view: HolderView;
  readonly #options: HypershGitOptions;
  readonly #listings: Listings;
  readonly #caches = new Map<string, RepositoryCache>();

  constructor(view: HolderView, options: HypershGitOptions) {
    this.#view = view;
    this.#options = options;
    this.#listings = new Listings(view);
  }

  /** Runs one command. Rejects with the reason of the call's signal, and for faults of the machine alone. */
  async run(call: GitCall): Promise<GitOutcome> {
    const tree = new Tree(this.#view, this.#listings);
    const output = new Output(call);
    try {
      const exitCode = await this.#run(call, tree, output);
      await tree.flush();
      await output.flush();
      return { kind: 'done', exitCode };
    } catch (error) {
      call.signal.throwIfAborted();
      if (error instanceof GitFailure) {
        output.err(binaryOf(error.message));
        await tree.flush();
        await output.flush();
        return { kind: 'done', exitCode: error.exitCode };
      }
      if (!tree.isWritten) return { kind: 'native', reason: reasonOf(error) };
      if (!(error instanceof LeaveToNative) && !(error instanceof FileError)) throw error;
      this.#options.log(`git: ended half-way: ${reasonOf(error)}`);
      output.say(`fatal: ${reasonOf(error)}\n`);
      await output.flush();
      return { kind: 'done', exitCode: 128 };
    }
  }

  async #run(call: GitCall, tree: Tree, output: Output): Promise<number> {
    const pace = new Pace(call.signal);
    const { environment } = call;
    let globals = parseGlobals(call.argv, call.cwd, environment);
    const globalFile = globalConfigFile(tree, environment, call.globalConfig);
    const globalConfig = await readGlobalConfig(globalFile);
    const cwd = await tree.resolve(globals.cwd);
    if (cwd === null || (await tree.stat(cwd))?.kind !== 'directory') {
      if (globals.cwd === call.cwd) leave('a directory that is not there');
      throw fatal(`cannot change to '${call.argv[call.argv.indexOf('-C') + 1]}': No such file or directory`);
    }
    const around: Surroundings = {
      tree,
      pace,
      environment,
      cwd,
      config: { before: globalConfig, after: globals.config },
      cacheFor: (identity) => this.#cacheFor(identity),
    };
    const { commands } = await import('./commands/table.ts');
    for (let depth = 0; !commands.has(globals.command) && depth < deepestAlias; depth++) {
      const words = await aliasOf(around, cwd, globals.command);
      if (words === null) break;
      globals = parseGlobals([...words, ...globals.argv], globals.cwd, environment);
    }
    const command = commands.get(globals.command) ?? leave(`${globals.command} is not done here`);
    const context: CommandContext = {
      call,
      tree,
      pace,
      cwd,
      environment,
      around,
      wanted: { cwd, gitDirectory: globals.gitDirectory, workTree: globals.workTree },
      output,
      globalConfig,
      globalFile,
      credentials: () => this.#options.credentials(),
      network: this.#network(),
    };
    return command(context, globals.argv);
  }

  #network(): GuardOptions {
    const { allowLoopback = false, certificates } = this.#options;
    return { allowLoopback, ...(certificates === undefined ? {} : { certificates }) };
  }

  #cacheFor(identity: string): RepositoryCache {
    const known = this.#caches.get(identity);
    const cache = known ?? { objects: newObjectCache(rememberedObjects), index: null };
    this.#caches.delete(identity);
    this.#caches.set(identity, cache);
    if (this.#caches.size > rememberedRepositories) this.#caches.delete(this.#caches.keys().next().value!);
    return cache;
  }
}

function reasonOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** The words of an alias; null where there is none. One that runs a program is the native git's. */
async function aliasOf(around: Surroundings, cwd: string, command: string): Promise<string[] | null> {
  const place = await discover(around.tree, { cwd, gitDirectory: null, workTree: null });
  const path = place ? `${place.gitDirectory}/config` : null;
  const isThere = path !== null && (await around.tree.lstat(path))?.kind === 'file';
  const { parseConfig } = await import('./repository/config.ts');
  const own = isThere ? parseConfig(binaryOfBytes(await around.tree.read(path)), 'local', path) : [];
  const config = new Config([...around.config.before, ...own, ...around.config.after]);
  const text = config.get(`alias.${command}`);
  if (text === null) return null;
  if (text.startsWith('!') || /["'\\]/.test(text)) leave(`the alias ${command}`);
  return text.split(/\s+/).filter((word) => word !== '');
}
