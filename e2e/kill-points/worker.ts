/** A client whose agent writes files and syncs them, turn after turn: nothing that was synced is lost, no turn is doubled. */
import * as v from 'valibot';
import type { Api } from '../harness/http.ts';
import { call, type ModelRequest, type ScriptedModel, say } from '../harness/model.ts';
import { type Caller, digestOf, refused } from './call.ts';

const messageSchema = v.looseObject({ id: v.string(), state: v.string() });

/** A turn has ended by then, whoever was killed. */
const turnMs = 120_000;

const textOf = (name: string): string => `write ${name} now`;
const replyTo = (name: string): string => `wrote ${name}.`;

interface Turn {
  readonly name: string;
  readonly zeros: number;
  readonly id: string;
}

export class Worker {
  readonly #api: Api;
  readonly #caller: Caller;
  readonly #conversation: string;
  readonly #model: ScriptedModel;
  readonly #random: (below: number) => number;
  readonly #turns: Turn[] = [];
  /** Files of which the agent has heard that they are on the disk, with the number of their zeros. */
  readonly #synced = new Map<string, number>();
  readonly #checked = new Set<string>();
  readonly #waiting = new Set<() => void>();
  readonly #zeros = new Map<string, number>();

  constructor(api: Api, conversation: string, caller: Caller, model: ScriptedModel, random: (below: number) => number) {
    this.#api = api;
    this.#conversation = conversation;
    this.#caller = caller;
    this.#model = model;
    this.#random = random;
  }

  get turns(): number {
    return this.#turns.length;
  }

  get synced(): number {
    return this.#synced.size;
  }

  /** A request to the model; it may tell that a file is on the disk. */
  heard({ kind, body }: ModelRequest): void {
    const last = body.messages.at(-1);
    if (kind !== 'turn' || last?.role !== 'tool') return;
    const [, name] = /synced (\w+)/.exec(JSON.stringify(last.content)) ?? [];
    if (name !== undefined) this.#synced.set(name, this.#zeros.get(name)!);
  }

  /** One turn until it has ended, well or not. */
  async work(): Promise<void> {
    const name = `t${this.#turns.length}`;
    const zeros = this.#random(4) === 0 ? 300_000 + this.#random(400_000) : this.#random(5_000);
    this.#zeros.set(name, zeros);
    const command = `(printf ${name}; head -c ${zeros} /dev/zero) > ${name} && sync ${name} && echo synced ${name}`;
    this.#model.on(textOf(name), call('terminal', { command }), say(replyTo(name)));
    const path = `/v1/conversations/${this.#conversation}/messages`;
    const accepted = await this.#caller.until('a message', () =>
      this.#api.request('POST', path, { json: { text: textOf(name) }, headers: { 'idempotency-key': name } }),
    );
    if (accepted.status !== 202) throw refused('a message', accepted);
    const { id } = v.parse(v.object({ message: messageSchema }), accepted.json()).message;
    this.#turns.push({ name, zeros, id });
    const end = performance.now() + turnMs;
    let state = 'accepted';
    while (state === 'accepted' || state === 'dispatched') {
      if (performance.now() > end) throw new Error(`${name} (${id}) has not ended in ${turnMs} ms`);
      await Bun.sleep(150);
      state = await this.#stateOf(id);
    }
    if (state !== 'delivered') return;
    for (const resolve of this.#waiting) resolve();
    this.#waiting.clear();
  }

  /** Resolves when one more turn was delivered, or after `limitMs`. */
  async oneMore(limitMs: number): Promise<void> {
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#waiting.add(resolve);
    const timer = setTimeout(resolve, limitMs);
    await promise;
    clearTimeout(timer);
    this.#waiting.delete(resolve);
  }

  /** Synced files that nobody has looked for yet and that are not there. */
  async flawsOfFiles(): Promise<readonly string[]> {
    const flaws: string[] = [];
    for (const [name, zeros] of this.#synced) {
      if (this.#checked.has(name)) continue;
      const wanted = digestOf(Buffer.concat([Buffer.from(name), Buffer.alloc(zeros)]));
      const found = await this.#caller.digestOf(this.#api, this.#conversation, `file:///workspace/${name}`);
      if (found === wanted) this.#checked.add(name);
      else flaws.push(`${name} was synced with ${zeros} zeros, and is ${found}`);
    }
    return flaws;
  }

  /** Everything that is wrong with files and turns. To be called when the last turn has ended. */
  async flaws(): Promise<readonly string[]> {
    this.#checked.clear();
    const flaws = [...(await this.flawsOfFiles())];
    const rows = await this.#caller.transcriptOf(this.#api, this.#conversation);
    const count = (role: string, text: string) => rows.filter((row) => row.role === role && row.text === text).length;
    for (const { name, id } of this.#turns) {
      const state = await this.#stateOf(id);
      const [asked, replied] = [count('user', textOf(name)), count('assistant', replyTo(name))];
      const wanted = state === 'delivered' ? asked === 1 && replied === 1 : asked <= 1 && replied === 0;
      if (!wanted) flaws.push(`${name} (${id}) is ${state}, asked ${asked} times and answered ${replied} times`);
    }
    return flaws;
  }

  async delivered(): Promise<number> {
    const states = await Promise.all(this.#turns.map(({ id }) => this.#stateOf(id)));
    return states.filter((state) => state === 'delivered').length;
  }

  async #stateOf(id: string): Promise<string> {
    const path = `/v1/conversations/${this.#conversation}/messages/${id}`;
    const answer = await this.#caller.until('a message', () => this.#api.get(path));
    return v.parse(messageSchema, answer.json()).state;
  }
}
