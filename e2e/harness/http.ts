/** The HTTP interface as one caller uses it. */
import * as v from 'valibot';

export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  /** The parsed body. @throws SyntaxError when it is not JSON */
  json(): unknown;
}

export interface RequestOptions {
  readonly json?: unknown;
  readonly body?: Bun.BodyInit;
  readonly headers?: Readonly<Record<string, string>>;
  readonly timeoutMs?: number;
}

const messageSchema = v.looseObject({ id: v.string(), state: v.string() });
const deliveredSchema = v.object({
  message: messageSchema,
  reply: v.object({ locator: v.string(), text: v.string() }),
});
export type Delivered = v.InferOutput<typeof deliveredSchema>;
const conversationSchema = v.object({ id: v.string() });

export class Api {
  readonly url: string;
  readonly token: string | null;

  constructor(url: string, token: string | null) {
    this.url = url;
    this.token = token;
  }

  async request(method: string, path: string, options: RequestOptions = {}): Promise<Answer> {
    const headers = new Headers(options.headers);
    if (this.token !== null && !headers.has('authorization')) headers.set('authorization', `Bearer ${this.token}`);
    if (options.json !== undefined) headers.set('content-type', 'application/json');
    const body = options.json === undefined ? options.body : JSON.stringify(options.json);
    const signal = AbortSignal.timeout(options.timeoutMs ?? 150_000);
    const request: RequestInit = { method, headers, signal };
    if (body !== undefined) request.body = body;
    const response = await fetch(`${this.url}${path}`, request);
    const text = await response.text();
    return { status: response.status, headers: response.headers, text, json: () => JSON.parse(text) as unknown };
  }

  get(path: string, options?: RequestOptions): Promise<Answer> {
    return this.request('GET', path, options);
  }

  post(path: string, json: unknown, headers: Readonly<Record<string, string>> = {}): Promise<Answer> {
    return this.request('POST', path, { json, headers });
  }

  /** Sends a text or blocks and waits for the reply. @throws Error with the answer when none is delivered */
  async say(conversation: string, content: string | readonly unknown[], waitSeconds = 120): Promise<Delivered> {
    const json = typeof content === 'string' ? { text: content } : { blocks: content };
    const headers = { prefer: `wait=${waitSeconds}` };
    const answer = await this.post(`/v1/conversations/${conversation}/messages`, json, headers);
    if (answer.status !== 200) throw new Error(`no reply: HTTP ${answer.status} ${answer.text.slice(0, 2000)}`);
    return v.parse(deliveredSchema, answer.json());
  }

  /** @returns the id of a new conversation */
  async createConversation(specialist: string): Promise<string> {
    const answer = await this.post('/v1/conversations', { specialist });
    if (answer.status !== 201) throw new Error(`no conversation: HTTP ${answer.status} ${answer.text}`);
    return v.parse(conversationSchema, answer.json()).id;
  }
}
