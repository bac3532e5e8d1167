/** Plays a history on a server of the Turso sync protocol, with two clients of the real library. */
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import * as v from 'valibot';
import { type Step, schema, tables } from './history.ts';

export interface SyncServer {
  /** Where the database is, without a slash at the end. */
  readonly url: string;
  readonly token?: string;
  readonly fetch: typeof fetch;
}

/** What can be seen of a history afterwards. */
export interface Outcome {
  /** For each step: whether it was done. Words of the errors are each server's own. */
  readonly steps: readonly string[];
  /** Every row of every table, at client 0, at client 1 and in the cloud. */
  readonly rows: readonly (readonly string[])[];
}

const answerSchema = v.object({
  results: v.array(
    v.union([
      v.object({ type: v.literal('error'), error: v.object({ message: v.string() }) }),
      v.object({
        type: v.literal('ok'),
        response: v.object({
          type: v.literal('execute'),
          result: v.object({
            rows: v.array(v.array(v.object({ value: v.optional(v.union([v.string(), v.number()])) }))),
          }),
        }),
      }),
    ]),
  ),
});

/** Runs one statement in the cloud. @throws when the server refuses it */
async function inCloud(server: SyncServer, sql: string): Promise<string[]> {
  // tursodb knows no `close`; a stream of this database ends with its pipeline.
  const requests = [{ type: 'execute', stmt: { sql, want_rows: true } }];
  const response = await server.fetch(`${server.url}/v2/pipeline`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...(server.token && { authorization: `Bearer ${server.token}` }) },
    body: JSON.stringify({ requests }),
  });
  const [first] = v.parse(answerSchema, await response.json()).results;
  if (first?.type !== 'ok') throw new Error(first?.error.message ?? 'no answer');
  return first.response.result.rows.map((row) => row.map(({ value }) => String(value ?? 'NULL')).join('|'));
}

/** Reads a whole table as text: how each side writes numbers and bytes down is not the question here. */
const wholeTable = {
  t: "SELECT 't', id, coalesce(a, 'NULL'), coalesce(b, 'NULL') FROM t ORDER BY id",
  u: "SELECT 'u', id, name, coalesce(v, 'NULL') FROM u ORDER BY id",
  d: "SELECT 'd', ino, chunk, hex(data) FROM d ORDER BY ino, chunk",
} satisfies Record<(typeof tables)[number], string>;

/** Long contents as their digest: they are only compared. */
export const short = (row: string): string =>
  row.length < 200 ? row : `${row.slice(0, 20)}… ${new Bun.CryptoHasher('sha256').update(row).digest('hex')}`;

type Client = Awaited<ReturnType<typeof connect>>;

async function rowsOf(client: Client): Promise<string[]> {
  const all: string[] = [];
  for (const table of tables) {
    const statement = await client.prepare(wholeTable[table]);
    const rows = (await statement.raw().all()) as unknown[][];
    all.push(...rows.map((row) => short(row.map(String).join('|'))));
  }
  return all;
}

/** Makes the tables that every history begins with. */
export async function prepare(server: SyncServer): Promise<void> {
  for (const sql of schema) await inCloud(server, sql);
}

/** @throws when the server cannot be used at all; what a step fails with is in the outcome */
export async function play(history: readonly Step[], server: SyncServer): Promise<Outcome> {
  const directory = mkdtempSync(join(tmpdir(), 'history-'));
  const open = (name: string) =>
    connect({
      path: join(directory, `${name}.db`),
      url: server.url,
      ...(server.token !== undefined && { authToken: server.token }),
      clientName: name,
      fetch: server.fetch,
    });
  await prepare(server);
  const clients = [await open('zero'), await open('one')] as const;
  const done: string[] = [];
  const attempt = async (work: () => Promise<unknown>) => {
    done.push(
      await work().then(
        () => 'done',
        () => 'failed',
      ),
    );
  };
  try {
    for (const step of history) {
      if (step.kind === 'cloud') await attempt(() => inCloud(server, step.statement));
      else if (step.kind === 'write') {
        const client = clients[step.client];
        await attempt(() => client.exec(`BEGIN IMMEDIATE;${step.statements.join(';')};COMMIT`));
        // A statement that failed leaves its transaction open.
        await client.exec('ROLLBACK').catch(() => undefined);
      } else {
        const client = clients[step.client];
        await attempt(() => client[step.kind]());
      }
    }
    // Until nothing of either is missing anywhere: the second round carries what the first one's conflicts left.
    for (let round = 0; round < 3; round++) {
      for (const client of clients) {
        await attempt(() => client.pull());
        await attempt(() => client.push());
        await attempt(() => client.pull());
      }
    }
    const rows: string[][] = [];
    for (const client of clients) rows.push(await rowsOf(client));
    const cloud: string[] = [];
    for (const table of tables) cloud.push(...(await inCloud(server, wholeTable[table])).map(short));
    return { steps: done, rows: [...rows, cloud] };
  } finally {
    for (const client of clients) await client.close();
    rmSync(directory, { recursive: true, force: true });
  }
}
