/** What a client may send over the WebSocket. */
import * as v from 'valibot';
import { blocksEntry, textEntry } from './message-content.ts';

const idSchema = v.union([v.pipe(v.string(), v.maxLength(128)), v.pipe(v.number(), v.safeInteger())]);
/** Repeated in the answer, so that a client can tell its answers apart. */
const id = v.optional(idSchema);
/** Any text: one that is no id is answered as an unknown conversation is. */
const conversation = v.pipe(v.string(), v.maxLength(128));

const sending = {
  type: v.literal('message.send'),
  id,
  conversation,
  idempotencyKey: v.optional(v.string()),
};

/** Texts, and files that were announced and have arrived, in their order. */
const partsEntry = v.pipe(
  v.array(
    v.union([v.strictObject({ text: v.string() }), v.strictObject({ upload: v.pipe(v.string(), v.maxLength(64)) })]),
  ),
  v.minLength(1),
  v.maxLength(256),
);

export const clientFrame = v.variant('type', [
  v.strictObject({
    type: v.literal('subscribe'),
    id,
    conversation,
    after: v.optional(v.pipe(v.number(), v.safeInteger(), v.minValue(0))),
  }),
  v.strictObject({ type: v.literal('unsubscribe'), id, conversation }),
  v.strictObject({
    type: v.literal('upload.announce'),
    id,
    conversation,
    name: v.pipe(v.string(), v.minLength(1), v.maxLength(4_096)),
    mimeType: v.optional(v.string()),
  }),
  v.strictObject({ ...sending, parts: partsEntry }),
  v.strictObject({ ...sending, text: textEntry }),
  v.strictObject({ ...sending, blocks: blocksEntry }),
]);

export type ClientFrame = v.InferOutput<typeof clientFrame>;

const identified = v.looseObject({ id: idSchema });

/** The id in a frame that is otherwise not as it should be, for its refusal; undefined when it has none that could be one. */
export function idOf(frame: unknown): ClientFrame['id'] {
  const result = v.safeParse(identified, frame);
  return result.success ? result.output.id : undefined;
}
