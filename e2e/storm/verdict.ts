/** What came of a storm. */
import type { Api } from '../harness/http.ts';
import type { Client } from './client.ts';
import { complaintsOf } from './judge.ts';
import type { KeptGateway } from './kept.ts';
import { overWebSocket } from './lines.ts';
import { maxHolders } from './plan.ts';
import { Reader } from './reader.ts';
import type { Striker } from './strikes.ts';

/** For the last events to be with every reader. */
const readMs = 60_000;

export interface Verdict {
  readonly complaints: readonly string[];
  readonly messages: number;
  /** Messages by how they ended. */
  readonly ends: Readonly<Record<string, number>>;
  readonly strikes: number;
  readonly byTarget: Readonly<Record<string, number>>;
  readonly byMoment: Readonly<Record<string, number>>;
  /** Pairs of a target and a moment that nobody was struck at. */
  readonly missed: readonly string[];
  readonly restarts: number;
  /** Connections of all readers together. */
  readonly connections: number;
  readonly seconds: number;
}

export interface Aftermath {
  readonly api: Api;
  readonly clients: readonly Client[];
  readonly kept: KeptGateway;
  readonly striker: Striker;
  /** How often the model was asked to begin a turn, by the message's planned id. */
  readonly asked: ReadonlyMap<string, number>;
}

/** Looks at everything, once every message has ended and the gateway is left in peace. */
export async function verdictOf(aftermath: Aftermath, seconds: () => number): Promise<Verdict> {
  const { clients, kept, striker } = aftermath;
  const complaints = [...striker.complaints, ...kept.complaints];
  const ends: Record<string, number> = {};
  for (const client of clients) {
    complaints.push(...(await complaintsOfClient(aftermath, client)));
    for (const { id } of client.sent) {
      const type = client.readers[0].endsOf(id)[0]?.type ?? 'none';
      ends[type] = (ends[type] ?? 0) + 1;
    }
  }
  complaints.push(...(await stuck(aftermath)));
  return {
    complaints,
    messages: clients.flatMap(({ sent }) => sent).length,
    ends,
    strikes: striker.count,
    byTarget: striker.countBy(({ target }) => target),
    byMoment: striker.countBy(({ moment }) => moment),
    missed: striker.missed(),
    restarts: kept.restarts,
    connections: clients.flatMap(({ readers }) => readers).reduce((sum, one) => sum + one.connections, 0),
    seconds: Math.round(seconds()),
  };
}

async function complaintsOfClient({ api, asked }: Aftermath, client: Client): Promise<string[]> {
  const { conversation, readers, sent } = client;
  const last = Math.max(0, ...readers.flatMap(({ frames }) => frames.all.map(({ seq }) => Number(seq))));
  // One that comes only now is told all of it too.
  const late = new Reader({
    conversation,
    connect: overWebSocket(api.url, String(api.token)),
    hangUps: never(),
    onFrame: () => undefined,
  });
  const everyone = [...readers, late];
  try {
    await Promise.all(everyone.map((reader) => reader.reach(last, readMs)));
    return await complaintsOf(api, { readers: everyone, sent, asked });
  } finally {
    await late.stop();
  }
}

/** Nobody is stuck: one more turn goes through everywhere. A few at a time, as agents have room. */
async function stuck({ api, clients }: Aftermath): Promise<string[]> {
  const complaints: string[] = [];
  const open = [...clients];
  const lane = async () => {
    for (let client = open.pop(); client !== undefined; client = open.pop()) {
      const { conversation } = client;
      const said = await api.say(conversation, 'and one more').catch((error: Error) => error);
      if (said instanceof Error) complaints.push(`${conversation} is stuck: ${said.message}`);
      else if (said.reply.text === '') complaints.push(`${conversation} answers nothing`);
    }
  };
  await Promise.all(Array.from({ length: maxHolders }, lane));
  return complaints;
}

function* never(): Generator<number, never> {
  for (;;) yield Number.POSITIVE_INFINITY;
}
