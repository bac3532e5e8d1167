/** Everything durable is in the two authorities: an orderly stop and a power failure look the same afterwards (acceptance 4). */
import { expect, test } from 'bun:test';
import * as v from 'valibot';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { waitForEnd } from './harness/processes.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { StdinTap } from './harness/stdin-tap.ts';
import { until } from './harness/waiting.ts';

const messageSchema = v.looseObject({ id: v.string(), state: v.string() });
const acceptedSchema = v.looseObject({ message: messageSchema });
const transcriptSchema = v.object({ turns: v.array(v.looseObject({ locator: v.string(), text: v.string() })) });

async function transcript(gateway: Gateway, conversation: string) {
  const answer = await gateway.api('expert').get(`/v1/conversations/${conversation}/transcript?view=canonical`);
  return v.parse(transcriptSchema, answer.json()).turns.map(({ locator, text }) => ({ locator, text }));
}

const ends: readonly (readonly [string, (gateway: Gateway) => Promise<unknown>])[] = [
  ['SIGTERM', async (gateway) => expect(await gateway.stop()).toBe(0)],
  ['kill -9 of the whole tree', (gateway) => gateway.killTree()],
];

test.each(ends)(
  'after %s transcript, files and session are there',
  async (_, end) => {
    const data = scratchDirectory('restart');
    await using model = ScriptedModel.start();
    model.on('remember teal', call('write_file', { path: 'colour.txt', content: 'teal\n' }), say('I wrote it down.'));
    model.on('read it', call('terminal', { command: 'cat colour.txt' }), say('You said teal.'));
    const options = {
      dataDirectory: data,
      environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
    };
    try {
      let conversation: string;
      let before: unknown;
      {
        await using gateway = await Gateway.start(options);
        ({ conversation } = gateway);
        await gateway.api().say(conversation, 'remember teal');
        before = await transcript(gateway, conversation);
        await end(gateway);
      }
      await using gateway = await Gateway.start(options);
      expect(gateway.conversation).toBe(conversation);
      expect(await transcript(gateway, conversation)).toEqual(before as never);

      const from = model.turns.length;
      const { reply } = await gateway.api().say(conversation, 'read it');
      expect(reply.text).toBe('You said teal.');
      const requests = model.turns.slice(from);
      const texts = JSON.stringify(requests[0]?.body.messages);
      expect(texts).toContain('remember teal');
      expect(texts).toContain('I wrote it down.');
      expect(JSON.stringify(requests[1]?.body.messages.at(-1))).toContain('\\"teal\\"');
      // Rows and their locators are what they were: nothing was deleted and written anew.
      expect((await transcript(gateway, conversation)).slice(0, (before as unknown[]).length)).toEqual(before as never);
    } finally {
      removeScratch(data);
    }
  },
  240_000,
);

test('a machine that is killed takes the turn that runs with it; what waits is answered by the next start', async () => {
  const data = scratchDirectory('restart');
  await using model = ScriptedModel.start();
  model.on('wait for it', { do: 'hang' });
  // Hermes sends what was not answered together with what comes next.
  for (const text of ['two', 'three', 'four']) model.on(text, say(`${text} it is`));
  const options = {
    dataDirectory: data,
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none', EDGE_MAX_HOLDERS: '1' },
  };
  try {
    const sent: { readonly conversation: string; readonly id: string }[] = [];
    {
      await using gateway = await Gateway.start(options);
      const api = gateway.api();
      const send = async (conversation: string, text: string) => {
        const answer = await api.post(`/v1/conversations/${conversation}/messages`, { text });
        sent.push({ conversation, id: v.parse(acceptedSchema, answer.json()).message.id });
      };
      await send(gateway.conversation, 'wait for it');
      await model.waitForTurn('wait for it');
      await send(gateway.conversation, 'two');
      await send(await api.createConversation('Eleanora'), 'three');
      await send(gateway.conversation, 'four');
      const machine = gateway.tree().find(({ argv }) => argv[0]?.endsWith('/edge-gateway') && argv[1] === 'machine');
      process.kill(machine!.pid, 'SIGKILL');
      expect(await gateway.exited()).toBe(1);
    }
    await using gateway = await Gateway.start(options);
    const state = async ({ conversation, id }: (typeof sent)[number]) => {
      const answer = await gateway.api().get(`/v1/conversations/${conversation}/messages/${id}`);
      return v.parse(messageSchema, answer.json()).state;
    };
    const isOpen = (name: string) => name === 'accepted' || name === 'dispatched';
    const states = () => Promise.all(sent.map(state));
    await until('every message has its end', async () => !(await states()).some(isOpen), 120_000);
    expect(await states()).toEqual(['failed', 'delivered', 'delivered', 'delivered']);
  } finally {
    removeScratch(data);
  }
}, 240_000);

test('a replaced child gets the prompt right after initialize: no session/load, no session/resume', async () => {
  const scratch = scratchDirectory('respawn');
  await using model = ScriptedModel.start();
  await using gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
  try {
    const api = gateway.api();
    await api.say(gateway.conversation, 'one');
    const [old] = hermesProcesses(gateway.pid);
    process.kill(old!.pid, 'SIGKILL');
    // A message that meets the child while it dies fails, as it must; this one comes after.
    await waitForEnd([old!], 10_000);
    await Bun.sleep(500);
    const sending = api.say(gateway.conversation, 'two');
    const child = await newChild(gateway.pid, old!.pid);
    const tap = await StdinTap.attach(child, `${scratch}/stdin`);
    await sending;
    const methods = (await tap.stop())
      .toString('utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => (JSON.parse(line) as { method?: string }).method);
    expect(methods).toContain('session/prompt');
    expect(methods).not.toContain('session/load');
    expect(methods).not.toContain('session/resume');
    const texts = JSON.stringify(model.turns.at(-1)?.body.messages);
    expect(texts).toContain('one');
  } finally {
    removeScratch(scratch);
  }
}, 180_000);

/** Python takes over a second to start: there is time to find it before it reads its input. */
async function newChild(gatewayPid: number, old: number): Promise<number> {
  for (let attempt = 0; attempt < 1000; attempt += 1) {
    const found = hermesProcesses(gatewayPid).find(({ pid }) => pid !== old);
    if (found) return found.pid;
    await Bun.sleep(10);
  }
  throw new Error('no new Hermes process');
}
