/** Somebody who edits replies of a conversation and writes some, whatever is killed meanwhile. */
import type { Api } from '../harness/http.ts';
import { TranscriptClient, type Turn } from '../harness/transcript.ts';
import { type Caller, refused } from './call.ts';

export class Expert {
  readonly #caller: Caller;
  readonly #transcript: TranscriptClient;
  readonly #read: () => Promise<readonly Turn[]>;
  readonly #random: (below: number) => number;
  /** What stands at each locator. */
  readonly #words = new Map<string, string>();
  #count = 0;
  edits = 0;
  replies = 0;

  private constructor(api: Api, conversation: string, caller: Caller, random: (below: number) => number) {
    this.#caller = caller;
    this.#transcript = new TranscriptClient(api, conversation);
    this.#read = () => caller.transcriptOf(api, conversation);
    this.#random = random;
  }

  /** In a conversation that has begun, and in which nobody else does anything. */
  static async of(api: Api, conversation: string, caller: Caller, random: (below: number) => number): Promise<Expert> {
    const expert = new Expert(api, conversation, caller, random);
    for (const { role, locator, text } of await expert.#read())
      if (role === 'assistant') expert.#words.set(locator, text);
    return expert;
  }

  /** One edit or one reply, until it is known what became of it. */
  async work(): Promise<void> {
    this.#count += 1;
    // As much as one person might do, and not so much that reading it all takes longer than the rest.
    await Bun.sleep(100);
    await (this.#random(2) === 0 ? this.#reply() : this.#edit());
  }

  /** What is otherwise than it was answered. To be called between two pieces of work. */
  async flaws(): Promise<readonly string[]> {
    const found = new Map<string, string>();
    const flaws: string[] = [];
    for (const { role, locator, text } of await this.#read()) {
      if (role !== 'assistant') continue;
      if (found.has(locator)) flaws.push(`${locator} stands there twice`);
      found.set(locator, text);
      if (!this.#words.has(locator)) flaws.push(`nobody wrote ${JSON.stringify(text)} once more`);
    }
    for (const [locator, text] of this.#words)
      if (found.get(locator) !== text) flaws.push(`${JSON.stringify(text)} is ${JSON.stringify(found.get(locator))}`);
    return flaws;
  }

  async #reply(): Promise<void> {
    const text = `reply ${this.#count} by a human`;
    const answer = await this.#caller.until('a reply', () => this.#transcript.reply(text, `key-${this.#count}`));
    if (answer.status !== 201) throw refused('a reply', answer);
    this.#words.set((answer.json() as { locator: string }).locator, text);
    this.replies += 1;
  }

  async #edit(): Promise<void> {
    const locators = [...this.#words.keys()];
    const locator = locators[this.#random(locators.length)]!;
    const { etag } = (await this.#caller.until('a turn', () => this.#transcript.at(locator))).json() as {
      etag: string;
    };
    const text = `edit ${this.#count} by a human`;
    const answer = await this.#caller.until('an edit', () => this.#transcript.edit(locator, etag, text));
    // Sent again after it was done, it is an edit of words that are no more.
    const { current } = answer.json() as { current?: { text: string } };
    const wasDone = answer.status === 412 && current?.text === text;
    if (answer.status !== 200 && !wasDone) throw refused('an edit', answer);
    this.#words.set(locator, text);
    this.edits += 1;
  }
}
