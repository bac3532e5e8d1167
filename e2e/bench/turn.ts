/**
 * `bench turn`: the same prompts through the gateway, through bare hermes-acp over stdio and through Hermes' own API server,
 * with one scripted model that answers at once, taking turns in blocks within one run. The ratio to bare Hermes is what the gateway
 * costs (ADR-046 §8); warm and cold are told apart.
 */
import { copyFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import { BareHermes } from '../harness/bare-hermes.ts';
import { repository } from '../harness/executable.ts';
import { Gateway } from '../harness/gateway.ts';
import { hermesProcesses } from '../harness/holders.ts';
import { ScriptedModel } from '../harness/model.ts';
import { waitForEnd } from '../harness/processes.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { figuresHeader, figuresOf, formatFigures, percentile, rounded } from './figures.ts';
import { HermesApiServer } from './hermes-api-server.ts';

const warmUpRounds = 10;
const warmRounds = 60;
/** Turns that one peer makes one after the other before it is the next one's. */
const blockTurns = 10;
const coldRounds = 6;
/** Idle time between two blocks: what one peer left to do in the background is not the next one's. */
const settleMs = 500;

const timingsSchema = v.object({
  timings: v.object({
    attachMs: v.number(),
    admissionMs: v.nullable(v.number()),
    firstUpdateMs: v.nullable(v.number()),
    loopMs: v.nullable(v.number()),
    settleMs: v.nullable(v.number()),
  }),
});
type Timings = v.InferOutput<typeof timingsSchema>['timings'];

interface Sample {
  /** From the request to the first model request. */
  readonly modelMs: number;
  /** From the request to the reply. */
  readonly replyMs: number;
}

const now = () => performance.timeOrigin + performance.now();

export async function benchTurn() {
  const scratch = scratchDirectory('bench');
  const model = ScriptedModel.start();
  const environment = { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' };
  const gateway = await Gateway.start({ environment });
  try {
    const peers = new Peers(scratch, { ...environment, EDGE_MODEL_PROVIDER: 'custom' });
    const warm = await measureWarm(gateway, peers, model);
    const cold = await measureCold(gateway, peers, model);
    return report(warm, cold);
  } finally {
    await gateway[Symbol.asyncDispose]();
    await model.stop();
    removeScratch(scratch);
  }
}

/** Hermes without the gateway, with the same configuration in plain directories. */
class Peers {
  readonly #scratch: string;
  readonly #environment: Readonly<Record<string, string>>;

  constructor(scratch: string, environment: Readonly<Record<string, string>>) {
    this.#scratch = scratch;
    this.#environment = environment;
    for (const peer of ['bare', 'api']) {
      const home = join(scratch, peer, 'home');
      mkdirSync(home, { recursive: true });
      for (const name of ['config.yaml', 'SOUL.md']) {
        copyFileSync(join(repository, 'bunfs-assets', name), join(home, name));
      }
      writeFileSync(join(home, '.env'), '');
    }
  }

  bare(): BareHermes {
    return BareHermes.start({ directory: join(this.#scratch, 'bare'), environment: this.#environment });
  }

  apiServer(): Promise<HermesApiServer> {
    return HermesApiServer.start(join(this.#scratch, 'api', 'home'), this.#environment);
  }
}

/** Times one turn; the first model request that came meanwhile is its own. */
async function timed(model: ScriptedModel, turn: () => Promise<unknown>): Promise<Sample> {
  const from = model.turns.length;
  const startedAt = now();
  await turn();
  const replyMs = now() - startedAt;
  const request = model.turns[from];
  if (!request) throw new Error('the turn reached no model');
  return { modelMs: request.atMs - startedAt, replyMs };
}

interface Warm {
  readonly ours: Sample[];
  readonly timings: Timings[];
  readonly bare: Sample[];
  readonly api: Sample[];
}

let bareSession = '';

async function measureWarm(gateway: Gateway, peers: Peers, model: ScriptedModel): Promise<Warm> {
  const bare = peers.bare();
  const api = await peers.apiServer();
  try {
    await bare.acp.initialize();
    bareSession = await bare.acp.newSession('/workspace');
    const warm: Warm = { ours: [], timings: [], bare: [], api: [] };
    for (let round = 0; round < warmUpRounds + warmRounds; round += blockTurns) {
      const texts = Array.from({ length: blockTurns }, (_, turn) => `turn ${round + turn}`);
      const isMeasured = round >= warmUpRounds;
      await block(texts, isMeasured ? warm.ours : [], model, async (text) => {
        const timings = await say(gateway, text);
        if (isMeasured) warm.timings.push(timings);
      });
      const prompt = (text: string) => bare.acp.prompt(bareSession, [{ type: 'text', text }]);
      await block(texts, isMeasured ? warm.bare : [], model, prompt);
      await block(texts, isMeasured ? warm.api : [], model, (text) => api.say(text));
    }
    return warm;
  } finally {
    await api.stop();
    await bare.stop();
  }
}

async function block(
  texts: readonly string[],
  into: Sample[],
  model: ScriptedModel,
  turn: (text: string) => Promise<unknown>,
): Promise<void> {
  await Bun.sleep(settleMs);
  for (const text of texts) into.push(await timed(model, () => turn(text)));
}

async function say(gateway: Gateway, text: string): Promise<Timings> {
  const { message } = await gateway.api().say(gateway.conversation, text);
  return v.parse(timingsSchema, message).timings;
}

interface Cold {
  readonly ours: Sample[];
  readonly timings: Timings[];
  readonly bare: Sample[];
}

/** A conversation that is known and whose child is gone, against spawn + initialize + prompt of the known session. */
async function measureCold(gateway: Gateway, peers: Peers, model: ScriptedModel): Promise<Cold> {
  const cold: Cold = { ours: [], timings: [], bare: [] };
  for (let round = 0; round < coldRounds; round += 1) {
    const text = `cold ${round}`;
    const children = hermesProcesses(gateway.pid);
    for (const { pid } of children) process.kill(pid, 'SIGKILL');
    await waitForEnd(children, 10_000);
    await Bun.sleep(500);
    cold.ours.push(await timed(model, async () => cold.timings.push(await say(gateway, text))));
    let bare: BareHermes | null = null;
    const sample = await timed(model, async () => {
      bare = peers.bare();
      await bare.acp.initialize();
      await bare.acp.prompt(bareSession, [{ type: 'text', text }]);
    });
    cold.bare.push(sample);
    await (bare as BareHermes | null)?.stop();
  }
  return cold;
}

const replies = (samples: readonly Sample[]) => samples.map(({ replyMs }) => replyMs);
const requests = (samples: readonly Sample[]) => samples.map(({ modelMs }) => modelMs);

function report(warm: Warm, cold: Cold) {
  const print = (name: string, samples: readonly number[]) => console.log(formatFigures(name, figuresOf(samples)));
  console.log(`\nmilliseconds\n${figuresHeader}`);
  print('warm, gateway: first model request', requests(warm.ours));
  print('warm, bare hermes-acp: first model request', requests(warm.bare));
  print("warm, Hermes' API server: first model request", requests(warm.api));
  print('warm, gateway: reply', replies(warm.ours));
  print('warm, bare hermes-acp: reply', replies(warm.bare));
  print("warm, Hermes' API server: reply", replies(warm.api));
  print('cold, gateway: reply', replies(cold.ours));
  print('cold, bare spawn + initialize + prompt: reply', replies(cold.bare));
  for (const [kind, { timings }] of [
    ['warm', warm],
    ['cold', cold],
  ] as const) {
    console.log(`\n${kind} phases (ADR-046 §8)`);
    for (const phase of phases) {
      const samples = timings.flatMap((timing) => timing[phase.key] ?? []);
      if (samples.length > 0) print(phase.name, samples);
    }
  }
  const ratio = (ours: readonly Sample[], bare: readonly Sample[]) =>
    rounded(percentile(replies(ours), 50) / percentile(replies(bare), 50));
  const attach = warm.timings.map(({ attachMs }) => attachMs);
  const result = {
    warm: {
      ratio_to_bare: ratio(warm.ours, warm.bare),
      attach_p50_ms: rounded(percentile(attach, 50)),
      attach_p99_ms: rounded(percentile(attach, 99)),
      first_model_request_p50_ms: rounded(percentile(requests(warm.ours), 50)),
      reply_p50_ms: rounded(percentile(replies(warm.ours), 50)),
    },
    cold: {
      ratio_to_bare: ratio(cold.ours, cold.bare),
      reply_p50_ms: rounded(percentile(replies(cold.ours), 50)),
    },
    peers: {
      bare: {
        first_model_request_p50_ms: rounded(percentile(requests(warm.bare), 50)),
        reply_p50_ms: rounded(percentile(replies(warm.bare), 50)),
        cold_reply_p50_ms: rounded(percentile(replies(cold.bare), 50)),
      },
      hermes_api_server: {
        first_model_request_p50_ms: rounded(percentile(requests(warm.api), 50)),
        reply_p50_ms: rounded(percentile(replies(warm.api), 50)),
      },
    },
  };
  console.log(
    `\nwarm turn: ${result.warm.ratio_to_bare} × bare; attach p50 ${result.warm.attach_p50_ms} ms, p99 ${result.warm.attach_p99_ms} ms; cold: ${result.cold.ratio_to_bare} × bare`,
  );
  return result;
}

const phases: readonly { readonly key: keyof Timings; readonly name: string }[] = [
  { key: 'attachMs', name: 'API receipt to ACP attach' },
  { key: 'admissionMs', name: 'cold admission' },
  { key: 'firstUpdateMs', name: 'prompt to the first update of the model' },
  { key: 'loopMs', name: 'model and tool loop' },
  { key: 'settleMs', name: 'canonical persistence and delivery' },
];
