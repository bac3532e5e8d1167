/** Messages as forms, through the running server into a real cloud AgentFS. */
import { afterAll, beforeAll, beforeEach, describe, expect, test } from 'bun:test';
import { connect } from 'node:net';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import type { ContentBlock } from '../domain.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { createInbox } from '../files/inbox.ts';
import type { ConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

let authority: TestAuthority;
let gateway: TestGateway;
let conversation: ConversationId;

const mebibyte = 1024 * 1024;
const limits = {
  largestFile: 8 * mebibyte,
  conversation: { bytes: 32 * mebibyte, inodes: 400 },
  organization: { bytes: 1024 * mebibyte, inodes: 100_000 },
};

beforeAll(async () => {
  authority = await startAuthority({ isProvisioned: false });
  await provisionOrganization(authority.cloud);
  const sql = new HranaDatabase(authority.address);
  const log = { info: () => undefined, warn: () => undefined };
  const inbox = createInbox({ sql, files: new CloudFiles(sql), limits, log, deliveries: 8 });
  gateway = await startGateway({ inbox, limits: { bodySeconds: 2, messageBytes: 64 * 1024 } });
}, 90_000);
afterAll(async () => {
  await gateway?.stop();
  await authority?.stop();
});
beforeEach(async () => {
  conversation = await gateway.newConversation();
  await establishConversation(authority.cloud, conversation, gateway.specialist);
  gateway.turns.refuse = () => null;
});

type Field = string | { readonly bytes: Uint8Array | string; readonly name: string; readonly type?: string };

function formOf(fields: readonly Field[]): FormData {
  const form = new FormData();
  for (const field of fields) {
    if (typeof field === 'string') form.append('text', field);
    else form.append('file', new Blob([field.bytes], field.type ? { type: field.type } : {}), field.name);
  }
  return form;
}

async function send(fields: readonly Field[], headers: Record<string, string> = {}, to = conversation) {
  const response = await fetch(`${gateway.url}/v1/conversations/${to}/messages`, {
    method: 'POST',
    headers: { authorization: `Bearer ${gateway.tokens.client}`, ...headers },
    body: formOf(fields),
  });
  const body = (await response.json()) as { type?: string; detail?: string; message?: { id: string } };
  return { status: response.status, body, problem: body.type?.split(':').at(-1) };
}

const blocksOf = (index = -1): readonly ContentBlock[] => {
  const content = gateway.turns.submissions.at(index)!.content;
  return 'blocks' in content ? content.blocks : [];
};
const sha256 = (bytes: Uint8Array | string) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex');
const inbound = async (of = conversation) =>
  (await authority.cloud.list(`/conversations/${of}/artifacts/inbound`)).map(({ name, inode }) => ({ name, ...inode }));
const contents = (name: string, of = conversation) =>
  authority.cloud.readFile(`/conversations/${of}/artifacts/inbound/${name}`);

async function expectNothingNameless(): Promise<void> {
  const { rows } = await authority.sql.execute(
    'SELECT (SELECT count(*) FROM fs_inode WHERE nlink = 0), (SELECT count(*) FROM kv_store), ' +
      '(SELECT count(*) FROM fs_data WHERE ino NOT IN (SELECT ino FROM fs_inode))',
  );
  expect(rows[0]).toEqual([0, 0, 0]);
}

async function until(what: string, condition: () => Promise<boolean>): Promise<void> {
  for (let turn = 0; !(await condition()); turn += 1) {
    if (turn > 500) throw new Error(`it did not come to pass: ${what}`);
    await Bun.sleep(20);
  }
}

describe('what is sent', () => {
  test('texts and files become blocks in their order, each file stored once as it came', async () => {
    const image = crypto.getRandomValues(new Uint8Array(40_000));
    const { status } = await send([
      'Look at\r\nthis:  ',
      { bytes: image, name: 'a photo.PNG', type: 'image/png' },
      'and this',
      { bytes: '', name: 'empty', type: 'application/x-empty' },
    ]);
    expect(status).toBe(202);
    const name = `${sha256(image).slice(0, 16)}-a_photo.PNG`;
    const empty = `${sha256('').slice(0, 16)}-empty`;
    expect(blocksOf()).toEqual([
      { type: 'text', text: 'Look at\r\nthis:  ' },
      {
        type: 'resource_link',
        uri: `file:///artifacts/inbound/${name}`,
        name: 'a photo.PNG',
        mimeType: 'image/png',
        size: 40_000,
      },
      { type: 'text', text: 'and this' },
      {
        type: 'resource_link',
        uri: `file:///artifacts/inbound/${empty}`,
        name: 'empty',
        mimeType: 'application/x-empty',
        size: 0,
      },
    ]);
    expect((await inbound()).map(({ name: one, nlink, mode }) => [one, nlink, mode]).toSorted()).toEqual(
      [
        [name, 1, 0o100644],
        [empty, 1, 0o100644],
      ].toSorted(),
    );
    expect(sha256(await contents(name))).toBe(sha256(image));
    expect((await contents(empty)).length).toBe(0);
    await expectNothingNameless();
  });

  test('the same file twice, in one message and in the next, is one inode', async () => {
    const file = { bytes: 'the same', name: 'x.txt' };
    expect((await send(['twice', file, file])).status).toBe(202);
    const [first, ...none] = await inbound();
    expect(none).toEqual([]);
    expect((await send(['again', file])).status).toBe(202);
    expect((await inbound()).map(({ ino }) => ino)).toEqual([first!.ino]);
    // Another conversation has its own.
    const other = await gateway.newConversation();
    await establishConversation(authority.cloud, other, gateway.specialist);
    expect((await send(['there', file], {}, other)).status).toBe(202);
    expect((await inbound(other)).map(({ name }) => name)).toEqual([first!.name]);
    expect((await inbound(other))[0]!.ino).not.toBe(first!.ino);
    await expectNothingNameless();
  });

  test('a retry with its key is the first message; another file under it is refused', async () => {
    const key = { 'idempotency-key': `k-${crypto.randomUUID()}` };
    const fields = ['once', { bytes: 'abc', name: 'x' }] as const;
    const answers = await Promise.all([1, 2, 3, 4].map(() => send(fields, key)));
    expect(answers.map(({ status }) => status)).toEqual([202, 202, 202, 202]);
    expect(new Set(answers.map(({ body }) => body.message?.id)).size).toBe(1);
    expect(await inbound()).toHaveLength(1);
    const other = await send(['once', { bytes: 'abd', name: 'x' }], key);
    expect([other.status, other.problem]).toEqual([422, 'idempotency-key-reused']);
    expect(await inbound()).toHaveLength(1);
    await expectNothingNameless();
  });

  test('with its key a message gets its answer when there is no room for its files, and none are stored for it', async () => {
    const key = { 'idempotency-key': `k-${crypto.randomUUID()}` };
    const files = Array.from({ length: 4 }, (_, index) => ({
      bytes: new Uint8Array(8 * mebibyte - 1_000 - index),
      name: `${index}.bin`,
      type: 'application/x-large',
    }));
    const first = await send(['full', ...files], key);
    expect(first.status).toBe(202);
    const requests = authority.requests();
    const again = await send(['full', ...files], key);
    expect([again.status, again.body.message?.id]).toEqual([202, first.body.message!.id]);
    expect(authority.requests()).toBe(requests);
    const other = await send(['full', ...files.slice(1), files[0]!], key);
    expect([other.status, other.problem]).toEqual([422, 'idempotency-key-reused']);
    const larger = await send(['full', { bytes: new Uint8Array(8 * mebibyte + 1), name: 'x' }], key);
    expect([larger.status, larger.problem]).toEqual([413, 'body-too-large']);
    const unkeyed = await send(['full', ...files]);
    expect([unkeyed.status, unkeyed.problem]).toEqual([413, 'quota-exceeded']);
    expect(await inbound()).toHaveLength(4);
    await expectNothingNameless();
  }, 60_000);

  test('200 files in one message', async () => {
    const files = Array.from({ length: 200 }, (_, index) => ({ bytes: `number ${index}`, name: `${index}.txt` }));
    expect((await send(['many', ...files])).status).toBe(202);
    expect(blocksOf()).toHaveLength(201);
    expect(blocksOf()[200]).toMatchObject({ name: '199.txt', size: 10 });
    expect(await inbound()).toHaveLength(200);
  }, 30_000);

  test('two messages with files at once do not disturb each other', async () => {
    const large = crypto.getRandomValues(new Uint8Array(65_536));
    const bytes = Buffer.concat(Array.from({ length: 70 }, () => large));
    const answers = await Promise.all([
      send(['a', { bytes, name: 'a.bin' }]),
      send(['b', { bytes: bytes.subarray(1), name: 'b.bin' }]),
    ]);
    expect(answers.map(({ status }) => status)).toEqual([202, 202]);
    for (const [name, expected] of [
      ['a.bin', bytes],
      ['b.bin', bytes.subarray(1)],
    ] as const) {
      const stored = (await inbound()).find((one) => one.name.endsWith(name))!;
      expect(sha256(await contents(stored.name))).toBe(sha256(expected));
    }
  }, 30_000);
});

describe('what fails, fails as a whole and leaves nothing', () => {
  const file = { bytes: 'contents', name: 'x.txt' };
  const nothingIsThere = async () => {
    expect(await inbound()).toEqual([]);
    await expectNothingNameless();
  };

  test('a message that the agent would not take is refused, its files are gone', async () => {
    gateway.turns.refuse = () => new Problem('unprocessable-message', 'Add a text');
    expect((await send([file])).status).toBe(422);
    await nothingIsThere();
  });

  test('what submitting refuses takes the names back, but not those of an earlier message', async () => {
    expect((await send(['first', file])).status).toBe(202);
    const before = await inbound();
    gateway.turns.failNext = new Problem('too-many-requests', 'The queue is full');
    expect((await send(['second', file, { bytes: 'more', name: 'y' }])).status).toBe(429);
    expect(await inbound()).toEqual(before);
    await expectNothingNameless();
  });

  test('a file that is too large, and more than there is room for', async () => {
    const large = { bytes: new Uint8Array(8 * mebibyte + 1), name: 'large' };
    const tooLarge = await send(['a', file, large]);
    expect([tooLarge.status, tooLarge.problem]).toEqual([413, 'body-too-large']);
    await nothingIsThere();
    const most = Array.from({ length: 3 }, (_, index) => ({ bytes: new Uint8Array(8 * mebibyte - index), name: 'm' }));
    expect((await send(['b', ...most])).status).toBe(202);
    const before = await inbound();
    const noRoom = await send([
      'c',
      { bytes: new Uint8Array(7 * mebibyte), name: 'n' },
      { bytes: new Uint8Array(2 * mebibyte), name: 'o' },
    ]);
    expect([noRoom.status, noRoom.problem]).toEqual([413, 'quota-exceeded']);
    expect(await inbound()).toEqual(before);
    await expectNothingNameless();
  }, 60_000);

  test('a connection that is cut in the middle', async () => {
    const socket = connect(gateway.port, '127.0.0.1');
    const head =
      `POST /v1/conversations/${conversation}/messages HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer ${gateway.tokens.client}\r\n` +
      'Content-Type: multipart/form-data; boundary=zz\r\nContent-Length: 9000000\r\n\r\n';
    socket.write(`${head}--zz\r\nContent-Disposition: form-data; name="file"; filename="cut"\r\n\r\n`);
    socket.write(Buffer.alloc(4 * mebibyte, 7));
    const nameless = async () =>
      Number((await authority.sql.execute('SELECT count(*) FROM fs_inode WHERE nlink = 0')).rows[0]![0]);
    await until('the upload has begun', async () => (await nameless()) > 0);
    socket.destroy();
    await until('it was removed', async () => (await nameless()) === 0);
    await until('nothing is noted', async () => {
      const { rows } = await authority.sql.execute('SELECT count(*) FROM kv_store');
      return rows[0]![0] === 0;
    });
    await nothingIsThere();
  }, 30_000);

  test('a body that pauses for too long', async () => {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) =>
        controller.enqueue(Buffer.from('--zz\r\nContent-Disposition: form-data; name="text"\r\n\r\nhal')),
    });
    const response = await fetch(`${gateway.url}/v1/conversations/${conversation}/messages`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${gateway.tokens.client}`,
        'content-type': 'multipart/form-data; boundary=zz',
      },
      body,
    });
    expect(response.status).toBe(400);
    expect(((await response.json()) as { detail: string }).detail).toContain('2 seconds');
  }, 20_000);

  test('a cloud that is away', async () => {
    authority.setReachable(false);
    const away = await send(['a', file]);
    expect([away.status, away.problem]).toEqual([503, 'agentfs-unavailable']);
    authority.setReachable(true);
    expect((await send(['a', file])).status).toBe(202);
  }, 30_000);

  test.each([
    ['an unknown part', 'name="other"', 'x', 400],
    ['a text with a file name', 'name="text"; filename="x"', 'x', 400],
    ['a text that is not UTF-8', 'name="text"', '\xff', 400],
    ['a text of another type', 'name="text"\r\nContent-Type: text/html', 'x', 415],
    ['texts that are too large', 'name="text"', 'x'.repeat(64 * 1024 + 1), 413],
    ['a wrong type', 'name="file"; filename="x"\r\nContent-Type: nonsense', 'x', 400],
  ])('%s', async (_, header, content, status) => {
    const good = '--zz\r\nContent-Disposition: form-data; name="file"; filename="good"\r\n\r\ngood\r\n';
    const response = await gateway.call('client', 'POST', `/v1/conversations/${conversation}/messages`, {
      headers: { 'content-type': 'multipart/form-data; boundary=zz' },
      body: Buffer.from(
        `${good}--zz\r\nContent-Disposition: form-data; ${header}\r\n\r\n${content}\r\n--zz--\r\n`,
        'latin1',
      ),
    });
    expect(response.status).toBe(status);
    await nothingIsThere();
  });

  test('an empty form, and one for nobody', async () => {
    expect((await send([])).status).toBeGreaterThanOrEqual(400);
    const other = `conv_${'0'.repeat(26)}` as ConversationId;
    expect((await send(['a', file], {}, other)).status).toBe(404);
    // Routed, but its tree was purged.
    const purged = await gateway.newConversation();
    expect((await send(['a', file], {}, purged)).status).toBe(404);
    expect(await authority.cloud.stat(`/conversations/${purged}`)).toBeNull();
    await expectNothingNameless();
  });

  test('more deliveries at once than are let in', async () => {
    const release = authority.hold();
    const all = Promise.all(Array.from({ length: 20 }, (_, index) => send([`${index}`, file])));
    await Bun.sleep(300);
    release();
    const statuses = (await all).map(({ status }) => status);
    expect(statuses.filter((status) => status === 202).length).toBeGreaterThanOrEqual(8);
    expect(statuses.filter((status) => status === 429).length).toBeGreaterThan(0);
    expect(statuses.every((status) => status === 202 || status === 429)).toBe(true);
    expect((await send(['after', file])).status).toBe(202);
    await expectNothingNameless();
  }, 30_000);
});
