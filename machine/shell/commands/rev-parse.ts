/** `git rev-parse`. */
import { type Command, type CommandContext, prefixOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { mergeBases } from '../repository/history.ts';
import type { Repository } from '../repository/repository.ts';
import {
  abbreviate,
  expandRef,
  needCommit,
  previousBranch,
  resolveRevision,
  upstreamOf,
} from '../repository/revisions.ts';
import { binaryOf } from '../text.ts';
import { missingIn, unknownArgument } from './arguments.ts';

interface Modes {
  isVerify: boolean;
  isQuiet: boolean;
  /** Digits; 0 for git's own choice. */
  short: number | null;
  names: 'abbrev-ref' | 'symbolic-full-name' | 'symbolic' | null;
  absolute: boolean | null;
}

export const revParse: Command = async (context, argv) => {
  const repository = await repositoryOf(context);
  const modes: Modes = { isVerify: false, isQuiet: false, short: null, names: null, absolute: null };
  const revisions: string[] = [];
  const { output } = context;
  for (let at = 0; at < argv.length; at++) {
    const word = argv[at]!;
    if (word === '--verify') modes.isVerify = true;
    else if (word === '-q' || word === '--quiet') modes.isQuiet = true;
    else if (word === '--short') modes.short = 0;
    else if (/^--short=\d+$/.test(word)) modes.short = Number(word.slice(8));
    else if (/^--abbrev-ref(=strict|=loose)?$/.test(word)) modes.names = 'abbrev-ref';
    else if (word === '--symbolic-full-name') modes.names = 'symbolic-full-name';
    else if (word === '--path-format=absolute') modes.absolute = true;
    else if (word === '--path-format=relative') modes.absolute = false;
    else if (word === '--git-path') {
      at += 1;
      output.out(`${binaryOf(shownDirectory(context, repository, modes))}/${argv[at] ?? leave('--git-path')}\n`);
    } else if (word.startsWith('--')) output.out(await fact(context, repository, word, modes));
    else if (word.startsWith('-')) leave(`rev-parse ${word}`);
    else revisions.push(word);
  }
  if (modes.short !== null && revisions.length !== 1) leave('rev-parse --short of other than one');
  if (modes.isVerify && revisions.length !== 1) {
    if (modes.isQuiet) return 1;
    throw fatal('Needed a single revision');
  }
  for (const revision of revisions) {
    const lines = await named(repository, revision, modes);
    if (lines === null) {
      if (modes.isVerify) {
        if (modes.isQuiet) return 1;
        throw fatal('Needed a single revision');
      }
      // It comes out as it is before the failure, as git's does.
      if ((await context.tree.lstat(`${context.cwd}/${revision}`)) !== null) leave('rev-parse of a path');
      output.out(`${binaryOf(revision)}\n`);
      throw (await missingIn(context, repository, revision)) ?? new GitFailure(unknownArgument(revision).message);
    }
    for (const line of lines) output.out(`${line}\n`);
  }
  return 0;
};

async function named(repository: Repository, revision: string, modes: Modes): Promise<string[] | null> {
  const range = /^(.*?)(\.\.\.?)(.*)$/s.exec(revision);
  const shown = async (hash: string) =>
    modes.short === null ? hash : abbreviate(repository, hash, modes.short === 0 ? undefined : modes.short);
  if (range && !revision.includes(':')) {
    if (modes.isVerify || modes.names) leave('rev-parse of a range');
    const [from, to] = [range[1] || 'HEAD', range[3] || 'HEAD'];
    if ((await resolveRevision(repository, from)) === null || (await resolveRevision(repository, to)) === null)
      return null;
    const [one, two] = [(await resolveRevision(repository, from))!, (await resolveRevision(repository, to))!];
    if (range[2] === '..') return [await shown(two), `^${await shown(one)}`];
    const bases = await mergeBases(repository, await needCommit(repository, from), await needCommit(repository, to));
    return [
      await shown(one),
      await shown(two),
      ...(await Promise.all(bases.map(async (base) => `^${await shown(base)}`))),
    ];
  }
  const isLeftOut = revision.startsWith('^');
  const name = isLeftOut ? revision.slice(1) : revision;
  if (/\^(@|!|-)$/.test(name)) leave(revision);
  const hash = await resolveRevision(repository, name);
  if (hash === null) return null;
  if (modes.names) {
    const full = await fullName(repository, name);
    if (full === null) return [];
    return [modes.names === 'abbrev-ref' ? full.replace(/^refs\/(heads|tags|remotes)\//, '') : full];
  }
  return [`${isLeftOut ? '^' : ''}${await shown(hash)}`];
}

/** The reference that a word is a name of, through HEAD. */
async function fullName(repository: Repository, name: string): Promise<string | null> {
  if (name === 'HEAD' || name === '@') return (await repository.refs.final('HEAD'))?.name ?? 'HEAD';
  const upstream = /^(.*)@\{(u|upstream)\}$/i.exec(name);
  if (upstream) return upstreamOf(repository, upstream[1]!);
  const before = /^@\{-(\d+)\}$/.exec(name);
  if (before) {
    const branch = await previousBranch(repository, Number(before[1]));
    return branch === null ? null : expandRef(repository, branch);
  }
  const ref = await expandRef(repository, binaryOf(name));
  return ref === null ? null : ((await repository.refs.final(ref))?.name ?? ref);
}

async function fact(context: CommandContext, repository: Repository, word: string, modes: Modes): Promise<string> {
  const line = (text: string) => `${binaryOf(text)}\n`;
  switch (word) {
    case '--show-toplevel':
      return line(repository.root);
    case '--git-dir':
    case '--git-common-dir':
      return line(modes.absolute === true ? repository.gitDirectory : shownDirectory(context, repository, modes));
    case '--absolute-git-dir':
      return line(repository.gitDirectory);
    case '--is-inside-work-tree':
      return line(String(isInWorkTree(context, repository)));
    case '--is-inside-git-dir':
      return line(String(`${context.cwd}/`.startsWith(`${repository.gitDirectory}/`)));
    case '--is-bare-repository':
      return line(String(repository.workTree === null));
    case '--is-shallow-repository':
      return line('false');
    case '--show-prefix':
      return line(repository.workTree === null ? '' : Buffer.from(prefixOf(context, repository), 'latin1').toString());
    case '--show-cdup': {
      const depth = repository.workTree === null ? 0 : prefixOf(context, repository).split('/').length - 1;
      return line('../'.repeat(depth));
    }
    case '--show-object-format':
      return line('sha1');
    case '--local-env-vars':
      return leave(word);
    case '--all':
      return (await repository.refs.list()).map(({ hash }) => `${hash}\n`).join('');
    case '--branches':
      return (await repository.refs.list('refs/heads/')).map(({ hash }) => `${hash}\n`).join('');
    case '--tags':
      return (await repository.refs.list('refs/tags/')).map(({ hash }) => `${hash}\n`).join('');
    default:
      return leave(`rev-parse ${word}`);
  }
}

function isInWorkTree(context: CommandContext, repository: Repository): boolean {
  if (`${context.cwd}/`.startsWith(`${repository.gitDirectory}/`)) return false;
  return repository.workTree !== null && `${context.cwd}/`.startsWith(`${repository.workTree}/`);
}

/** `.git` at the root of the working tree, `.` in a bare repository, absolute elsewhere. */
function shownDirectory(context: CommandContext, repository: Repository, modes: Modes): string {
  if (modes.absolute === true) return repository.gitDirectory;
  if (context.cwd === repository.workTree)
    return repository.gitDirectory === `${context.cwd}/.git` ? '.git' : repository.gitDirectory;
  return context.cwd === repository.gitDirectory ? '.' : repository.gitDirectory;
}
