/** Which commands just-git does, and under which conditions. */
import type { Command } from '../command.ts';
import { leave } from '../endings.ts';
import { justGit, requireBranch, requireNothing } from './commands.ts';
import { requireCommittedLines, requirePlainGrep, requireSinglePicks, requireWholeStash } from './conditions.ts';

const commitHooks = [
  'pre-commit',
  'commit-msg',
  'prepare-commit-msg',
  'post-commit',
  'pre-merge-commit',
  'post-merge',
  'post-checkout',
  'post-rewrite',
  'pre-rebase',
];

export const justGitCommands: ReadonlyMap<string, Command> = new Map<string, Command>([
  [
    'describe',
    justGit('describe', {
      changes: false,
      options: {
        tags: 'flag',
        always: 'flag',
        long: 'flag',
        abbrev: 'attached',
        dirty: 'attached',
        match: 'value',
        'exact-match': 'flag',
      },
    }),
  ],
  [
    'shortlog',
    justGit('shortlog', { changes: false, options: { 's|summary': 'flag', 'n|numbered': 'flag', 'e|email': 'flag' } }),
  ],
  [
    'blame',
    justGit('blame', {
      changes: false,
      options: {
        L: 'value',
        l: 'flag',
        'e|show-email': 'flag',
        s: 'flag',
        'p|porcelain': 'flag',
        'line-porcelain': 'flag',
      },
      check: requireCommittedLines,
    }),
  ],
  [
    'grep',
    justGit('grep', {
      changes: false,
      options: {
        'n|line-number': 'flag',
        'l|files-with-matches|name-only': 'flag',
        'L|files-without-match': 'flag',
        'c|count': 'flag',
        'i|ignore-case': 'flag',
        'w|word-regexp': 'flag',
        'v|invert-match': 'flag',
        'F|fixed-strings': 'flag',
        'E|extended-regexp': 'flag',
        h: 'flag',
        H: 'flag',
        'q|quiet': 'flag',
        e: 'value',
        cached: 'flag',
        A: 'value',
        B: 'value',
        C: 'value',
        I: 'flag',
      },
      check: requirePlainGrep,
    }),
  ],
  [
    'merge',
    justGit('merge', {
      changes: true,
      hooks: commitHooks,
      options: {
        'q|quiet': 'flag',
        'ff-only': 'flag',
        'no-ff': 'flag',
        ff: 'flag',
        squash: 'flag',
        'm|message': 'value',
        'no-edit': 'flag',
        abort: 'flag',
        continue: 'flag',
        stat: 'flag',
      },
      check: async (options, repository) => {
        if (options.words.length > 1) leave('an octopus');
        if (!options.has('abort', 'continue')) await requireNothing(repository);
        await requireBranch(repository);
      },
    }),
  ],
  [
    'cherry-pick',
    justGit('cherry-pick', {
      changes: true,
      hooks: commitHooks,
      options: {
        x: 'flag',
        'n|no-commit': 'flag',
        abort: 'flag',
        continue: 'flag',
        skip: 'flag',
        'm|mainline': 'value',
      },
      check: async (options, repository) => {
        if (!options.has('abort', 'continue', 'skip')) await requireNothing(repository);
        await requireSinglePicks('cherry-pick', options, repository);
      },
    }),
  ],
  [
    'revert',
    justGit('revert', {
      changes: true,
      hooks: commitHooks,
      options: {
        'no-edit': 'flag',
        'n|no-commit': 'flag',
        abort: 'flag',
        continue: 'flag',
        skip: 'flag',
        'm|mainline': 'value',
      },
      check: async (options, repository) => {
        if (!options.has('abort', 'continue', 'skip')) await requireNothing(repository);
        await requireSinglePicks('revert', options, repository);
      },
    }),
  ],
  [
    'rebase',
    justGit('rebase', {
      changes: true,
      hooks: commitHooks,
      options: { 'q|quiet': 'flag', onto: 'value', abort: 'flag', continue: 'flag', skip: 'flag' },
      check: async (options, repository) => {
        if (options.has('abort', 'continue', 'skip')) return;
        if (options.words.length === 0) leave('rebase on what the branch follows');
        await requireNothing(repository);
      },
    }),
  ],
  [
    'stash',
    justGit('stash', {
      changes: true,
      options: { 'm|message': 'value', 'u|include-untracked': 'flag', index: 'flag', 'q|quiet': 'flag' },
      check: requireWholeStash,
    }),
  ],
  [
    'bisect',
    justGit('bisect', {
      changes: true,
      hooks: ['post-checkout'],
      options: {},
      check: (options) => {
        if (['run', 'visualize', 'view', 'replay'].includes(options.words[0] ?? ''))
          leave(`bisect ${options.words[0]}`);
      },
    }),
  ],
]);
