/**
 * How often a turn waits for the cloud databases. Each request counts as one, also where two go side by side. With 30 ms
 * to the cloud a warm text turn may take 150 ms longer than without, that is five, and one with a tool 400 ms, that is
 * thirteen (`bench rtt` measures it).
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { EventClient } from './harness/events.ts';
import { FarCloud } from './harness/far-cloud.ts';
import { call, say } from './harness/model.ts';
import { untilQuiet } from './harness/waiting.ts';

setDefaultTimeout(180_000);

let far: FarCloud;
let conversation: string;
let client: EventClient;
/** Until what a turn leaves to be done is done. */
const quiet = () => untilQuiet(() => far.cloud.requests.all.length + far.model.requests.all.length, 2_000);
beforeAll(async () => {
  far = await FarCloud.start();
  far.model.on('look', call('terminal', { command: 'echo seen' }), say('Seen.'));
  // Cold, and then whatever Hermes does once only.
  conversation = await far.conversation('hello', 'hello again', 'look once');
  client = await EventClient.open(far.gateway.url, far.token);
  client.send({ type: 'subscribe', conversation });
  await quiet();
});
afterAll(async () => {
  await client?.close();
  await far?.[Symbol.asyncDispose]();
});

/** The requests of one turn until its reply is here, and those that come later. */
async function requestsOf(text: string) {
  const from = far.cloud.requests.all.length;
  await far.api.say(conversation, text);
  const during = far.cloud.since(from);
  await quiet();
  return { during, later: far.cloud.since(from).slice(during.length) };
}
/** One line for each, so that a failure says what there was. */
const shown = (requests: Awaited<ReturnType<typeof requestsOf>>['during']) =>
  requests.map(
    ({ database, kind, sql }) => `${database} ${kind}: ${sql.join('; ').replace(/\s+/g, ' ').slice(0, 300)}`,
  );

test('a warm text turn: its user row, its tokens, its reply, and the look at the reply', async () => {
  const { during, later } = await requestsOf('just words');
  expect(during.filter(({ database }) => database === 'agentfs')).toEqual([]);
  expect(shown(during).length, shown(during).join('\n')).toBeLessThanOrEqual(4);
  // Nothing is left to be done that the next turn could meet.
  expect(shown(later)).toEqual([]);
});

test('a turn with one tool: four rows, tokens twice, the look at the reply, and one pull', async () => {
  const { during, later } = await requestsOf('look again');
  expect(during.filter(({ database }) => database === 'agentfs').map(({ kind }) => kind)).toEqual(['pull']);
  expect(shown(during).length, shown(during).join('\n')).toBeLessThanOrEqual(8);
  expect(shown(later.filter(({ database }) => database === 'sessiondb'))).toEqual([]);
});

test('another conversation’s turn between two of one adds nothing', async () => {
  const other = await far.conversation('hello', 'hello again', 'hello once more');
  await quiet();
  const { during } = await requestsOf('words after those of another');
  expect(shown(during).length, shown(during).join('\n')).toBeLessThanOrEqual(4);
  const from = far.cloud.requests.all.length;
  await far.api.say(other, 'and back');
  expect(far.cloud.since(from).length).toBeLessThanOrEqual(4);
});
