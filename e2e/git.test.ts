/**
 * `git` in the tool shell, by real Hermes: HyperSH Git on the conversation's own tree, the host's git for the rest, one truth
 * for what the shell sees and what git sees (issue 4, acceptance 6).
 */
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { requireProgram } from './harness/programs.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const limitMs = 240_000;
requireProgram('git');
const hasNative = existsSync('/usr/bin/git');
const identity = 'git config --global user.name Agent && git config --global user.email agent@example.test';

let model: ScriptedModel;
let data: string;
let gateway: Gateway;
let turn = 0;

async function start(nativeGit: 'auto' | 'off'): Promise<void> {
  gateway = await Gateway.start({
    dataDirectory: data,
    environment: {
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL: 'scripted',
      EDGE_MODEL_KEY: 'none',
      EDGE_NATIVE_GIT: nativeGit,
    },
  });
}

beforeAll(async () => {
  model = ScriptedModel.start();
  data = scratchDirectory('git');
  await start('off');
}, limitMs);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  removeScratch(data);
}, limitMs);

/** What the terminal printed for a script, run in a turn of its own. */
async function terminal(script: string): Promise<string> {
  turn += 1;
  const text = `please do step ${turn};`;
  model.on(text, call('terminal', { command: script }), say('done'));
  await gateway.api().say(gateway.conversation, text);
  const result = String(model.turns.at(-1)!.body.messages.at(-1)!.content);
  return (JSON.parse(result) as { output: string }).output;
}

interface Row {
  readonly parameters: { readonly argv: readonly string[]; readonly cwd: string };
  readonly result: { readonly engine: string; readonly exitCode?: number };
  readonly error: string | null;
}

/** Calls of git in the cloud's ledger, whose words contain `words`. */
function ledger(words: string): Row[] {
  const database = new Database(join(data, 'authority/agentfs.db'), { readonly: true });
  const rows = database.query("SELECT * FROM tool_calls WHERE name = 'git' ORDER BY started_at").all();
  database.close();
  return (rows as Record<string, string>[])
    .map((row) => ({
      error: row.error ?? null,
      parameters: JSON.parse(row.parameters!) as Row['parameters'],
      result: JSON.parse(row.result!) as Row['result'],
    }))
    .filter(({ parameters }) => parameters.argv.join(' ').includes(words));
}

describe('with no native git', () => {
  test(
    'a repository is made, filled, committed and looked at; branches are merged, put aside and searched',
    async () => {
      const merging =
        `mkdir -p /workspace/merged && cd /workspace/merged && git init -q -b main . && seq 20 > a.txt && git add . && git commit -qm base && ` +
        `git checkout -qb side && sed -i s/^3$/three/ a.txt && git commit -qam side && git checkout -q main && sed -i s/^18$/eighteen/ a.txt && git commit -qam main && ` +
        `git merge --no-edit side 2>&1 | head -2 && git log --oneline --merges | wc -l && echo x >> a.txt && git stash -q && git stash list && git stash pop -q && git status -s && ` +
        `git checkout -q a.txt && git revert --no-edit HEAD~1 2>&1 | head -1 | cut -d' ' -f1 && git grep -c three && git blame -s -L 3,3 a.txt | cut -c9-`;
      const output = await terminal(
        `${identity} && git config --global user.name && mkdir -p /workspace/repo && cd /workspace/repo && git init -q -b main . && echo one > a.txt && mkdir d && printf 'two\\n' > d/b.txt && ` +
          `git add . && git commit -q -m first && git log --format=%s && git show --stat --format=%an HEAD && ` +
          `echo changed >> a.txt && git status --short && git diff | tail -1 && git commit -qam second && git log --oneline | wc -l && ${merging}`,
      );
      expect(output).toMatch(
        /^Agent\nfirst\nAgent\n\n a\.txt {3}\| 1 \+\n d\/b\.txt \| 1 \+\n 2 files changed, 2 insertions\(\+\)\n M a\.txt\n\+changed\n2\nAuto-merging a\.txt\nMerge made by the 'ort' strategy\.\n1\nstash@\{0\}: WIP on main: [0-9a-f]{7} Merge branch 'side'\n M a\.txt\nAuto-merging\na\.txt:1\n 3\) three$/,
      );
    },
    limitMs,
  );

  test(
    'it is what every program finds, and none of it is in a prompt',
    async () => {
      const output = await terminal(
        `cd /workspace/repo; command -v git; bash -lc 'git log --format=%s -1'; env -i HOME=/tmp PATH=/usr/local/bin:/usr/bin:/bin bash -c 'command -v git'; ` +
          `printf '1\\n2\\n' | while read -r n; do git log --format="$n %s" -1; done; git log | head -1 | cut -c1-6; ` +
          `python3 -c 'import subprocess; print(subprocess.run(["git", "log", "--format=%s", "-1"], capture_output=True, text=True).stdout, end="")'`,
      );
      expect(output).toBe(
        `/opt/edge/bin/git\nsecond\n${hasNative ? '/usr/bin/git\n' : ''}1 second\n2 second\ncommit\nsecond`,
      );
      expect(model.turns.map(({ raw }) => raw).join()).not.toMatch(/hypersh|just-git/i);
    },
    limitMs,
  );

  test(
    'what a program wrote into a mapped file is there for git at once',
    async () => {
      const program =
        'import mmap, subprocess; f = open("mapped", "r+b"); m = mmap.mmap(f.fileno(), 0); m[0:6] = b"mapped"; ' +
        'subprocess.run(["git", "add", "mapped"]); print(subprocess.run(["git", "show", ":mapped"], capture_output=True).stdout[:6]); ' +
        'm[0:6] = b"again!"; subprocess.run(["git", "add", "mapped"]); print(subprocess.run(["git", "show", ":mapped"], capture_output=True).stdout[:6])';
      const output = await terminal(`cd /workspace/repo && printf %8192s > mapped && python3 -c '${program}'`);
      expect(output).toBe(`b'mapped'\nb'again!'`);
    },
    limitMs,
  );

  test(
    'what git changes is there for every program at once: paths, lists, open and mapped files',
    async () => {
      const program =
        'import os, subprocess; r = open("a.txt", "rb", buffering=0); before = r.read(); ' +
        'subprocess.run(["git", "checkout", "-q", "HEAD~1"], check=True); ' +
        'print(before, open("a.txt").read().split(), sorted(os.listdir(".")), os.stat("a.txt").st_size); ' +
        'subprocess.run(["git", "checkout", "-q", "main"], check=True); print(open("a.txt").read().split())';
      const output = await terminal(
        `cd /workspace/repo && cat a.txt >/dev/null && ls >/dev/null && python3 -c '${program}' && cat a.txt`,
      );
      expect(output).toBe(
        `b'one\\nchanged\\n' ['one'] ['.git', 'a.txt', 'd', 'mapped'] 4\n['one', 'changed']\none\nchanged`,
      );
    },
    limitMs,
  );

  test(
    'what is not done here says so, and leaves the rest alone',
    async () => {
      const output = await terminal(
        'cd /workspace/repo; git daemon --export-all 2>&1; echo $?; cd /tmp; git status 2>&1; echo $?',
      );
      expect(output).toMatch(
        /^git: 'daemon --export-all' is not available here \(.+\)\n1\ngit: 'status' is not available here \(.+\)\n1$/,
      );
    },
    limitMs,
  );
});

describe('with a native git, after a cold start', () => {
  beforeAll(async () => {
    await gateway.stop();
    await start('auto');
  }, limitMs);

  test.skipIf(!hasNative)(
    'the repository is as it was, and native git finds no fault in it',
    async () => {
      const output = await terminal(
        'cd /workspace/repo && git log --format=%s && git fsck --strict --full --no-dangling 2>&1 && git ls-files && /opt/edge/native-git status --short',
      );
      expect(output).toBe('second\nfirst\na.txt\nd/b.txt\nmapped\nA  mapped');
    },
    limitMs,
  );

  test.skipIf(!hasNative)(
    'a repository, or a message, of the holder alone is the native git’s',
    async () => {
      const output = await terminal(
        `cd /tmp && git init -q own && cd own && git -c user.name=A -c user.email=a@b commit -q --allow-empty -m own && git log --format=%s; ` +
          `git config --global user.name A && git config --global user.email a@b; echo 'from a file' > /tmp/message; ` +
          `cd /workspace/repo && git commit -q --allow-empty -F /tmp/message && git log --format=%s -1; GIT_DIR=/tmp/own/.git git log --format=%s`,
      );
      expect(output).toBe('own\nfrom a file\nown');
    },
    limitMs,
  );

  test.skipIf(!hasNative)(
    'the ledger names the engine of each call, and no credential',
    async () => {
      await terminal('cd /workspace/repo; git ls-remote https://user:s3cret@127.0.0.1:1/x >/dev/null 2>&1; true');
      await gateway.stop();
      const engines = (words: string) => [...new Set(ledger(words).map(({ result }) => result.engine))];
      expect(engines('commit -q -m first')).toEqual(['just-git']);
      expect(engines('daemon --export-all')).toEqual(['none']);
      expect(engines('fsck --strict')).toEqual(['native']);
      expect(ledger('commit -q -m first')[0]).toMatchObject({
        parameters: {
          argv: ['git', 'commit', '-q', '-m', 'first'],
          cwd: '/workspace/repo',
        },
        result: { exitCode: 0 },
        error: null,
      });
      expect(ledger('ls-remote')[0]!.parameters.argv).toEqual(['git', 'ls-remote', 'https://***@127.0.0.1:1/x']);
      expect(JSON.stringify(ledger(''))).not.toContain('s3cret');
    },
    limitMs,
  );
});
