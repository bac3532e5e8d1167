/**
 * JSON that can be handed on as it was meant. What the agent gets is written again from the parsed value, so a text that
 * JavaScript cannot hold without changing it is refused instead of changed (ADR-046 §1: the exact content blocks).
 */
import { Problem } from '../problem.ts';

const maxDepth = 64;
const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

/** Parses a body. Throws `invalid-request` when it is no UTF-8, no JSON, or JSON that would not survive. */
export function parseExactJson(bytes: Uint8Array): unknown {
  let text: string;
  try {
    text = utf8.decode(bytes);
  } catch {
    throw new Problem('invalid-request', 'The body is not valid UTF-8');
  }
  return parseExactText(text, 'The body');
}

/** The same for a text; `what` begins the sentence of a refusal. */
export function parseExactText(text: string, what: string): unknown {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw new Problem('invalid-request', `${what} is not valid JSON`);
  }
  const flaw = findFlaw(text);
  if (flaw !== null) throw new Problem('invalid-request', `${what} ${flaw}`);
  return value;
}

interface Level {
  /** The names so far; null in an array. */
  readonly names: Set<string> | null;
  /** The last name that reads as an array index; -1 before any. JavaScript moves such names to the front, in order. */
  lastIndex: number;
  sawOther: boolean;
}

const numberPattern = /-?\d+(\.\d+)?([eE][+-]?\d+)?/y;
const indexPattern = /^(?:0|[1-9]\d{0,9})$/;
const maxIndex = 2 ** 32 - 2;

/** Looks at a valid JSON text for what parsing it loses; the end of a sentence, or null. */
function findFlaw(text: string): string | null {
  const levels: Level[] = [];
  let expectsName = false;
  for (let at = 0; at < text.length; at += 1) {
    const code = text.charCodeAt(at);
    switch (code) {
      case 0x22: {
        const end = endOfString(text, at);
        if (expectsName) {
          const flaw = addName(levels[levels.length - 1] as Level, text.slice(at, end + 1));
          if (flaw !== null) return flaw;
          expectsName = false;
        }
        at = end;
        break;
      }
      case 0x7b:
      case 0x5b:
        if (levels.length === maxDepth) return `is nested deeper than ${maxDepth} levels`;
        levels.push({ names: code === 0x7b ? new Set() : null, lastIndex: -1, sawOther: false });
        expectsName = code === 0x7b;
        break;
      case 0x7d:
      case 0x5d:
        levels.pop();
        expectsName = false;
        break;
      case 0x2c:
        expectsName = levels[levels.length - 1]?.names !== null;
        break;
      default:
        if (code === 0x2d || (code >= 0x30 && code <= 0x39)) {
          numberPattern.lastIndex = at;
          const [literal = '', fraction, exponent] = numberPattern.exec(text) ?? [];
          if (!survives(literal, fraction === undefined && exponent === undefined)) {
            return 'holds a number that cannot be passed on unchanged; send it as a string';
          }
          at += literal.length - 1;
        }
    }
  }
  return null;
}

function endOfString(text: string, start: number): number {
  for (let end = text.indexOf('"', start + 1); ; end = text.indexOf('"', end + 1)) {
    let backslashes = 0;
    while (text.charCodeAt(end - 1 - backslashes) === 0x5c) backslashes += 1;
    if (backslashes % 2 === 0) return end;
  }
}

function addName(level: Level, literal: string): string | null {
  const name = literal.includes('\\') ? (JSON.parse(literal) as string) : literal.slice(1, -1);
  const names = level.names as Set<string>;
  if (names.has(name)) return 'names a member twice in one object';
  names.add(name);
  if (indexPattern.test(name) && Number(name) <= maxIndex) {
    if (level.sawOther || Number(name) < level.lastIndex) {
      return 'has numbers as member names behind other members, an order that cannot be passed on; put them first, ascending';
    }
    level.lastIndex = Number(name);
  } else {
    level.sawOther = true;
  }
  return null;
}

/** Integers have to come out digit by digit, since readers tell them from floats; a float has to be a finite one. */
function survives(literal: string, isInteger: boolean): boolean {
  const value = Number(literal);
  if (isInteger) return String(value) === literal;
  return Number.isFinite(value) && !Object.is(value, -0);
}
