import { describe, expect, test } from 'bun:test';
import { chownSync, mkdtempSync, readSync, rmSync, writeFileSync, writeSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { holderTests, hostUid, openDescriptors, scriptManifest, token } from './holder.fixture.ts';

const { hold, machine, output, spawn } = holderTests();

describe('what Hermes is given', () => {
  test('the machine channel is its descriptor 3, and there is no other beyond 2', async () => {
    const { stub, child } = await hold('echo ready; read -u 3 line; echo "$line" >&3; read -r line; echo "$line"');
    expect(await child.line()).toBe('ready');
    expect(openDescriptors(await stub.pid.promise)).toEqual([0, 1, 2, 3]);
    writeSync(child.channel, 'over the channel\n');
    const echoed = Buffer.alloc(64);
    const got = await new Promise<number>((resolve) => {
      // The parent's end does not block, and the echo comes from another process.
      const retry = (): void => {
        try {
          resolve(readSync(child.channel, echoed));
        } catch {
          setTimeout(retry, 5);
        }
      };
      retry();
    });
    expect(echoed.toString('utf8', 0, got)).toBe('over the channel\n');
  });

  test('its environment is the private one and the layout of the sandbox, nothing of the outer process', async () => {
    const text = await output('env | sort', { environment: { MODEL_KEY: 'k', TMPDIR: '/tmp/own' } });
    const names = text.split('\n').map((line) => line.split('=')[0]);
    expect(text).toContain('MODEL_KEY=k\n');
    expect(text).toContain('TMPDIR=/tmp/own\n');
    expect(text).toContain('HOME=/tmp/home\n');
    expect(text).toContain('SSL_CERT_FILE=/opt/edge/ca.pem\n');
    expect(names).not.toContain('OUTER');
  });

  test('/opt/edge holds the start script, the certificates and the launcher, all read only', async () => {
    const script =
      'cat /opt/edge/start.py /opt/edge/ca.pem; stat -c "%a %n" /opt/edge/*; chmod 777 /opt/edge/start.py 2>&1; ' +
      'touch /opt/edge/x 2>&1; (echo x >/opt/edge/start.py) 2>&1; /opt/edge/confined-exec 2>&1 | head -c 5; true';
    const text = await output(script, { startScript: 'start\n', caBundle: 'bundle\n' });
    expect(text).toStartWith(
      'start\nbundle\n444 /opt/edge/ca.pem\n555 /opt/edge/confined-exec\n444 /opt/edge/start.py\n',
    );
    expect(text.match(/Read-only file system/g)).toHaveLength(3);
    expect(text).toEndWith('usage');
  });

  test('without a CA bundle no variable points to one', async () => {
    const text = await output('env; ls /opt/edge', { caBundle: '' });
    expect(text).not.toContain('ca.pem');
  });

  test('the working directory, the user and the host names are those of the sandbox', async () => {
    const text = await output(
      'pwd; id -un; id -u; id -g; id -G; cat /proc/self/uid_map; ls -A /home /root /sys /work 2>&1; true',
    );
    expect(text).toStartWith('/workspace\nagent\n1000\n1000\n1000\n');
    expect(text).toMatch(new RegExp(`^ *1000 +${hostUid} +1$`, 'm'));
    expect(text.match(/No such file or directory/g)).toHaveLength(4);
  });
});

describe('the file system', () => {
  test('reads and writes go to the machine, and only the three places show it', async () => {
    const { stub, child } = await hold(
      'cat /workspace/hello.txt; echo written > /workspace/new.txt; ls /artifacts; cat /hermes/.env; ' +
        'grep -c " fuse " /proc/mounts; grep " fuse " /proc/mounts; ls -d /.fuse 2>&1; true',
    );
    const text = await child.rest();
    expect(await child.exited).toBe(0);
    expect(text).toStartWith('hello from the machine\ninbound\nSECRET=1\n3\n');
    expect(text.match(/rw,nosuid,nodev,relatime,user_id=1000,group_id=1000,default_permissions/g)).toHaveLength(3);
    expect(text).toContain("cannot access '/.fuse'");
    expect(stub.files.get('/workspace/new.txt')).toBe('written\n');
  });

  test('a file of many megabytes survives writes and reads of the largest size', async () => {
    const { stub, child } = await hold(
      'head -c 9000001 /dev/urandom > /tmp/a; dd if=/tmp/a of=/workspace/a bs=4M status=none; cmp /tmp/a /workspace/a && md5sum < /tmp/a',
    );
    const text = await child.rest();
    expect(await child.exited).toBe(0);
    const bytes = stub.files.bytes('/workspace/a');
    expect(bytes.length).toBe(9_000_001);
    expect(text).toBe(`${new Bun.CryptoHasher('md5').update(bytes).digest('hex')}  -\n`);
  });

  test('an invalidation that has to wait for a request does not keep the reply of that request back', async () => {
    const { stub, child } = await hold('ls /workspace >/dev/null; mkdir /workspace/made && echo made');
    // MKDIR holds the lock of /workspace until it is answered; the invalidation of a name in it needs that lock.
    stub.beforeReply = (opcode) => {
      if (opcode === 9) stub.invalidate('/workspace', 'hello.txt');
    };
    expect(await child.rest()).toBe('made\n');
    expect(await child.exited).toBe(0);
  });

  test.each([-1n, 0n])('an inode may be invalidated from %d on, also an unknown one', async (offset) => {
    const { stub, child } = await hold('cat /workspace/hello.txt; read -r l; cat /workspace/hello.txt; read -r l');
    expect(await child.line()).toBe('hello from the machine');
    stub.files.put('/workspace/hello.txt', 'hello again, machine\n');
    stub.invalidateInode('/workspace/hello.txt', offset);
    stub.files.put('/workspace/unknown', 'x');
    stub.invalidateInode('/workspace/unknown', offset);
    child.write('\n');
    expect(await child.line()).toBe('hello again, machine');
  });

  test('binds are read only; a missing one is an error unless it is optional', async () => {
    const stub = await machine();
    const readable = mkdtempSync(join(tmpdir(), 'edge-bind-'));
    writeFileSync(join(readable, 'own.txt'), '');
    chownSync(readable, hostUid, hostUid);
    chownSync(join(readable, 'own.txt'), hostUid, hostUid);
    const manifest = (extra: string[]) =>
      scriptManifest({
        socket: stub.socket,
        token,
        extra,
        script: 'cat /x/y/own.txt >/dev/null && touch /x/y/own.txt',
      });
    const optional = spawn({ manifest: manifest(['bind? /nowhere', `bind ${readable} /x/y`]) });
    expect(await optional.stderr).toContain('Read-only file system');
    const missing = spawn({ manifest: manifest(['bind /nowhere']) });
    expect(await missing.exited).toBe(126);
    expect(await missing.stderr).toBe('confined-exec holder: bind /nowhere: ENOENT\n');
    expect(stub.lines).toContain('fail bind /nowhere: ENOENT');
    rmSync(readable, { recursive: true });
  });
});
