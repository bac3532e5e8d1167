/** Lists and downloads over a real authority, with files as a machine brings them there. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { type OpenedFiles, openOrganizationFiles } from '../../machine/sync.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { createConversationFiles } from '../files/conversation-files.ts';
import type { ConversationId } from '../ids.ts';
import type { SettleOutcome } from '../machine/settling.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';
import type { OpenApiDocument } from './openapi.ts';

let authority: TestAuthority;
let machine: OpenedFiles;
let gateway: TestGateway;
let conversation: ConversationId;
let other: ConversationId;
let settling: () => Promise<SettleOutcome>;

const mebibyte = 1024 * 1024;
const large = Buffer.concat(Array.from({ length: 80 }, () => crypto.getRandomValues(new Uint8Array(65_536)))).subarray(
  7,
);

beforeAll(async () => {
  authority = await startAuthority({ isProvisioned: false });
  await provisionOrganization(authority.cloud);
  machine = await openOrganizationFiles(
    { agentfs: authority.address, replicaDirectory: join(authority.directory, 'replica') },
    { log: () => undefined },
  );
  settling = () => machine.boundary.settle();
  const sql = new HranaDatabase(authority.address);
  const files = createConversationFiles({
    sql,
    files: new CloudFiles(sql),
    settleFiles: () => settling(),
    largestFile: 64 * mebibyte,
  });
  gateway = await startGateway({ files, limits: { downloadsPerToken: 4, downloadPieceSeconds: 2 } });
  conversation = await gateway.newConversation();
  other = await gateway.newConversation();
  for (const id of [conversation, other]) await establishConversation(authority.cloud, id, gateway.specialist);
  machine.boundary.begin(conversation);
  await machine.boundary.firstTouch(conversation);
  await write('work/report.txt', 'the report');
  await write('work/folder/page.html', '<script>alert(1)</script>');
  await write('work/folder/deep/日本 "x".txt', 'deep');
  await write('work/empty.bin', '');
  await write('work/large.bin', large);
  await write('artifacts/chart.png', 'png');
  await write('work/secret-of-other', 'other', other);
}, 90_000);
afterAll(async () => {
  await gateway?.stop();
  await machine?.boundary.close();
  await authority?.stop();
});

async function directoryOf(parts: readonly string[], id: string): Promise<number> {
  let parent = (await machine.files.find(`/conversations/${id}`))!.ino;
  for (const name of parts) {
    const found = await machine.files.names.lookup(parent, name);
    parent = (found ?? (await machine.files.names.makeDirectory({ parent, name }, 0o755))).ino;
  }
  return parent;
}

async function write(path: string, contents: string | Uint8Array, id: string = conversation): Promise<number> {
  const parts = path.split('/');
  const name = parts.pop()!;
  const parent = await directoryOf(parts, id);
  const { ino } =
    (await machine.files.names.lookup(parent, name)) ?? (await machine.files.names.create({ parent, name }, 0o100640));
  await machine.files.data.write(ino, 0, Buffer.from(contents));
  await machine.files.data.commit(ino);
  return ino;
}

const get = (uri: string, headers: Record<string, string> = {}, method = 'GET', id: string = conversation) =>
  gateway.call('client', method, `/v1/conversations/${id}/files/content?uri=${encodeURIComponent(uri)}`, { headers });
const list = async (query: string, id: string = conversation) => {
  const response = await gateway.call('client', 'GET', `/v1/conversations/${id}/files${query}`);
  return { status: response.status, body: (await response.json()) as Listing };
};
interface Listing {
  readonly entries: readonly {
    readonly name: string;
    readonly kind: string;
    readonly uri?: string;
    readonly size: number;
  }[];
  readonly next?: string;
}

describe('downloads', () => {
  test('a file as it is, as an attachment that no browser runs', async () => {
    const response = await get('file:///workspace/report.txt');
    expect(response.status).toBe(200);
    expect(await response.text()).toBe('the report');
    const headers = Object.fromEntries(response.headers);
    expect(headers).toMatchObject({
      'accept-ranges': 'bytes',
      'content-type': 'text/plain; charset=utf-8',
      'content-disposition': `attachment; filename="report.txt"; filename*=UTF-8''report.txt`,
      'x-content-type-options': 'nosniff',
      'content-security-policy': "default-src 'none'; sandbox",
      'cache-control': 'private, no-cache',
    });
    expect(headers.etag).toMatch(/^"[\w-]{27}"$/);
    const html = await get('file:///workspace/folder/page.html');
    expect(html.headers.get('content-type')).toBe('application/octet-stream');
    const deep = await get('file:///workspace/folder/deep/%E6%97%A5%E6%9C%AC%20%22x%22.txt');
    expect(deep.headers.get('content-disposition')).toBe(
      `attachment; filename="__ _x_.txt"; filename*=UTF-8''%E6%97%A5%E6%9C%AC%20%22x%22.txt`,
    );
    expect((await get('file:///artifacts/chart.png')).headers.get('content-type')).toBe('image/png');
    expect((await (await get('file:///workspace/empty.bin')).arrayBuffer()).byteLength).toBe(0);
  });

  test('their media types are many, as the document says', async () => {
    const document = (await (await fetch(`${gateway.url}/openapi.json`)).json()) as OpenApiDocument;
    const { responses } = document.paths['/v1/conversations/{conversation}/files/content']!.get!;
    for (const status of ['200', '206']) expect(responses[status]).toMatchObject({ content: { '*/*': {} } });
  });

  test('large ones whole, and any one range of them', async () => {
    const uri = 'file:///workspace/large.bin';
    const whole = await get(uri);
    expect(Buffer.from(await whole.arrayBuffer()).equals(large)).toBe(true);
    for (const [range, start, end] of [
      ['bytes=0-9', 0, 10],
      ['bytes=65535-65536', 65_535, 65_537],
      [`bytes=${mebibyte - 1}-${3 * mebibyte}`, mebibyte - 1, 3 * mebibyte + 1],
      ['bytes=-5', large.length - 5, large.length],
    ] as const) {
      const part = await get(uri, { range });
      expect(part.status).toBe(206);
      expect(part.headers.get('content-range')).toBe(`bytes ${start}-${end - 1}/${large.length}`);
      expect(Buffer.from(await part.arrayBuffer()).equals(large.subarray(start, end))).toBe(true);
    }
    const beyond = await get(uri, { range: `bytes=${large.length}-` });
    expect([beyond.status, beyond.headers.get('content-range')]).toEqual([416, `bytes */${large.length}`]);
  });

  test('what is known is not sent again, until it is another version', async () => {
    const uri = 'file:///workspace/report.txt';
    const first = await get(uri);
    const etag = first.headers.get('etag')!;
    const again = await get(uri, { 'if-none-match': etag });
    expect([again.status, await again.text(), again.headers.get('etag')]).toEqual([304, '', etag]);
    await write('work/report.txt', 'the REPORT');
    const changed = await get(uri, { 'if-none-match': etag, range: 'bytes=0-2', 'if-range': etag });
    expect([changed.status, await changed.text()]).toEqual([200, 'the REPORT']);
    expect(changed.headers.get('etag')).not.toBe(etag);
  });

  test('HEAD has the headers and the length, and holds no place', async () => {
    for (let index = 0; index < 10; index += 1) {
      const head = await get('file:///workspace/large.bin', {}, 'HEAD');
      expect([head.status, head.headers.get('content-length')]).toEqual([200, String(large.length)]);
      expect(head.headers.get('etag')).toMatch(/^"/);
    }
  });

  test('links are followed within the view and never out of it', async () => {
    const links: Record<string, readonly [target: string, status: number]> = {
      inside: ['report.txt', 200],
      absolute: ['/workspace/report.txt', 200],
      across: ['../artifacts/chart.png', 200],
      chain: ['inside', 200],
      directory: ['folder', 404],
      loop: ['loop', 404],
      dangling: ['nothing', 404],
      environment: ['../.env', 404],
      private: ['/conversations/x/.env', 404],
      outside: ['/etc/passwd', 404],
      home: ['/hermes/.env', 404],
      above: ['../../../../../../.env', 404],
      neighbour: [`../../${other}/work/secret-of-other`, 404],
      tree: [`/conversations/${other}/work/secret-of-other`, 404],
    };
    const parent = await directoryOf(['work'], conversation);
    for (const [name, [target]] of Object.entries(links)) {
      await machine.files.names.makeSymlink({ parent, name }, target);
    }
    for (const [name, [, status]] of Object.entries(links)) {
      expect([name, (await get(`file:///workspace/${name}`)).status]).toEqual([name, status]);
    }
    expect(await (await get('file:///workspace/directory/page.html')).text()).toContain('script');
    expect((await list('?path=/workspace/directory')).body.entries.map(({ name }) => name)).toEqual([
      'deep',
      'page.html',
    ]);
    expect((await list('?path=/workspace/environment')).status).toBe(404);
  });

  test('what is no regular file in the view is not there', async () => {
    const parent = await directoryOf(['work'], conversation);
    await machine.files.names.create({ parent, name: 'pipe' }, 0o010644);
    for (const uri of [
      'file:///workspace/folder',
      'file:///workspace/pipe',
      'file:///workspace/nothing',
      'file:///workspace/report.txt/below',
      'file:///workspace/secret-of-other',
      'file:///artifacts/inbound',
    ]) {
      const answer = await get(uri);
      expect([uri, answer.status]).toEqual([uri, 404]);
      expect(((await answer.json()) as { type: string }).type).toBe('urn:edge-gateway:problem:not-found');
    }
    for (const uri of [
      'file:///.env',
      'file:///workspace/../.env',
      'file:///workspace/%2e%2e/.env',
      'file:///SOUL.md',
      `file:///conversations/${other}/work/secret-of-other`,
      '/etc/passwd',
      '',
    ]) {
      expect([uri, (await get(uri)).status]).toEqual([uri, 400]);
    }
    expect((await get('file:///workspace/report.txt', {}, 'GET', other)).status).toBe(404);
    expect((await get('file:///workspace/report.txt', {}, 'GET', `conv_${'0'.repeat(26)}`)).status).toBe(404);
    expect((await get('file:///workspace/secret-of-other', {}, 'GET', other)).status).toBe(200);
    const path = `/v1/conversations/${conversation}/files/content`;
    expect((await gateway.call('client', 'GET', path)).status).toBe(400);
    expect((await gateway.call('client', 'GET', `${path}?uri=a&uri=b`)).status).toBe(400);
    expect((await gateway.call(null, 'GET', `${path}?uri=file:///workspace/report.txt`)).status).toBe(401);
    const huge = await write('work/huge.bin', 'x');
    await machine.files.data.truncate(huge, 64 * mebibyte + 1);
    expect((await get('file:///workspace/huge.bin')).status).toBe(413);
  });

  test('a hole reads as zeros', async () => {
    const ino = await write('work/sparse', 'begin');
    await machine.files.data.write(ino, 3 * mebibyte, Buffer.from('end'));
    const expected = Buffer.concat([Buffer.from('begin'), Buffer.alloc(3 * mebibyte - 5), Buffer.from('end')]);
    expect(Buffer.from(await (await get('file:///workspace/sparse')).arrayBuffer()).equals(expected)).toBe(true);
  });

  test('waits for what the agent wrote, and says 503 when that did not come, not 404', async () => {
    await write('work/new.txt', 'just now');
    expect(await (await get('file:///workspace/new.txt')).text()).toBe('just now');
    const before = settling;
    settling = async () => ({ state: 'failing', reason: 'the cloud is away' });
    for (const uri of ['file:///workspace/newer.txt', 'file:///workspace/report.txt']) {
      const answer = await get(uri);
      expect([answer.status, answer.headers.get('retry-after')]).toEqual([503, '5']);
    }
    expect((await list('')).status).toBe(503);
    settling = async () => ({ state: 'clean' });
    authority.setReachable(false);
    expect((await get('file:///workspace/report.txt')).status).toBe(503);
    authority.setReachable(true);
    settling = before;
  });

  test('a file that changes while it is read ends as broken, never as a mixture', async () => {
    // More than two sockets' buffers hold.
    const { inode } = await authority.cloud.writeFileOnce(
      `/conversations/${conversation}/work/moving.bin`,
      new Uint8Array(40 * mebibyte),
    );
    const socket = connect(gateway.port, '127.0.0.1');
    let last = Buffer.alloc(0);
    let size = 0;
    const ended = new Promise<void>((resolve) => socket.on('close', () => resolve()));
    socket.on('error', () => undefined);
    socket.on('data', (bytes: Buffer) => {
      size += bytes.length;
      last = Buffer.concat([last, bytes]).subarray(-16);
    });
    socket.write(
      `GET /v1/conversations/${conversation}/files/content?uri=file:///workspace/moving.bin HTTP/1.1\r\n` +
        `Host: x\r\nConnection: close\r\nAuthorization: Bearer ${gateway.tokens.client}\r\n\r\n`,
    );
    while (size === 0) await Bun.sleep(5);
    socket.pause();
    await Bun.sleep(200);
    await authority.sql.execute('UPDATE fs_inode SET mtime = mtime + 1 WHERE ino = ?', [inode.ino]);
    socket.resume();
    await ended;
    expect(size).toBeLessThan(40 * mebibyte);
    expect(last.toString('latin1')).not.toEndWith('\r\n0\r\n\r\n');
    expect(gateway.log.join('\n')).toContain('a download broke off');
  }, 20_000);

  test('a client that does not read holds neither memory nor its place', async () => {
    // More than two sockets' buffers hold.
    await authority.cloud.writeFileOnce(`/conversations/${conversation}/work/slow.bin`, new Uint8Array(40 * mebibyte));
    const path = `/v1/conversations/${conversation}/files/content?uri=file:///workspace/slow.bin`;
    const requests = authority.requests();
    const sockets = Array.from({ length: 4 }, () => {
      const socket = connect(gateway.port, '127.0.0.1');
      socket.on('error', () => undefined);
      socket.pause();
      socket.write(`GET ${path} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${gateway.tokens.client}\r\n\r\n`);
      return socket;
    });
    let refused = 0;
    for (let turn = 0; refused === 0 && turn < 100; turn += 1) {
      await Bun.sleep(10);
      const answer = await get('file:///workspace/report.txt');
      if (answer.status === 429) refused += 1;
      await answer.arrayBuffer();
    }
    expect(refused).toBe(1);
    const asked = authority.requests() - requests;
    expect(asked).toBeLessThan(4 * 40);
    let status = 429;
    for (let turn = 0; status === 429 && turn < 200; turn += 1) {
      await Bun.sleep(50);
      const answer = await get('file:///workspace/report.txt');
      ({ status } = answer);
      await answer.arrayBuffer();
    }
    expect(status).toBe(200);
    for (const socket of sockets) socket.destroy();
  }, 30_000);
});

describe('lists', () => {
  test('by name, in pages, with what a file is downloaded by', async () => {
    const { body } = await list('?path=/workspace/folder');
    expect(body.entries).toEqual([
      { name: 'deep', path: '/workspace/folder/deep', kind: 'directory', size: 0, modifiedAt: expect.any(String) },
      {
        name: 'page.html',
        path: '/workspace/folder/page.html',
        kind: 'file',
        size: 25,
        modifiedAt: expect.any(String),
        uri: 'file:///workspace/folder/page.html',
      },
    ] as never);
    const whole = (await list('?limit=1000')).body.entries.map(({ name }) => name);
    expect(whole).toContain('report.txt');
    const paged: string[] = [];
    for (let next = ''; ; ) {
      const page = (await list(`?limit=3${next}`)).body;
      paged.push(...page.entries.map(({ name }) => name));
      if (page.next === undefined) break;
      next = `&cursor=${page.next}`;
    }
    expect(paged).toEqual(whole);
    expect(whole).toEqual(whole.toSorted((a, b) => Buffer.compare(Buffer.from(a), Buffer.from(b))));
    const deep = (await list('?path=/workspace/folder/deep')).body.entries[0]!;
    expect(await (await get(deep.uri!)).text()).toBe('deep');
    const kinds = Object.fromEntries((await list('?limit=1000')).body.entries.map(({ name, kind }) => [name, kind]));
    expect(kinds).toMatchObject({ inside: 'symlink', pipe: 'special', folder: 'directory' });
    expect((await list('?path=/artifacts')).body.entries.map(({ name }) => name)).toEqual(['chart.png', 'inbound']);
  });

  test.each([
    ['?path=/', 400],
    ['?path=/workspace/..', 400],
    ['?path=/state', 400],
    ['?path=/workspace/%2e%2e', 400],
    ['?path=/workspace/nothing', 404],
    ['?path=/workspace/report.txt', 404],
    ['?cursor=x', 400],
    ['?limit=0', 400],
    ['?limit=1001', 400],
  ])('%s is %d', async (query, status) => {
    expect((await list(query)).status).toBe(status);
  });
});
