/** Plays a plan: clients that send and listen, and everybody dying around them. */
import { join } from 'node:path';
import * as v from 'valibot';
import { repository } from '../harness/executable.ts';
import { firstToken } from '../harness/first-token.ts';
import { Api } from '../harness/http.ts';
import { lastUserText, type ModelRequest, round, ScriptedModel } from '../harness/model.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { Client } from './client.ts';
import { Journal } from './journal.ts';
import { KeptGateway } from './kept.ts';
import { overEventStream, overWebSocket } from './lines.ts';
import { Moments } from './moments.ts';
import { maxHolders, type Plan, pairs } from './plan.ts';
import { type Connect, Reader } from './reader.ts';
import { pairName, Striker } from './strikes.ts';
import { Turnstile } from './turnstile.ts';
import { type Verdict, verdictOf } from './verdict.ts';

/**
 * A message has ended by then, whoever died meanwhile. A turn itself takes a second or two, but after each strike the agents
 * start anew, and some have to wait for the others.
 */
const endMsOf = ({ size }: Plan): number => 180_000 + 30_000 * size.conversations;
/** How long a reply may take to get through after everything was started anew. */
const calmMs = 120_000;
/** In each round of so many strikes, so many come while all conversations send: their agents push each other out. */
const strikesOfRound = 150;
const crowdedStrikes = 3;
/** A long storm tells how far it is. */
const progressStrikes = 10;
/** Beyond the plan's number, at most, for pairs of a target and a moment that were missed so far. */
const maxExtra = 60;

const tokenSchema = v.looseObject({ token: v.string() });

export async function playStorm(plan: Plan): Promise<Verdict> {
  const storm = await Storm.begin(plan);
  try {
    return await storm.play();
  } finally {
    await storm.end();
  }
}

class Storm {
  readonly #plan: Plan;
  readonly #data: string;
  readonly #journal: Journal;
  readonly #model: ScriptedModel;
  readonly #kept: KeptGateway;
  readonly #api: Api;
  readonly #moments = new Moments();
  readonly #striker: Striker;
  readonly #turnstile = new Turnstile(maxHolders);
  readonly #clients: Client[] = [];
  /** How often the model was asked to begin a turn, by the message's planned id. */
  readonly #asked = new Map<string, number>();
  #isOver = false;

  private constructor(plan: Plan, data: string, journal: Journal, model: ScriptedModel, kept: KeptGateway, api: Api) {
    this.#plan = plan;
    this.#data = data;
    this.#journal = journal;
    this.#model = model;
    this.#kept = kept;
    this.#api = api;
    this.#striker = new Striker(kept, this.#moments, journal);
    model.requests.onAdd((request) => this.#heard(request));
    model.afterAnswer = () => this.#moments.reached('answered');
  }

  static async begin(plan: Plan): Promise<Storm> {
    const data = scratchDirectory('storm');
    const journal = new Journal(join(repository, `build/storm/${plan.seed}.log`));
    const model = ScriptedModel.start();
    try {
      const environment = {
        EDGE_MODEL_URL: model.url,
        EDGE_MODEL: 'scripted',
        EDGE_MODEL_KEY: 'none',
        EDGE_MAX_HOLDERS: String(maxHolders),
      };
      const token = firstToken({ ...environment, EDGE_DATA_DIR: data });
      const kept = await KeptGateway.start(environment, data, journal);
      return new Storm(plan, data, journal, model, kept, new Api(kept.url, token));
    } catch (error) {
      await model.stop();
      removeScratch(data);
      throw error;
    }
  }

  async play(): Promise<Verdict> {
    await this.#openConversations();
    const sending = Promise.all(this.#clients.map((client) => client.send()));
    const givenUp = sending.then(
      () => undefined,
      () => undefined, // The storm ends with the first client that gave up; awaiting it below tells why.
    );
    const striking = this.#strike();
    // After the storm's end nobody waits for it any more.
    striking.catch(() => undefined);
    await Promise.race([striking, givenUp]);
    this.#isOver = true;
    this.#turnstile.resize(this.#clients.length);
    this.#tellProgress();
    await sending;
    await this.#kept.untilReady();
    const aftermath = { clients: this.#clients, striker: this.#striker, asked: this.#asked };
    const verdict = await verdictOf({ ...aftermath, api: this.#api, kept: this.#kept }, () => this.#journal.seconds);
    for (const complaint of verdict.complaints) this.#journal.say('complaint', { complaint });
    return verdict;
  }

  async end(): Promise<void> {
    this.#isOver = true;
    await Promise.all(this.#clients.flatMap(({ readers }) => readers.map((reader) => reader.stop())));
    await this.#kept.stop();
    await this.#model.stop();
    this.#journal.flush();
    if (process.env.EDGE_TEST_KEEP === undefined) removeScratch(this.#data);
    else console.log(`storm: kept ${this.#data}`);
  }

  async #openConversations(): Promise<void> {
    const { seed, size, hangUps, messages } = this.#plan;
    const { url } = this.#kept;
    await this.#api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
    // A token has so many event streams at most: each kind of reader has its own.
    const [superadmin, client] = await Promise.all([this.#token('superadmin'), this.#token('client')]);
    const around = {
      api: this.#api,
      model: this.#model,
      moments: this.#moments,
      journal: this.#journal,
      turnstile: this.#turnstile,
      endMs: endMsOf(this.#plan),
      isOver: () => this.#isOver,
    };
    for (let index = 0; index < size.conversations; index++) {
      const conversation = await this.#api.createConversation('Eleanora');
      const reader = (connect: Connect, number: number) =>
        new Reader({ conversation, connect, hangUps: hangUps(number), onFrame: ({ type }) => this.#told(type) });
      const readers = [
        reader(overWebSocket(url, superadmin), 2 * index),
        reader(overEventStream(url, client), 2 * index + 1),
      ] as const;
      this.#clients.push(new Client(conversation, readers, messages(index), around));
    }
    this.#journal.say('begins', { seed, size });
  }

  async #token(role: string): Promise<string> {
    const answer = await this.#api.post('/v1/tokens', { role, name: `readers of the storm, ${role}` });
    return v.parse(tokenSchema, answer.json()).token;
  }

  #told(type: string): void {
    if (type === 'turn.started') this.#moments.reached('started');
    if (type === 'session.update') this.#moments.reached('streaming');
    if (type === 'reply.delivered') this.#moments.reached('delivered');
  }

  #heard(request: ModelRequest): void {
    // Each comes with the whole conversation so far: none is kept.
    this.#model.requests.all.length = 0;
    if (request.kind !== 'turn') return;
    this.#moments.reached('asked');
    // What was asked before without an answer may stand in front of it.
    const asked = [...lastUserText(request.body).matchAll(/message (\S+) of the storm/g)].at(-1)?.[1];
    if (asked !== undefined && round(request.body) === 0) this.#asked.set(asked, (this.#asked.get(asked) ?? 0) + 1);
  }

  async #strike(): Promise<void> {
    for (const planned of this.#plan.strikes()) {
      const wants = this.#wants();
      if (wants === 'nothing') return;
      if (wants === 'what was missed' && !this.#striker.missed().includes(pairName(planned))) continue;
      const { count } = this.#striker;
      const isCrowded = count % strikesOfRound >= strikesOfRound - crowdedStrikes;
      this.#turnstile.resize(isCrowded ? this.#clients.length : maxHolders);
      // With all of them nearly every turn needs an agent of its own.
      if (planned.calm > 0) await this.#calm(isCrowded ? 1 : Math.max(planned.calm, this.#behind));
      // Those inside may all wait for their agents, and send nothing before that.
      if (planned.moment === 'accepted') this.#turnstile.admitOne();
      await this.#striker.strike(planned);
      if (Math.floor(this.#striker.count / progressStrikes) > Math.floor(count / progressStrikes)) this.#tellProgress();
    }
  }

  #wants(): 'strikes' | 'what was missed' | 'nothing' {
    const { size } = this.#plan;
    const { count } = this.#striker;
    if (this.#isOver) return 'nothing';
    if (count < size.strikes || this.#messages < size.messages) return 'strikes';
    // A short storm has no room for all of them.
    if (size.strikes < pairs.length || count >= size.strikes + maxExtra) return 'nothing';
    return this.#striker.missed().length > 0 ? 'what was missed' : 'nothing';
  }

  /** Something has to get through between two strikes, or nothing is tested but starting. */
  async #calm(replies: number): Promise<void> {
    const from = this.#journal.seconds;
    await this.#kept.untilReady();
    const readyS = this.#journal.seconds - from;
    let came = true;
    for (let reply = 0; reply < replies && came; reply++) came = await this.#moments.next('delivered', calmMs);
    const afterS = this.#journal.seconds - from;
    this.#journal.say(came ? 'calm' : 'no reply gets through', { replies, readyS, afterS });
  }

  /** So many messages fewer than there should be beside the strikes so far. */
  get #behind(): number {
    const { size } = this.#plan;
    return Math.ceil((size.messages * Math.min(this.#striker.count, size.strikes)) / size.strikes) - this.#messages;
  }

  get #messages(): number {
    return this.#clients.reduce((sum, { sent }) => sum + sent.length, 0);
  }

  #tellProgress(): void {
    const { count, complaints } = this.#striker;
    const seconds = Math.round(this.#journal.seconds);
    const unended = this.#clients.flatMap((client) => [...client.unended.values()]);
    const oldestS = Math.round(seconds - Math.min(seconds, ...unended));
    const ofReaders = this.#clients.flatMap(({ readers }) => readers.flatMap((reader) => reader.complaints));
    const wrong = [...complaints, ...this.#kept.complaints, ...ofReaders];
    const line = { seconds, strikes: count, messages: this.#messages, unended: unended.length, oldestS, wrong };
    console.log(`storm: ${JSON.stringify(line)}`);
  }
}
