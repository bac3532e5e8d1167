/**
 * One organization, three conversations at work: one supervisor, one machine, one open AgentFS, three Hermes children, and
 * nothing of what they write is a file of the host (ADR-046 §5, acceptance 5).
 */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { existsSync, readFileSync, readlinkSync, writeFileSync } from 'node:fs';
import { basename, join } from 'node:path';
import { type FileChange, FileTrace, fileChanges } from './harness/file-changes.ts';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { filesHolding, holderPlaces, pathsBelow, processesUsing } from './harness/host-search.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { descriptorsOf, type ProcessInfo } from './harness/processes.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const letters = ['a', 'b', 'c'] as const;
/** Random, so that nothing else on this host can hold it. */
const marks = letters.map((letter) => `mark-${letter}-${crypto.randomUUID()}`);

let scratch: string;
let stamp: string;
let model: ScriptedModel;
let gateway: Gateway;
let tree: ProcessInfo[];
let hermes: ProcessInfo[];
let conversations: string[];
let changes: FileChange[];
let placesBefore: boolean[];

/** Turns that use every tool that writes: the user's words never hold the mark, so that only files and SessionDB can. */
function scriptWork(letter: string, mark: string): void {
  const shell = [
    `echo ${mark} > shell.txt`,
    'mkdir -p made/deep && mv shell.txt made/deep/moved.txt && ln -s made/deep/moved.txt link.txt',
    `ln made/deep/moved.txt hard.txt && chmod 600 hard.txt && truncate -s 60 hard.txt && touch -d @1 hard.txt`,
    `echo ${mark} > /artifacts/artifact-${letter}.txt`,
    `echo ${mark} > /tmp/temporary-${letter}.txt && echo ${mark} > "$HOME/at-home.txt"`,
    'python3 -m venv --help > /dev/null; echo done > gone.txt && rm gone.txt',
  ].join('\n');
  const code = [
    'import os, sqlite3, tempfile',
    `open('code.txt', 'w').write('${mark}')`,
    `open(os.path.join(tempfile.mkdtemp(), 'x'), 'w').write('${mark}')`,
    'from hermes_tools import terminal',
    `print(terminal('echo ${mark} > from-code.txt'))`,
    "db = sqlite3.connect('notes.db')",
    "db.execute('PRAGMA journal_mode=WAL')",
    "db.execute('CREATE TABLE t (x)')",
    `db.execute("INSERT INTO t VALUES ('${mark}')")`,
    'db.commit()',
    "print('code-done')",
  ].join('\n');
  const skill = `---\nname: skill-${letter}\ndescription: ${mark}\n---\n# Skill\n${mark}\n`;
  model.on(
    `work ${letter}`,
    call('terminal', { command: shell }),
    call('write_file', { path: 'notes.txt', content: `${mark}\nold\n` }),
    call('patch', { mode: 'replace', path: 'notes.txt', old_string: 'old', new_string: `new ${mark}` }),
    call('memory', { action: 'add', target: 'memory', content: `remember ${mark}` }),
    call('skill_manage', { action: 'create', name: `skill-${letter}`, content: skill }),
    call('execute_code', { code }),
    call('terminal', {
      command: `sleep 0.3; echo ${mark} > background.txt; echo ${mark} > ready.txt`,
      background: true,
      notify_on_complete: true,
    }),
    call('process', { action: 'list' }),
    call('terminal', { command: 'until [ -e ready.txt ]; do sleep 0.1; done; echo waited' }),
    say(`worked ${letter}`),
  );
  model.on(
    `look ${letter}`,
    call('terminal', {
      command: `grep -c ${mark} link.txt hard.txt notes.txt code.txt from-code.txt background.txt notes.db /artifacts/artifact-${letter}.txt /tmp/temporary-${letter}.txt ~/at-home.txt /hermes/skills/skill-${letter}/SKILL.md; ls`,
    }),
    say(`looked ${letter}`),
  );
}

beforeAll(async () => {
  scratch = scratchDirectory('contain');
  stamp = join(scratch, 'stamp');
  placesBefore = holderPlaces.map((place) => existsSync(place));
  model = ScriptedModel.start();
  letters.forEach((letter, index) => {
    scriptWork(letter, marks[index]!);
  });
  gateway = await Gateway.start({
    environment: {
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL: 'scripted',
      EDGE_MODEL_KEY: 'none',
      // Of this run alone: whatever were written there could be found.
      HOME: join(scratch, 'home'),
      TMPDIR: join(scratch, 'tmp'),
    },
  });
  writeFileSync(stamp, '');
  const api = gateway.api('expert');
  conversations = await Promise.all(letters.map(() => api.createConversation('Eleanora')));
  await Promise.all(conversations.map((conversation) => api.say(conversation, 'hello')));
  hermes = hermesProcesses(gateway.pid);
  tree = gateway.tree();
  const trace = await FileTrace.attach(
    hermes.map(({ pid }) => pid),
    join(scratch, 'strace'),
  );
  const replies = await Promise.all(
    conversations.map((conversation, index) => api.say(conversation, `work ${letters[index]}`)),
  );
  expect(replies.map(({ reply }) => reply.text)).toEqual(letters.map((letter) => `worked ${letter}`));
  changes = await trace.stop('/workspace');
}, 400_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  removeScratch(scratch);
}, 180_000);

test('every tool did its work, on files that are there in the next turn', async () => {
  const results = model.turns.flatMap(({ body }) => {
    const last = body.messages.at(-1)!;
    return last.role === 'tool' ? [String(last.content)] : [];
  });
  for (const word of ['code-done', 'waited']) expect(results.filter((text) => text.includes(word)).length).toBe(3);
  const from = model.turns.length;
  const api = gateway.api('expert');
  for (const [index, conversation] of conversations.entries()) await api.say(conversation, `look ${letters[index]}`);
  const looks = model.turns.slice(from).flatMap(({ body }) => {
    const last = body.messages.at(-1)!;
    return last.role === 'tool' ? [String(last.content)] : [];
  });
  expect(looks.length).toBe(3);
  for (const look of looks) {
    expect(look.match(/:[1-9]\d*\\n/g)?.length, look).toBe(11);
    expect(look).not.toContain('gone.txt');
  }
}, 180_000);

test('one supervisor, one machine, three Hermes children', () => {
  const below = (words: readonly string[]) =>
    tree.filter(({ argv }) => words.every((word, index) => basename(argv[index] ?? '') === word));
  const supervisors = below(['confined-exec', 'supervise']);
  // The supervisor, and the first process of its namespace.
  expect(supervisors.map(({ parent }) => parent)).toEqual([gateway.pid, supervisors[0]!.pid]);
  const machines = below(['edge-gateway', 'machine']);
  expect(machines.map(({ parent }) => parent)).toEqual([supervisors[1]!.pid]);
  expect(hermes.length).toBe(3);
  const outer = below(['confined-exec', 'holder']).filter(({ parent }) => parent === machines[0]!.pid);
  expect(outer.length).toBe(3);
  // What is left are the gateway's other two children and what belongs to the three holders.
  expect(tree.filter(({ parent }) => parent === gateway.pid).map(({ argv }) => argv[1])).toEqual(
    expect.arrayContaining(['postgres', 'authority', 'supervise']),
  );
  expect(tree.filter(({ parent }) => parent === gateway.pid).length).toBe(3);
});

test('one process of the whole host has the AgentFS replica open', () => {
  const machine = tree.find(({ argv }) => argv[1] === 'machine')!;
  expect(processesUsing(join(gateway.dataDirectory, 'machine'))).toEqual([machine.pid]);
  const opened = [...descriptorsOf(machine.pid).values()].filter((path) => path.endsWith('/organization.db'));
  expect(opened).toEqual([join(gateway.dataDirectory, 'machine/organization.db')]);
  // Neither has the machine any other file of the host, such as a temporary one with what a query went through.
  // The FUSE devices of its holders are none: each was opened inside one.
  const files = [...descriptorsOf(machine.pid).values()].filter((path) => /^\/(?!memfd:|dev\/null|fuse$)/.test(path));
  expect(files.filter((path) => !path.startsWith(join(gateway.dataDirectory, 'machine/')))).toEqual([]);
});

test('no holder can write to a file system of the host', () => {
  const own = ['/dev/pts', '/dev/shm', '/tmp', '/workspace', '/artifacts', '/hermes', '/proc'];
  for (const { pid } of hermes) {
    const mounts = readFileSync(`/proc/${pid}/mountinfo`, 'utf8')
      .trim()
      .split('\n')
      .map((line) => {
        const [left, right] = line.split(' - ') as [string, string];
        return { place: left.split(' ')[4]!, options: left.split(' ')[5]!.split(','), type: right.split(' ')[0]! };
      });
    const writable = mounts.filter(({ options }) => options.includes('rw'));
    expect(writable.map(({ place }) => place).toSorted()).toEqual(own.toSorted());
    expect(new Set(writable.map(({ type }) => type))).toEqual(new Set(['devpts', 'tmpfs', 'fuse', 'proc']));
    expect(mounts.find(({ place }) => place === '/')!.options).toContain('ro');
    for (const place of ['/workspace', '/artifacts', '/hermes'])
      expect(mounts.find((mount) => mount.place === place)!.type).toBe('fuse');
    expect(readlinkSync(`/proc/${pid}/ns/mnt`)).not.toBe(readlinkSync('/proc/self/ns/mnt'));
  }
});

test('no process of a holder changed a file outside of its mounts, /tmp and /dev', () => {
  const allowed = /^\/(workspace|artifacts|hermes|tmp|dev)(\/|$)/;
  const outside = changes.filter(({ path }) => !allowed.test(path));
  expect(outside).toEqual([]);
  // That the trace saw them all at work, and every kind of tool.
  for (const letter of letters) {
    for (const path of [`/tmp/temporary-${letter}.txt`, `/artifacts/artifact-${letter}.txt`]) {
      expect(
        changes.some((change) => change.path === path),
        path,
      ).toBe(true);
    }
    expect(changes.some(({ path }) => path.includes(`/hermes/skills/skill-${letter}`))).toBe(true);
  }
  for (const path of [
    '/workspace/code.txt',
    '/workspace/background.txt',
    '/workspace/notes.db',
    '/workspace/link.txt',
  ]) {
    expect(changes.filter((change) => change.path === path).length, path).toBeGreaterThanOrEqual(3);
  }
  expect(changes.some(({ path }) => path.startsWith('/hermes/memories/'))).toBe(true);
  const calls = new Set(changes.map(({ call: name }) => name));
  for (const name of ['openat', 'mkdir', 'unlinkat', 'symlinkat', 'linkat', 'bind', 'utimensat', 'ftruncate'])
    expect(calls, name).toContain(name);
});

test('the trace would notice a change elsewhere', () => {
  const lines = [
    '1 openat(AT_FDCWD</workspace>, "/etc/passwd", O_WRONLY|O_TRUNC) = 5</etc/passwd>',
    '1 openat(AT_FDCWD</workspace>, "/etc/x", O_RDWR|O_CREAT <unfinished ...>',
    ')     = 5</etc/x>',
    '1 openat(3</hermes>, "x", O_RDONLY|O_CLOEXEC) = 5</hermes/x>',
    '2 renameat2(AT_FDCWD</workspace>, "a", 4</var/lib>, "b", RENAME_NOREPLACE) = 0',
    '2 mkdir("../../opt/y", 0755) = 0',
    '3 fchmod(7</usr/bin/z>, 0777) = 0',
    '3 ftruncate(7</memfd:doublemapper (deleted)>, 10) = 0',
    '3 bind(9<socket:[1]>, {sa_family=AF_UNIX, sun_path="/run/a.sock"}, 13) = 0',
    '3 bind(9<socket:[1]>, {sa_family=AF_UNIX, sun_path=@"abstract"}, 13) = 0',
    '3 symlink("/etc/shadow", "link") = 0',
    '4 chdir("/srv") = 0',
    '4 unlink("relative") = 0',
    '4 +++ exited with 0 +++',
  ];
  expect(fileChanges(lines.join('\n'), '/workspace').map(({ path }) => path)).toEqual([
    '/etc/passwd',
    '/etc/x',
    '/workspace/a',
    '/var/lib/b',
    '/opt/y',
    '/opt/y',
    '/usr/bin/z',
    '/run/a.sock',
    '/workspace/link',
    '/srv/link',
    '/workspace/relative',
    '/srv/relative',
  ]);
  expect(() => fileChanges('1 openat(AT_FDCWD</workspace>, "x"', '/workspace')).toThrow('something else');
});

/** The databases of AgentFS and SessionDB: the only places where the agents' words and files are. */
const databases = () => {
  const { dataDirectory } = gateway;
  return ['authority/agentfs.db', 'authority/sessiondb.db', 'machine/organization.db'].map((name) =>
    join(dataDirectory, name),
  );
};

async function expectNothingOnHost(): Promise<void> {
  const all = await filesHolding(marks, stamp, [gateway.dataDirectory, scratch], []);
  const elsewhere = all.filter((path) => !databases().some((start) => path.startsWith(start)));
  expect(elsewhere).toEqual([]);
  // That the search finds what is there.
  expect(all.some((path) => path.startsWith(databases()[0]!))).toBe(true);
  expect(all.some((path) => path.startsWith(databases()[1]!))).toBe(true);
  const names = pathsBelow(gateway.dataDirectory).map((path) => basename(path));
  const private_ =
    /^(state\.db.*|\.env|SOUL\.md|config\.yaml|auth\.json|MEMORY\.md|USER\.md|memories|skills|skill-.*|SKILL\.md|sessions|workspace|artifacts|\.?hermes|home|agent\.log|notes\.txt|notes\.db.*|artifact-.*|hard\.txt|made)$/;
  expect(names.filter((name) => private_.test(name))).toEqual([]);
  expect(names.length).toBeGreaterThan(5);
  expect(existsSync(join(scratch, 'home'))).toBe(false);
  expect(existsSync(join(scratch, 'tmp'))).toBe(false);
  expect(holderPlaces.map((place) => existsSync(place))).toEqual(placesBefore);
}

test('the host holds no workspace, no state.db and no HERMES_HOME, while it runs and after it', async () => {
  await expectNothingOnHost();
  expect(await gateway.stop()).toBe(0);
  await expectNothingOnHost();
}, 180_000);
