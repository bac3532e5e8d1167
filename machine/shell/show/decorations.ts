/** Which references stand at which commit, as `--decorate` says it. */
import { headOf } from '../repository/head.ts';
import type { Repository } from '../repository/repository.ts';
import { peel } from '../repository/revisions.ts';

export async function decorationsOf(repository: Repository, isFull: boolean): Promise<Map<string, string[]>> {
  const found = new Map<string, string[]>();
  const head = await headOf(repository);
  const add = (hash: string, name: string) => found.set(hash, [...(found.get(hash) ?? []), name]);
  if (head.hash !== null) {
    const name = head.ref === null ? 'HEAD' : `HEAD -> ${isFull ? head.ref : head.branch}`;
    add(head.hash, name);
  }
  const refs = (await repository.refs.list()).reverse();
  for (const { name, hash } of refs) {
    if (name === head.ref || !/^refs\/(tags|remotes|heads)\/|^refs\/stash$/.test(name)) continue;
    const commit = await peel(repository, hash, 'commit');
    if (!commit) continue;
    const short = isFull ? name : name.replace(/^refs\/(tags|remotes|heads)\//, '');
    add(commit, name.startsWith('refs/tags/') ? `tag: ${short}` : short);
  }
  return found;
}
