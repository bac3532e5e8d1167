/**
 * A cloud that is slow, breaks off or lies: the machine says what is wrong, in bounded time and memory, loses nothing, and
 * is whole again when the cloud is.
 */

import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { copyFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from './agentfs/authority.fixture.ts';
import { type OpenedFiles, openOrganizationFiles } from './sync.ts';

setDefaultTimeout(60_000);
const silenceMs = 1_000;
let authority: TestAuthority;
let door: Bun.Server<undefined>;
let elsewhere: Bun.Server<undefined>;
let asked: string[] = [];
type Answer = (request: Request, honest: () => Promise<Response>) => Promise<Response>;
const honestly: Answer = (_, honest) => honest();
let answer: Answer = honestly;
let one: OpenedFiles;
let log: string[] = [];
let count = 0;

beforeAll(async () => {
  authority = await startAuthority();
  await authority.cloud.ensureDirectory('/conversations/conv/work');
  elsewhere = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    fetch: (request) => {
      asked.push(request.headers.get('authorization') ?? 'none');
      return new Response('');
    },
  });
  door = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    idleTimeout: 60,
    fetch: async (request) => {
      const { method, headers, url } = request;
      const body = await request.arrayBuffer();
      const { pathname } = new URL(url);
      return answer(request, () =>
        fetch(`http://localhost${pathname}`, {
          method,
          headers,
          body,
          unix: authority.address.socket!,
          decompress: false,
        }),
      );
    },
  });
  one = await openOrganizationFiles(
    {
      agentfs: { url: `http://127.0.0.1:${door.port}/agentfs`, token: authority.address.token, socket: null },
      replicaDirectory: join(authority.directory, 'one'),
    },
    { log: (line) => log.push(line), silenceMs },
  );
});
afterAll(async () => {
  answer = honestly;
  await one.boundary.close();
  await door.stop(true);
  await elsewhere.stop(true);
  await authority.stop();
});

async function write(name: string, text: string): Promise<void> {
  const parent = (await one.files.find('/conversations/conv/work'))!.ino;
  const { ino } = await one.files.names.create({ parent, name }, 0o100644);
  await one.files.data.write(ino, 0, Buffer.from(text));
}

async function read(name: string): Promise<string> {
  const inode = await one.files.find(`/conversations/conv/work/${name}`);
  return Buffer.from(await one.files.data.read(inode!.ino, 0, inode!.size)).toString();
}

/** The replica's file as it is now, looked at by SQLite itself. */
async function integrity(): Promise<unknown> {
  await one.files.store.sync();
  const directory = join(authority.directory, `copy${++count}`);
  mkdirSync(directory);
  for (const suffix of ['', '-wal'])
    copyFileSync(one.files.store.driver.path! + suffix, join(directory, `organization.db${suffix}`));
  const copy = new Database(join(directory, 'organization.db'));
  try {
    return copy.query('PRAGMA integrity_check').all();
  } finally {
    copy.close();
  }
}

const endless = (part: Uint8Array): Response =>
  new Response(new ReadableStream({ pull: (controller) => controller.enqueue(part) }));
const bytesOf = async (response: Response) => new Uint8Array(await response.arrayBuffer());
/** Sends this and then cuts the connection, or says nothing more. */
const only = (part: Uint8Array, then: 'cut' | 'silence'): Response => {
  let isSent = false;
  return new Response(
    new ReadableStream({
      async pull(controller) {
        if (!isSent) controller.enqueue(part);
        else if (then === 'cut') controller.error(new Error('cut'));
        else await new Promise(() => undefined);
        isSent = true;
      },
    }),
  );
};

const lies: readonly (readonly [string, Answer])[] = [
  ['a server that fails', async () => new Response('out of order', { status: 500 })],
  [
    'a page of a proxy',
    async () => new Response('<html>Bad gateway</html>', { headers: { 'content-type': 'text/html' } }),
  ],
  ['an empty answer', async () => new Response('')],
  ['a redirect', async () => Response.redirect(`http://127.0.0.1:${elsewhere.port}/`, 307)],
  ['random bytes', async () => new Response(crypto.getRandomValues(new Uint8Array(100_000)))],
  ['random bytes without an end', async () => endless(crypto.getRandomValues(new Uint8Array(64 * 1024)))],
  ['zeros without an end', async () => endless(new Uint8Array(64 * 1024))],
  ['a failure without an end', async () => new Response(endless(new Uint8Array(64 * 1024)).body, { status: 500 })],
  ['an answer that repeats without an end', async (_, honest) => endless(await bytesOf(await honest()))],
  [
    'an answer that is cut off in the middle',
    async (_, honest) => {
      const bytes = await bytesOf(await honest());
      return new Response(bytes.subarray(0, bytes.length >> 1));
    },
  ],
  [
    'a connection that breaks in the middle',
    async (_, honest) => {
      const bytes = await bytesOf(await honest());
      return only(bytes.subarray(0, bytes.length >> 1), 'cut');
    },
  ],
  [
    'a server that falls silent in the middle',
    async (_, honest) => {
      const bytes = await bytesOf(await honest());
      return only(bytes.subarray(0, bytes.length >> 1), 'silence');
    },
  ],
  ['a server that never answers', () => new Promise(() => undefined)],
  [
    'lengths that are wrong',
    async (_, honest) => {
      const bytes = await bytesOf(await honest());
      bytes[0]! ^= 0x55;
      return new Response(bytes);
    },
  ],
  [
    'a database of more pages than there can be',
    async () => new Response(new Uint8Array([6, 0x10, 0xff, 0xff, 0xff, 0xff, 0x7f])),
  ],
];

test.each(lies)('%s', async (what, lie) => {
  const name = what.replaceAll(' ', '-');
  one.boundary.begin('conv');
  await one.boundary.firstTouch('conv');
  await write(name, `before ${what}`);
  expect(await one.boundary.end('conv')).toEqual({ state: 'clean' });
  // Something comes with the next pull, so that there is something to lie about.
  await authority.cloud.writeFileOnce(
    `/conversations/conv/work/sent-${name}`,
    crypto.getRandomValues(new Uint8Array(200_000)),
  );

  answer = lie;
  asked = [];
  log = [];
  const memory = process.memoryUsage.rss();
  const begun = performance.now();
  one.boundary.begin('conv');
  await one.boundary.firstTouch('conv');
  await write(`${name}-meanwhile`, `during ${what}`);
  const state = await one.boundary.end('conv');
  // Two requests, each within its limit, and what a busy host adds.
  expect(performance.now() - begun).toBeLessThan(20_000);
  expect(process.memoryUsage.rss() - memory).toBeLessThan(200 * 1024 ** 2);
  expect(state).toMatchObject({ state: 'failing' });
  expect(log.join(' ')).toContain('agentfs: ');
  expect(asked).toEqual([]);
  expect(await read(name)).toBe(`before ${what}`);
  expect(await read(`${name}-meanwhile`)).toBe(`during ${what}`);
  expect(await integrity()).toEqual([{ integrity_check: 'ok' }]);

  answer = honestly;
  one.boundary.begin('conv');
  await one.boundary.firstTouch('conv');
  expect(await one.boundary.end('conv')).toEqual({ state: 'clean' });
  expect(await one.files.find(`/conversations/conv/work/sent-${name}`)).not.toBeNull();
  const sent = await authority.cloud.readFile(`/conversations/conv/work/${name}-meanwhile`);
  expect(Buffer.from(sent).toString()).toBe(`during ${what}`);
});
