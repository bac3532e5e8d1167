/** What a client may send over the WebSocket. */
import * as v from 'valibot';
import { blocksEntry, textEntry } from './message-content.ts';

/** Repeated in the answer, so that a client can tell its answers apart. */
const id = v.optional(v.union([v.pipe(v.string(), v.maxLength(128)), v.pipe(v.number(), v.safeInteger())]));
/** Any text: one that is no id is answered as an unknown conversation is. */
const conversation = v.pipe(v.string(), v.maxLength(128));

const sending = {
  type: v.literal('message.send'),
  id,
  conversation,
  idempotencyKey: v.optional(v.string()),
};

export const clientFrame = v.variant('type', [
  v.strictObject({
    type: v.literal('subscribe'),
    id,
    conversation,
    after: v.optional(v.pipe(v.number(), v.safeInteger(), v.minValue(0))),
  }),
  v.strictObject({ type: v.literal('unsubscribe'), id, conversation }),
  v.strictObject({ ...sending, text: textEntry }),
  v.strictObject({ ...sending, blocks: blocksEntry }),
]);

export type ClientFrame = v.InferOutput<typeof clientFrame>;
