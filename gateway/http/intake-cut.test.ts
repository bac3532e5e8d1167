/** Messages of which only a part came, wherever they broke off: nothing of them stays, and the whole one is taken afterwards. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { createAnnouncedUploads } from '../files/announced.ts';
import { createInbox } from '../files/inbox.ts';
import type { ConversationId } from '../ids.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

const mebibyte = 1024 * 1024;
let authority: TestAuthority;
let gateway: TestGateway;
let conversation: ConversationId;

beforeAll(async () => {
  authority = await startAuthority({ isProvisioned: false });
  await provisionOrganization(authority.cloud);
  const sql = new HranaDatabase(authority.address);
  const limits = {
    largestFile: 4 * mebibyte,
    conversation: { bytes: 16 * mebibyte, inodes: 100 },
    organization: { bytes: 512 * mebibyte, inodes: 10_000 },
  };
  const log = { info: () => undefined, warn: () => undefined };
  const inbox = createInbox({ sql, files: new CloudFiles(sql), limits, log });
  gateway = await startGateway({ inbox, uploads: createAnnouncedUploads(inbox), limits: { bodySeconds: 5 } });
}, 90_000);
afterAll(async () => {
  await gateway?.stop();
  await authority?.stop();
});
beforeEach(async () => {
  conversation = await gateway.newConversation();
  await establishConversation(authority.cloud, conversation, gateway.specialist);
});

const inbound = async () =>
  (await authority.cloud.list(`/conversations/${conversation}/artifacts/inbound`)).map(({ name }) => name);
const taken = () => gateway.turns.submissions.filter((one) => one.conversation.id === conversation).length;

/** Inodes without a name, notes of uploads, contents of nothing. */
async function leftOver(): Promise<number> {
  const { rows } = await authority.sql.execute(
    'SELECT (SELECT count(*) FROM fs_inode WHERE nlink = 0) + (SELECT count(*) FROM kv_store) + ' +
      '(SELECT count(*) FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode))',
  );
  return Number(rows[0]![0]);
}

/** What is removed is removed behind the end of the connection. */
async function expectNothing(): Promise<void> {
  for (let turn = 0; (await leftOver()) > 0 && turn < 250; turn += 1) await Bun.sleep(20);
  expect([await leftOver(), await inbound(), taken()]).toEqual([0, [], 0]);
}

const part = (headers: string, content: string) =>
  `--zz\r\nContent-Disposition: form-data; ${headers}\r\n\r\n${content}\r\n`;
const form = `${part('name="text"', 'see')}${part('name="file"; filename="a.txt"', 'contents of a')}${part('name="text"', 'and')}--zz--\r\n`;

/** Sends the head of a message and what `write` says; resolves when the connection is over, with what came back. */
function raw(headers: string, write: (socket: ReturnType<typeof connect>) => void | Promise<void>): Promise<string> {
  const { promise, resolve } = Promise.withResolvers<string>();
  const socket = connect(gateway.port, '127.0.0.1');
  let answer = '';
  socket.on('data', (bytes) => {
    answer += bytes.toString();
  });
  socket.on('error', () => undefined);
  socket.on('close', () => resolve(answer));
  socket.write(
    `POST /v1/conversations/${conversation}/messages HTTP/1.1\r\nHost: x\r\n` +
      `Authorization: Bearer ${gateway.tokens.client}\r\nContent-Type: multipart/form-data; boundary=zz\r\n${headers}\r\n\r\n`,
  );
  void (async () => write(socket))();
  return promise;
}

async function whole(): Promise<number> {
  const answer = await gateway.call('client', 'POST', `/v1/conversations/${conversation}/messages`, {
    body: Buffer.from(form),
    headers: { 'content-type': 'multipart/form-data; boundary=zz' },
  });
  return answer.status;
}

describe('a form', () => {
  const end = form.indexOf('--zz--') + '--zz--'.length;
  const places = Array.from({ length: Math.ceil(end / 5) }, (_, index) => index * 5);

  test('cut at every fifth byte, with its length said and in chunks', async () => {
    for (const kind of ['length', 'chunks'] as const) {
      const headers = kind === 'length' ? `Content-Length: ${form.length}` : 'Transfer-Encoding: chunked';
      await Promise.all(
        places.map((at) =>
          raw(headers, async (socket) => {
            const piece = form.slice(0, at);
            if (kind === 'length') socket.write(piece);
            // The last chunk says more than comes.
            else if (at > 0) socket.write(`${at.toString(16)}\r\n${piece}\r\nff\r\n-`);
            await Bun.sleep(20);
            socket.destroy();
          }),
        ),
      );
      await expectNothing();
    }
    expect(await whole()).toBe(202);
    expect([taken(), await inbound()]).toEqual([1, [expect.stringContaining('-a.txt')]]);
  }, 60_000);

  test('whose connection ends in order before its closing boundary', async () => {
    const answers = await Promise.all(
      [0, 40, 100, end - 8, end - 2].map((at) =>
        raw(`Content-Length: ${at}`, async (socket) => {
          socket.write(form.slice(0, at));
          await Bun.sleep(200);
          socket.end();
        }),
      ),
    );
    for (const answer of answers) expect(answer).toMatch(/^HTTP\/1\.1 4\d\d /);
    await expectNothing();
  }, 30_000);

  test('whose second file is too large, or whose last part is none: the first file is gone too', async () => {
    const file = part('name="file"; filename="first"', 'first');
    for (const last of [
      part('name="file"; filename="large"', 'x'.repeat(4 * mebibyte + 1)),
      part('name="nonsense"', 'x'),
      part('name="file"; filename="x"\r\nContent-Type: no type', 'x'),
      '--zz\r\nContent-Disposition: form-data\r\n\r\nx\r\n',
      '--zz\r\n\r\nx\r\n',
    ]) {
      const answer = await gateway.call('client', 'POST', `/v1/conversations/${conversation}/messages`, {
        body: Buffer.from(`${file}${last}--zz--\r\n`),
        headers: { 'content-type': 'multipart/form-data; boundary=zz' },
      });
      expect(answer.status).toBeOneOf([400, 413]);
      await expectNothing();
    }
  }, 30_000);

  test('whose contents are not in the cloud as they came', async () => {
    // Each block that is written is another one when it is read back.
    await authority.sql.execute(
      "CREATE TRIGGER tampered AFTER INSERT ON fs_data BEGIN UPDATE fs_data SET data = CAST('contents of b' AS BLOB) WHERE ino = new.ino AND chunk_index = new.chunk_index; END",
    );
    try {
      const answer = await gateway.call('client', 'POST', `/v1/conversations/${conversation}/messages`, {
        body: Buffer.from(form),
        headers: { 'content-type': 'multipart/form-data; boundary=zz' },
      });
      expect(answer.status).toBe(503);
      expect(await answer.json()).toMatchObject({ type: 'urn:edge-gateway:problem:agentfs-unavailable' });
    } finally {
      await authority.sql.execute('DROP TRIGGER tampered');
    }
    await expectNothing();
    expect(await whole()).toBe(202);
  });
});

describe('an announced file', () => {
  interface Frame {
    readonly type: string;
    readonly id?: number;
    readonly put?: string;
    readonly message?: { readonly id: string };
    readonly problem?: { readonly type: string };
  }

  async function open() {
    const socket = new WebSocket(`${gateway.url.replace('http', 'ws')}/v1/events`, {
      headers: { authorization: `Bearer ${gateway.tokens.client}` },
    });
    await new Promise((resolve) => socket.addEventListener('open', resolve));
    let last = 0;
    const ask = (frame: object): Promise<Frame> => {
      last += 1;
      const id = last;
      socket.send(JSON.stringify({ id, conversation, ...frame }));
      return new Promise((resolve) =>
        socket.addEventListener('message', ({ data }) => {
          const answer = JSON.parse(String(data)) as Frame;
          if (answer.id === id) resolve(answer);
        }),
      );
    };
    const announce = async (name: string) => (await ask({ type: 'upload.announce', name })).put!;
    return { socket, ask, announce };
  }
  const put = (path: string, body: string) =>
    gateway.call('client', 'PUT', path, { body: Buffer.from(body), headers: { 'content-type': 'text/plain' } });
  const uploadOf = (path: string) => ({ upload: path.split('/').at(-1)! });

  test('whose bytes were cut off is not there, its message names nothing, and both work when it has come', async () => {
    const { socket, ask, announce } = await open();
    const [first, cut] = [await announce('first.txt'), await announce('cut.txt')];
    expect((await put(first, 'first')).status).toBe(200);
    const named = await leftOver();
    const half = connect(gateway.port, '127.0.0.1');
    half.on('error', () => undefined);
    half.write(
      `PUT ${cut} HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${gateway.tokens.client}\r\nContent-Length: 5000000\r\n\r\n`,
    );
    half.write(Buffer.alloc(2 * mebibyte, 7));
    while ((await leftOver()) <= named) await Bun.sleep(10);
    const frame = {
      type: 'message.send',
      idempotencyKey: 'k',
      parts: [uploadOf(first), { text: 'and' }, uploadOf(cut)],
    };
    expect(await ask(frame)).toMatchObject({ type: 'error', problem: { type: 'urn:edge-gateway:problem:conflict' } });
    half.destroy();
    while ((await leftOver()) > named) await Bun.sleep(10);
    expect(await ask(frame)).toMatchObject({ type: 'error', problem: { type: 'urn:edge-gateway:problem:conflict' } });
    expect([await inbound(), taken()]).toEqual([[], 0]);

    expect((await put(cut, 'whole now')).status).toBe(200);
    const sent = await ask(frame);
    expect(sent.type).toBe('message.sent');
    expect([(await inbound()).length, taken(), await leftOver()]).toEqual([2, 1, 0]);
    socket.close();
  }, 30_000);

  test('of a client that goes away as it sends: one message or none, and one when it is sent again', async () => {
    const { socket, announce } = await open();
    const path = await announce('a.txt');
    expect((await put(path, 'contents')).status).toBe(200);
    const frame = { type: 'message.send', conversation, idempotencyKey: 'k', parts: [uploadOf(path), { text: 'see' }] };
    socket.send(JSON.stringify(frame));
    socket.terminate();
    await Bun.sleep(300);
    const again = await open();
    expect((await again.ask(frame)).type).toBe('message.sent');
    expect([(await inbound()).length, taken(), await leftOver()]).toEqual([1, 1, 0]);
    again.socket.close();
  }, 30_000);
});
