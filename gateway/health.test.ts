import { expect, test } from 'bun:test';
import { createHealth, type HealthParts, healthGauges, judge } from './health.ts';

const well = { database: true, sessiondb: true, agentfs: true, machine: true };
const clean = { trouble: null, pending: false };

test.each([
  [well, clean, { ready: true, status: 'ready', agentfs: 'reachable', pendingChanges: false }],
  [
    well,
    { trouble: null, pending: true },
    { ready: true, status: 'ready', agentfs: 'reachable', pendingChanges: true },
  ],
  [{ ...well, agentfs: false }, clean, { ready: true, status: 'degraded', agentfs: 'unreachable' }],
  [well, { trouble: 'HTTP 500', pending: true }, { ready: true, status: 'degraded', agentfs: 'failing' }],
  [{ ...well, sessiondb: false }, clean, { ready: false, status: 'not-ready', agentfs: 'reachable' }],
  [{ ...well, database: false }, clean, { ready: false, status: 'not-ready' }],
  [{ ...well, machine: false }, clean, { ready: false, status: 'not-ready' }],
])('%j and %j', (facts, files, expected) => {
  const health = judge(facts, files);
  expect(health).toMatchObject(expected as never);
  // What the machine was told by a server is for the log alone.
  expect(JSON.stringify(health)).not.toContain('HTTP 500');
});

test('metrics say the same in numbers', () => {
  const gauges = healthGauges(judge({ ...well, agentfs: false }, { trouble: null, pending: true }));
  const values = Object.fromEntries(Object.entries(gauges).map(([name, [, value]]) => [name, value]));
  expect(values).toEqual({
    edge_ready: 1,
    edge_database_up: 1,
    edge_sessiondb_up: 1,
    edge_agentfs_up: 0,
    edge_machine_up: 1,
    edge_agentfs_pending_changes: 1,
  });
});

test('parts are asked once for all who ask at once, and one that never answers is given up', async () => {
  let asked = 0;
  let wasAborted = false;
  const parts: HealthParts = {
    database: async () => {
      asked += 1;
    },
    sessiondb: (signal) => {
      signal.addEventListener('abort', () => {
        wasAborted = true;
      });
      return new Promise(() => undefined);
    },
    agentfs: () => Promise.reject(new Error('refused')),
    files: () => clean,
    isMachineRunning: () => true,
  };
  const health = createHealth(parts, 20);
  const [one, two] = await Promise.all([health(), health()]);
  expect(one).toBe(two);
  expect(asked).toBe(1);
  expect(wasAborted).toBe(true);
  expect(one.checks).toMatchObject({ database: { ok: true }, sessiondb: { ok: false }, agentfs: { ok: false } });
  await health();
  expect(asked).toBe(2);
});
