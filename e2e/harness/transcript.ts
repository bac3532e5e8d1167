/** A conversation's transcript as an expert reads and changes it. */
import * as v from 'valibot';
import type { Answer, Api } from './http.ts';

const turnSchema = v.looseObject({
  locator: v.string(),
  role: v.picklist(['user', 'assistant']),
  text: v.string(),
  etag: v.string(),
});
export type Turn = v.InferOutput<typeof turnSchema>;
/** The answer with one page of it. */
export const pageSchema = v.object({ turns: v.array(turnSchema), next: v.optional(v.string()) });

export class TranscriptClient {
  readonly #api: Api;
  readonly #path: string;

  constructor(api: Api, conversation: string) {
    this.#api = api;
    this.#path = `/v1/conversations/${conversation}`;
  }

  /** All of it, read page by page. */
  async read(view: 'client' | 'canonical' = 'client', limit = 100): Promise<Turn[]> {
    const turns: Turn[] = [];
    let cursor = '';
    do {
      const answer = await this.#api.get(`${this.#path}/transcript?view=${view}&limit=${limit}${cursor}`);
      const page = v.parse(pageSchema, answer.json());
      turns.push(...page.turns);
      cursor = page.next === undefined ? '' : `&cursor=${page.next}`;
    } while (cursor !== '');
    return turns;
  }

  async texts(): Promise<string[]> {
    return (await this.read()).map(({ role, text }) => `${role}: ${text}`);
  }

  /** The answer about one turn. */
  at(locator: string): Promise<Answer> {
    return this.#api.get(`${this.#path}/transcript/${locator}`);
  }

  /** @throws Error when there is no such turn */
  async turn(locator: string): Promise<Turn> {
    const answer = await this.at(locator);
    if (answer.status !== 200) throw new Error(`no turn: HTTP ${answer.status} ${answer.text}`);
    return v.parse(turnSchema, answer.json());
  }

  edit(locator: string, etag: string, text: string): Promise<Answer> {
    const headers = { 'if-match': etag };
    return this.#api.request('PATCH', `${this.#path}/transcript/${locator}`, { json: { text }, headers });
  }

  /** Edits whatever the turn says now. @throws Error when that is refused */
  async change(locator: string, text: string): Promise<void> {
    const answer = await this.edit(locator, (await this.turn(locator)).etag, text);
    if (answer.status !== 200) throw new Error(`no edit: HTTP ${answer.status} ${answer.text}`);
  }

  reply(text: string, key: string): Promise<Answer> {
    return this.#api.post(`${this.#path}/replies`, { text }, { 'idempotency-key': key });
  }
}
