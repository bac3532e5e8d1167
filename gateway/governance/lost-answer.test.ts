/** What happens when the connection breaks in the middle of a write: nothing is lost, nothing is written twice. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { createServer, connect as dial, type Server, type Socket } from 'node:net';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { type ConversationId, type Locator, newConversationId, newMessageId } from '../ids.ts';
import { installedPostgres, realDatabase, type TestDatabase } from './databases.fixture.ts';
import type { Acceptance } from './governance.ts';
import { type OpenedGovernance, openGovernance } from './postgres.ts';

const bin = installedPostgres();
if (bin === null) console.error('SKIPPED: no installed Postgres (apt install postgresql); lost answers are not tested');

type Fault =
  | 'none'
  | 'cut before the statement'
  | 'cut before the answer'
  /** Of a transaction of several statements. */
  | 'cut before the answer to COMMIT';

/** Between the client and the server, on a unix socket of its own. */
class FaultyLine {
  fault: Fault = 'none';
  /** For names that nobody has. */
  cuts = 0;
  readonly directory = mkdtempSync(join(tmpdir(), 'egw-line-'));
  readonly #server: Server;

  constructor(serverSocket: string) {
    this.#server = createServer((client) => {
      const server = dial(serverSocket);
      const cut = (...ends: Socket[]) => {
        this.fault = 'none';
        for (const end of ends) end.destroy();
      };
      client.on('data', (bytes) => {
        if (this.fault === 'cut before the statement') cut(client, server);
        else server.write(bytes);
      });
      server.on('data', (bytes) => {
        // The answer is here, so the statement has been committed.
        const isIt =
          this.fault === 'cut before the answer' ||
          (this.fault === 'cut before the answer to COMMIT' && bytes.includes('COMMIT\0'));
        if (isIt) cut(client, server);
        else client.write(bytes);
      });
      for (const [one, other] of [
        [client, server],
        [server, client],
      ] as const) {
        one.on('close', () => other.destroy());
        one.on('error', () => other.destroy());
      }
    });
  }
  listen(): Promise<void> {
    return new Promise((resolve) => this.#server.listen(join(this.directory, '.s.PGSQL.5432'), resolve));
  }
  close(): void {
    this.#server.close();
    rmSync(this.directory, { recursive: true, force: true });
  }
}

let database: TestDatabase;
let line: FaultyLine;
let governance: OpenedGovernance;
let conversation: ConversationId;

beforeAll(async () => {
  if (bin === null) return;
  database = await realDatabase(bin);
  if (database.address.kind !== 'url') throw new Error('a real server has a URL');
  const directory = new URL(database.address.url).searchParams.get('host')!;
  line = new FaultyLine(join(directory, '.s.PGSQL.5432'));
  await line.listen();
  const address = { kind: 'socket', directory: line.directory } as const;
  governance = await openGovernance({ database: address, organizationName: 'O', failedProseDays: 7 });
  const specialist = await governance.createSpecialist('Eleanora', '');
  conversation = (await governance.createConversation(newConversationId(), specialist.id)).id;
  await prepare();
}, 60_000);
afterAll(async () => {
  if (bin === null) return;
  await governance.close();
  line.close();
  await database.stop();
});

const accept = () =>
  governance.accept({ id: newMessageId(), conversation, blocks: [], digest: 'a'.repeat(64), key: null });

/** Each connection prepares a statement at its first use; from then on it is one exchange. */
async function prepare(): Promise<void> {
  const { message } = accepted(await accept());
  await governance.cancel(message.id, null);
}
function accepted(acceptance: Acceptance) {
  if (acceptance.outcome !== 'accepted') throw new Error(acceptance.outcome);
  return acceptance;
}

test.skipIf(bin === null)('a statement whose answer was lost counts as done, once', async () => {
  const seq = governance.lastSeq();
  line.fault = 'cut before the answer';
  const acceptance = accepted(await accept());
  expect<Fault>(line.fault).toBe('none');
  expect(acceptance.event.seq).toBe(seq + 1);
  expect((await governance.eventsAfter(seq, 10)).events).toEqual([acceptance.event]);
  expect(await governance.findMessage(conversation, acceptance.message.id)).toEqual(acceptance.message);

  await prepare();
  const before = governance.lastSeq();
  line.fault = 'cut before the answer';
  const cancelled = await governance.cancel(acceptance.message.id, null);
  expect<Fault>(line.fault).toBe('none');
  expect(cancelled).toMatchObject({ seq: before + 1, conversation, type: 'turn.cancelled' });
  expect((await governance.eventsAfter(before, 10)).events).toEqual([cancelled]);
});

test.skipIf(bin === null)('a delivery whose answer was lost is both its events', async () => {
  const card = { question: 'Which?', options: [], allowText: true };
  const dispatched = async () => {
    const { message } = accepted(await accept());
    await governance.dispatch(message.id, 1, 'warm');
    return message;
  };
  // As above: the statement has to be prepared on its connection.
  for (let connection = 0; connection < 8; connection += 1) {
    const { id } = await dispatched();
    await governance.deliver(id, `loc_${id}` as Locator, null, card);
  }
  const { id } = await dispatched();
  const seq = governance.lastSeq();
  line.fault = 'cut before the answer';
  const events = await governance.deliver(id, `loc_${id}` as Locator, null, card);
  expect<Fault>(line.fault).toBe('none');
  expect(events.map((event) => [event.seq, event.type])).toEqual([
    [seq + 1, 'reply.delivered'],
    [seq + 2, 'card.opened'],
  ]);
  expect((await governance.eventsAfter(seq, 10)).events).toEqual(events);
  expect(accepted(await accept()).event.seq).toBe(seq + 3);
});

test.skipIf(bin === null)('a statement that was lost on its way is run again, and is there once', async () => {
  const seq = governance.lastSeq();
  line.fault = 'cut before the statement';
  const acceptance = accepted(await accept());
  expect<Fault>(line.fault).toBe('none');
  expect(acceptance.event.seq).toBe(seq + 1);
  expect((await governance.eventsAfter(seq, 10)).events).toEqual([acceptance.event]);
  line.fault = 'cut before the statement';
  const started = await governance.dispatch(acceptance.message.id, 1, 'warm');
  expect((await governance.eventsAfter(seq + 1, 10)).events).toEqual([started]);
  await prepare();
});

test.skipIf(bin === null)('the cancelling of a message that waits', async () => {
  // As above: the statement has to be prepared on its connection.
  for (let connection = 0; connection < 8; connection += 1) {
    const { message } = accepted(await accept());
    await governance.cancelWaiting(conversation, message.id);
  }
  for (const fault of ['cut before the answer', 'cut before the statement'] as const) {
    const { message } = accepted(await accept());
    const seq = governance.lastSeq();
    line.fault = fault;
    const cancellation = await governance.cancelWaiting(conversation, message.id);
    expect<Fault>(line.fault).toBe('none');
    expect(cancellation).toMatchObject({ outcome: 'cancelled', event: { seq: seq + 1, message: message.id } });
    expect((await governance.eventsAfter(seq, 10)).events).toHaveLength(1);
    expect(await governance.findMessage(conversation, message.id)).toMatchObject({ state: 'cancelled' });
  }
});

test.skipIf(bin === null)('what has an id of its own is there once', async () => {
  const { id: specialist } = await governance.createSpecialist('Percy', '');
  const rounds: [string, Fault, () => Promise<unknown>, () => Promise<number>][] = [
    [
      'specialist',
      'cut before the answer',
      () => governance.createSpecialist(`S ${line.cuts}`, ''),
      async () => (await governance.listSpecialists()).length,
    ],
    [
      'conversation',
      'cut before the answer',
      () => governance.createConversation(newConversationId(), specialist),
      async () => (await governance.listConversations({ kind: 'everything' }, null, 200)).items.length,
    ],
    [
      'user',
      'cut before the answer to COMMIT',
      () => governance.createUser('Ada', 'expert', [specialist]),
      async () => (await governance.listUsers(null, 200)).items.length,
    ],
    [
      'token',
      'cut before the answer',
      () => governance.createToken('client', 'T'),
      async () => (await governance.listTokens()).length,
    ],
  ];
  for (const [what, fault, make, count] of rounds) {
    for (let connection = 0; connection < 8; connection += 1) {
      line.cuts += 1;
      await make();
    }
    const before = await count();
    line.cuts += 1;
    line.fault = fault;
    await make();
    expect<Fault>(line.fault).toBe('none');
    expect(`${what}: ${await count()}`).toBe(`${what}: ${before + 1}`);
  }
});

test.skipIf(bin === null)('the session of a conversation is bound although the answer was lost', async () => {
  const { id } = await governance.createConversation(
    newConversationId(),
    (await governance.createSpecialist('Ed', '')).id,
  );
  for (const session of ['one', 'one']) {
    line.fault = 'cut before the answer';
    await governance.bindSession(id, session);
    expect<Fault>(line.fault).toBe('none');
  }
  expect((await governance.findConversation(id))?.session).toBe('one');
  await expect(governance.bindSession(id, 'two')).rejects.toMatchObject({ problem: 'conflict' });
});
