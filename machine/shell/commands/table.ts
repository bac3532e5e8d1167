/** The commands that the engine does by itself. */
import type { Command } from '../command.ts';
import { add } from './add.ts';
import { commit } from './commit.ts';
import { diff } from './diff.ts';
import { init } from './init.ts';
import { log, show } from './log.ts';
import { catFile, hashObject, lsTree, mergeBase, showRef, symbolicRef } from './plumbing.ts';
import { status } from './status.ts';

export const commands: ReadonlyMap<string, Command> = new Map<string, Command>([
  ['add', add],
  ['cat-file', catFile],
  ['commit', commit],
  ['diff', diff],
  ['hash-object', hashObject],
  ['init', init],
  ['log', log],
  ['ls-tree', lsTree],
  ['merge-base', mergeBase],
  ['show', show],
  ['show-ref', showRef],
  ['stage', add],
  ['status', status],
  ['symbolic-ref', symbolicRef],
]);
