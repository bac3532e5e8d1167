/**
 * What a turn costs, counted where it arrives: requests at both cloud databases, statements at a real Postgres, processes,
 * operations on files (ADR-046 §§5, 8; acceptance 3 and 14). And what an idle organization costs: nothing.
 */
import { afterAll, beforeAll, describe, expect, setDefaultTimeout, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { installedPostgres } from '../gateway/governance/databases.fixture.ts';
import { describeWork, processSeconds, threadsOf, workBetween } from './harness/cpu.ts';
import { EventClient } from './harness/events.ts';
import { IdlePeer } from './harness/idle-peer.ts';
import { call, say } from './harness/model.ts';
import { Organization } from './harness/organization.ts';
import { untilQuiet } from './harness/waiting.ts';

setDefaultTimeout(300_000);
const bin = installedPostgres();
if (bin === null)
  console.error('SKIPPED: no installed Postgres (apt install postgresql); what a turn costs is not counted');

/** An idle minute here; EDGE_TEST_IDLE_SECONDS=600 for the ten that are required, and what they may take of the processor. */
const idleSeconds = Number(process.env.EDGE_TEST_IDLE_SECONDS ?? 60);
const requiredSeconds = 600;
const mostInThose = 0.1;
const warmHolders = 5;
/**
 * What a wake takes of the processor is the machine's affair, from some microseconds to milliseconds in a virtual machine that
 * sleeps in between: it is told beside what two processes of Bun take that only hold a connection each. How often there is one
 * is ours: in a process with a socket Bun wakes each second for the time of day and every four for time-outs, and its HTTP
 * client every four while it keeps a connection. Per second, of both together, with as much again for what the last turns left.
 */
const mostWakes = 2 * (1 + 1 / 4 + 1 / 4) + 2;

describe.skipIf(bin === null)('what it costs', () => {
  let organization: Organization;
  let conversation: string;
  /** Until everything that a turn leaves is done: its work boundary, and Hermes' own side work. */
  const settle = () =>
    untilQuiet(() => {
      const { cloud, model, statements } = organization;
      return cloud.requests.all.length + model.requests.all.length + statements.length;
    }, 3_000);
  beforeAll(async () => {
    organization = await Organization.start(bin!);
    organization.model
      .on('look at it', call('terminal', { command: 'cat /workspace/*; ls -la /workspace' }), say('Seen.'))
      .on('write it', call('terminal', { command: 'date > /workspace/written.txt' }), say('Written.'));
    await organization.serve();
    const made = await organization.api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
    expect(made.status).toBe(201);
    conversation = await organization.api.createConversation('Eleanora');
    // Cold, and then whatever Hermes does once only.
    for (const text of ['hello', 'hello again', 'look at it']) await organization.api.say(conversation, text);
    await settle();
  });
  afterAll(() => organization?.stop());

  /** What one turn makes arrive, until everything is quiet again. */
  async function costOf(text: string) {
    const { cloud, api, gateway } = organization;
    const before = { requests: cloud.requests.all.length, statements: organization.statements.length };
    const processes = gateway.tree().map(({ pid, startTicks }) => `${pid} ${startTicks}`);
    await api.say(conversation, text);
    const during = gateway.tree().map(({ pid, startTicks }) => `${pid} ${startTicks}`);
    await settle();
    return {
      agentfs: cloud.since(before.requests, 'agentfs').map(({ kind }) => kind),
      sessiondb: cloud.since(before.requests, 'sessiondb').length,
      statements: organization.statements.slice(before.statements),
      started: during.filter((one) => !processes.includes(one)),
    };
  }

  test('a warm text turn makes no request for files, starts no process, and runs a listed set of statements', async () => {
    const { agentfs, statements, started } = await costOf('just words');
    expect(agentfs).toEqual([]);
    expect(started).toEqual([]);
    expect(statements.map(shape)).toMatchSnapshot();
  });

  test('a turn that only reads makes exactly one pull and no push', async () => {
    expect((await costOf('look at it')).agentfs).toEqual(['pull']);
  });

  test('a turn that changes a file makes pull, pull, push', async () => {
    const { agentfs } = await costOf('write it');
    expect(agentfs.filter((kind) => kind !== 'pipeline')).toEqual(['pull', 'pull', 'push']);
  });

  test(
    `${idleSeconds} idle seconds with ${warmHolders} warm holders and 3 listening clients cost nothing`,
    async () => {
      const { api, cloud, gateway } = organization;
      for (let more = 1; more < warmHolders; more++) {
        const other = await api.createConversation('Eleanora');
        await api.say(other, 'hello');
      }
      const clients = await Promise.all([1, 2, 3].map(() => EventClient.open(gateway.url, organization.token)));
      for (const client of clients) client.send({ type: 'subscribe', conversation });
      await using first = await IdlePeer.start(organization.directory, 'a');
      await using second = await IdlePeer.start(organization.directory, 'b');
      const peers = [first, second];
      const tree = gateway.tree();
      const relays = tree.filter(({ argv }) => argv[0] === 'confined-exec' && argv[1] === 'holder');
      const machine = tree.find(({ argv }) => argv[1] === 'machine');
      expect(relays.length).toBeGreaterThanOrEqual(warmHolders);
      const ours = [gateway.pid, machine!.pid];
      const reads = () => relays.map(({ pid }) => numberIn(`/proc/${pid}/io`, /^syscr: (\d+)$/m));
      // Agents that have just started go on for a while, and for half a minute the engine sweeps what the turns left.
      await untilQuiet(() => reads().reduce((sum, one) => sum + one, 0), 30_000, 180_000);
      const before = {
        requests: cloud.requests.all.length,
        statements: organization.statements.length,
        reads: reads(),
        threads: ours.map(threadsOf),
        seconds: ours.map(processSeconds),
        peers: peers.map((peer) => peer.seconds),
      };
      await Bun.sleep(idleSeconds * 1_000);
      const bun = peers.reduce((sum, peer, at) => sum + peer.seconds - before.peers[at]!, 0);
      const seconds = ours.map((pid, at) => processSeconds(pid) - before.seconds[at]!);
      const work = ours.map((pid, at) => workBetween(before.threads[at]!, threadsOf(pid)));
      for (const [at, name] of ['gateway', 'machine'].entries()) {
        const threads = work[at]!.map((one) => `\n  ${describeWork(one)}`).join('');
        console.log(`${name}: ${seconds[at]!.toFixed(4)} s of CPU in ${idleSeconds} s${threads}`);
      }
      console.log(`two idle processes of Bun: ${bun.toFixed(4)} s`);
      expect(cloud.since(before.requests)).toEqual([]);
      expect(organization.statements.slice(before.statements)).toEqual([]);
      // Each operation on a holder's files is read from /dev/fuse by one of these.
      expect(reads()).toEqual(before.reads);
      const wakes = work.flat().reduce((sum, one) => sum + one.wakes, 0);
      expect(wakes / idleSeconds).toBeLessThan(mostWakes);
      if (idleSeconds >= requiredSeconds) expect(seconds[0]! + seconds[1]!).toBeLessThan(mostInThose);
      for (const client of clients) await client.close();
    },
    (idleSeconds + 300) * 1_000,
  );
});

function numberIn(file: string, pattern: RegExp): number {
  return Number(pattern.exec(readFileSync(file, 'latin1'))?.[1]);
}

/** A statement without its layout. */
const shape = (sql: string) => sql.replace(/\s+/g, ' ').trim();
