/**
 * Whole files put in place, many at a time: what unpacks, checks out or stores many small files. Nobody ever sees one of
 * them half written; a file that had the name loses it, as by rename(2) over it.
 */
import type { OrganizationFiles } from './files.ts';
import type { Place } from './namespace.ts';

export interface NewFile {
  readonly place: Place;
  readonly permissions: number;
  readonly bytes: Uint8Array;
}

/** EISDIR where a directory has a name, EFBIG, ENOSPC; then none of them has its name. */
export async function putFiles(files: OrganizationFiles, list: readonly NewFile[]): Promise<void> {
  const inodes = await files.names.createNameless(list.map(({ permissions }) => permissions));
  try {
    for (const [at, { bytes }] of list.entries()) {
      if (bytes.length > 0) await files.data.write(inodes[at]!.ino, 0, bytes);
    }
    await files.names.giveNames(list.map(({ place }, at) => ({ ino: inodes[at]!.ino, place })));
  } finally {
    for (const { ino } of inodes) await files.names.close(ino);
  }
}
