/**
 * How a row that a human wrote is told from the agent's own, at the canonical write boundary (ADR-046 §6). The mark stands in
 * `finish_reason`: Hermes never sends that column to a model, and compaction's copies keep it. `platform_message_id` would go
 * out to the model provider as a field that strict ones refuse.
 */

export const humanPrefix = 'edge-human:';

/** What a mark says: which idempotency key, and which words it was first used for. */
export interface HumanMark {
  /** Begins the mark of every reply that this key was used for. */
  readonly ofKey: string;
  readonly whole: string;
}

/** The mark of a reply. Both parts are 128 bits of a SHA-256: neither key nor words can be read from it. */
export function humanMark(idempotencyKey: string, text: string): HumanMark {
  const ofKey = `${humanPrefix}${digest(idempotencyKey)}:`;
  return { ofKey, whole: `${ofKey}${digest(text)}` };
}

export function isHuman(finishReason: string | null): boolean {
  return finishReason?.startsWith(humanPrefix) ?? false;
}

const digest = (text: string): string => new Bun.CryptoHasher('sha256').update(text).digest('hex').slice(0, 32);
