/** `clone`, `fetch`, `pull`, `push`, `ls-remote`: by just-git through the guarded fetch. */
import type { GitOptions } from 'just-git';
import { type Command, type CommandContext, repositoryOf } from '../command.ts';
import { makeRepository } from '../commands/init.ts';
import { credentialFor, credentialsFrom, redacted } from '../credentials.ts';
import { fatal, LeaveToNative, leave } from '../endings.ts';
import { createGuardedFetch, type GuardedFetch, ownHost, RefusedRequest } from '../guarded-fetch.ts';
import { type Options, type OptionTable, parseOptions } from '../options.ts';
import { withValue } from '../repository/config.ts';
import { Repository } from '../repository/repository.ts';
import { binaryOf, bytesOf } from '../text.ts';
import { advertisedRefs } from './advertisement.ts';
import { answered, identityFor, requireBranch, requireNothing } from './commands.ts';
import { runJustGit } from './run.ts';

/** What went wrong on the wire, which just-git says in words of its own or throws. */
class Wire {
  failure:
    | { readonly kind: 'status'; readonly status: number }
    | { readonly kind: 'error'; readonly reason: string }
    | null = null;
}

function guarded(context: CommandContext, wire: Wire): GuardedFetch {
  const ask = createGuardedFetch({ ...context.network, signal: context.call.signal });
  return async (input, init) => {
    try {
      const answer = await ask(input, init);
      if (!answer.ok) wire.failure = { kind: 'status', status: answer.status };
      return answer;
    } catch (error) {
      const reason = error instanceof RefusedRequest ? error.message : 'Failed to connect';
      wire.failure = { kind: 'error', reason };
      throw error;
    }
  };
}

async function optionsFor(context: CommandContext, wire: Wire): Promise<GitOptions> {
  const credentials = credentialsFrom(await context.credentials());
  return {
    network: { fetch: guarded(context, wire) },
    credentials: (url) => {
      const found = credentialFor(credentials, url);
      return found ? { type: 'basic', username: found.username, password: found.password } : null;
    },
  };
}

/** Leaves schemes that the machine does not speak. Paths are the tree's. */
function requireKnownUrl(url: string): void {
  if (/^https?:\/\//.test(url)) return;
  if (/^[a-z+]+:\/\//i.test(url) || /^[^/]+:/.test(url)) leave(`the remote ${redacted(url)}`);
}

function requireOrdinary(repository: Repository): void {
  for (const { key } of repository.config.entries) {
    if (
      /^(url\..*insteadof|http\.(?!postbuffer$)|credential\..+\.|push\.(?!default$|autosetupremote$)|fetch\.(?!prune$)|remote\..*\.(mirror|proxy|vcs|promisor|pushurl))/.test(
        key,
      )
    )
      leave(`the setting ${key}`);
  }
}

function urlOf(repository: Repository, word: string): string {
  return repository.config.get(`remote.${word}.url`) ?? word;
}

async function transfer(
  context: CommandContext,
  repository: Repository,
  argv: readonly string[],
  url: string,
  isQuiet: boolean,
): Promise<number> {
  const wire = new Wire();
  const options: GitOptions = {
    ...(await optionsFor(context, wire)),
    hooks: {
      mergeMsg: (event) => {
        event.message = event.message.replace(/( of \S+?)\.git(?=\s|$)/, '$1');
      },
    },
  };
  const heads = await remoteHeads(repository);
  const variables = argv[0] === 'push' ? {} : identityFor(context, repository);
  const result = await runJustGit(context, { argv, repository, options, variables }).catch((error: unknown) => {
    if (wire.failure) throw failureOf(wire, url);
    throw error;
  });
  if (wire.failure && result.exitCode !== 0) throw failureOf(wire, url);
  // Newer gits note which branch a remote's HEAD is; 2.39 does so at a clone alone.
  for (const name of await remoteHeads(repository)) if (!heads.includes(name)) await repository.refs.remove(name);
  const shown = isQuiet ? { ...result, stdout: '', stderr: result.exitCode === 0 ? '' : result.stderr } : result;
  const refspec = argv[0] === 'push' ? argv.at(-1) : undefined;
  return answered(context, { ...shown, stderr: redacted(transferText(shown.stderr, refspec)) });
}

async function remoteHeads(repository: Repository): Promise<string[]> {
  const found: string[] = [];
  for (const remote of repository.config.subsections('remote')) {
    const name = `refs/remotes/${binaryOf(remote)}/HEAD`;
    if (await repository.refs.raw(name)) found.push(name);
  }
  return found;
}

/** What just-git says otherwise: where it fetched from, and what was pushed under another name. */
function transferText(stderr: string, refspec: string | undefined): string {
  const from = stderr.replace(/^(From \S+?)(\.git)?\/*$/gm, '$1');
  const match = /^\+?([^:]+):(?:refs\/heads\/)?([^:]+)$/.exec(refspec ?? '');
  if (!match) return from;
  const [source, target] = [binaryOf(match[1]!), binaryOf(match[2]!)];
  return from.replaceAll(`${target} -> ${target}`, `${source} -> ${target}`);
}

function failureOf(wire: Wire, url: string): Error {
  const shown = redacted(url);
  const { failure } = wire;
  if (failure?.kind === 'status') {
    if (failure.status === 401) {
      const origin = new URL(shown).origin;
      return /@/.test(url)
        ? fatal(`Authentication failed for '${shown}/'`)
        : fatal(`could not read Username for '${origin}': terminal prompts disabled`);
    }
    if (failure.status === 404) return fatal(`repository '${shown}/' not found`);
    return fatal(`unable to access '${shown}/': The requested URL returned error: ${failure.status}`);
  }
  // The native git asks from within the holder, where its guard decides.
  if (failure?.reason.endsWith(ownHost)) return new LeaveToNative(failure.reason);
  return fatal(`unable to access '${shown}/': ${failure?.reason ?? 'failed'}`);
}

const quiet: OptionTable = { 'q|quiet': 'flag', progress: 'flag', 'no-progress': 'flag', 'v|verbose': 'flag' };

export const clone: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    ...quiet,
    'b|branch': 'value',
    'n|no-checkout': 'flag',
    'no-tags': 'flag',
    'single-branch': 'flag',
    depth: 'value',
    'recurse-submodules': 'flag',
    recursive: 'flag',
    'o|origin': 'value',
    bare: 'flag',
    'no-local': 'flag',
  });
  // A shallow repository is one that the engine's other commands leave.
  if (options.has('depth', 'recurse-submodules', 'recursive', 'origin', 'single-branch', 'bare'))
    leave('an option of clone');
  const [url, directory, ...more] = options.words;
  if (url === undefined || more.length > 0) leave('clone of nothing');
  requireKnownUrl(url);
  const name =
    directory ??
    (url
      .replace(/\/+$/, '')
      .replace(/\/?\.git$/, '')
      .split('/')
      .pop() ||
      leave('clone without a name'));
  const target = name.startsWith('/') ? name : `${context.cwd}/${name}`;
  const isHttp = /^https?:/.test(url);
  if (!isHttp && (await context.tree.stat(url.startsWith('/') ? url : `${context.cwd}/${url}`))?.kind !== 'directory') {
    throw fatal(`repository '${url}' does not exist`);
  }
  const there = await context.tree.stat(target);
  if (there && (there.kind !== 'directory' || (await context.tree.list(target)).length > 0)) {
    throw fatal(`destination path '${name}' already exists and is not an empty directory.`);
  }
  const wire = new Wire();
  const words = argv.filter((word) => !/^(-q|--quiet|--progress|--no-progress|-v|--verbose|--no-local)$/.test(word));
  const settings = await optionsFor(context, wire);
  const result = await runJustGit(context, { argv: ['clone', ...words], options: settings }).catch((error: unknown) => {
    if (wire.failure) return { exitCode: 128, stdout: '', stderr: '' };
    throw error;
  });
  if (wire.failure && result.exitCode !== 0) {
    await context.tree.remove(target).catch(() => undefined);
    if (!options.has('quiet')) context.output.say(`Cloning into '${name}'...\n`);
    throw failureOf(wire, url);
  }
  if (result.exitCode === 0) await finishClone(context, target, url);
  const stderr = options.has('quiet') ? '' : result.stderr.replace(/\n(?!$)/, '\n');
  return answered(context, {
    ...result,
    stderr: redacted(isHttp || options.has('quiet') ? stderr : `${stderr}done.\n`),
  });
};

/** What git's clone has and just-git's has not: files around, permissions, stamps of the index. */
async function finishClone(context: CommandContext, target: string, url: string): Promise<void> {
  const root = (await context.tree.resolve(target))!;
  const directory = `${root}/.git`;
  const [head, config] = [await context.tree.read(`${directory}/HEAD`), await context.tree.read(`${directory}/config`)];
  await makeRepository(context.tree, directory, 'master', false);
  const isAbsolute = /^https?:/.test(url) || url.startsWith('/');
  const text = Buffer.from(config).toString('latin1');
  const source = isAbsolute ? url : ((await context.tree.resolve(`${context.cwd}/${url}`)) ?? url);
  await context.tree.write(
    `${directory}/config`,
    bytesOf(withValue(text, 'remote.origin.url', binaryOf(source), 'set')),
  );
  await context.tree.write(`${directory}/HEAD`, head);
  const { settleWorkTree } = await import('./settle.ts');
  const repository = await Repository.open({ ...context.around, cwd: root }, directory, root);
  await repository.requireNoSubmodules();
  const attributes = await repository.attributes();
  for (const { path } of await repository.index()) attributes.requireUnconverted(path, null);
  await settleWorkTree(
    repository,
    new Set((await repository.index()).map(({ path }) => `${root}/${Buffer.from(path, 'latin1').toString()}`)),
  );
}

export const fetchCommand: Command = async (context, argv) => {
  const options = parseOptions(argv, { ...quiet, all: 'flag', 'p|prune': 'flag', 't|tags': 'flag' });
  const repository = await repositoryOf(context);
  requireOrdinary(repository);
  const { word, url } = await remoteOf(repository, options.words[0]);
  requireKnownUrl(url);
  if (options.has('all') && repository.config.subsections('remote').length > 1) leave('several remotes');
  if (options.words.length > 2) leave('fetch of several refspecs');
  const flags = options
    .names()
    .filter((name) => name === 'prune' || name === 'tags')
    .map((name) => `--${name}`);
  const result = await transfer(
    context,
    repository,
    ['fetch', ...flags, word, ...options.words.slice(1)],
    url,
    options.has('quiet'),
  );
  return result;
};

async function remoteOf(repository: Repository, word: string | undefined): Promise<{ word: string; url: string }> {
  if (word !== undefined) return { word, url: urlOf(repository, word) };
  const { headOf } = await import('../repository/head.ts');
  const { branch } = await headOf(repository);
  const own = branch === null ? null : repository.config.get(`branch.${branch}.remote`);
  const names = repository.config.subsections('remote');
  const name = own ?? (names.length === 1 ? names[0]! : 'origin');
  if (!repository.config.has(`remote.${name}.url`)) leave('no remote');
  return { word: name, url: urlOf(repository, name) };
}

export const pull: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    ...quiet,
    'r|rebase': 'attached',
    'no-rebase': 'flag',
    'ff-only': 'flag',
    'no-ff': 'flag',
    'no-edit': 'flag',
    ff: 'flag',
  });
  if ((options.value('rebase') ?? 'true') !== 'true') leave('pull --rebase with a value');
  const repository = await repositoryOf(context);
  requireOrdinary(repository);
  await repository.requireNoSubmodules();
  await repository.requireNoHooks(
    'post-merge',
    'pre-merge-commit',
    'commit-msg',
    'prepare-commit-msg',
    'pre-rebase',
    'post-checkout',
    'post-rewrite',
  );
  if (!(await repository.attributes()).areNone) leave('a pull with attributes');
  await requireNothing(repository);
  await requireBranch(repository);
  if (
    repository.config.entries.some(({ key }) => /^pull\.|^branch\..*\.rebase$/.test(key)) &&
    !options.has('rebase', 'no-rebase', 'ff-only')
  )
    leave('pull by configuration');
  const { url } = await remoteOf(repository, options.words[0]);
  requireKnownUrl(url);
  const flags = argv.filter((word) => /^--(rebase|no-rebase|ff-only|no-ff)$|^-r$/.test(word));
  return transfer(context, repository, ['pull', ...flags, ...options.words], url, options.has('quiet'));
};

export const push: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    ...quiet,
    'f|force': 'flag',
    'u|set-upstream': 'flag',
    all: 'flag',
    'd|delete': 'flag',
    tags: 'flag',
  });
  const repository = await repositoryOf(context);
  requireOrdinary(repository);
  await repository.requireNoHooks('pre-push');
  const { url } = await remoteOf(repository, options.words[0]);
  requireKnownUrl(url);
  if (!/^https?:/.test(url)) leave('push to a path');
  if (options.words.length < 2 && !options.has('all', 'tags')) await requirePushable(repository, options);
  const flags = argv.filter((word) => /^--(force|set-upstream|all|delete|tags)$|^-[fud]$/.test(word));
  return transfer(context, repository, ['push', ...flags, ...options.words], url, options.has('quiet'));
};

/** `git push` alone goes where the branch follows one of its own name. */
async function requirePushable(repository: Repository, options: Options): Promise<void> {
  const { headOf } = await import('../repository/head.ts');
  const { branch, ref } = await headOf(repository);
  const merge = branch === null ? null : repository.config.get(`branch.${branch}.merge`);
  if (ref === null || merge !== ref || options.has('delete')) leave('push of what follows nothing');
  if (repository.config.has('push.default') && !/^(simple|upstream)$/.test(repository.config.get('push.default') ?? ''))
    leave('push.default');
}

export const lsRemote: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'h|heads': 'flag',
    't|tags': 'flag',
    'q|quiet': 'flag',
    refs: 'flag',
    'exit-code': 'flag',
    symref: 'flag',
  });
  if (options.has('symref')) leave('ls-remote --symref');
  const [word, ...patterns] = options.words;
  let url = word;
  if (word === undefined || !/^https?:/.test(word)) {
    const repository = await repositoryOf(context);
    requireOrdinary(repository);
    const found = await remoteOf(repository, word);
    url = found.url;
    if (word === undefined && !options.has('quiet')) context.output.say(`From ${redacted(url)}\n`);
  }
  if (url === undefined || !/^https?:/.test(url)) leave('ls-remote of a path');
  const wire = new Wire();
  const credentials = credentialsFrom(await context.credentials());
  const refs = await advertisedRefs(url, guarded(context, wire), (one) => credentialFor(credentials, one)).catch(
    (error: unknown) => {
      if (wire.failure) throw failureOf(wire, url);
      throw error;
    },
  );
  let count = 0;
  for (const { name, hash } of refs) {
    if (options.has('heads') || options.has('tags')) {
      const isWanted =
        (options.has('heads') && name.startsWith('refs/heads/')) ||
        (options.has('tags') && name.startsWith('refs/tags/'));
      if (!isWanted) continue;
    }
    if (options.has('refs') && (name.endsWith('^{}') || name === 'HEAD')) continue;
    if (patterns.length > 0 && !patterns.some((pattern) => name === pattern || name.endsWith(`/${pattern}`))) {
      if (patterns.some((pattern) => /[*?[]/.test(pattern))) leave('ls-remote with a pattern');
      continue;
    }
    count += 1;
    context.output.out(`${hash}\t${name}\n`);
  }
  return count === 0 && options.has('exit-code') ? 2 : 0;
};
