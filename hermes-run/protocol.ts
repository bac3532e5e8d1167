/**
 * The hermes-run wire: one unix socket, one preface, one answer, then raw bytes both ways until somebody closes.
 *
 * Preface and answer are a 4-byte big-endian length and that many bytes of UTF-8 JSON. After the answer `attached` the
 * relay never looks at a byte again. There is no other request: no file, no command, no configuration (ADR-046 §1, file
 * API "Outbound").
 *
 * Detach: the client half-closes. The server stops reading from the child, sends what it has already read, and closes;
 * the client reads to the end. A line cut there continues at the next attach of the same `generation`.
 */
import * as v from 'valibot';

/** Bytes of JSON that a preface or an answer may have at most. */
export const maxFrameBytes = 4096;
/** A peer that has not sent its whole preface by then is cut. */
export const prefaceTimeoutMs = 5_000;

export const prefaceSchema = v.strictObject({
  version: v.literal(1),
  token: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  conversation: v.pipe(v.string(), v.regex(/^conv_[0-9a-z]{26}$/)),
  /** The native session that the conversation is routed to; null before it has one. A cold child may write to no other. */
  session: v.nullable(v.pipe(v.string(), v.regex(/^[A-Za-z0-9_-]{1,128}$/))),
  /** A warm child is replaced first: what it remembers is no longer what is stored. */
  fresh: v.optional(v.boolean(), false),
});
export type Preface = v.InferOutput<typeof prefaceSchema>;

export const refusals = [
  'bad-preface',
  'unauthorized',
  'unknown-conversation',
  'busy',
  'full',
  'failed',
  'closing',
] as const;
export type Refusal = (typeof refusals)[number];

export const answerSchema = v.variant('status', [
  v.strictObject({
    status: v.literal('attached'),
    admission: v.picklist(['warm', 'cold']),
    /** Which child of this conversation it is: bytes left over from one belong to no other. */
    generation: v.pipe(v.number(), v.integer(), v.minValue(1)),
    /** Time the machine took to make a cold child ready to be written to. */
    admissionMs: v.number(),
  }),
  v.strictObject({ status: v.literal('refused'), refusal: v.picklist(refusals), detail: v.string() }),
]);
export type Answer = v.InferOutput<typeof answerSchema>;
