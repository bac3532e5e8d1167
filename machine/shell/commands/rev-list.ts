/** `git rev-list`. */
import { type Command, prefixOf, repositoryOf } from '../command.ts';
import { leave } from '../endings.ts';
import { parseOptions } from '../options.ts';
import { Pathspec } from '../repository/pathspec.ts';
import { abbreviate } from '../repository/revisions.ts';
import { splitRevisions } from './arguments.ts';
import { chosenCommits, logOptions, startsOf } from './log.ts';

export const revList: Command = async (context, argv) => {
  const options = parseOptions(
    argv,
    { ...logOptions, count: 'flag', parents: 'flag', 'left-right': 'flag' },
    { numbers: 'max-count' },
  );
  const repository = await repositoryOf(context);
  if (options.has('pretty', 'format', 'oneline', 'graph', 'follow', 'S', 'date-order', 'patch', 'stat'))
    leave('an option of rev-list');
  const prefix = repository.workTree === null ? '' : prefixOf(context, repository);
  const { revisions, paths } = await splitRevisions(repository, context, options);
  if (revisions.length === 0 && !options.has('all', 'branches', 'tags', 'remotes')) leave('rev-list of nothing');
  const sides = options.has('left-right') ? await twoSides(revisions) : null;
  if (sides && options.has('count')) {
    const counts: number[] = [];
    for (const [one, two] of [
      [sides[0], sides[1]],
      [sides[1], sides[0]],
    ]) {
      const { include, exclude } = await startsOf(repository, [`${two}..${one}`], options);
      let count = 0;
      for await (const _ of await chosenCommits(repository, include, exclude, options, Pathspec.parse([], '', null)))
        count += 1;
      counts.push(count);
    }
    context.output.out(`${counts[0]}\t${counts[1]}\n`);
    return 0;
  }
  if (sides) leave('rev-list --left-right');
  const { include, exclude } = await startsOf(repository, revisions, options);
  const pathspec = Pathspec.parse(paths, prefix, repository.workTree);
  let count = 0;
  for await (const commit of await chosenCommits(repository, include, exclude, options, pathspec)) {
    count += 1;
    if (options.has('count')) continue;
    const name = async (hash: string) => (options.has('abbrev-commit') ? abbreviate(repository, hash) : hash);
    const parents = options.has('parents') ? await Promise.all(commit.parents.map(name)) : [];
    context.output.out(`${[await name(commit.hash), ...parents].join(' ')}\n`);
  }
  if (options.has('count')) context.output.out(`${count}\n`);
  return 0;
};

async function twoSides(revisions: readonly string[]): Promise<[string, string]> {
  const range = /^(.*?)\.\.\.(.*)$/s.exec(revisions[0] ?? '');
  if (!range || revisions.length !== 1) return leave('--left-right of other than two');
  return [range[1] || 'HEAD', range[2] || 'HEAD'];
}
