import { describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { allSeals, holderTests, scriptManifest, statusField, token } from './holder.fixture.ts';

const { binary, hold, machine, spawn } = holderTests();

describe('the word with the machine', () => {
  test('the pid that is said is the one under which the machine sees Hermes', async () => {
    const { stub, child } = await hold('echo ready; read -r line');
    await child.line();
    const pid = await stub.pid.promise;
    expect(stub.lines).toEqual([`pid ${pid}`]);
    expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).toStartWith('/usr/bin/bash\0-c\0echo ready');
    expect(statusField(pid, 'NSpid')).toBe(`${pid}\t2`);
    expect(stub.files.callers).toContain(`${child.pid}:1000`); // The lookups of the mount itself.
  });

  test('FUSE requests carry that pid', async () => {
    const { stub, child } = await hold('echo > /workspace/own; echo ready; read -r line');
    await child.line();
    expect(stub.files.callers).toContain(`${await stub.pid.promise}:1000`);
  });

  test('nothing of Hermes runs before go', async () => {
    const stub = await machine({ goes: false });
    const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'echo started' }) });
    const pid = await stub.pid.promise;
    expect(readFileSync(`/proc/${pid}/cmdline`, 'utf8')).toEndWith('holder\0');
    stub.control?.write('go\n');
    expect(await child.line()).toBe('started');
  });

  test.each([
    ['another word', 'no\n', 'word of the machine: EPROTO'],
    ['a second go', 'go\ngo\n', 'word of the machine: EPROTO'],
    ['the end', null, 'the machine closed the control stream: ECONNRESET'],
  ])('%s in the place of go ends the holder', async (_name, word, message) => {
    const stub = await machine({ goes: false });
    const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'read -r line' }) });
    await stub.pid.promise;
    if (word === null) stub.control?.destroy();
    else stub.control?.write(word);
    expect(await child.exited).toBe(126);
    // Hermes' process may have met its own end on the way.
    expect(await child.stderr).toEndWith(`confined-exec holder: ${message}\n`);
  });

  test('a signal before go ends the holder', async () => {
    const stub = await machine({ goes: false });
    const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'echo started' }) });
    await stub.pid.promise;
    child.kill('SIGTERM');
    await child.exited;
    expect(child.signal()).toBe('SIGTERM');
    expect(await child.rest()).toBe('');
  });

  test('the program that cannot be executed is named', async () => {
    const stub = await machine();
    const manifest = scriptManifest({ socket: stub.socket, token, script: 'x' }).replace(
      '/usr/bin/bash',
      '/usr/bin/none',
    );
    const child = spawn({ manifest });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec holder: exec /usr/bin/none: ENOENT\n');
    expect(stub.lines.at(-1)).toBe('fail exec /usr/bin/none: ENOENT');
  });
});

describe('refusals', () => {
  test.each([
    ['no seals', 0],
    ['writable', allSeals & ~8],
    ['may shrink', allSeals & ~2],
    ['may grow', allSeals & ~4],
    ['more seals may follow', allSeals & ~1],
  ])('a memfd with %s', async (_name, manifestSeals) => {
    const child = spawn({ manifest: 'edge-holder 1\n', manifestSeals });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec holder: manifest is not sealed: EPERM\n');
  });

  test('a regular file in the place of a memfd', async () => {
    const command = ['sh', '-c', `exec ${binary()} holder 6</etc/hosts`];
    const child = spawn({ manifest: 'edge-holder 1\n' }, command);
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toMatch(
      /^confined-exec holder: private environment (seals: EINVAL|is not sealed: EPERM)\n$/,
    );
  });

  test('a malformed manifest, with its line', async () => {
    const child = spawn({ manifest: 'edge-holder 1\nuid 5\n' });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec holder: manifest line 2: uid out of range: EINVAL\n');
  });

  test('a private environment without names', async () => {
    const child = spawn({ manifest: scriptManifest({ socket: '/x', token, script: 'x' }), environment: { '': 'x' } });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec holder: private environment: entry without a name: EINVAL\n');
  });

  test('a socket that is not there', async () => {
    const child = spawn({ manifest: scriptManifest({ socket: '/nowhere/fuse.sock', token, script: 'x' }) });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec holder: connect fuse-socket /nowhere/fuse.sock: ENOENT\n');
  });

  test('a machine that does not know the token', async () => {
    const stub = await machine({ token: 'f'.repeat(64) });
    const child = spawn({ manifest: scriptManifest({ socket: stub.socket, token, script: 'x' }) });
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toMatch(/^confined-exec holder: .*: E(CONNRESET|PIPE|CONNABORTED|NOTCONN)$/m);
  });

  test('a missing machine channel', async () => {
    const child = spawn({ manifest: 'edge-holder 1\n' }, ['sh', '-c', `exec ${binary()} holder 3>&-`]);
    expect(await child.exited).toBe(126);
    expect(await child.stderr).toBe('confined-exec holder: descriptor 3: EBADF\n');
  });
});
