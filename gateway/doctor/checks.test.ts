import { afterEach, beforeEach, expect, test } from 'bun:test';
import { chmodSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { caBundle } from '../../bunfs-assets/assets.ts';
import { checkCaBundle, checkKernel, checkRuntime, missing } from './checks.ts';

let root: string;
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'egw-doctor-'));
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function program(name: string, script: string): string {
  const path = join(root, name);
  mkdirSync(join(path, '..'), { recursive: true });
  writeFileSync(path, `#!/bin/sh\n${script}\n`);
  chmodSync(path, 0o755);
  return path;
}

test('each kernel feature is a finding, with its fix', async () => {
  const exec = program(
    'exec',
    `echo 'ok user namespaces'; echo 'missing /dev/fuse: load the fuse module: now (ENOENT)'; exit 1`,
  );
  const findings = await checkKernel(exec);
  expect(findings).toEqual([
    { name: 'user namespaces', fix: null },
    { name: '/dev/fuse', fix: 'load the fuse module: now (ENOENT)' },
  ]);
  expect(missing(findings)).toBe('missing: /dev/fuse: load the fuse module: now (ENOENT)');
  expect(missing(findings.slice(0, 1))).toBeNull();
});

test.each([
  ['says nothing', 'exit 0'],
  ['fails but says that all is well', `echo 'ok Landlock'; exit 1`],
  ['dies', `echo 'ok Landlock'; kill -SYS $$`],
])('a check that %s is no success', async (_, script) => {
  expect(missing(await checkKernel(program('exec', script)))).toContain('confined-exec: its check ended with');
});

test('a confined-exec that cannot be started is a finding', async () => {
  expect(missing(await checkKernel(join(root, 'none')))).toContain('confined-exec');
});

test('a runtime is looked for, and its Hermes started', async () => {
  const runtime = join(root, 'runtime');
  expect((await checkRuntime(runtime, false)).fix).toContain('is not a Hermes runtime');
  mkdirSync(runtime);
  writeFileSync(
    join(runtime, 'edge-runtime.json'),
    JSON.stringify({ python: '/bin/sh', basePrefix: '/usr', version: '3.11.0' }),
  );
  program('runtime/bin/python', `echo 'ModuleNotFoundError: No module named acp_adapter' >&2; exit 1`);
  for (const thorough of [false, true]) {
    const { fix } = await checkRuntime(runtime, thorough);
    expect(fix).toContain('No module named acp_adapter');
    expect(fix).toContain('run the build again');
  }
  program('runtime/bin/python', 'exit 0');
  expect((await checkRuntime(runtime, true)).fix).toBeNull();
});

test('a CA bundle is certificates in PEM form and nothing else', () => {
  const mozilla = readFileSync(caBundle, 'utf8');
  const [first] = mozilla.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/)!;
  const flaw = (content: string): string | null => {
    const path = join(root, 'ca.pem');
    writeFileSync(path, content);
    const [finding] = checkCaBundle(path);
    expect(finding?.name).toBe('EDGE_CA_BUNDLE');
    return finding!.fix;
  };
  expect(checkCaBundle(null)).toEqual([]);
  expect(flaw(mozilla)).toBeNull();
  expect(flaw(`A comment\r\n${first}\n`)).toBeNull();
  expect(flaw('')).toContain('holds no certificate');
  expect(flaw(`${first}\n-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n`)).toContain('private key');
  expect(flaw(`${first}\n-----BEGIN CERTIFICATE-----\nMIIB`)).toContain('something else');
  expect(flaw(`${first}\n${first.replace('MII', 'AAA')}\n`)).toContain('certificate 2 in ');
  expect(flaw('x'.repeat(5 * 1024 * 1024))).toContain('larger than');
  expect(checkCaBundle(join(root, 'none.pem'))[0]?.fix).toContain('cannot be read: ENOENT');
});
