/** What comes in before it has a name, beside the quotas, over a real authority. */
import { afterAll, beforeAll, beforeEach, expect, test } from 'bun:test';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import { type ConversationId, newConversationId } from '../ids.ts';
import { Problem } from '../problem.ts';
import { createInbox, type Delivery, type Inbox } from './inbox.ts';

const mebibyte = 1024 * 1024;
const heading = { fileName: 'x.bin', mediaType: null };

let authority: TestAuthority;
let inbox: Inbox;
let one: ConversationId;
let other: ConversationId;

beforeAll(async () => {
  authority = await startAuthority({ isProvisioned: false });
  await provisionOrganization(authority.cloud);
}, 60_000);
afterAll(() => authority?.stop());
beforeEach(async () => {
  [one, other] = [await begun(), await begun()];
  const { rows } = await authority.sql.execute('SELECT total(size) FROM fs_inode WHERE nlink > 0');
  inbox = createInbox({
    sql: authority.sql,
    files: authority.cloud,
    limits: {
      largestFile: 10 * mebibyte,
      conversation: { bytes: 5 * mebibyte, inodes: 100 },
      organization: { bytes: Number(rows[0]![0]) + 6 * mebibyte, inodes: 1_000 },
    },
    log: { info: () => undefined, warn: () => undefined },
  });
});

async function begun(): Promise<ConversationId> {
  const id = newConversationId();
  const specialist = { id: 'spec_a' as never, name: 'A', persona: '', createdAt: new Date(), offboardedAt: null };
  await establishConversation(authority.cloud, id, specialist);
  return id;
}
async function* mebibytes(count: number): AsyncGenerator<Uint8Array> {
  for (let at = 0; at < count; at += 1) yield crypto.getRandomValues(new Uint8Array(65_536)).slice();
  for (let at = 0; at < count * 15; at += 1) yield new Uint8Array(65_536);
}
const receive = (delivery: Delivery, count: number) => delivery.receive(mebibytes(count), heading);
const outcome = (work: Promise<unknown>): Promise<string> =>
  work.then(
    () => 'ok',
    (error: unknown) => (error instanceof Problem ? error.problem : String(error)),
  );

test('what waits for its name takes the room of the organization, and gives it back', async () => {
  const first = await inbox.begin(one, 0);
  const file = await receive(first, 4);
  first.release(file);
  await first.discard();
  expect(await outcome(inbox.begin(other, 3 * mebibyte))).toBe('quota-exceeded');
  const second = await inbox.begin(other, 0);
  expect(await outcome(receive(second, 3))).toBe('quota-exceeded');
  await inbox.drop(one, file);
  expect(await outcome(receive(second, 3))).toBe('ok');
  await second.discard();
  const third = await inbox.begin(one, 5 * mebibyte - 100_000);
  expect(await outcome(receive(third, 4))).toBe('ok');
  await third.discard();
});

test('of messages that come in at once, no two have the same room', async () => {
  const deliveries = await Promise.all([one, one, other, other].map((conversation) => inbox.begin(conversation, 0)));
  const outcomes = await Promise.all(deliveries.map((delivery) => outcome(receive(delivery, 3))));
  expect(outcomes.filter((what) => what === 'ok').length).toBeLessThan(3);
  expect(outcomes.filter((what) => what !== 'ok' && what !== 'quota-exceeded')).toEqual([]);
  await Promise.all(deliveries.map((delivery) => delivery.discard()));
});

test('what a message named is counted in the cloud alone', async () => {
  for (let time = 0; time < 2; time += 1) {
    const delivery = await inbox.begin(one, 0);
    await receive(delivery, 2);
    await delivery.deliver(async () => 'taken');
    await delivery.discard();
  }
  expect(await outcome(inbox.begin(other, mebibyte))).toBe('ok');
  expect(await outcome(inbox.begin(one, 2 * mebibyte))).toBe('quota-exceeded');
});
