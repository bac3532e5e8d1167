/** Plays a plan: clients that send and listen, and everybody dying around them. */

import { firstToken } from '../harness/first-token.ts';
import { hermesProcesses } from '../harness/holders.ts';
import { Api } from '../harness/http.ts';
import { call, ScriptedModel } from '../harness/model.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { complaintsOf, type Sent } from './judge.ts';
import { type Plan, type PlannedMessage, replyTo, textOf } from './plan.ts';
import { Reader } from './reader.ts';
import { KeptGateway, Moments, strike, turnMs, untilReady } from './strikes.ts';
import { sendUntilAccepted } from './writer.ts';

/**
 * A message has ended by then, whoever died meanwhile. A turn itself takes a second or two, but after each strike the agents
 * of all conversations start anew, and some may have to wait for the others.
 */
const endMsOf = ({ conversations }: Plan): number => 180_000 + 60_000 * conversations.length;

/** From a request to the model until its last word is at the agent. */
const answeredMs = 60;

/** A long storm tells how far it is. */
const progressStrikes = 10;

/** One conversation's client, and what it has sent. */
interface Played {
  readonly reader: Reader;
  readonly sent: Sent[];
}

export interface Verdict {
  readonly complaints: readonly string[];
  /** Messages by the state in which they ended. */
  readonly ends: Readonly<Record<string, number>>;
  readonly strikes: number;
  readonly restarts: number;
}

export async function playStorm(plan: Plan): Promise<Verdict> {
  const data = scratchDirectory('storm');
  await using model = ScriptedModel.start();
  const moments = new Moments();
  for (const messages of plan.conversations) for (const message of messages) script(model, message);
  model.requests.onAdd(() => {
    moments.reached('asked');
    setTimeout(() => moments.reached('answered'), answeredMs);
  });
  const environment = {
    EDGE_MODEL_URL: model.url,
    EDGE_MODEL: 'scripted',
    EDGE_MODEL_KEY: 'none',
    // Started all at once after each strike they would only take each other's time until the next one; and so they are evicted.
    EDGE_MAX_HOLDERS: '4',
  };
  const token = firstToken({ ...environment, EDGE_DATA_DIR: data });
  const kept = await KeptGateway.start(environment, data);
  const endMs = endMsOf(plan);
  const api = () => new Api(kept.url, token);
  await api().post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
  const readers: Reader[] = [];
  const all: Played[] = [];
  try {
    for (const _ of plan.conversations) {
      const conversation = await api().createConversation('Eleanora');
      readers.push(new Reader(kept.url, token, conversation));
    }
    const clients = plan.conversations.map(async (messages, index) => {
      const reader = readers[index]!;
      reader.frames.onAdd(({ type }) => {
        if (type === 'reply.delivered') moments.reached('delivered');
      });
      const sent: Sent[] = [];
      all.push({ reader, sent });
      const ended = (id: string) =>
        reader.end(id, endMs).catch((error: Error) => {
          throw new Error(`${error.message}\n${kept.current.log.slice(-8_000)}`);
        });
      for (const planned of messages) {
        const place = { url: kept.url, token, conversation: reader.conversation };
        const before = hermesProcesses(kept.current.pid).length;
        const id = await sendUntilAccepted(place, planned);
        sent.push({ planned, id });
        moments.reached('accepted');
        if (before < plan.conversations.length) moments.reached('starting');
        if (!planned.hurries) await ended(id);
      }
      for (const { id } of sent) await ended(id);
    });
    const sending = Promise.all(clients);
    let isOver = false;
    void sending.then(
      () => {
        isOver = true;
      },
      () => {
        isOver = true; // The storm ends with the first client that gave up; awaiting it below tells why.
      },
    );
    let strikes = 0;
    for (const planned of plan.strikes) {
      if (isOver) break;
      if (await strike(planned, kept, moments)) strikes += 1;
      await untilReady(kept);
      // Something has to get through between two strikes, or nothing is tested but starting.
      await moments.next('delivered', turnMs);
      if (strikes % progressStrikes === 0) console.log(`storm: ${progressOf(strikes, kept, all)}`);
    }
    await sending;
    await untilReady(kept);
    return { ...(await judge(api(), all)), strikes, restarts: kept.restarts };
  } finally {
    for (const reader of readers) await reader.stop();
    await kept.stop();
    removeScratch(data);
  }
}

function progressOf(strikes: number, { restarts }: KeptGateway, all: readonly Played[]): string {
  const messages = all.flatMap(({ sent }) => sent).length;
  const complaints = all.flatMap(({ reader }) => reader.complaints);
  return JSON.stringify({ strikes, restarts, messages, complaints });
}

function script(model: ScriptedModel, { id, usesTool }: PlannedMessage): void {
  const answer = { do: 'say-slowly', text: replyTo(id), pauseMs: 15 } as const;
  if (usesTool) model.on(textOf(id), call('terminal', { command: `echo ${id} >> /workspace/log` }), answer);
  else model.on(textOf(id), answer);
}

async function judge(api: Api, all: readonly Played[]): Promise<Pick<Verdict, 'complaints' | 'ends'>> {
  const complaints: string[] = [];
  const ends: Record<string, number> = {};
  for (const { reader, sent } of all) {
    complaints.push(...(await complaintsOf(api, reader, sent)));
    for (const { id } of sent) {
      const type = reader.endsOf(id)[0]?.type ?? 'none';
      ends[type] = (ends[type] ?? 0) + 1;
    }
    // Nobody is stuck: one more turn goes through.
    const last = await api.say(reader.conversation, 'and one more');
    if (last.reply.text === '') complaints.push(`${reader.conversation} is stuck`);
  }
  return { complaints, ends };
}
