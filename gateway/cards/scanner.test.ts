import { describe, expect, test } from 'bun:test';
import { type Card, parseCard } from './card.ts';
import { block, lifted, mostOptions, plainCard, prose } from './samples.fixture.ts';
import { CardScanner, liftCard, maxBlockLength } from './scanner.ts';

const replies = [...lifted.map(([name, reply]) => [name, reply] as const), ...prose];

/** The rule once more, as one expression over the whole text. */
function reference(text: string): { text: string; card: Card | null } {
  const asProse = { text, card: null };
  const at = text.indexOf('<<<HW_QUESTION');
  if (at === -1) return asProse;
  // biome-ignore lint/suspicious/noControlCharactersInRegex: JSON strings have none
  const found = /^<<<HW_QUESTION[ \t\r\n]*(\{(?:[^"<>]|"(?:[^"\\\x00-\x1f]|\\[^\x00-\x1f])*")*)>>>/.exec(
    text.slice(at),
  );
  if (found === null || found[0].length > maxBlockLength || found[0].includes('<<<HW_QUESTION', 1)) return asProse;
  const card = parseCard(found[1]!);
  if (card === null) return asProse;
  const before = text.slice(0, at);
  const after = text.slice(at + found[0].length);
  return { text: before + (/(^|\n)$/.test(before) ? after.replace(/^\r?\n/, '') : after), card };
}

/** Through the scanner in these pieces; what it lets through of each, and what comes at the end. */
function scan(pieces: readonly string[]) {
  const scanner = new CardScanner();
  const shown = pieces.map((piece) => scanner.push(piece));
  return { shown, text: shown.join('') + scanner.end(), card: scanner.card };
}

/** A seeded sequence of numbers below 2³². */
function random(seed: number): () => number {
  let state = seed;
  return () => {
    state = (Math.imul(state, 1_664_525) + 1_013_904_223) >>> 0;
    return state;
  };
}

describe('a reply', () => {
  test.each(lifted)('has a card: %s', (_, reply, shown) => {
    const { text, card } = liftCard(reply);
    expect(text).toBe(shown);
    expect(card).not.toBeNull();
  });

  test.each(prose)('has none: %s', (_, reply) => {
    expect(liftCard(reply)).toEqual({ text: reply, card: null });
  });

  test('with a plain card shows exactly that', () => {
    expect(liftCard(block({ ...plainCard, style: 'x' })).card).toEqual(plainCard);
    expect(liftCard(block(mostOptions)).card).toEqual(mostOptions);
  });

  test('is what the rule says, with everything around it', () => {
    const next = random(7);
    const alphabet = [
      block(),
      block(mostOptions),
      '<<<HW_QUESTION',
      '<',
      '>',
      '>>>',
      '\n',
      '\r',
      ' ',
      '{',
      '}',
      '"',
      '\\',
      'x',
    ];
    for (let round = 0; round < 20_000; round += 1) {
      const text = Array.from({ length: next() % 9 }, () => alphabet[next() % alphabet.length]).join('');
      expect(liftCard(text), JSON.stringify(text)).toEqual(reference(text));
    }
    for (const [, reply] of replies) expect(liftCard(reply)).toEqual(reference(reply));
  });
});

describe('a reply in chunks', () => {
  test.each(replies)('is the same text wherever it is cut: %s', (_, reply) => {
    const whole = liftCard(reply);
    // Every cut of a reply of usual length.
    const step = reply.length < 3_000 ? 1 : Math.floor(reply.length / 60);
    for (let at = 0; at <= reply.length; at += step) {
      const { text, card } = scan([reply.slice(0, at), reply.slice(at)]);
      expect({ text, card }).toEqual(whole);
    }
    const { text, card } = scan([...reply].flatMap((character) => ['', character]));
    expect({ text, card }).toEqual(whole);
  });

  test.each(replies)('is the same text in pieces of any size: %s', (_, reply) => {
    const whole = liftCard(reply);
    const next = random(reply.length + 1);
    for (let round = 0; round < 20; round += 1) {
      const pieces: string[] = [];
      for (let at = 0; at < reply.length; ) {
        const size = 1 + (next() % (1 + (next() % 60)));
        pieces.push(reply.slice(at, at + size));
        at += size;
      }
      const { text, card } = scan(pieces);
      expect({ text, card }).toEqual(whole);
    }
  });

  test.each(lifted)('never shows a part of its card: %s', (_, reply) => {
    const shownInAll = liftCard(reply).text;
    let soFar = '';
    for (const piece of scan([...reply]).shown) {
      soFar += piece;
      expect(shownInAll.startsWith(soFar)).toBe(true);
    }
  });

  test('is shown at once where it can be no card', () => {
    const scanner = new CardScanner();
    expect(scanner.push('a <')).toBe('a ');
    expect(scanner.push('= b')).toBe('<= b');
    expect(scanner.push('<<<HW_QUESTION ')).toBe('');
    expect(scanner.push('what')).toBe('<<<HW_QUESTION what');
    expect(scanner.push(block())).toBe(block());
    expect(scanner.end()).toBe('');
  });

  test('is not kept back beyond the longest block', () => {
    const scanner = new CardScanner();
    expect(scanner.push(`<<<HW_QUESTION {"${'x'.repeat(maxBlockLength - 18)}`)).toBe('');
    expect(scanner.push('y').length).toBe(maxBlockLength);
    expect(scanner.push('z')).toBe('z');
  });
});
