/**
 * The embedded authority beside tursodb's own sync server, and its JavaScript client beside the Python one: the same random
 * histories of two clients end in the same rows (ADR-046 §5, acceptance 3). EDGE_TEST_HISTORY=N plays one and prints it.
 */
import { describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import { addressOf, fetchOn, serveAuthority } from '../gateway/authority/authority.fixture.ts';
import { historyOf } from './oracles/history.ts';
import { type Outcome, play, prepare, short } from './oracles/play.ts';
import { oraclePython, PythonPlayer } from './oracles/python-client.ts';
import { oraclesRun, startTursodb } from './oracles/servers.ts';

setDefaultTimeout(600_000);

const chosen = process.env.EDGE_TEST_HISTORY;
const histories = chosen === undefined ? Array.from({ length: 200 }, (_, index) => index + 1) : [Number(chosen)];

type Ours = { url: string; token: string; fetch: typeof fetch; socket: string };

async function onOurs<Result>(work: (server: Ours) => Promise<Result>): Promise<Result> {
  const authority = serveAuthority();
  try {
    const { url, token } = addressOf(authority.socket, 'agentfs');
    return await work({ url, token, fetch: fetchOn(authority.socket), socket: authority.socket });
  } finally {
    await authority.stop();
    rmSync(authority.directory, { recursive: true, force: true });
  }
}

/** tursodb serves one connection at a time and waits 30 s for an idle one: each request closes its own. */
const closing: typeof fetch = Object.assign(
  (input: string | URL | Request, init?: RequestInit) => {
    const headers = new Headers(init?.headers);
    headers.set('connection', 'close');
    return fetch(input, { ...init, headers, keepalive: false });
  },
  { preconnect: fetch.preconnect },
);

async function onOracle(number: number): Promise<Outcome> {
  const oracle = await startTursodb();
  try {
    return await play(historyOf(number), { url: oracle.url, fetch: closing });
  } finally {
    await oracle.stop();
  }
}

/** The Python client knows no unix socket: a door of TCP stands before ours. */
function withPython(player: PythonPlayer, number: number): Promise<Pick<Outcome, 'steps' | 'rows'>> {
  return onOurs(async (server) => {
    await prepare(server);
    const door = Bun.serve({
      hostname: '127.0.0.1',
      port: 0,
      fetch: ({ url, method, headers, body }) =>
        fetch(`http://localhost${new URL(url).pathname}`, { unix: server.socket, method, headers, body }),
    });
    try {
      const url = `http://127.0.0.1:${door.port}/agentfs`;
      const { steps, rows } = await player.play(historyOf(number), { url, token: server.token });
      return { steps, rows: rows.map((all) => all.map(short)) };
    } finally {
      await door.stop(true);
    }
  });
}

describe.skipIf(!oraclesRun)('200 random histories', () => {
  test('end in the same rows on tursodb and here, for the clients in JavaScript and in Python', async () => {
    await using player = new PythonPlayer(await oraclePython());
    let rows = 0;
    for (const number of histories) {
      const [ours, once, inPython] = await Promise.all([
        onOurs((server) => play(historyOf(number), server)),
        onOracle(number),
        withPython(player, number),
      ]);
      // On a busy machine tursodb drops a connection now and then: another outcome of a step counts when it comes twice.
      const theirs = Bun.deepEquals(once.steps, ours.steps) ? once : await onOracle(number);
      if (chosen !== undefined) console.log(JSON.stringify({ history: historyOf(number), ours, theirs, inPython }));
      expect({ number, ...ours }).toEqual({ number, ...theirs });
      expect({ number, ...inPython }).toEqual({ number, steps: ours.steps, rows: ours.rows.slice(0, 2) });
      // In the end everybody has the same.
      const [zero, one, cloud] = ours.rows;
      expect({ number, one, cloud }).toEqual({ number, one: zero, cloud: zero });
      rows += zero!.length;
    }
    console.log(`${histories.length} histories, ${rows} rows in the end`);
    if (chosen === undefined) expect(rows).toBeGreaterThan(1000);
  });
});
