/**
 * SessionDB's protocol beside sqld, the server that defined it: the same pipelines get the same answers, full-text and
 * trigram search included (ADR-046 §5).
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { rmSync } from 'node:fs';
import * as v from 'valibot';
import { postTo, type ServedAuthority, serveAuthority, TOKENS } from '../gateway/authority/authority.fixture.ts';
import type { WireRequest } from '../machine/agentfs/hrana-wire.ts';
import { type Oracle, oraclesRun, startSqld } from './oracles/servers.ts';
import { knownDifferences, pipelines } from './oracles/statements.ts';

setDefaultTimeout(120_000);

const resultsSchema = v.object({ results: v.array(v.record(v.string(), v.unknown())) });

/** Facts that only one of the two knows, or that are its own: times, how much was read, words and codes of an error. */
const ownFacts = new Set(['query_duration_ms', 'rows_read', 'rows_written', 'replication_index', 'message', 'code']);

function comparable(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(comparable);
  if (typeof value !== 'object' || value === null) return value;
  return Object.fromEntries(
    Object.entries(value)
      .filter(([name]) => !ownFacts.has(name))
      // sqld leaves the padding of base64 out, and reads both.
      .map(([name, inner]) => [name, name === 'base64' ? String(inner).replace(/=+$/, '') : comparable(inner)]),
  );
}

async function answersOf(response: Response): Promise<unknown> {
  // A refused pipeline is answered in words of each server's own.
  if (!response.ok) return { status: response.status };
  const body: unknown = await response.json();
  return { status: response.status, results: comparable(v.parse(resultsSchema, body).results) };
}

describe.skipIf(!oraclesRun)('beside sqld', () => {
  let ours: ServedAuthority;
  let oracle: Oracle;
  beforeAll(async () => {
    ours = serveAuthority();
    oracle = await startSqld();
  });
  afterAll(async () => {
    await oracle?.stop();
    await ours.stop();
    rmSync(ours.directory, { recursive: true, force: true });
  });

  for (const version of ['v2', 'v3'] as const) {
    test(`${pipelines.length} pipelines get the same answers in ${version}`, async () => {
      const send = async (requests: readonly WireRequest[]) => {
        const body = JSON.stringify({ baton: null, requests: [...requests, { type: 'close' }] });
        const [here, there] = await Promise.all([
          postTo(ours.socket, `/sessiondb/${version}/pipeline`, body, TOKENS.sessiondb),
          fetch(`${oracle.url}/${version}/pipeline`, { method: 'POST', body }),
        ]);
        return { here: await answersOf(here), there: await answersOf(there) };
      };
      // The second version begins anew, on both.
      for (const table of ['words', 'parts', 'messages', 'sessions', 's']) {
        await send([{ type: 'execute', stmt: { sql: `DROP TABLE IF EXISTS ${table}` } }]);
      }
      const differences: unknown[] = [];
      for (const requests of pipelines) {
        const { here, there } = await send(requests);
        if (!Bun.deepEquals(here, there)) differences.push({ requests, here, there });
      }
      expect(differences).toEqual([]);
      // Each difference that is meant still is one: else it belongs to the pipelines above.
      for (const { why, versions, requests } of knownDifferences) {
        const { here, there } = await send(requests);
        expect({ why, isEqual: Bun.deepEquals(here, there) }).toEqual({ why, isEqual: !versions.includes(version) });
      }
    });
  }
});
