/**
 * Takes the card out of a reply, however the reply is cut into chunks. The rule, in full:
 *
 * - The first `<<<HW_QUESTION` of a reply decides. White space of JSON may follow, then one JSON object, then `>>>`; the
 *   first `>>>` outside of a JSON string ends the block. When that object is a card and the block has no second marker in
 *   it, the block is lifted. Otherwise, or when the block is longer than the limit or has no end, it is prose.
 * - Whatever follows is prose, further markers included: a reply has one card at most.
 * - Exactly the block is taken out. When it stood at the beginning of a line, the one line break directly behind it (LF or
 *   CRLF) goes with it, so that a block with lines of its own leaves no empty line. Nothing else changes.
 */
import { type Card, parseCard } from './card.ts';

export const cardMarker = '<<<HW_QUESTION';
const blockEnd = '>>>';

/** The longest block, in UTF-16 code units: what is held back of a stream at most, beside the chunk at hand. */
export const maxBlockLength = 16_384;

type State =
  /** No marker yet. `undecided`: the end of the text, if it may begin one. */
  | { readonly kind: 'prose'; readonly undecided: string }
  | { readonly kind: 'block'; readonly text: string; readonly ownLine: boolean; readonly scan: BlockScan }
  /** Behind a card on a line of its own: one line break is left out. `undecided`: a CR that may be half of it. */
  | { readonly kind: 'line-break'; readonly undecided: '' | '\r' }
  | { readonly kind: 'rest' };

/** Finds a card in a text that comes in chunks. What `push` and `end` return, joined, is the text without its card. */
export class CardScanner {
  #state: State = { kind: 'prose', undecided: '' };
  /** The last character that was let through; a text begins like a line. */
  #last = '\n';
  #card: Card | null = null;

  /** The card, once its block has ended. */
  get card(): Card | null {
    return this.#card;
  }

  /** @returns what of the text so far is now known to be no card */
  push(chunk: string): string {
    switch (this.#state.kind) {
      case 'prose':
        return this.#prose(this.#state.undecided + chunk);
      case 'block':
        return this.#block(this.#state.text + chunk, this.#state.ownLine, this.#state.scan);
      case 'line-break':
        return this.#lineBreak(this.#state.undecided + chunk);
      case 'rest':
        return chunk;
    }
  }

  /** The text has ended. @returns what was held back until now; it is prose */
  end(): string {
    const state = this.#state;
    this.#state = { kind: 'rest' };
    if (state.kind === 'block') return state.text;
    return state.kind === 'rest' ? '' : state.undecided;
  }

  #prose(text: string): string {
    const at = text.indexOf(cardMarker);
    if (at === -1) {
      const from = text.length - beginningOfMarker(text);
      this.#state = { kind: 'prose', undecided: text.slice(from) };
      this.#last = text[from - 1] ?? this.#last;
      return text.slice(0, from);
    }
    const ownLine = (text[at - 1] ?? this.#last) === '\n';
    return text.slice(0, at) + this.#block(text.slice(at), ownLine, scanBegin);
  }

  #block(text: string, ownLine: boolean, from: BlockScan): string {
    const scan = scanBlock(text.slice(0, maxBlockLength), from);
    if (scan.kind === 'inside' && text.length < maxBlockLength) {
      this.#state = { kind: 'block', text, ownLine, scan };
      return '';
    }
    const card = scan.kind === 'ended' ? cardOf(text.slice(0, scan.end)) : null;
    if (scan.kind !== 'ended' || card === null) {
      this.#state = { kind: 'rest' };
      return text;
    }
    this.#card = card;
    this.#state = ownLine ? { kind: 'line-break', undecided: '' } : { kind: 'rest' };
    return this.push(text.slice(scan.end));
  }

  #lineBreak(text: string): string {
    if (text === '' || text === '\r') {
      this.#state = { kind: 'line-break', undecided: text };
      return '';
    }
    this.#state = { kind: 'rest' };
    return text.replace(/^\r?\n/, '');
  }
}

/** A whole text without its card. */
export function liftCard(text: string): { readonly text: string; readonly card: Card | null } {
  if (!text.includes(cardMarker)) return { text, card: null };
  const scanner = new CardScanner();
  const before = scanner.push(text);
  return { text: before + scanner.end(), card: scanner.card };
}

/** How many characters at the end of a text may be the beginning of a marker that is not whole yet. */
function beginningOfMarker(text: string): number {
  for (let length = Math.min(cardMarker.length - 1, text.length); length > 0; length -= 1) {
    if (text.endsWith(cardMarker.slice(0, length))) return length;
  }
  return 0;
}

type BlockScan =
  /** Looked at up to `at`; `string` says where in a JSON string that is. */
  | { readonly kind: 'inside'; readonly at: number; readonly opened: boolean; readonly string: 'no' | 'yes' | 'escape' }
  | { readonly kind: 'ended'; readonly end: number }
  | { readonly kind: 'malformed' };

const scanBegin: BlockScan = { kind: 'inside', at: cardMarker.length, opened: false, string: 'no' };

/** Looks for the end of the block as far as the text goes: strict enough that what is surely no card is not held for long. */
function scanBlock(text: string, from: BlockScan): BlockScan {
  if (from.kind !== 'inside') return from;
  let { at, opened, string } = from;
  for (; at < text.length; at += 1) {
    const character = text[at] as string;
    if (string !== 'no') {
      // JSON has no line breaks in strings: a forgotten quote ends here.
      if (character < ' ') return { kind: 'malformed' };
      if (string === 'escape') string = 'yes';
      else if (character === '\\') string = 'escape';
      else if (character === '"') string = 'no';
    } else if (!opened) {
      if (character === '{') opened = true;
      else if (!/[ \t\r\n]/.test(character)) return { kind: 'malformed' };
    } else if (character === '"') {
      string = 'yes';
    } else if (character === '>') {
      const tail = text.slice(at, at + blockEnd.length);
      if (tail === blockEnd) return { kind: 'ended', end: at + blockEnd.length };
      if (!blockEnd.startsWith(tail)) return { kind: 'malformed' };
      return { kind: 'inside', at, opened, string };
    } else if (character === '<') {
      return { kind: 'malformed' };
    }
  }
  return { kind: 'inside', at, opened, string };
}

function cardOf(block: string): Card | null {
  if (block.indexOf(cardMarker, 1) !== -1) return null;
  return parseCard(block.slice(cardMarker.length, -blockEnd.length));
}
