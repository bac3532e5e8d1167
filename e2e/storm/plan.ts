/** What a storm does, decided by its seed before anything runs. */
import { randomFrom } from '../oracles/history.ts';

export const targets = ['gateway', 'machine', 'holder', 'postgres', 'authority'] as const;
export type Target = (typeof targets)[number];

/** The named steps of a message's path at which somebody dies; `any` is a moment like every other. */
export const moments = ['any', 'accepted', 'starting', 'asked', 'answered', 'delivered'] as const;
export type Moment = (typeof moments)[number];

export interface Strike {
  readonly target: Target;
  readonly moment: Moment;
  /** Milliseconds from that moment to the kill. */
  readonly delayMs: number;
}

/** How a client sends one message. */
export type Way =
  | 'http'
  | 'websocket'
  /** Twice at the same time, over both. */
  | 'twice'
  /** Over HTTP, cut off before the answer, and then again. */
  | 'cut';
const ways: readonly Way[] = ['http', 'http', 'websocket', 'twice', 'cut'];

export interface PlannedMessage {
  readonly id: string;
  readonly way: Way;
  /** The turn runs a tool before it answers. */
  readonly usesTool: boolean;
  /** The next one is sent without waiting for this one's end. */
  readonly hurries: boolean;
}

export interface Plan {
  readonly seed: number;
  /** One list of messages for each conversation. */
  readonly conversations: readonly (readonly PlannedMessage[])[];
  readonly strikes: readonly Strike[];
}

export interface Size {
  readonly conversations: number;
  readonly messages: number;
  readonly strikes: number;
}

export function planOf(seed: number, size: Size): Plan {
  const random = randomFrom(seed);
  const conversations = Array.from({ length: size.conversations }, (_, conversation) =>
    Array.from({ length: Math.ceil(size.messages / size.conversations) }, (_, message) => ({
      id: `c${conversation}m${message}`,
      way: ways[random(ways.length)]!,
      usesTool: random(5) === 0,
      hurries: random(3) === 0,
    })),
  );
  // Every pair of a target and a moment in turn, so that none is left to chance; the delay alone is.
  const pairs = moments.flatMap((moment) => targets.map((target) => ({ target, moment })));
  const shuffled = pairs.map((pair) => ({ pair, at: random(1_000_000) })).sort((a, b) => a.at - b.at);
  const strikes = Array.from({ length: size.strikes }, (_, number) => ({
    ...shuffled[number % shuffled.length]!.pair,
    delayMs: random(4) === 0 ? random(400) : random(25),
  }));
  return { seed, conversations, strikes };
}

/** What the message says, and what the model answers to it. */
export const textOf = (id: string): string => `message ${id} of the storm`;
export const replyTo = (id: string): string => `reply to ${id}.`;
