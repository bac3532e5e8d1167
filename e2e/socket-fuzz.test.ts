/**
 * The WebSocket under hostile clients, through the executable: it stays up, answers everybody else meanwhile, fails at nothing
 * itself, lets each of them go, and has no more open and no more memory afterwards. EDGE_FUZZ_SECONDS (20) and EDGE_FUZZ_SEED;
 * the seed is printed, and decides what each of the workers does.
 */
import { afterAll, beforeAll, expect, setDefaultTimeout, test } from 'bun:test';
import { readdirSync, readFileSync } from 'node:fs';
import * as v from 'valibot';
import { attacks, hostileHandshake } from './fuzz/socket-attacks.ts';
import { Gateway } from './harness/gateway.ts';
import { ScriptedModel } from './harness/model.ts';
import { frameBytes, opcodes, RawWebSocket } from './harness/raw-web-socket.ts';
import { randomFrom } from './oracles/history.ts';

const seconds = Number(process.env.EDGE_FUZZ_SECONDS ?? 20);
const seed = Number(process.env.EDGE_FUZZ_SEED ?? Date.now() % 1_000_000);
setDefaultTimeout((seconds + 240) * 1_000);

const workers = 8;
/** Far above any answer: only what hangs takes longer. */
const answerMs = 30_000;

let model: ScriptedModel;
let gateway: Gateway;

beforeAll(async () => {
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
});
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
});

const problemFrame = v.looseObject({ type: v.literal('error'), problem: v.looseObject({ status: v.number() }) });

/** What the server said that it must not say. */
class Findings {
  readonly wrong: string[] = [];
  readonly counts = new Map<string, number>();

  add(what: string): void {
    if (this.wrong.length < 20) this.wrong.push(what);
  }

  count(what: string): void {
    this.counts.set(what, (this.counts.get(what) ?? 0) + 1);
  }

  /** Every text of the server is a frame of ours, and none says that it failed. */
  watch(socket: RawWebSocket, during: string): void {
    socket.onFrame = ({ opcode, payload }) => {
      if (opcode !== opcodes.text) return;
      const frame = v.safeParse(problemFrame, JSON.parse(payload.toString('utf8')));
      if (frame.success && frame.output.problem.status >= 500)
        this.add(`${during}: ${payload.toString('utf8', 0, 500)}`);
    };
  }
}

/** One connection: attacked, asked whether it is still there, and left. */
async function attackOnce(random: (below: number) => number, conversation: string, findings: Findings): Promise<void> {
  const token = gateway.token('client');
  if (random(5) === 0) {
    const raw = hostileHandshake(random, new URL(gateway.url).host, token);
    const socket = new RawWebSocket(gateway.url, { raw });
    // A request that is never finished is the server's to end, later than we wait.
    const status = await Promise.race([socket.status, Bun.sleep(500).then(() => null)]);
    if (status !== null && status >= 500) findings.add(`handshake ${JSON.stringify(raw.slice(0, 300))}: ${status}`);
    findings.count(`handshake ${status}`);
    socket.reset();
    return;
  }
  const socket = new RawWebSocket(gateway.url, { lines: [`Authorization: Bearer ${token}`] });
  const status = await Promise.race([socket.status, Bun.sleep(answerMs).then(() => 0)]);
  if (status !== 101) {
    findings.add(`a right handshake was answered with ${status}`);
    return;
  }
  const attack = attacks[random(attacks.length)]!;
  findings.watch(socket, attack.name);
  findings.count(attack.name);
  await attack.run(socket, random, conversation);
  if (attack.leavesHalf === undefined) {
    const payload = Buffer.from(crypto.randomUUID());
    await socket.send(frameBytes({ opcode: opcodes.ping, payload }));
    const isOurs = (frame: { opcode: number; payload: Buffer }) =>
      frame.opcode === opcodes.pong && frame.payload.equals(payload);
    await socket.frame(isOurs, answerMs).catch(() => findings.add(`${attack.name}: neither an answer nor an end`));
  }
  if (random(4) === 0) socket.halfClose();
  else socket.reset();
}

/** Somebody else, all the while: is answered, and never with a failure. */
async function bystander(until: () => boolean, findings: Findings): Promise<number> {
  let slowest = 0;
  while (!until()) {
    const from = performance.now();
    const answer = await gateway
      .api()
      .get('/v1/conversations', { timeoutMs: answerMs })
      .catch((error: unknown) => String(error));
    if (typeof answer === 'string' || answer.status !== 200) findings.add(`a bystander: ${JSON.stringify(answer)}`);
    slowest = Math.max(slowest, performance.now() - from);
    await Bun.sleep(50);
  }
  return slowest;
}

const openFiles = (): number => readdirSync(`/proc/${gateway.pid}/fd`).length;
const residentMiB = (): number =>
  Math.round((Number(readFileSync(`/proc/${gateway.pid}/statm`, 'latin1').split(' ')[1]) * 4096) / 2 ** 20);

async function storm(part: number, forMs: number, conversation: string, findings: Findings): Promise<number> {
  const end = performance.now() + forMs;
  const isOver = () => performance.now() > end || findings.wrong.length > 0;
  const watching = bystander(isOver, findings);
  await Promise.all(
    Array.from({ length: workers }, async (_, worker) => {
      const random = randomFrom(seed * 1_000 + part * 100 + worker);
      while (!isOver()) await attackOnce(random, conversation, findings);
    }),
  );
  return watching;
}

/** Resolves once what the connections took is given back. @throws Error when it stays open */
async function settled(atMost: number): Promise<void> {
  for (let waited = 0; openFiles() > atMost; waited += 100) {
    if (waited > answerMs) throw new Error(`${openFiles()} open files, at most ${atMost} expected`);
    await Bun.sleep(100);
  }
}

test(`${seconds} seconds of hostile clients, seed ${seed}`, async () => {
  console.log(`EDGE_FUZZ_SEED=${seed} EDGE_FUZZ_SECONDS=${seconds}`);
  const api = gateway.api();
  const conversation = await api.createConversation('Eleanora');
  await api.say(conversation, 'hello');
  const findings = new Findings();
  const files = openFiles();
  // The first part brings the process to its usual size; growth is what comes after it.
  const slowest = [await storm(0, (seconds * 1_000) / 2, conversation, findings)];
  await settled(files + 4);
  const before = residentMiB();
  slowest.push(await storm(1, (seconds * 1_000) / 2, conversation, findings));
  await settled(files + 4);
  const after = residentMiB();
  console.log(
    `${[...findings.counts.values()].reduce((sum, count) => sum + count, 0)} attacks; a bystander waited ` +
      `${Math.round(Math.max(...slowest))} ms at most; ${before} MiB resident, then ${after} MiB`,
  );
  console.log([...findings.counts].map(([what, count]) => `${what}: ${count}`).join('; '));
  expect(findings.wrong).toEqual([]);
  expect(after - before).toBeLessThan(150);
  const failures = gateway.log.split('\n').filter((line) => line.includes('"level":"error"'));
  expect(failures).toEqual([]);
  // Everything works as before: a client that comes now, and the one that was there all the time.
  await using client = await gateway.events('client');
  client.send({ type: 'subscribe', id: 1, conversation });
  await client.frame('subscribed');
  client.send({ type: 'message.send', id: 2, conversation, text: 'still there?' });
  expect(await client.frame('reply.delivered')).toMatchObject({ conversation, text: 'ok' });
});
