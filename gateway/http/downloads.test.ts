import { expect, test } from 'bun:test';
import { fileResponse } from './downloads.ts';

/** One download over a real connection, of a file that is read as the test says. */
function serve(read: () => AsyncGenerator<Uint8Array>) {
  const failures: unknown[] = [];
  const left = Promise.withResolvers<void>();
  const file = { name: 'x', size: 6, version: 'v', modifiedAt: new Date(0), read };
  const server = Bun.serve({
    port: 0,
    fetch: ({ headers }) =>
      fileResponse(file, headers, {
        isHead: false,
        pieceSeconds: 60,
        leave: left.resolve,
        failed: (error) => failures.push(error),
      }),
  });
  return { server, failures, left: left.promise };
}

test.each(['comes', 'fails'])('a client that goes away while a piece is fetched is no failure: it %s', async (what) => {
  const asked = Promise.withResolvers<void>();
  const piece = Promise.withResolvers<Uint8Array>();
  const ended = Promise.withResolvers<void>();
  const { server, failures, left } = serve(async function* () {
    try {
      yield Buffer.from('abc');
      asked.resolve();
      yield await piece.promise;
    } finally {
      ended.resolve();
    }
  });
  const client = new AbortController();
  const response = await fetch(server.url, { signal: client.signal });
  await asked.promise;
  client.abort();
  await response.arrayBuffer().catch(() => undefined);
  await left;
  if (what === 'comes') piece.resolve(Buffer.from('def'));
  else piece.reject(new Error('the cloud is away'));
  await ended.promise;
  await Bun.sleep(0);
  expect(failures).toEqual([]);
  await server.stop(true);
});

test('a piece that cannot be read while somebody waits for it is one', async () => {
  const away = new Error('the cloud is away');
  const { server, failures, left } = serve(async function* () {
    yield Buffer.from('abc');
    throw away;
  });
  const whole = await fetch(server.url)
    .then((response) => response.arrayBuffer())
    .catch(() => 'broken');
  await left;
  expect([whole, failures]).toEqual(['broken', [away]]);
  await server.stop(true);
});
