/**
 * The API of a real gateway while a real agent's tool copies gigabytes, while that turn's end pushes them, and while the next
 * turn pulls: how long reading a conversation takes, and having a message accepted. The messages are for other conversations
 * whose turns go on all the time, so that they are accepted and nothing more happens with them.
 */
import * as v from 'valibot';
import { Gateway } from '../harness/gateway.ts';
import type { Api } from '../harness/http.ts';
import { call, ScriptedModel, say } from '../harness/model.ts';
import { type Figures, figuresOf } from './figures.ts';

export interface ApiFigures {
  readonly get: Figures;
  readonly post: Figures;
}
export interface ApiSeconds {
  readonly quiet: number;
  readonly copy: number;
  readonly push: number;
}

const pauseMs = 20;
/** One in so many requests sends a message. */
const postEvery = 5;
/** Conversations that get them in turn: one refuses more than 100 that wait. */
const busyConversations = 3;
const identified = v.object({ id: v.string() });

/** Copies until the time is over; four files take turns. */
const copyScript = (seconds: number) => `python3 - <<'END'
import os, time
block, end, number = os.urandom(1 << 20), time.monotonic() + ${seconds}, 0
while time.monotonic() < end:
    with open(f'/workspace/copy{number % 4}.bin', 'wb', buffering=0) as file:
        for _ in range(256):
            file.write(block)
            if time.monotonic() >= end: break
    number += 1
END`;

export async function measureApi(seconds: ApiSeconds): Promise<Readonly<Record<string, ApiFigures>>> {
  const model = ScriptedModel.start();
  const environment = { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' };
  const gateway = await Gateway.start({ environment });
  try {
    const api = gateway.api();
    const made = await gateway.api('superadmin').post('/v1/specialists', { name: 'Bench', persona: '' });
    const specialist = v.parse(identified, made.json()).id;
    model.on('go on and on', { do: 'hang' });
    model.on(
      'copy now',
      call('terminal', { command: copyScript(seconds.copy), timeout: seconds.copy + 60 }),
      say('done'),
    );
    model.on('look now', call('terminal', { command: 'ls /workspace' }), say('done'));
    await api.say(gateway.conversation, 'hello');
    const busy: string[] = [];
    for (let number = 0; number < busyConversations; number++) {
      const conversation = await api.createConversation(specialist);
      busy.push(conversation);
      await accepted(api, conversation, `go on and on ${number}`);
      await model.waitForTurn(`go on and on ${number}`);
    }
    let posts = 0;
    const post = () => accepted(api, busy[posts++ % busy.length]!, `more ${posts}`);

    const during = (howLong: number) => measured(() => read(api, gateway.conversation), post, howLong);
    const quiet = await during(seconds.quiet);
    // The reply comes when the tool and its turn are done; the push goes on behind it.
    const copies = api.say(gateway.conversation, 'copy now');
    await model.waitForTurn('copy now');
    const copying = await during(seconds.copy);
    await copies;
    const pushing = await during(seconds.push);
    const looks = api.say(gateway.conversation, 'look now');
    const pulling = await during(seconds.quiet);
    await looks;
    return { quiet, copying, pushing, pulling };
  } finally {
    // What was copied need not be pushed.
    await gateway.killTree();
    await gateway[Symbol.asyncDispose]();
    await model.stop();
  }
}

type Ask = () => Promise<void>;

async function measured(get: Ask, post: Ask, seconds: number): Promise<ApiFigures> {
  const [gets, posts]: [number[], number[]] = [[], []];
  const end = performance.now() + seconds * 1000;
  for (let number = 0; performance.now() < end; number++) {
    const from = performance.now();
    const isPost = number % postEvery === 0;
    await (isPost ? post() : get());
    (isPost ? posts : gets).push(performance.now() - from);
    await Bun.sleep(pauseMs);
  }
  return { get: figuresOf(gets), post: figuresOf(posts) };
}

async function read(api: Api, conversation: string): Promise<void> {
  const { status } = await api.get(`/v1/conversations/${conversation}`);
  if (status !== 200) throw new Error(`a conversation cannot be read: HTTP ${status}`);
}

/** @throws Error when the message is refused */
async function accepted(api: Api, conversation: string, text: string): Promise<void> {
  const answer = await api.post(`/v1/conversations/${conversation}/messages`, { text });
  if (answer.status !== 202) throw new Error(`no message: HTTP ${answer.status} ${answer.text}`);
}
