/** `git remote`: what is configured, without asking any remote. */
import { type Command, type CommandContext, repositoryOf } from '../command.ts';
import { GitFailure, leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { withoutSection, withSectionRenamed, withValue } from '../repository/config.ts';
import type { Repository } from '../repository/repository.ts';
import { isRefName } from '../repository/revisions.ts';
import { binaryOf } from '../text.ts';
import { changeConfig } from './branch.ts';

export const remote: Command = async (context, argv) => {
  const options = parseOptions(argv, { 'v|verbose': 'flag' }, { stopsAtWord: true });
  const repository = await repositoryOf(context);
  const [command, ...words] = options.words;
  if (repository.config.entries.some(({ key }) => /^url\..*\.(push)?insteadof$/.test(key))) leave('url.insteadOf');
  switch (command) {
    case undefined:
      return list(context, repository, options.has('verbose'));
    case 'add':
      return add(context, repository, words);
    case 'remove':
    case 'rm':
      return remove(context, repository, words);
    case 'rename':
      return rename(context, repository, words);
    case 'get-url':
      return getUrl(context, repository, words);
    case 'set-url':
      return setUrl(repository, words);
    default:
      return leave(`remote ${command}`);
  }
};

function list(context: CommandContext, repository: Repository, isVerbose: boolean): number {
  for (const name of repository.config.subsections('remote').sort()) {
    if (!isVerbose) {
      context.output.out(`${name}\n`);
      continue;
    }
    const urls = repository.config.all(`remote.${name}.url`);
    const pushed = repository.config.all(`remote.${name}.pushurl`);
    context.output.out(`${name}\t${urls[0] ?? name} (fetch)\n`);
    for (const url of pushed.length > 0 ? pushed : urls) context.output.out(`${name}\t${url} (push)\n`);
  }
  return 0;
}

async function add(context: CommandContext, repository: Repository, argv: readonly string[]): Promise<number> {
  const options = parseOptions(argv, {
    f: 'flag',
    't|track': 'value',
    'm|master': 'value',
    tags: 'flag',
    'no-tags': 'flag',
    mirror: 'attached',
  });
  const [name, url] = options.words;
  if (options.names().length > 0 || name === undefined || url === undefined || options.words.length > 2)
    leave('remote add with options');
  if (!isRefName(`refs/remotes/${binaryOf(name)}/x`))
    throw new GitFailure(`fatal: '${name}' is not a valid remote name\n`);
  if (repository.config.subsections('remote').includes(name))
    throw new GitFailure(`error: remote ${name} already exists.\n`, 3);
  await changeConfig(repository, (text) => {
    const withUrl = withValue(text, `remote.${name}.url`, binaryOf(url), 'set');
    return withValue(withUrl, `remote.${name}.fetch`, `+refs/heads/*:refs/remotes/${name}/*`, 'add');
  });
  await context.pace.rest();
  return 0;
}

const missing = (name: string, exitCode = 2) => new GitFailure(`error: No such remote: '${name}'\n`, exitCode);

async function remove(context: CommandContext, repository: Repository, words: readonly string[]): Promise<number> {
  const [name] = words;
  if (name === undefined || words.length > 1) leave('remote remove');
  if (!repository.config.subsections('remote').includes(name)) throw missing(name);
  const branches = repository.config
    .subsections('branch')
    .filter((one) => repository.config.get(`branch.${one}.remote`) === name);
  if (
    repository.config.entries.some(
      ({ key, value }) => /^branch\..*\.pushremote$|^remote\.pushdefault$/.test(key) && value === name,
    )
  )
    leave('pushRemote');
  await changeConfig(repository, (text) => {
    let result = text;
    for (const branch of branches) result = withoutBranchRemote(result, branch);
    return withoutSection(result, `remote.${name}`) ?? result;
  });
  for (const { name: ref } of await repository.refs.list(`refs/remotes/${binaryOf(name)}/`))
    await repository.refs.remove(ref);
  await context.pace.rest();
  return 0;
}

function withoutBranchRemote(text: string, branch: string): string {
  return withoutSection(text, `branch.${branch}`) ?? text;
}

async function rename(context: CommandContext, repository: Repository, words: readonly string[]): Promise<number> {
  const [from, to] = words;
  if (from === undefined || to === undefined || words.length > 2 || from.startsWith('-')) leave('remote rename');
  if (!repository.config.subsections('remote').includes(from)) throw missing(from);
  if (repository.config.subsections('remote').includes(to))
    throw new GitFailure(`error: remote ${to} already exists.\n`, 3);
  const refs = await repository.refs.list(`refs/remotes/${binaryOf(from)}/`);
  if (refs.length > 0) leave('a rename of remote branches');
  const branches = repository.config
    .subsections('branch')
    .filter((one) => repository.config.get(`branch.${one}.remote`) === from);
  await changeConfig(repository, (text) => {
    let result = withSectionRenamed(text, `remote.${from}`, `remote.${to}`);
    result = withValue(result, `remote.${to}.fetch`, `+refs/heads/*:refs/remotes/${to}/*`, 'set');
    for (const branch of branches) result = withValue(result, `branch.${branch}.remote`, to, 'set');
    return result;
  });
  await context.pace.rest();
  return 0;
}

function getUrl(context: CommandContext, repository: Repository, argv: readonly string[]): number {
  const options = parseOptions(argv, { push: 'flag', all: 'flag' });
  const [name] = options.words;
  if (name === undefined || options.words.length > 1) leave('remote get-url');
  const urls = repository.config.all(`remote.${name}.url`);
  if (urls.length === 0) throw new GitFailure(`error: No such remote '${name}'\n`, 2);
  const pushed = repository.config.all(`remote.${name}.pushurl`);
  const chosen = options.has('push') && pushed.length > 0 ? pushed : urls;
  for (const url of options.has('all') ? chosen : chosen.slice(0, 1)) context.output.out(`${url}\n`);
  return 0;
}

async function setUrl(repository: Repository, argv: readonly string[]): Promise<number> {
  const options = parseOptions(argv, { push: 'flag', add: 'flag', delete: 'flag' });
  const [name, url] = options.words;
  if (options.has('add', 'delete') || name === undefined || url === undefined || options.words.length > 2)
    leave('remote set-url');
  if (!repository.config.has(`remote.${name}.url`)) throw new GitFailure(`error: No such remote '${name}'\n`, 2);
  const key = options.has('push') ? 'pushurl' : 'url';
  await changeConfig(repository, (text) => withValue(text, `remote.${name}.${key}`, binaryOf(url), 'set'));
  return 0;
}
