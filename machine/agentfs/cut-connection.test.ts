/**
 * A connection that was used before and is cut when a request was carried out: it is not sent again by anybody, since a
 * transaction would then be done twice.
 */
import { afterEach, expect, test } from 'bun:test';
import { createServer, type Server } from 'node:net';
import { HranaDatabase } from './hrana.ts';

let server: Server;
afterEach(() => new Promise<void>((resolve) => server.close(() => resolve())));

const answer = (body: object): string => {
  const text = JSON.stringify(body);
  return `HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: ${text.length}\r\nConnection: keep-alive\r\n\r\n${text}`;
};
const result = { cols: [], rows: [], affected_row_count: 1, last_insert_rowid: null };
const done = {
  baton: null,
  base_url: null,
  results: [
    { type: 'ok', response: { type: 'execute', result } },
    { type: 'ok', response: { type: 'close' } },
  ],
};

/** Answers what has `SELECT` in it; of everything else it counts the requests and cuts, in order or not. */
async function cutting(
  how: 'end' | 'reset',
): Promise<{ port: number; carriedOut: string[]; connections: () => number }> {
  const carriedOut: string[] = [];
  let connections = 0;
  server = createServer((socket) => {
    connections += 1;
    socket.on('error', () => undefined);
    let request = '';
    socket.on('data', (bytes) => {
      request += bytes.toString();
      const head = request.indexOf('\r\n\r\n');
      const length = Number(/content-length: (\d+)/i.exec(request)?.[1] ?? 0);
      if (head < 0 || request.length < head + 4 + length) return;
      const body = request.slice(head + 4);
      request = '';
      if (body.includes('SELECT')) {
        socket.write(answer(done));
        return;
      }
      carriedOut.push(body);
      if (how === 'end') socket.end();
      else socket.resetAndDestroy();
    });
  });
  await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
  const address = server.address();
  if (address === null || typeof address === 'string') throw new Error('it does not listen');
  return { port: address.port, carriedOut, connections: () => connections };
}

test.each(['end', 'reset'] as const)('a write whose answer is lost goes out once (%s)', async (how) => {
  const { port, carriedOut, connections } = await cutting(how);
  const database = new HranaDatabase({ url: `http://127.0.0.1:${port}/sessiondb`, token: 't', socket: null });
  await database.execute('SELECT 1');
  await expect(database.execute('INSERT INTO t VALUES (1)')).rejects.toMatchObject({ kind: 'unreachable' });
  await Bun.sleep(200);
  expect(connections()).toBe(1);
  expect(carriedOut).toHaveLength(1);
});
