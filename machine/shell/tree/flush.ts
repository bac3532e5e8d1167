/** Writes what a call held back: what goes first, then directories, then files, many in one transaction. */
import { breathe } from '../../agentfs/breathe.ts';
import { FileError } from '../../agentfs/errors.ts';
import type { Place } from '../../agentfs/namespace.ts';
import { type NewFile, putFiles } from '../../agentfs/put.ts';
import { isDirectory } from '../../agentfs/schema.ts';
import type { Drafts } from './drafts.ts';
import type { Tree } from './tree.ts';

/** One transaction: others wait no longer for their turn. */
const filesAtOnce = 64;
const bytesAtOnce = 1024 ** 2;

export async function flushDrafts(tree: Tree, drafts: Drafts): Promise<void> {
  const { names } = tree.view.files;
  for (const [path, draft] of drafts.entries()) {
    const isFile = draft.kind === 'file' || draft.kind === 'symlink';
    if (draft.kind === 'directory' && !draft.replaces) continue;
    const place = await tree.place(path).catch((error: unknown) => {
      // Its directory is still to be made: then there is nothing that it could replace.
      if (error instanceof FileError && error.errno === 'ENOENT') return null;
      throw error;
    });
    if (!place) continue;
    const found = await names.lookup(place.parent, place.name);
    // A file takes a file's name by itself.
    if (found && (!isFile || isDirectory(found.mode))) await removeAll(tree, place);
  }
  tree.forget();
  for (const [path, draft] of drafts.entries()) {
    if (draft.kind === 'directory') await names.makeDirectory(await tree.place(path), 0o755);
  }
  let group: NewFile[] = [];
  let bytes = 0;
  const put = async () => {
    if (group.length > 0) await putFiles(tree.view.files, group);
    group = [];
    bytes = 0;
    await breathe();
  };
  for (const [path, draft] of drafts.entries()) {
    if (draft.kind !== 'file' && draft.kind !== 'symlink') continue;
    const place = await tree.place(path);
    if (draft.kind === 'symlink') {
      await put();
      await placeSymlink(tree, place, draft.target);
      continue;
    }
    group.push({ place, bytes: draft.bytes, permissions: draft.permissions });
    bytes += draft.bytes.length;
    if (group.length >= filesAtOnce || bytes >= bytesAtOnce) await put();
  }
  await put();
}

async function placeSymlink(tree: Tree, place: Place, target: string): Promise<void> {
  const { names } = tree.view.files;
  if (await names.lookup(place.parent, place.name)) await names.unlink(place);
  await names.makeSymlink(place, target);
}

async function removeAll(tree: Tree, place: Place): Promise<void> {
  const { names } = tree.view.files;
  const found = await names.lookup(place.parent, place.name);
  if (!found) return;
  if (!isDirectory(found.mode)) return names.unlink(place);
  for (const { name } of await names.list(found.ino)) await removeAll(tree, { parent: found.ino, name });
  await names.removeDirectory(place);
}
