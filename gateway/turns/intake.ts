/** From a submission to what is stored: the blocks as they will go to the agent, and the digest that tells requests apart. */
import type { ContentBlock } from '../domain.ts';
import type { Submission } from './turns.ts';

/** A text is exactly one text block; blocks stay what they are (ADR-046 §1). */
export function contentBlocks(content: Submission['content']): readonly ContentBlock[] {
  return 'text' in content ? [{ type: 'text', text: content.text }] : content.blocks;
}

/** How much a message is while it waits for its turn: the bytes of its blocks as JSON. */
export function contentBytes(blocks: readonly ContentBlock[]): number {
  return Buffer.byteLength(JSON.stringify(blocks));
}

/** SHA-256 (hex) of the blocks as JSON with sorted keys: equal for bodies that only differ in the order of members. */
export function contentDigest(blocks: readonly ContentBlock[]): string {
  return new Bun.CryptoHasher('sha256').update(JSON.stringify(sorted(blocks))).digest('hex');
}

function sorted(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(sorted);
  if (typeof value !== 'object' || value === null) return value;
  const entries = Object.entries(value).sort(([left], [right]) => (left < right ? -1 : 1));
  // Wrapped, so that no array of pairs looks like an object.
  return { object: entries.map(([key, member]) => [key, sorted(member)]) };
}
