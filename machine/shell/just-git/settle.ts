/**
 * just-git writes no permissions and no stamps: after it, files of the working tree that the index calls executable are made
 * so, and the index learns what the files that it wrote are like. Otherwise every file would be compared by its contents.
 */

import { statForIndex } from '../repository/index-file.ts';
import { hashOf } from '../repository/objects.ts';
import type { Repository } from '../repository/repository.ts';
import { WorkTree } from '../repository/work-tree.ts';
import { binaryOf, textOf } from '../text.ts';

export async function settleWorkTree(repository: Repository, written: ReadonlySet<string>): Promise<void> {
  if (repository.workTree === null) return;
  const root = `${repository.workTree}/`;
  const paths = new Set<string>();
  for (const path of written) {
    if (path.startsWith(root) && !path.startsWith(`${repository.gitDirectory}/`))
      paths.add(binaryOf(path.slice(root.length)));
  }
  repository.forgetIndex();
  const before = await repository.index();
  for (const { path, mode, stage } of before) {
    if (stage > 0 || !paths.has(path) || mode === 0o120000) continue;
    const full = root + textOf(path);
    const status = await repository.tree.lstat(full);
    if (status?.kind !== 'file') continue;
    const isExecutable = (status.mode & 0o100) !== 0;
    if (isExecutable !== (mode === 0o100755)) await repository.tree.chmod(full, mode === 0o100755 ? 0o755 : 0o644);
  }
  await repository.tree.flush();
  const workTree = new WorkTree(repository);
  let isChanged = false;
  const entries = [];
  for (const entry of before) {
    const isBare = entry.stat.ino === 0 && entry.stat.mtimeSeconds === 0;
    const status = entry.stage === 0 && isBare ? await workTree.status(entry.path) : null;
    if (!status || status.kind === 'directory') {
      entries.push(entry);
      continue;
    }
    const isSame = hashOf('blob', await workTree.content(entry.path, status)) === entry.hash;
    entries.push(isSame ? { ...entry, stat: statForIndex(status) } : entry);
    isChanged ||= isSame;
    await repository.pace.rest();
  }
  if (isChanged) await repository.writeIndex(entries);
}
