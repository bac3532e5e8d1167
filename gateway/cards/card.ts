/**
 * A question card: what a model may ask a client in a form that can be shown as buttons. Nobody but the model makes one: a
 * block that is not exactly a card is prose, and nothing is put in its place (ADR-046 §4).
 */
import * as v from 'valibot';

/** Bounds of a card, in UTF-16 code units; a card beyond them is prose. */
export const cardLimits = { question: 2_000, options: 20, id: 64, label: 200 } as const;

/** U+0000 and lone surrogates are no text that Postgres keeps. */
const kept = v.check((text: string) => text.isWellFormed() && !text.includes('\0'), 'must be text without U+0000');
const oneLine = v.regex(/^[^\p{Cc}\p{Zl}\p{Zp}]*\S[^\p{Cc}\p{Zl}\p{Zp}]*$/u, 'must be one line that is not blank');

// Members that are not known are left out: a card may say more than is shown of it.
const cardSchema = v.pipe(
  v.object({
    question: v.pipe(v.string(), v.maxLength(cardLimits.question), v.regex(/\S/, 'must not be blank'), kept),
    options: v.pipe(
      v.array(
        v.object({
          id: v.pipe(v.string(), v.maxLength(cardLimits.id), oneLine, kept),
          label: v.pipe(v.string(), v.maxLength(cardLimits.label), oneLine, kept),
        }),
      ),
      v.maxLength(cardLimits.options),
      v.check((options) => new Set(options.map(({ id }) => id)).size === options.length, 'must have an id each'),
    ),
    allowText: v.boolean(),
  }),
  v.check(({ options, allowText }) => allowText || options.length > 0, 'must have an answer'),
);

/** How a card is shown to clients, for OpenAPI. */
export const cardShown = v.object({
  question: v.string(),
  options: v.array(v.object({ id: v.string(), label: v.string() })),
  allowText: v.boolean(),
});

export type Card = v.InferOutput<typeof cardSchema>;

/** The card that this JSON text is, or null when it is none. */
export function parseCard(json: string): Card | null {
  let value: unknown;
  try {
    value = JSON.parse(json);
  } catch {
    return null; // The model's text: prose.
  }
  const result = v.safeParse(cardSchema, value);
  return result.success ? result.output : null;
}
