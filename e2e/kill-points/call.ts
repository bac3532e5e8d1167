/** A client that asks again until it knows. Everything that it may ask for can be asked for twice. */
import * as v from 'valibot';
import type { Answer, Api } from '../harness/http.ts';
import { pageSchema, type Turn } from '../harness/transcript.ts';

/** Over all attempts; a gateway is down for some seconds at most. */
const definiteMs = 120_000;

export class Caller {
  /** Answers that say nothing that a client could use. */
  readonly unclear: string[] = [];
  /** Answers of 5xx and 429 as they should be, and connections that were cut. */
  failures = 0;

  /** The first answer that is neither a failure of the server nor none. @throws Error when there is none in time */
  async until(what: string, ask: () => Promise<Answer>): Promise<Answer> {
    const end = performance.now() + definiteMs;
    for (;;) {
      const answer = await ask().catch(() => null);
      if (answer !== null && answer.status < 500 && answer.status !== 429) return answer;
      this.failures += 1;
      if (answer !== null) this.#judge(what, answer);
      if (performance.now() > end) {
        throw new Error(`${what}: no answer in ${definiteMs} ms, last ${answer?.status} ${answer?.text.slice(0, 500)}`);
      }
      await Bun.sleep(100);
    }
  }

  /** The SHA-256 of a file's contents, or the status of an answer that has none. */
  async digestOf({ url, token }: Api, conversation: string, uri: string): Promise<string> {
    const address = `${url}/v1/conversations/${conversation}/files/content?uri=${encodeURIComponent(uri)}`;
    let digest = '';
    await this.until('a download', async () => {
      const headers = { authorization: `Bearer ${token}` };
      const answer = await fetch(address, { headers, signal: AbortSignal.timeout(60_000) });
      const bytes = Buffer.from(await answer.arrayBuffer());
      digest = answer.status === 200 ? digestOf(bytes) : `HTTP ${answer.status}`;
      const text = answer.status === 200 ? '' : bytes.toString();
      return { status: answer.status, headers: answer.headers, text, json: () => JSON.parse(text) };
    });
    return digest;
  }

  /** All rows of a transcript as an expert sees them. */
  async transcriptOf(api: Api, conversation: string): Promise<readonly Turn[]> {
    const turns: Turn[] = [];
    for (let cursor = ''; ; ) {
      const path = `/v1/conversations/${conversation}/transcript?view=canonical&limit=100${cursor}`;
      const answer = await this.until('a transcript', () => api.get(path));
      if (answer.status !== 200) throw refused('a transcript', answer);
      const page = v.parse(pageSchema, answer.json());
      turns.push(...page.turns);
      if (page.next === undefined) return turns;
      cursor = `&cursor=${page.next}`;
    }
  }

  /** A failure is a problem document that names its kind and says what to do; nothing is a plain 500. */
  #judge(what: string, { status, text }: Answer): void {
    const isClear =
      status !== 500 && /"type":"urn:edge-gateway:problem:[a-z-]+"/.test(text) && text.includes('"detail"');
    if (!isClear && this.unclear.length < 20) this.unclear.push(`${what}: ${status} ${text.slice(0, 300)}`);
  }
}

export const digestOf = (bytes: Uint8Array): string => new Bun.CryptoHasher('sha256').update(bytes).digest('hex');

/** An answer that nobody expects: whoever asked cannot go on. */
export const refused = (what: string, { status, text }: Answer): Error =>
  new Error(`${what}: HTTP ${status} ${text.slice(0, 1_000)}`);
