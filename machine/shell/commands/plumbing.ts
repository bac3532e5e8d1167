/** The commands that scripts ask objects and references with. */
import { type Command, type CommandContext, prefixOf, repositoryOf } from '../command.ts';
import { fatal, GitFailure, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { hashOf, isHash, type ObjectKind } from '../repository/objects.ts';
import { modeText, modeTree, type TreeEntry } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, peel, resolveRevision } from '../repository/revisions.ts';
import { binaryOf, binaryOfBytes, quotedPath, textOf } from '../text.ts';
import { missingIn } from './arguments.ts';

export const blobText = (bytes: Uint8Array): string => binaryOfBytes(bytes);

export const catFile: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    t: 'flag',
    s: 'flag',
    e: 'flag',
    p: 'flag',
    batch: 'attached',
    'batch-check': 'attached',
  });
  const repository = await repositoryOf(context);
  if (options.has('batch', 'batch-check')) return batch(context, repository, options);
  const mode = options.last('t', 's', 'e', 'p');
  const [first, second] = options.words;
  const name = mode ? first : second;
  if (name === undefined || options.words.length > (mode ? 1 : 2)) leave('cat-file with other arguments');
  const hash = await resolveRevision(repository, name);
  const object = hash === null ? null : await repository.objects.find(hash);
  if (mode === 'e') {
    if (hash === null) throw (await missingIn(context, repository, name)) ?? fatal(`Not a valid object name ${name}`);
    return object ? 0 : 1;
  }
  if (hash === null || (!object && !isHash(name))) {
    throw (await missingIn(context, repository, name)) ?? fatal(`Not a valid object name ${name}`);
  }
  if (!object)
    throw mode === 'p' ? fatal(`Not a valid object name ${name}`) : fatal('git cat-file: could not get object info');
  if (mode === 't') context.output.out(`${object.kind}\n`);
  else if (mode === 's') context.output.out(`${object.bytes.length}\n`);
  else if (mode === 'p' && object.kind === 'tree') {
    for (const entry of await repository.treeEntries(hash)) context.output.out(`${treeLine(entry)}\n`);
  } else if (mode === undefined && first !== object.kind) {
    const wanted = await peel(repository, hash, kindOf(first!));
    if (wanted === null) throw fatal(`git cat-file ${name}: bad file`);
    context.output.out(binaryOfBytes((await repository.objects.read(wanted)).bytes));
  } else context.output.out(binaryOfBytes(object.bytes));
  return 0;
};

function kindOf(text: string): ObjectKind {
  if (text === 'blob' || text === 'tree' || text === 'commit' || text === 'tag') return text;
  throw fatal(`invalid object type "${text}"`);
}

async function batch(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const isCheck = options.has('batch-check');
  const format = options.value(isCheck ? 'batch-check' : 'batch') ?? '%(objectname) %(objecttype) %(objectsize)';
  if (/%\((?!objectname\)|objecttype\)|objectsize\))/.test(format)) leave(`the format ${format}`);
  const input = binaryOfBytes(await context.call.stdin());
  for (const line of input.split('\n').slice(0, input.endsWith('\n') ? -1 : undefined)) {
    const hash = await resolveRevision(repository, textOf(line)).catch((error: unknown) => {
      if (error instanceof GitFailure) return null;
      throw error;
    });
    const object = hash === null ? null : await repository.objects.find(hash);
    if (!object || hash === null) {
      context.output.out(`${line} missing\n`);
      continue;
    }
    const said = format
      .replaceAll('%(objectname)', hash)
      .replaceAll('%(objecttype)', object.kind)
      .replaceAll('%(objectsize)', String(object.bytes.length));
    context.output.out(`${binaryOf(said)}\n`);
    if (!isCheck) context.output.out(`${binaryOfBytes(object.bytes)}\n`);
    await context.pace.rest();
  }
  return 0;
}

const entryKind = (mode: number): string => (mode === modeTree ? 'tree' : mode === 0o160000 ? 'commit' : 'blob');
const treeLine = ({ mode, name, hash }: TreeEntry): string =>
  `${modeText(mode)} ${entryKind(mode)} ${hash}\t${quotedPath(name)}`;

export const lsTree: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    r: 'flag',
    t: 'flag',
    d: 'flag',
    'l|long': 'flag',
    z: 'flag',
    'name-only': 'flag',
    'name-status': 'flag',
    'object-only': 'flag',
    'full-name': 'flag',
    'full-tree': 'flag',
    abbrev: 'attached',
  });
  if (options.has('abbrev')) leave('ls-tree --abbrev');
  const repository = await repositoryOf(context);
  const prefix = options.has('full-tree') || repository.workTree === null ? '' : prefixOf(context, repository);
  if (prefix !== '') leave('ls-tree below the root');
  const [name, ...given] = options.words;
  if (name === undefined) leave('ls-tree without a tree');
  const tree = await peel(repository, await needTree(repository, name), 'tree');
  if (tree === null) throw fatal('not a tree object');
  const paths = [...given, ...(options.rest ?? [])].map(binaryOf);
  const isWanted = (path: string) =>
    paths.length === 0 || paths.some((one) => one === path || path.startsWith(`${one.replace(/\/$/, '')}/`));
  const leadsTo = (path: string) => paths.some((one) => one.startsWith(`${path}/`));
  const walk = async (hash: string, base: string): Promise<void> => {
    await context.pace.rest();
    for (const entry of await repository.treeEntries(hash)) {
      const path = base + entry.name;
      const isTreeEntry = entry.mode === modeTree;
      const descends = isTreeEntry && ((options.has('r') && (isWanted(path) || leadsTo(path))) || leadsTo(path));
      const isShown = isWanted(path) && (isTreeEntry ? options.has('d', 't') || !options.has('r') : !options.has('d'));
      if (isShown && !(descends && leadsTo(path)))
        context.output.out(await treeText(repository, { ...entry, name: path }, options));
      if (descends) await walk(entry.hash, `${path}/`);
    }
  };
  await walk(tree, '');
  return 0;
};

async function needTree(repository: Repository, name: string): Promise<string> {
  return (await resolveRevision(repository, name)) ?? Promise.reject(fatal(`Not a valid object name ${name}`));
}

async function treeText(repository: Repository, entry: TreeEntry, options: Options): Promise<string> {
  const end = options.has('z') ? '\0' : '\n';
  const name = options.has('z') ? entry.name : quotedPath(entry.name);
  if (options.has('name-only', 'name-status')) return `${name}${end}`;
  if (options.has('object-only')) return `${entry.hash}${end}`;
  const kind = entryKind(entry.mode);
  if (!options.has('long')) return `${modeText(entry.mode)} ${kind} ${entry.hash}\t${name}${end}`;
  const size = kind === 'blob' ? String((await repository.objects.read(entry.hash)).bytes.length) : '-';
  return `${modeText(entry.mode)} ${kind} ${entry.hash} ${size.padStart(7)}\t${name}${end}`;
}

export const hashObject: Command = async (context, argv) => {
  const options = parseOptions(argv, { w: 'flag', stdin: 'flag', t: 'value', 'no-filters': 'flag' });
  const kind = kindOf(options.text('t') ?? 'blob');
  if (kind !== 'blob') leave(`hash-object of a ${kind}`);
  const words = [...options.words, ...(options.rest ?? [])];
  const contents: Uint8Array[] = [];
  if (options.has('stdin')) contents.push(await context.call.stdin());
  for (const word of words) {
    const path = word.startsWith('/') ? word : `${context.cwd}/${word}`;
    const status = await context.tree.stat(path);
    if (status?.kind !== 'file') leave('hash-object of what is no file');
    contents.push(await context.tree.read(path));
  }
  if (options.has('w')) {
    const repository = await repositoryOf(context);
    for (const bytes of contents) context.output.out(`${await repository.objects.write(kind, bytes)}\n`);
  } else for (const bytes of contents) context.output.out(`${hashOf(kind, bytes)}\n`);
  return 0;
};

export const showRef: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    head: 'flag',
    heads: 'flag',
    tags: 'flag',
    'd|dereference': 'flag',
    's|hash': 'attached',
    verify: 'flag',
    'q|quiet': 'flag',
  });
  const repository = await repositoryOf(context);
  const short = options.has('hash');
  const length = options.number('hash');
  const shown = async (hash: string) => (length === undefined ? hash : abbreviate(repository, hash, length));
  const print = async (hash: string, name: string) => {
    if (!options.has('quiet')) context.output.out(short ? `${await shown(hash)}\n` : `${hash} ${name}\n`);
    if (!options.has('dereference') || options.has('quiet')) return;
    const peeled = await peel(repository, hash, 'any');
    if (peeled !== null && peeled !== hash)
      context.output.out(short ? `${await shown(peeled)}\n` : `${peeled} ${name}^{}\n`);
  };
  if (options.has('verify')) {
    if (options.words.length === 0) leave('show-ref --verify');
    for (const word of options.words) {
      const name = binaryOf(word);
      const hash = name.startsWith('refs/') || name === 'HEAD' ? await repository.refs.hash(name) : null;
      if (hash === null) throw options.has('quiet') ? new GitFailure('', 1) : fatal(`'${word}' - not a valid ref`);
      await print(hash, name);
    }
    return 0;
  }
  const kinds = [options.has('heads') ? 'refs/heads/' : '', options.has('tags') ? 'refs/tags/' : ''].filter(
    (kind) => kind !== '',
  );
  let found = 0;
  const head = options.has('head') ? await repository.refs.hash('HEAD') : null;
  if (head !== null) {
    found += 1;
    await print(head, 'HEAD');
  }
  for (const { name, hash } of await repository.refs.list()) {
    if (kinds.length > 0 && !kinds.some((kind) => name.startsWith(kind))) continue;
    const words = options.words.map(binaryOf);
    if (words.length > 0 && !words.some((word) => name === word || name.endsWith(`/${word}`))) continue;
    found += 1;
    await print(hash, name);
  }
  return found > 0 ? 0 : 1;
};

export const symbolicRef: Command = async (context, argv) => {
  const options = parseOptions(argv, { short: 'flag', 'q|quiet': 'flag' });
  const repository = await repositoryOf(context);
  const [name, target] = options.words;
  if (name === undefined || options.words.length > 2) leave('symbolic-ref with other arguments');
  if (target !== undefined) {
    if (!target.startsWith('refs/')) throw fatal(`Refusing to point ${name} outside of refs/`);
    await repository.refs.writeSymbolic(binaryOf(name), binaryOf(target));
    return 0;
  }
  const raw = await repository.refs.raw(binaryOf(name));
  if (!raw || 'hash' in raw) {
    if (options.has('quiet')) return 1;
    throw fatal(raw ? `ref ${name} is not a symbolic ref` : `No such ref: ${name}`);
  }
  context.output.out(
    `${options.has('short') ? raw.target.replace(/^refs\/(heads|tags|remotes)\//, '') : raw.target}\n`,
  );
  return 0;
};

export const mergeBase: Command = async (context, argv) => {
  const options = parseOptions(argv, { 'a|all': 'flag', 'is-ancestor': 'flag' });
  const repository = await repositoryOf(context);
  const { isAncestor, mergeBases } = await import('../repository/history.ts');
  if (options.words.length !== 2) leave('merge-base of other than two');
  const commits: string[] = [];
  for (const word of options.words) {
    const hash = await resolveRevision(repository, word);
    const commit = hash === null ? null : await peel(repository, hash, 'commit');
    if (commit === null) throw fatal(`Not a valid object name ${word}`);
    commits.push(commit);
  }
  if (options.has('is-ancestor')) return (await isAncestor(repository, commits[0]!, commits[1]!)) ? 0 : 1;
  const bases = await mergeBases(repository, commits[0]!, commits[1]!);
  for (const base of options.has('all') ? bases : bases.slice(0, 1)) context.output.out(`${base}\n`);
  return bases.length > 0 ? 0 : 1;
};
