/** `git tag`. */
import { type Command, type CommandContext, personOf, repositoryOf } from '../command.ts';
import { fatal, leave } from '../endings.ts';
import { type Options, parseOptions } from '../options.ts';
import { personText } from '../repository/parse.ts';
import type { Repository } from '../repository/repository.ts';
import { abbreviate, isRefName, resolveRevision } from '../repository/revisions.ts';
import { wildcard } from '../repository/wildmatch.ts';
import { binaryOf, binaryOfBytes, bytesOf } from '../text.ts';
import { chosenRefs, formattedRef, sortedRefs } from './for-each-ref.ts';

export const tag: Command = async (context, argv) => {
  const options = parseOptions(argv, {
    'l|list': 'flag',
    'd|delete': 'flag',
    'a|annotate': 'flag',
    'm|message': 'value',
    'F|file': 'value',
    'f|force': 'flag',
    n: 'attached',
    sort: 'value',
    format: 'value',
    contains: 'last',
    merged: 'last',
    'no-merged': 'last',
    'points-at': 'value',
    'no-sign': 'flag',
    'no-column': 'flag',
  });
  const repository = await repositoryOf(context);
  if (options.has('delete')) return remove(context, repository, options.words);
  const lists = options.has('list', 'n', 'sort', 'format', 'contains', 'merged', 'no-merged', 'points-at');
  if (lists || options.words.length === 0) return list(context, repository, options);
  return create(context, repository, options);
};

async function list(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const patterns = options.words.map((word) => wildcard(binaryOf(word), { isPath: false }));
  const choose = (name: string) => (options.has(name) ? (options.value(name) ?? 'HEAD') : undefined);
  let refs = await repository.refs.list('refs/tags/');
  if (patterns.length > 0) refs = refs.filter(({ name }) => patterns.some((pattern) => pattern?.test(name.slice(10))));
  refs = await chosenRefs(repository, refs, {
    pointsAt: options.text('points-at'),
    contains: choose('contains'),
    merged: choose('merged'),
    notMerged: choose('no-merged'),
  });
  const format = options.text('format');
  const lines = options.has('n') ? (options.number('n') ?? 1) : 0;
  if (lines > 1) leave('tag -n with a number');
  for (const ref of await sortedRefs(repository, refs, options.values('sort'))) {
    const name = ref.name.slice(10);
    if (format !== undefined) context.output.out(`${await formattedRef(repository, ref, format)}\n`);
    else if (lines === 1)
      context.output.out(`${name.padEnd(15)} ${await formattedRef(repository, ref, '%(contents:subject)')}\n`);
    else context.output.out(`${name}\n`);
  }
  return 0;
}

async function create(context: CommandContext, repository: Repository, options: Options): Promise<number> {
  const [word, target = 'HEAD', ...more] = options.words;
  if (more.length > 0) throw fatal('too many arguments');
  const name = binaryOf(word!);
  const ref = `refs/tags/${name}`;
  if (!isRefName(ref) || name.startsWith('-')) throw fatal(`'${word}' is not a valid tag name.`);
  const object = await resolveRevision(repository, target);
  if (object === null) throw fatal(`Failed to resolve '${target}' as a valid ref.`);
  const before = await repository.refs.hash(ref);
  if (before !== null && !options.has('force')) throw fatal(`tag '${word}' already exists`);
  let hash = object;
  if (options.has('annotate', 'message', 'file')) {
    const message = await messageOf(context, options);
    const { kind } = await repository.objects.read(object);
    const tagger = personText(personOf(context, repository, 'committer'));
    const text = `object ${object}\ntype ${kind}\ntag ${name}\ntagger ${tagger}\n\n${message}`;
    hash = await repository.objects.write('tag', bytesOf(text));
  }
  await repository.refs.write(ref, hash, null);
  if (before !== null && before !== hash) {
    context.output.out(`Updated tag '${name}' (was ${await abbreviate(repository, before)})\n`);
  }
  return 0;
}

async function messageOf(context: CommandContext, options: Options): Promise<string> {
  const messages = options.values('message');
  const file = options.text('file');
  let text: string;
  if (messages.length > 0) text = messages.map((one) => binaryOf(one).replace(/\n*$/, '\n')).join('\n');
  else if (file === '-') text = binaryOfBytes(await context.call.stdin());
  else if (file !== undefined)
    text = binaryOfBytes(await context.tree.read(file.startsWith('/') ? file : `${context.cwd}/${file}`));
  else return leave('an editor for the message');
  const lines = text.split('\n').map((line) => line.trimEnd());
  const kept = lines.filter((line, at) => line !== '' || (at > 0 && lines[at - 1] !== ''));
  while (kept[0] === '') kept.shift();
  while (kept.at(-1) === '') kept.pop();
  return kept.length === 0 ? '' : `${kept.join('\n')}\n`;
}

async function remove(context: CommandContext, repository: Repository, words: readonly string[]): Promise<number> {
  let failed = false;
  for (const word of words) {
    const ref = `refs/tags/${binaryOf(word)}`;
    const hash = await repository.refs.hash(ref);
    if (hash === null) {
      context.output.say(`error: tag '${word}' not found.\n`);
      failed = true;
      continue;
    }
    await repository.refs.remove(ref);
    context.output.out(`Deleted tag '${binaryOf(word)}' (was ${await abbreviate(repository, hash)})\n`);
  }
  return failed ? 1 : 0;
}
