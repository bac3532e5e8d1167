/** What there is of a conversation, in each of the three places that have something of it. Numbers alone. */

export interface GovernanceCounts {
  readonly messages: number;
  readonly events: number;
  readonly cards: number;
  /** Edits and replies by people. */
  readonly amendments: number;
}

export interface SessionCounts {
  readonly sessions: number;
  readonly rows: number;
  /** Rows of the two full-text indexes. */
  readonly indexed: number;
  readonly usage: number;
  readonly delegations: number;
}

export interface FileCounts {
  readonly names: number;
  readonly files: number;
  readonly bytes: number;
  readonly toolCalls: number;
}

export type PurgeCounts = GovernanceCounts & SessionCounts & FileCounts;

export const noCounts: PurgeCounts = {
  messages: 0,
  events: 0,
  cards: 0,
  amendments: 0,
  sessions: 0,
  rows: 0,
  indexed: 0,
  usage: 0,
  delegations: 0,
  names: 0,
  files: 0,
  bytes: 0,
  toolCalls: 0,
};

export function addCounts(a: PurgeCounts, b: PurgeCounts): PurgeCounts {
  const names = Object.keys(noCounts) as (keyof PurgeCounts)[];
  return Object.fromEntries(names.map((name) => [name, a[name] + b[name]])) as unknown as PurgeCounts;
}

export const isNothing = (counts: PurgeCounts): boolean => Object.values(counts).every((count) => count === 0);
