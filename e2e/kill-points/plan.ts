/** Who is killed when, decided by a seed before anything runs. */
import type { CloudRequest } from '../harness/cloud.ts';
import { randomFrom } from '../oracles/history.ts';

export const victims = ['authority', 'machine', 'gateway'] as const;
export type Victim = (typeof victims)[number];

const has = (pattern: RegExp) => (request: CloudRequest) => request.sql.some((sql) => pattern.test(sql));
const isAppended = has(/SELECT s\.id, 'assistant'/);

/** Steps of a work boundary, a turn and a write of the API, told by the request that each of them is. */
export const requestSteps = {
  'a pull': ({ kind }) => kind === 'pull',
  'a push': has(/turso_sync_last_change_id/),
  'contents of an upload': has(/^INSERT OR REPLACE INTO fs_data/),
  'the name of an upload': has(/^UPDATE fs_inode SET nlink = 1/),
  'a row of a turn': (request) => has(/INSERT INTO messages\b/)(request) && !isAppended(request),
  'an edit': has(/UPDATE messages SET content = \?, api_content/),
  'a reply by a human': isAppended,
  'the erasure of a session': has(/^DELETE FROM messages WHERE session_id IN/),
  'the erasure of contents': has(/DELETE FROM fs_data WHERE rowid IN/),
  'the erasure of names': has(/DELETE FROM fs_dentry WHERE id IN/),
} as const satisfies Record<string, (request: CloudRequest) => boolean>;
export type RequestStep = keyof typeof requestSteps;

/** Steps of governance, told by what Postgres logs as it begins with them. */
export const statementSteps = {
  'a message is accepted': /insert into messages/,
  'a turn is dispatched': /set state = 'dispatched'/,
  'a turn is settled': /settled_at = /,
  'an amendment is intended': /insert into amendments/,
  'an amendment is recorded': /update amendments set recorded_at/,
  'a step of a purge is done': /update purge_targets set/,
} as const;
export type StatementStep = keyof typeof statementSteps;

export type Moment =
  /** Some time after the clients go on. */
  | { readonly at: 'any time'; readonly delayMs: number }
  /** Before the authority gets the request, or when it has answered and the other side does not know it. */
  | { readonly at: 'a request'; readonly step: RequestStep; readonly when: 'arrived' | 'answered' }
  | { readonly at: 'a statement'; readonly step: StatementStep }
  /** While it starts, after another kill. */
  | { readonly at: 'its start'; readonly delayMs: number };

export interface Point {
  readonly victim: Victim;
  readonly moment: Moment;
  /** A turn gets through before it: on a busy machine an agent would otherwise hardly ever get beyond its start. */
  readonly behindTurn: boolean;
}

export type Counts = Readonly<Record<Victim, number>>;

const whens = ['arrived', 'answered'] as const;

/** Every second point of a victim is at a named step, each step in turn; the others are at random moments. */
export function planOf(seed: number, counts: Counts): readonly Point[] {
  const random = randomFrom(seed);
  return victims.flatMap((victim) => {
    const named = shuffled(namedMoments(victim, random), random);
    return Array.from({ length: counts[victim] }, (_, index): Point => {
      const moment = index % 2 === 0 ? named[(index / 2) % named.length]! : anyTime(random);
      return { victim, moment, behindTurn: index % 3 === 0 };
    });
  });
}

const anyTime = (random: (below: number) => number): Moment => ({
  at: 'any time',
  delayMs: random(3) === 0 ? random(4_000) : random(400),
});

function namedMoments(victim: Victim, random: (below: number) => number): Moment[] {
  const requests = Object.keys(requestSteps).flatMap((step) =>
    whens.map((when): Moment => ({ at: 'a request', step: step as RequestStep, when })),
  );
  const statements = Object.keys(statementSteps).map(
    (step): Moment => ({ at: 'a statement', step: step as StatementStep }),
  );
  const starts = Array.from({ length: 4 }, (): Moment => ({ at: 'its start', delayMs: random(900) }));
  // An authority has no part in a statement of Postgres, and nothing to start that lasts.
  return victim === 'authority' ? requests : [...requests, ...statements, ...starts];
}

function shuffled<T>(all: readonly T[], random: (below: number) => number): T[] {
  return all
    .map((one) => ({ one, at: random(1_000_000) }))
    .sort((a, b) => a.at - b.at)
    .map(({ one }) => one);
}

export const named = ({ victim, moment }: Point): string => {
  switch (moment.at) {
    case 'any time':
      return `${victim}, after ${moment.delayMs} ms`;
    case 'its start':
      return `${victim}, and again ${moment.delayMs} ms into the start`;
    case 'a request':
      return `${victim}, at ${moment.step}, ${moment.when}`;
    case 'a statement':
      return `${victim}, when ${moment.step}`;
  }
};
