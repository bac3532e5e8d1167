/**
 * A message that waits behind another one is cancelled for good: real Hermes never gets a word of it, whatever is killed
 * meanwhile, and the others keep their order (ADR-046 §4: nothing is invented, nothing is done behind the client's back).
 */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import * as v from 'valibot';
import { sendForm } from './harness/form.ts';
import { Gateway } from './harness/gateway.ts';
import type { Answer, Api } from './harness/http.ts';
import { ScriptedModel, say } from './harness/model.ts';
import { waitForEnd } from './harness/processes.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { TranscriptClient } from './harness/transcript.ts';
import { until } from './harness/waiting.ts';

const limitMs = 180_000;
let data: string;
let model: ScriptedModel;
let gateway: Gateway;

beforeAll(async () => {
  data = scratchDirectory('cancel-queued');
  model = ScriptedModel.start();
  // Hermes gives a question without an answer to the model again, in front of the next one.
  model.on((text) => text.endsWith('keep busy'), { do: 'hang' });
  model.on(/ please$/, say('here you are'));
  await start();
}, limitMs);
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  removeScratch(data);
}, limitMs);

async function start(): Promise<void> {
  gateway = await Gateway.start({
    dataDirectory: data,
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
}

const sentSchema = v.looseObject({ message: v.looseObject({ id: v.string() }) });
const stateSchema = v.looseObject({ state: v.string() });
const idOf = (answer: Answer): string => v.parse(sentSchema, answer.json()).message.id;

class Talk {
  readonly api: Api;
  readonly conversation: string;

  constructor(api: Api, conversation: string) {
    this.api = api;
    this.conversation = conversation;
  }

  /** A conversation whose first turn goes on until it is cancelled. */
  static async busy(): Promise<Talk & { readonly running: string }> {
    const api = gateway.api();
    const talk = new Talk(api, await api.createConversation('Eleanora'));
    const from = model.requests.all.length;
    const running = await talk.send('keep busy');
    const isIt = ({ kind, raw }: { kind: string; raw: string }) => kind === 'turn' && raw.includes('keep busy');
    await model.requests.wait('the busy turn', isIt, 60_000, from);
    return Object.assign(talk, { running });
  }

  path(rest: string): string {
    return `/v1/conversations/${this.conversation}/${rest}`;
  }

  async send(text: string): Promise<string> {
    const answer = await this.api.post(this.path('messages'), { text });
    expect(answer.status).toBe(202);
    return idOf(answer);
  }

  cancel(message: string): Promise<Answer> {
    return this.api.post(this.path(`cancel?message=${message}`), {});
  }

  async state(message: string): Promise<string> {
    return v.parse(stateSchema, (await this.api.get(this.path(`messages/${message}`))).json()).state;
  }

  settled(message: string): Promise<void> {
    return until(
      'the message is settled',
      async () => /delivered|failed|cancelled/.test(await this.state(message)),
      60_000,
    );
  }
}

function killed(pid: number): void {
  try {
    process.kill(pid, 'SIGKILL');
  } catch {
    // It died with its parent a moment ago.
  }
}

const reached = (text: string): boolean => model.requests.all.some(({ raw }) => raw.includes(text));

test(
  'in the middle of a line: who waits is told, everybody is told once, the agent never, and the files stay',
  async () => {
    const talk = await Talk.busy();
    await using events = await gateway.events('client');
    events.send({ type: 'subscribe', conversation: talk.conversation, after: 0 });
    const one = await talk.send('first please');
    const file = { name: 'never read.txt', bytes: 'a secret of nobody' };
    const form = await sendForm(talk.api, talk.conversation, ['never said please', file], { 'idempotency-key': 'two' });
    const two = idOf(form);
    const three = await talk.send('last please');
    const waiting = sendForm(talk.api, talk.conversation, ['never said please', file], {
      'idempotency-key': 'two',
      prefer: 'wait=100',
    });
    await Bun.sleep(200);

    expect((await talk.cancel(two)).json()).toEqual({ cancelled: true });
    const told = await waiting;
    expect([told.status, told.json()]).toMatchObject([
      409,
      { type: 'urn:edge-gateway:problem:turn-cancelled', message: two },
    ]);
    expect((await talk.cancel(two)).json()).toEqual({ cancelled: true });
    expect(await talk.state(two)).toBe('cancelled');
    // Within reach and of this conversation, or not at all.
    const other = new Talk(talk.api, await talk.api.createConversation('Eleanora'));
    expect((await other.cancel(three)).status).toBe(404);

    expect((await talk.cancel(talk.running)).json()).toEqual({ cancelled: true });
    for (const message of [one, three]) await talk.settled(message);
    expect([await talk.state(one), await talk.state(three)]).toEqual(['delivered', 'delivered']);
    expect((await talk.cancel(three)).json()).toEqual({ cancelled: false });
    await events.frame('reply.delivered', (frame) => frame.message === three);
    const lives = events.frames.all.filter((frame) => frame.message === two).map(({ type }) => type);
    expect(lives).toEqual(['message.accepted', 'turn.cancelled']);
    const started = events.frames.all.filter(({ type }) => type === 'turn.started').map(({ message }) => message);
    expect(started).toEqual([talk.running, one, three]);
    expect(reached('never said') || reached('secret of nobody')).toBe(false);
    expect((await new TranscriptClient(gateway.api('expert'), talk.conversation).texts()).join()).not.toContain(
      'never',
    );
    const files = await talk.api.get(talk.path('files?path=/artifacts/inbound'));
    expect(files.text).toContain('never_read.txt');
    const again = await sendForm(talk.api, talk.conversation, ['never said please', file], {
      'idempotency-key': 'two',
      prefer: 'wait=100',
    });
    expect([again.status, again.text]).toEqual([told.status, told.text]);
  },
  limitMs,
);

test(
  'while everything is killed: what was said to be cancelled is, and nothing is in between',
  async () => {
    const found = new Set<string>();
    for (const [round, pauseMs] of [0, 2, 5, 40].entries()) {
      const talk = await Talk.busy();
      const [never, after] = [`never ${round} please`, `after ${round} please`];
      const cancelled = await talk.send(never);
      const kept = await talk.send(after);
      // Found before: what stands between the request and the kill is only the pause.
      const tree = gateway.tree();
      // No answer is one too.
      const answer = talk.cancel(cancelled).then(
        ({ text }) => text,
        () => 'none',
      );
      await Bun.sleep(pauseMs);
      gateway.signal('SIGKILL');
      for (const { pid } of tree) killed(pid);
      await waitForEnd(tree, 60_000);
      await gateway.exited();
      const said = await answer;
      await start();
      const now = new Talk(gateway.api(), talk.conversation);
      for (const message of [cancelled, kept]) await now.settled(message);
      const state = await now.state(cancelled);
      found.add(`${said} ${state}`);
      if (said.includes('true')) expect(state).toBe('cancelled');
      expect(state).toBeOneOf(['cancelled', 'delivered']);
      expect(reached(never)).toBe(state === 'delivered');
      expect(await now.state(kept)).toBe('delivered');
      expect((await now.cancel(cancelled)).json()).toEqual({ cancelled: state === 'cancelled' });
    }
    console.log(`what the kills found: ${[...found].join(', ')}`);
  },
  2 * limitMs,
);
