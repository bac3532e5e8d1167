/**
 * `kill -9` of authority, machine or gateway while clients send messages and files, edit, reply and erase (issue 5, must-show 6).
 * After each kill: both databases and the replica are whole, and everything that was answered or synced is there, once.
 */
import { join } from 'node:path';
import * as v from 'valibot';
import { realDatabase } from '../../gateway/governance/databases.fixture.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { flawsOf } from '../../machine/conflicts.fixture.ts';
import { Cloud } from '../harness/cloud.ts';
import { firstToken } from '../harness/first-token.ts';
import { Api } from '../harness/http.ts';
import { ScriptedModel } from '../harness/model.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { until } from '../harness/waiting.ts';
import { randomFrom } from '../oracles/history.ts';
import { Ambush } from './ambush.ts';
import { Caller } from './call.ts';
import { Expert } from './expert.ts';
import { Gate } from './gate.ts';
import { Host } from './host.ts';
import { named, type Point, type Victim, victims } from './plan.ts';
import { Sender } from './sender.ts';
import { Worker } from './worker.ts';

/** A step comes within a turn, and a turn may have to start its agent first. */
const stepMs = 30_000;
/** A whole turn with an agent that starts anew, on a busy machine. */
const turnMs = 60_000;
/** What a process that lives on may grow by over all kills around it, in bytes. */
export const mostGrowth = 96 * 1024 ** 2;

export interface Verdict {
  readonly flaws: readonly string[];
  /** Named steps that nobody came to in time: those kills were at a random moment. */
  readonly missed: readonly string[];
  /** Bytes by which the processes grew that outlived the kills of another. */
  readonly growth: Readonly<Record<string, number>>;
  readonly done: Readonly<Record<string, number>>;
}

/** @param bin of `installedPostgres()` */
export async function playKills(bin: string, seed: number, points: readonly Point[]): Promise<Verdict> {
  await using stack = new AsyncDisposableStack();
  const directory = scratchDirectory('kills');
  stack.defer(() => removeScratch(directory));
  let ambush: Ambush | null = null;
  const database = await realDatabase(bin, {
    settings: ['log_statement=all', 'log_min_messages=log'],
    onLog: (text) => ambush?.heard(text),
  });
  stack.defer(() => database.stop());
  const cloud = await Cloud.start(directory);
  stack.defer(() => cloud.stop());
  ambush = new Ambush(cloud);
  const model = ScriptedModel.start();
  stack.defer(() => model.stop());
  const environment = {
    ...cloud.environment,
    DATABASE_URL: database.address.kind === 'url' ? database.address.url : '',
    EDGE_MODEL_URL: model.url,
    EDGE_MODEL: 'scripted',
    EDGE_MODEL_KEY: 'none',
  };
  const token = firstToken({ ...environment, EDGE_DATA_DIR: join(directory, 'none') });
  const host = new Host(directory, cloud, environment);
  stack.defer(() => host.stop());
  await host.start();
  const api = new Api(host.url, token);
  await api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });

  const caller = new Caller();
  const edited = await api.createConversation('Eleanora');
  for (const text of ['one', 'two', 'three']) await api.say(edited, text);
  const expert = await Expert.of(api, edited, caller, randomFrom(seed + 1));
  const sender = new Sender(api, caller, randomFrom(seed + 2));
  const worker = new Worker(api, await api.createConversation('Eleanora'), caller, model, randomFrom(seed + 3));
  model.requests.onAdd((request) => worker.heard(request));

  const writing = new Gate();
  writing.run(() => expert.work());
  writing.run(() => sender.work());
  const working = new Gate();
  working.run(() => worker.work());

  const [flaws, missed]: [string[], string[]] = [[], []];
  const growth = new Growth(host);
  for (const [index, point] of points.entries()) {
    if (point.behindTurn) await worker.oneMore(turnMs);
    const met = await ambush.wait(point.moment, stepMs);
    if (!met.came) missed.push(named(point));
    const broken = host.strike(point.victim, point.moment);
    // The kill is done before anything else happens; whoever was held up goes on while it starts again.
    met.over();
    const found = [...(await broken)];
    await writing.hold();
    found.push(...(await expert.flaws()), ...(await sender.flaws()), ...(await worker.flawsOfFiles()));
    writing.open();
    for (const flaw of found) flaws.push(`${index}: ${named(point)}: ${flaw}`);
    if (found.length > 0) break;
    growth.note(point.victim);
    if ((index + 1) % 20 === 0)
      console.log(`kill points: ${index + 1}, ${JSON.stringify(doneBy(host, expert, sender, worker))}`);
  }
  await writing.stop();
  await working.stop();
  flaws.push(...(await worker.flaws()), ...(await expert.flaws()), ...(await sender.flaws()));
  flaws.push(...caller.unclear.map((answer) => withLog(host, answer)));
  await until('every purge is done', async () => (await openPurges(api)) === 0, 60_000);
  flaws.push(...(await flawsOfCloud(cloud, sender.erased)));
  const done = { ...doneBy(host, expert, sender, worker), delivered: await worker.delivered() };
  return { flaws, missed, growth: growth.most, done };
}

/** An answer that says no more than that the log says why, with what that says. */
function withLog(host: Host, answer: string): string {
  const request = /"request":"([^"]+)"/.exec(answer)?.[1];
  return request === undefined ? answer : [answer, ...host.logged(request)].join('\n');
}

function doneBy(host: Host, expert: Expert, sender: Sender, worker: Worker): Record<string, number> {
  const { edits, replies } = expert;
  const { uploads, purges } = sender;
  return { restarts: host.restarts, turns: worker.turns, synced: worker.synced, edits, replies, uploads, purges };
}

async function openPurges(api: Api): Promise<number> {
  const answer = await api.get('/v1/retention/purges?limit=100');
  const { purges } = v.parse(v.object({ purges: v.array(v.looseObject({ state: v.string() })) }), answer.json());
  return purges.filter(({ state }) => state !== 'done').length;
}

/** The tables of AgentFS agree with each other, and nothing is left of what was erased or given up. */
async function flawsOfCloud(cloud: Cloud, erased: readonly string[]): Promise<string[]> {
  const sql = new HranaDatabase({ ...cloud.address('agentfs'), socket: null });
  const all = async (text: string, ...args: readonly (string | number)[]) => {
    const { columns, rows } = await sql.execute(text, [...args]);
    return rows.map((row) => Object.fromEntries(columns.map((column, at) => [column, row[at] ?? null])));
  };
  const flaws = await flawsOf(all as Parameters<typeof flawsOf>[0]);
  const names = await all(
    'SELECT name FROM fs_dentry WHERE name IN (SELECT value FROM json_each(?))',
    JSON.stringify(erased),
  );
  if (names.length > 0) flaws.push(`${names.length} conversations were erased and have files`);
  return flaws;
}

/** What processes take more and more of, while others are killed around them. */
class Growth {
  readonly #host: Host;
  readonly #first = new Map<string, number>();
  readonly most: Record<string, number> = {};
  #count: Record<Victim, number> = { authority: 0, machine: 0, gateway: 0 };

  constructor(host: Host) {
    this.#host = host;
  }

  /** After a kill and the first work behind it. */
  note(victim: Victim): void {
    this.#count[victim] += 1;
    // What a process takes in its first kills is not yet what it keeps.
    if (this.#count[victim] < 5) return;
    const memory = this.#host.memory();
    for (const survivor of victims) {
      if (!outlives(survivor, victim)) continue;
      const name = `${survivor}, while the ${victim} is killed`;
      const first = this.#first.get(name);
      if (first === undefined) this.#first.set(name, memory[survivor]);
      else this.most[name] = memory[survivor] - first;
    }
  }
}

/** A gateway ends without its machine, and takes it along. */
const outlives = (survivor: Victim, victim: Victim): boolean =>
  survivor !== victim && (survivor === 'authority' || victim === 'authority');
