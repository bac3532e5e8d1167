/** Texts that a client may send as a frame: nearly right, wrong in one place, or nothing of the kind. */

type Random = (below: number) => number;

export const pick = <T>(random: Random, from: readonly T[]): T => from[random(from.length)] as T;

const strings: readonly ((random: Random) => string)[] = [
  () => '',
  () => '\u0000',
  () => '\\ud800 lone',
  () => '\u2028\u2029\ufeff\u202e',
  () => '/reset',
  () => '__proto__',
  () => 'conv_00000000000000000000000000',
  () => "' or 1=1 --",
  () => '../../../etc/passwd',
  () => '👩‍👩‍👧'.repeat(500),
  (random) => 'x'.repeat(random(300_000)),
  (random) => String.fromCharCode(...Array.from({ length: random(50) }, () => random(0xd800))),
];

/** Any JSON value, not deep. */
function anyValue(random: Random, depth = 0): unknown {
  switch (random(depth > 3 ? 6 : 8)) {
    case 0:
      return null;
    case 1:
      return random(2) === 0;
    case 2:
      return pick(random, [0, -1, 1.5, 1e308, Number.MAX_SAFE_INTEGER, -0, 2 ** 53 + 2, 1e-320]);
    case 3:
    case 4:
    case 5:
      return pick(random, strings)(random);
    case 6:
      return Array.from({ length: random(6) }, () => anyValue(random, depth + 1));
    default:
      return Object.fromEntries(
        Array.from({ length: random(5) }, () => [
          pick(random, ['type', 'id', 'text', 'blocks', 'constructor', 'toString', '']),
          anyValue(random, depth + 1),
        ]),
      );
  }
}

/** Frames that would be right; none of them makes a message that reaches the agent. */
function rightFrame(random: Random, conversation: string): Record<string, unknown> {
  return pick<(r: Random) => Record<string, unknown>>(random, [
    () => ({ type: 'subscribe', id: random(100), conversation, after: random(2) === 0 ? 0 : random(1_000_000) }),
    () => ({ type: 'unsubscribe', id: 'u', conversation }),
    () => ({ type: 'subscribe', conversation: `conv_${'0'.repeat(26)}` }),
    () => ({ type: 'message.send', id: 1, conversation, idempotencyKey: `k${random(5)}`, text: ' \n' }),
    () => ({ type: 'message.send', conversation, blocks: [] }),
    () => ({
      type: 'message.send',
      conversation,
      blocks: [{ type: 'resource_link', name: 'x', uri: 'file:///etc/passwd' }],
    }),
  ])(random);
}

const raw: readonly ((random: Random) => string)[] = [
  (random) => '['.repeat(1 + random(200_000)),
  (random) => '{"a":'.repeat(1 + random(50_000)),
  (random) => `{"type":"subscribe","conversation":${'['.repeat(5_000)}${']'.repeat(5_000)},"id":${random(9)}}`,
  () => '{"type":"subscribe","type":"unsubscribe","conversation":"a","conversation":"b"}',
  () => '{"__proto__":{"type":"subscribe"},"conversation":"conv_x"}',
  () => '{"type":"subscribe","id":1e400,"conversation":"x"}',
  () => '{"type":"subscribe","id":12345678901234567890123456789,"conversation":"x"}',
  () => '{"type":"message.send","conversation":"x","text":"\\ud800"}',
  () => '{"type":"message.send","conversation":"x","text":"\\u0000"}',
  () => '\ufeff{}',
  () => 'null',
  () => '"subscribe"',
  () => '123',
  () => ' '.repeat(100_000),
  () => '{"type":',
  (random) => `{"type":"subscribe","conversation":"x"${',"k":1'.repeat(random(100_000))}}`,
  (random) =>
    JSON.stringify({ type: 'message.send', conversation: 'x', blocks: Array(random(100_000)).fill({ type: 't' }) }),
];

/** One text. `conversation` exists. */
export function hostileText(random: Random, conversation: string): string {
  const kind = random(10);
  if (kind < 3) return pick(random, raw)(random);
  const frame = rightFrame(random, conversation);
  if (kind < 4) return JSON.stringify(frame);
  const name = pick(random, [...Object.keys(frame), 'extra', 'id', 'after']);
  if (kind < 8) frame[name] = anyValue(random);
  else delete frame[name];
  const text = JSON.stringify(frame);
  if (kind < 9) return text;
  const at = random(text.length);
  return text.slice(0, at) + pick(random, ['', '"', '}', '\\', '\u0001', ',']) + text.slice(at + random(3));
}
