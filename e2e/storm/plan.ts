/** What a storm does, drawn from its seed alone: the same seed sends the same messages and aims the same strikes. */
import { randomFrom } from '../oracles/history.ts';

export const targets = ['gateway', 'machine', 'holder', 'postgres', 'authority'] as const;
export type Target = (typeof targets)[number];

/**
 * The steps of a message's path at which somebody dies (architecture, "The path of one message"), and what is beside it:
 * `any` is a moment like every other, `recovering` is while the gateway starts after its own death.
 */
export const moments = [
  'any',
  /** Step 1: a client was told that its message is accepted. */
  'accepted',
  /** Steps 2 and 3: the process of an agent has begun. */
  'starting',
  /** Step 4: the clients are told that the turn has started; the prompt is on its way. */
  'started',
  /** Step 4: the agent asks its model. */
  'asked',
  /** Step 5: the first words are with the clients. */
  'streaming',
  /** Step 6: the model has said its last word, and the reply is about to be written, settled and delivered. */
  'answered',
  /** Step 7: the reply is with the clients; the agent is being given back. */
  'delivered',
  'recovering',
] as const;
export type Moment = (typeof moments)[number];

export interface Strike {
  readonly target: Target;
  readonly moment: Moment;
  /** Milliseconds from that moment to the kill. */
  readonly delayMs: number;
  /** Of holders: every one, or the one of that number. */
  readonly which: 'all' | number;
  /** Somebody else who dies a moment later; nobody when it is the gateway, with which all die. */
  readonly also: { readonly target: Target; readonly delayMs: number } | null;
  /** So many replies get through before this strike; with none it falls into what the last one has left. */
  readonly calm: number;
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

export interface Size {
  readonly conversations: number;
  /** At least so many, of all conversations together. */
  readonly messages: number;
  readonly strikes: number;
}

export interface Plan {
  readonly seed: number;
  readonly size: Size;
  /** The messages of one conversation, without an end. */
  messages(conversation: number): Generator<PlannedMessage, never>;
  /** Without an end. */
  strikes(): Generator<Strike, never>;
  /** When a reader hangs up by itself: the frames that it takes first, without an end. */
  hangUps(reader: number): Generator<number, never>;
}

export interface Pair {
  readonly target: Target;
  readonly moment: Moment;
}

/** Every target at every moment; while the gateway starts there is no holder yet. */
export const pairs: readonly Pair[] = moments
  .flatMap((moment) => targets.map((target) => ({ target, moment })))
  .filter(({ target, moment }) => target !== 'holder' || moment !== 'recovering');

/** Those that need no agent that is ready: they cost little, and come more often. */
const early: ReadonlySet<Moment> = new Set<Moment>(['any', 'accepted', 'starting', 'recovering']);
const earlyTimes = 5;
/** A cold start takes a second or more, the others are over in no time. */
const spanMs: Readonly<Partial<Record<Moment, number>>> = { any: 400, starting: 1_500, recovering: 400 };

export function planOf(seed: number, size: Size): Plan {
  return {
    seed,
    size,
    *messages(conversation) {
      const random = randomFrom(seed + 1 + conversation);
      for (let number = 0; ; number++) {
        yield {
          id: `c${conversation}m${number}`,
          way: ways[random(ways.length)]!,
          usesTool: random(5) === 0,
          hurries: random(3) === 0,
        };
      }
    },
    *strikes() {
      const random = randomFrom(seed);
      for (;;) {
        // Every pair in turn, so that none is left to chance; their order and the delays alone are.
        const often = pairs.flatMap((pair) => Array<Pair>(early.has(pair.moment) ? earlyTimes : 1).fill(pair));
        const round = often.map((pair) => ({ pair, at: random(1_000_000) })).sort((a, b) => a.at - b.at);
        for (const { pair } of round) {
          const others = targets.filter((target) => target !== 'gateway' && target !== pair.target);
          const also = { target: others[random(others.length)]!, delayMs: random(50) };
          const isPair = random(2) === 0;
          yield {
            ...pair,
            delayMs: random(3) === 0 ? random(spanMs[pair.moment] ?? 150) : random(25),
            which: random(2) === 0 ? 'all' : random(16),
            also: isPair && pair.target !== 'gateway' && pair.moment !== 'recovering' ? also : null,
            // Not always before the early ones, or nothing would strike what has just been struck.
            calm: early.has(pair.moment) && random(6) > 0 ? 0 : 8 + random(14),
          };
        }
      }
    },
    *hangUps(reader) {
      const random = randomFrom(seed + 1_000 + reader);
      for (;;) yield 5 + random(120);
    },
  };
}

/** All agents that run at the same time: more would only take each other's time until the next strike. */
export const maxHolders = 2;

/** What the message says, and what the model answers to it. */
export const textOf = (id: string): string => `message ${id} of the storm`;
export const replyTo = (id: string): string => `reply to ${id}.`;
