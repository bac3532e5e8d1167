/** The commands that the engine does by itself. */
import type { Command } from '../command.ts';
import { justGitCommands } from '../just-git/table.ts';
import { clone, fetchCommand, lsRemote, pull, push } from '../just-git/transfer.ts';
import { add } from './add.ts';
import { branch } from './branch.ts';
import { checkout, switchBranch } from './checkout.ts';
import { commit } from './commit.ts';
import { config } from './config.ts';
import { diff } from './diff.ts';
import { clean, mv, rm } from './files.ts';
import { forEachRef } from './for-each-ref.ts';
import { init } from './init.ts';
import { log, show } from './log.ts';
import { checkIgnore, lsFiles } from './ls-files.ts';
import { catFile, hashObject, lsTree, mergeBase, showRef, symbolicRef } from './plumbing.ts';
import { remote } from './remote.ts';
import { reset } from './reset.ts';
import { restore } from './restore.ts';
import { revList } from './rev-list.ts';
import { revParse } from './rev-parse.ts';
import {
  checkRefFormat,
  commitTree,
  gc,
  gitVar,
  reflog,
  updateRef,
  version,
  worktree,
  writeTreeCommand,
} from './small.ts';
import { status } from './status.ts';
import { tag } from './tag.ts';

export const commands: ReadonlyMap<string, Command> = new Map<string, Command>([
  ['add', add],
  ['branch', branch],
  ['cat-file', catFile],
  ['check-ignore', checkIgnore],
  ['check-ref-format', checkRefFormat],
  ['checkout', checkout],
  ['clean', clean],
  ['clone', clone],
  ['commit', commit],
  ['commit-tree', commitTree],
  ['config', config],
  ['diff', diff],
  ['fetch', fetchCommand],
  ['for-each-ref', forEachRef],
  ['gc', gc],
  ['hash-object', hashObject],
  ['init', init],
  ['log', log],
  ['ls-files', lsFiles],
  ['ls-remote', lsRemote],
  ['ls-tree', lsTree],
  ['merge-base', mergeBase],
  ['mv', mv],
  ['pull', pull],
  ['push', push],
  ['reflog', reflog],
  ['remote', remote],
  ['reset', reset],
  ['restore', restore],
  ['rev-list', revList],
  ['rev-parse', revParse],
  ['rm', rm],
  ['show', show],
  ['show-ref', showRef],
  ['stage', add],
  ['status', status],
  ['switch', switchBranch],
  ['symbolic-ref', symbolicRef],
  ['tag', tag],
  ['update-ref', updateRef],
  ['var', gitVar],
  ['version', version],
  ['worktree', worktree],
  ['write-tree', writeTreeCommand],
  ...justGitCommands,
]);
