/** JSON of a bounded size: what does not fit is cut and says so. */

const maxEntries = 1_000;
const maxDepth = 8;

/**
 * The value as JSON whose strings have `bytes` bytes of UTF-8 in all at most, names and marks aside. A string beyond that ends
 * with a mark that says how much of it is there; a list or object of more than 1,000 entries says how many are missing.
 */
export function boundedJson(value: unknown, bytes: number): string {
  return JSON.stringify(bounded(value, { bytes }, 0));
}

function bounded(value: unknown, room: { bytes: number }, depth: number): unknown {
  if (typeof value === 'string') return cut(value, room);
  if (typeof value !== 'object' || value === null) return typeof value === 'bigint' ? String(value) : value;
  if (depth === maxDepth) return '… [nested too deeply]';
  if (Array.isArray(value)) {
    const kept = value.slice(0, maxEntries).map((entry) => bounded(entry, room, depth + 1));
    return value.length > maxEntries ? [...kept, `… [${value.length - maxEntries} more]`] : kept;
  }
  const entries = Object.entries(value);
  const kept = entries.slice(0, maxEntries).map(([name, entry]) => [name, bounded(entry, room, depth + 1)]);
  return Object.fromEntries(entries.length > maxEntries ? [...kept, ['…', entries.length - maxEntries]] : kept);
}

function cut(text: string, room: { bytes: number }): string {
  const bytes = Buffer.byteLength(text);
  if (bytes <= room.bytes) {
    room.bytes -= bytes;
    return text;
  }
  // Between two characters: a continuation byte of UTF-8 starts with the bits 10.
  const encoded = Buffer.from(text);
  let end = room.bytes;
  while (end > 0 && ((encoded[end] ?? 0) & 0xc0) === 0x80) end -= 1;
  room.bytes = 0;
  return `${encoded.toString('utf8', 0, end)}… [cut: ${end} of ${bytes} bytes]`;
}
