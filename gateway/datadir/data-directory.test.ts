import { afterEach, beforeEach, expect, test } from 'bun:test';
import {
  existsSync,
  mkdirSync,
  mkdtempSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type DataDirectory, DataDirectoryUnusable, openDataDirectory } from './data-directory.ts';

let root: string;
const opened: DataDirectory[] = [];

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'egwd-'));
});
afterEach(() => {
  for (const directory of opened.splice(0)) directory.release();
  rmSync(root, { recursive: true, force: true });
});

function open(path: string): DataDirectory {
  const directory = openDataDirectory(path);
  opened.push(directory);
  return directory;
}
function refusal(path: string): string {
  try {
    open(path);
  } catch (error) {
    if (error instanceof DataDirectoryUnusable) return error.message;
    throw error;
  }
  throw new Error('it was opened');
}
/** Opens the directory in another process, which then waits for the end of its input. */
async function openElsewhere(path: string): Promise<Bun.Subprocess<'pipe', 'pipe', 'inherit'>> {
  const script = `
    const { openDataDirectory } = await import(${JSON.stringify(join(import.meta.dir, 'data-directory.ts'))});
    try { console.log(openDataDirectory(${JSON.stringify(path)}).run); } catch (error) { console.log(error.message); }
    for await (const _ of Bun.stdin.stream());`;
  const child = Bun.spawn([process.execPath, '-e', script], { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' });
  const reader = child.stdout.getReader();
  said = new TextDecoder().decode((await reader.read()).value);
  return child;
}
let said = '';

test('a missing directory is made, private, with its layout', () => {
  const directory = open(join(root, 'new', 'data'));
  expect(statSync(directory.path).mode & 0o777).toBe(0o700);
  for (const path of [directory.postgres, directory.authority, directory.machine, directory.run]) {
    expect(statSync(path).mode & 0o777).toBe(0o700);
  }
  expect(directory.run).toBe(join(directory.path, 'run'));
});

test('it opens again after a release, and nothing of the run is left', () => {
  const first = openDataDirectory(join(root, 'data'));
  writeFileSync(join(first.run, 'some.sock'), '');
  first.release();
  expect(existsSync(first.run)).toBe(false);
  expect(readdirSync(open(join(root, 'data')).run)).toEqual([]);
});

test('a second process is refused by the number of the first, and let in when that was killed', async () => {
  const path = join(root, 'data');
  const first = await openElsewhere(path);
  expect(said.trim()).toBe(join(path, 'run'));
  expect(refusal(path)).toBe(`${path} is in use by process ${first.pid}; stop it or name another directory`);
  // Nothing of the first one's run was touched by the refused one.
  expect(existsSync(join(path, 'run'))).toBe(true);
  first.kill('SIGKILL');
  await first.exited;
  open(path);
});

test('a foreign directory is refused and left as it is', () => {
  writeFileSync(join(root, 'thesis.tex'), 'x');
  expect(refusal(root)).toContain('is not a data directory of edge-gateway and is not empty (it has thesis.tex)');
  expect(readdirSync(root)).toEqual(['thesis.tex']);
});

test('a file, a loop and a path below a file are refused', () => {
  writeFileSync(join(root, 'file'), 'x');
  symlinkSync('loop', join(root, 'loop'));
  for (const path of ['file', 'loop', 'file/below']) expect(refusal(join(root, path))).toContain('name another');
});

test.skipIf(!existsSync('/proc/sys/kernel'))('an unwritable place is refused', () => {
  expect(refusal('/proc/sys/kernel/edge-gateway')).toContain('/proc/sys/kernel');
});

test('another program’s or a newer identity is refused', () => {
  const path = join(root, 'data');
  openDataDirectory(path).release();
  writeFileSync(join(path, 'edge-gateway.json'), '{"program":"edge-gateway","format":2}');
  expect(refusal(path)).toContain('has format 2');
  writeFileSync(join(path, 'edge-gateway.json'), '{"program":"other","format":1}');
  expect(refusal(path)).toContain("is not this program's");
});

test('a start that was killed while it made the directory is continued', () => {
  const path = join(root, 'data');
  mkdirSync(path);
  writeFileSync(join(path, 'edge-gateway.json.4711'), '');
  open(path);
});

test('a long path has its sockets elsewhere, removed at release and after a kill', async () => {
  const path = join(root, 'x'.repeat(80), 'data');
  const directory = openDataDirectory(path);
  expect(directory.run.length).toBeLessThanOrEqual(80);
  expect(statSync(directory.run).mode & 0o777).toBe(0o700);
  directory.release();
  expect(existsSync(directory.run)).toBe(false);

  const killed = await openElsewhere(path);
  const stale = said.trim();
  killed.kill('SIGKILL');
  await killed.exited;
  expect(existsSync(stale)).toBe(true);
  const next = open(path);
  expect(existsSync(stale)).toBe(false);
  expect(readFileSync(join(path, 'run-directory'), 'utf8')).toBe(next.run);
});

test('a pointer to somewhere else removes nothing', () => {
  const path = join(root, 'data');
  openDataDirectory(path).release();
  const precious = join(root, 'egw-precious');
  mkdirSync(precious);
  writeFileSync(join(path, 'run-directory'), precious);
  open(path);
  expect(existsSync(precious)).toBe(true);
});

test('white space in the path keeps the sockets out of it: a launch manifest has no room for it', () => {
  const directory = open(join(root, 'my data'));
  expect(directory.run).not.toContain(' ');
  expect(directory.run).toStartWith(join(tmpdir(), 'egw-'));
  expect(directory.path).toBe(join(root, 'my data'));
});

test('a path that SQLite could not open is refused', () => {
  expect(refusal(join(root, ...Array.from({ length: 5 }, () => 'd'.repeat(100))))).toEndWith('name another one');
});
