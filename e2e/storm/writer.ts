/** A client that sends messages until each is known to be accepted: it tries again, sends twice, and is cut off. */
import * as v from 'valibot';
import { EventClient } from '../harness/events.ts';
import { type PlannedMessage, textOf } from './plan.ts';

export interface Place {
  readonly url: string;
  readonly token: string;
  readonly conversation: string;
}

/** How long one message may take to be accepted, over all attempts. */
const acceptanceMs = 240_000;
const messageSchema = v.object({ message: v.looseObject({ id: v.string() }) });

/** Answers the message's id. @throws Error when it is refused, or never accepted */
export async function sendUntilAccepted(place: Place, { id, way }: PlannedMessage): Promise<string> {
  const deadline = performance.now() + acceptanceMs;
  let cut = way === 'cut';
  for (let attempt = 0; ; attempt++) {
    try {
      const answers = await Promise.all(waysNow(way, attempt).map((send) => send(place, id, cut)));
      if (new Set(answers).size > 1) throw new Refused(`one key, two messages: ${answers.join(' ')}`);
      if (answers[0] !== undefined) return answers[0];
    } catch (error) {
      if (error instanceof Refused) throw error;
      // Not there, or gone in the middle: what a client does is to try again with the same key.
    }
    cut = false;
    if (performance.now() > deadline) throw new Error(`${id} was not accepted in ${acceptanceMs} ms`);
    await Bun.sleep(100 + 50 * (attempt % 5));
  }
}

/** An answer after which a client must not try again. */
class Refused extends Error {}

type Send = (place: Place, id: string, cut: boolean) => Promise<string | undefined>;

function waysNow(way: PlannedMessage['way'], attempt: number): readonly Send[] {
  if (way === 'twice') return [overHttp, overWebSocket];
  if (way === 'websocket' && attempt % 2 === 0) return [overWebSocket];
  return [overHttp];
}

const overHttp: Send = async ({ url, token, conversation }, id, cut) => {
  const answer = await fetch(`${url}/v1/conversations/${conversation}/messages`, {
    method: 'POST',
    headers: { authorization: `Bearer ${token}`, 'content-type': 'application/json', 'idempotency-key': `key-${id}` },
    body: JSON.stringify({ text: textOf(id) }),
    signal: AbortSignal.timeout(cut ? 4 : 15_000),
  });
  const text = await answer.text();
  if (answer.ok) return v.parse(messageSchema, JSON.parse(text)).message.id;
  if (answer.status === 429 || answer.status >= 500) return undefined;
  throw new Refused(`${id}: ${answer.status} ${text}`);
};

const overWebSocket: Send = async ({ url, token, conversation }, id) => {
  const client = await EventClient.open(url, token);
  try {
    client.send({ type: 'message.send', id, conversation, idempotencyKey: `key-${id}`, text: textOf(id) });
    const answered = await client.frames.wait(`an answer to ${id}`, (frame) => frame.id === id, 15_000);
    const accepted = v.safeParse(messageSchema, answered);
    if (accepted.success) return accepted.output.message.id;
    if (/"status":(429|5\d\d)/.test(JSON.stringify(answered))) return undefined;
    throw new Refused(`${id}: ${JSON.stringify(answered)}`);
  } finally {
    await client.close();
  }
};
