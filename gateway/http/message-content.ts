/** What a message may consist of, the same over HTTP and WebSocket; and how a message is shown. */
import * as v from 'valibot';
import type { ContentBlock, Message } from '../domain.ts';
import { Problem } from '../problem.ts';
import type { Submission } from '../turns/turns.ts';

export const textEntry = v.pipe(v.string(), v.description('The message as one text block, sent exactly as it is'));
export const blocksEntry = v.pipe(
  v.array(v.looseObject({ type: v.string() })),
  v.description('ACP content blocks, sent exactly as they are'),
);

/** One of the two, nothing else. Blocks are checked only for being blocks: what is in them is the agent profile's matter. */
export const messageContent = v.union(
  [v.strictObject({ text: textEntry }), v.strictObject({ blocks: blocksEntry })],
  'A message has either a text (a string) or blocks (a list of ACP content blocks), and nothing else',
);

/** The content as it was parsed, not as a schema copied it. */
export function contentOf(parsed: { readonly text?: unknown; readonly blocks?: unknown }): Submission['content'] {
  if (typeof parsed.text === 'string') return { text: parsed.text };
  const blocks = parsed.blocks as readonly ContentBlock[];
  if (blocks.length === 0) throw new Problem('unprocessable-message', 'A message needs at least one content block');
  return { blocks };
}

export const idempotencyKeyPattern = /^[\x21-\x7e]{1,255}$/;

/** Throws `invalid-request`. */
export function checkIdempotencyKey(key: string | null): string | null {
  if (key !== null && !idempotencyKeyPattern.test(key)) {
    throw new Problem('invalid-request', 'An idempotency key has 1 to 255 visible ASCII characters');
  }
  return key;
}

export const messageShown = v.object({
  id: v.string(),
  conversation: v.string(),
  state: v.picklist(['accepted', 'dispatched', 'delivered', 'failed', 'cancelled']),
  acceptedAt: v.string(),
  reply: v.optional(v.object({ locator: v.string() })),
  problem: v.optional(v.looseObject({ type: v.string(), title: v.string(), status: v.number(), detail: v.string() })),
  timings: v.nullable(
    v.object({
      attachMs: v.number(),
      admissionMs: v.nullable(v.number()),
      firstUpdateMs: v.nullable(v.number()),
      loopMs: v.nullable(v.number()),
      settleMs: v.nullable(v.number()),
    }),
  ),
});

export function showMessage(message: Message): v.InferOutput<typeof messageShown> {
  return {
    id: message.id,
    conversation: message.conversation,
    state: message.state,
    acceptedAt: message.acceptedAt.toISOString(),
    ...(message.state === 'delivered' ? { reply: { locator: message.locator } } : {}),
    ...(message.state === 'failed' ? { problem: message.problem } : {}),
    timings: message.timings,
  };
}
