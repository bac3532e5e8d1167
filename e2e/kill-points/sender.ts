/** Conversations that get files, and are erased: what was accepted is there, what was refused or erased is not. */
import * as v from 'valibot';
import { formOf } from '../harness/form.ts';
import type { Api } from '../harness/http.ts';
import { type Caller, digestOf, refused } from './call.ts';

const entriesSchema = v.object({ entries: v.array(v.looseObject({ name: v.string(), size: v.number() })) });
const purgeSchema = v.looseObject({ state: v.string(), confirmation: v.optional(v.string()) });
const messageSchema = v.object({ message: v.looseObject({ id: v.string() }) });

/** Messages of one conversation before it is erased. */
const messagesOfOne = 3;

export class Sender {
  readonly #api: Api;
  readonly #caller: Caller;
  readonly #random: (below: number) => number;
  readonly #erased: string[] = [];
  #now: { readonly conversation: string; readonly files: Map<string, Uint8Array> } | null = null;
  #count = 0;
  uploads = 0;

  constructor(api: Api, caller: Caller, random: (below: number) => number) {
    this.#api = api;
    this.#caller = caller;
    this.#random = random;
  }

  get purges(): number {
    return this.#erased.length;
  }

  get erased(): readonly string[] {
    return this.#erased;
  }

  /** Begins a conversation, sends a message with a file, or erases it, until it is known what became of that. */
  async work(): Promise<void> {
    if (this.#now === null) await this.#begin();
    else if (this.#now.files.size < messagesOfOne) await this.#send(this.#now);
    else await this.#erase(this.#now.conversation);
  }

  /** What is otherwise than it was answered. To be called between two pieces of work. */
  async flaws(): Promise<readonly string[]> {
    const flaws: string[] = [];
    if (this.#now !== null) flaws.push(...(await this.#flawsOf(this.#now.conversation, this.#now.files)));
    const last = this.#erased.at(-1);
    if (last !== undefined) {
      const { status } = await this.#caller.until('an erased one', () => this.#api.get(`/v1/conversations/${last}`));
      if (status !== 404) flaws.push(`${last} was erased, and is there: ${status}`);
    }
    return flaws;
  }

  async #begin(): Promise<void> {
    // Its answer may be lost: then there is one that nobody knows of.
    const answer = await this.#caller.until('a conversation', () =>
      this.#api.post('/v1/conversations', { specialist: 'Eleanora' }),
    );
    if (answer.status !== 201) throw refused('a conversation', answer);
    this.#now = { conversation: (answer.json() as { id: string }).id, files: new Map() };
  }

  async #send({ conversation, files }: { conversation: string; files: Map<string, Uint8Array> }): Promise<void> {
    this.#count += 1;
    const size = this.#random(4) === 0 ? 1_200_000 + this.#random(600_000) : 1 + this.#random(150_000);
    const bytes = Buffer.alloc(size, `file ${this.#count} `);
    const name = `file-${this.#count}.bin`;
    const body = () => formOf([`see file ${this.#count}`, { name, bytes, type: 'application/octet-stream' }]);
    const headers = { 'idempotency-key': `file-${this.#count}` };
    const path = `/v1/conversations/${conversation}/messages`;
    const answer = await this.#caller.until('a message with a file', () =>
      this.#api.request('POST', path, { body: body(), headers, timeoutMs: 30_000 }),
    );
    if (answer.status !== 202) throw refused('a message with a file', answer);
    v.parse(messageSchema, answer.json());
    files.set(`${digestOf(bytes).slice(0, 16)}-${name}`, bytes);
    this.uploads += 1;
  }

  async #erase(conversation: string): Promise<void> {
    const targets = { conversations: [conversation] };
    const purge = (more: object) => async () => this.#api.post('/v1/retention/purges', { targets, ...more });
    for (let attempt = 0; ; attempt++) {
      const look = await this.#caller.until('the counts of a purge', purge({}));
      // The answer to an earlier attempt was lost.
      if (look.status === 404) break;
      if (look.status !== 200) throw refused('the counts of a purge', look);
      const { confirmation } = v.parse(purgeSchema, look.json());
      const done = await this.#caller.until('a purge', purge({ confirmation }));
      if (done.status === 200 || done.status === 404) break;
      // Its turns go on between the look and the confirmation.
      if (done.status !== 409 || attempt > 300) throw refused('a purge', done);
    }
    this.#erased.push(conversation);
    this.#now = null;
  }

  async #flawsOf(conversation: string, files: ReadonlyMap<string, Uint8Array>): Promise<string[]> {
    const flaws: string[] = [];
    const path = `/v1/conversations/${conversation}/files?path=/artifacts/inbound`;
    const listed = await this.#caller.until('a list', () => this.#api.get(path));
    const names = listed.status === 404 ? [] : v.parse(entriesSchema, listed.json()).entries.map(({ name }) => name);
    for (const name of names) if (!files.has(name)) flaws.push(`${name} is there, and no message has it`);
    for (const [name, bytes] of files) {
      const digest = await this.#caller.digestOf(this.#api, conversation, `file:///artifacts/inbound/${name}`);
      if (digest !== digestOf(bytes)) flaws.push(`${name} is not what was sent: ${digest}`);
    }
    return flaws;
  }
}
