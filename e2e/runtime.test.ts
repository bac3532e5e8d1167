/** Hermes is the one that was published: no file of it is changed, added or missing (ADR-046 §1, acceptance 9). */
import { expect, test } from 'bun:test';
import { createHash } from 'node:crypto';
import { existsSync, readdirSync, readFileSync, statSync } from 'node:fs';
import { dirname, join, normalize, relative } from 'node:path';
import { readRuntime } from '../bunfs-assets/runtime.ts';
import { builtRuntime } from './harness/executable.ts';

/** SHA-256 of the sorted RECORD lines of the published wheel, with its data files where an installer puts them. */
const publishedRecord = 'fa0bfcf117262cbbb7f460749b087ddc2c1430b7e4ff2da15172c2a6f0d8698a';

const runtime = builtRuntime();
const minor = readRuntime(runtime).version.split('.').slice(0, 2).join('.');
const packages = join(runtime, `lib/python${minor}/site-packages`);
const distInfo = 'hermes_agent-0.19.0.dist-info';

/** `path,sha256=…,size` lines, without what an installer adds of its own. */
const record = readFileSync(join(packages, distInfo, 'RECORD'), 'utf8')
  .split('\n')
  .map((line) => line.replace('\r', ''))
  .filter((line) => line !== '' && !line.startsWith('../../../bin/'))
  .filter((line) => !/dist-info\/(INSTALLER|REQUESTED|RECORD|direct_url\.json),/.test(line));

function split(line: string): { path: string; digest: string } {
  const [path, digest] = line.split(/,(?=sha256=)/);
  return { path: path!.replaceAll('"', ''), digest: digest!.split(',')[0]!.slice('sha256='.length) };
}

test('the list of installed Hermes files is the published one', () => {
  // Compared by bytes, as `LC_ALL=C sort` does.
  const sorted = record.map((line) => Buffer.from(line)).sort(Buffer.compare);
  const text = sorted.map((line) => `${line}\n`).join('');
  expect(createHash('sha256').update(text).digest('hex')).toBe(publishedRecord);
});

test('every installed Hermes file has its published content', () => {
  const changed = record.map(split).filter(({ path, digest }) => {
    const file = join(packages, path);
    return !existsSync(file) || createHash('sha256').update(readFileSync(file)).digest('base64url') !== digest;
  });
  expect(record.length).toBeGreaterThan(900);
  expect(changed).toEqual([]);
});

test('no file was added to the packages of Hermes', () => {
  const published = new Set(record.map((line) => normalize(split(line).path)));
  const roots = new Set(
    [...published].filter((path) => path.endsWith('/__init__.py') && path.split('/').length === 2).map(dirname),
  );
  expect([...roots]).toContain('acp_adapter');
  const added: string[] = [];
  const walk = (directory: string) => {
    for (const entry of readdirSync(directory, { withFileTypes: true })) {
      const path = join(directory, entry.name);
      if (entry.isDirectory()) {
        if (entry.name !== '__pycache__') walk(path);
      } else if (!published.has(relative(packages, path))) added.push(path);
    }
  };
  for (const root of roots) walk(join(packages, root));
  expect(added).toEqual([]);
});

test('nothing runs by itself when Python starts: no .pth file, no sitecustomize', () => {
  const names = readdirSync(packages);
  expect(names.filter((name) => name.endsWith('.pth') || /^(site|user)customize/.test(name))).toEqual([]);
});

test('the runtime cannot be written to', () => {
  const writable: string[] = [];
  const walk = (path: string) => {
    const found = statSync(path, { throwIfNoEntry: false }); // bin/python leads out of the runtime
    if (found && path.startsWith(runtime) && (found.mode & 0o222) !== 0 && !path.includes('/bin/')) writable.push(path);
    if (found?.isDirectory() && !path.endsWith('/lib64')) for (const name of readdirSync(path)) walk(join(path, name));
  };
  walk(runtime);
  expect(writable).toEqual([]);
});
