/**
 * A model provider for tests: speaks the OpenAI chat completions interface on loopback, plays what a test told it to, and
 * keeps every request with the time at which it came.
 */
import * as v from 'valibot';
import { Arrivals } from './waiting.ts';

export interface ToolCall {
  readonly name: string;
  readonly arguments: Readonly<Record<string, unknown>>;
}

/** One answer of the model. */
export type Step =
  | { readonly do: 'say'; readonly text: string }
  /** The text word by word, with a pause before each. */
  | { readonly do: 'say-slowly'; readonly text: string; readonly pauseMs: number }
  /** The text in exactly these pieces; waits for the promise, if there is one, before the piece of that number. */
  | {
      readonly do: 'say-in-pieces';
      readonly pieces: readonly string[];
      readonly pause?: readonly [at: number, until: Promise<void>];
    }
  /** A text that reached the output limit of the model. */
  | { readonly do: 'say-too-much'; readonly text: string }
  | { readonly do: 'call'; readonly calls: readonly ToolCall[] }
  | { readonly do: 'fail'; readonly status: number; readonly message: string }
  /** Accepts the request and never answers. */
  | { readonly do: 'hang' };

export const say = (text: string): Step => ({ do: 'say', text });
export const call = (name: string, args: Readonly<Record<string, unknown>>): Step => ({
  do: 'call',
  calls: [{ name, arguments: args }],
});

const messageSchema = v.looseObject({ role: v.string(), content: v.nullish(v.unknown()) });
const bodySchema = v.looseObject({
  model: v.string(),
  messages: v.array(messageSchema),
  stream: v.optional(v.boolean(), false),
  tools: v.optional(v.array(v.unknown())),
});
export type ChatBody = v.InferOutput<typeof bodySchema>;

export interface ModelRequest {
  /** `turn` has tools; `auxiliary` is Hermes' own side work, such as making a title. */
  readonly kind: 'turn' | 'auxiliary';
  /** Milliseconds since the epoch, with fractions. */
  readonly atMs: number;
  readonly body: ChatBody;
  /** The bytes as they came. */
  readonly raw: string;
  readonly authorization: string | null;
}

type Match = string | RegExp | ((userText: string) => boolean);

const now = () => performance.timeOrigin + performance.now();

/** The text of the last user message: of a list of parts, the text parts. */
export function lastUserText(body: ChatBody): string {
  const content = body.messages.findLast(({ role }) => role === 'user')?.content;
  if (typeof content === 'string') return content;
  if (!Array.isArray(content)) return '';
  const parts = content as readonly { readonly type?: unknown; readonly text?: unknown }[];
  return parts.map((part) => (typeof part.text === 'string' ? part.text : '')).join('\n');
}

/** How many answers the model has given since the last user message. */
export function round(body: ChatBody): number {
  const from = body.messages.findLastIndex(({ role }) => role === 'user');
  return body.messages.slice(from + 1).filter(({ role }) => role === 'assistant').length;
}

export class ScriptedModel {
  readonly requests = new Arrivals<ModelRequest>();
  /** Each request waits for this before it is answered. */
  beforeAnswer: (request: ModelRequest) => Promise<void> = async () => undefined;
  /** Called when the last byte of a streamed answer was handed over. */
  afterAnswer: (request: ModelRequest) => void = () => undefined;
  readonly #server: Bun.Server<undefined>;
  readonly #scripts: { readonly match: Match; readonly steps: readonly Step[] }[] = [];
  #calls = 0;

  private constructor(port: number) {
    this.#server = Bun.serve({
      hostname: '127.0.0.1',
      port,
      idleTimeout: 0,
      maxRequestBodySize: 256 * 1024 * 1024,
      fetch: (request) => this.#answer(request),
    });
  }

  /** @param port that of one that was stopped, to take its place */
  static start(port = 0): ScriptedModel {
    return new ScriptedModel(port);
  }

  /** The base URL for an OpenAI client. */
  get url(): string {
    return `http://127.0.0.1:${this.#server.port}/v1`;
  }

  /**
   * When the last user text contains (or matches) `match`, the first answer is the first step, the answer after its tool
   * results the second, and so on; the last step repeats. Later scripts win. Without one the answer is `ok`.
   */
  on(match: Match, ...steps: readonly Step[]): this {
    if (steps.length === 0) throw new Error('a script needs a step');
    this.#scripts.unshift({ match, steps });
    return this;
  }

  /** The requests of turns, in order of arrival. */
  get turns(): readonly ModelRequest[] {
    return this.requests.all.filter(({ kind }) => kind === 'turn');
  }

  waitForTurn(containing: string, timeoutMs?: number): Promise<ModelRequest> {
    const wants = ({ kind, body }: ModelRequest) => kind === 'turn' && lastUserText(body).includes(containing);
    return this.requests.wait(`a model request with ${JSON.stringify(containing)}`, wants, timeoutMs);
  }

  async stop(): Promise<void> {
    await this.#server.stop(true);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }

  #stepFor(body: ChatBody): Step {
    const text = lastUserText(body);
    const script = this.#scripts.find(({ match }) => {
      if (typeof match === 'string') return text.includes(match);
      return match instanceof RegExp ? match.test(text) : match(text);
    });
    if (script === undefined) return say('ok');
    return script.steps[Math.min(round(body), script.steps.length - 1)]!;
  }

  async #answer(request: Request): Promise<Response> {
    const atMs = now();
    const { pathname } = new URL(request.url);
    if (pathname === '/v1/models')
      return Response.json({ object: 'list', data: [{ id: 'scripted', object: 'model' }] });
    if (pathname !== '/v1/chat/completions')
      return Response.json({ error: { message: 'no such path' } }, { status: 404 });
    const raw = await request.text();
    const body = v.parse(bodySchema, JSON.parse(raw));
    const kind = (body.tools?.length ?? 0) > 0 ? 'turn' : 'auxiliary';
    const arrived = { kind, atMs, body, raw, authorization: request.headers.get('authorization') } as const;
    this.requests.add(arrived);
    await this.beforeAnswer(arrived);
    const step = kind === 'turn' ? this.#stepFor(body) : say('A scripted title');
    if (step.do === 'fail') return Response.json({ error: { message: step.message } }, { status: step.status });
    if (step.do === 'hang') return new Promise(() => {}); // the client goes away first
    if (!body.stream) return this.#whole(body, step);
    return this.#stream(body, step, () => this.afterAnswer(arrived));
  }

  #toolCalls(step: Step) {
    if (step.do !== 'call') return [];
    return step.calls.map((made, index) => {
      this.#calls += 1;
      const details = { name: made.name, arguments: JSON.stringify(made.arguments) };
      return { index, id: `call_${this.#calls}`, type: 'function' as const, function: details };
    });
  }

  #whole(body: ChatBody, step: Step): Response {
    const text = 'text' in step ? step.text : 'pieces' in step ? step.pieces.join('') : null;
    const calls = this.#toolCalls(step);
    const message = { role: 'assistant', content: text, ...(calls.length > 0 ? { tool_calls: calls } : {}) };
    const choice = { index: 0, message, finish_reason: finishReason(step) };
    return Response.json({ ...envelope(body, 'chat.completion'), choices: [choice], usage });
  }

  #stream(body: ChatBody, step: Step, onEnd: () => void): Response {
    const calls = this.#toolCalls(step);
    const encoder = new TextEncoder();
    async function* events(): AsyncGenerator<Uint8Array> {
      const event = (delta: unknown, finish: string | null = null, more: object = {}) => {
        const choices = [{ index: 0, delta, finish_reason: finish }];
        return encoder.encode(
          `data: ${JSON.stringify({ ...envelope(body, 'chat.completion.chunk'), choices, ...more })}\n\n`,
        );
      };
      yield event({ role: 'assistant', content: '' });
      if (step.do === 'say' || step.do === 'say-too-much') yield event({ content: step.text });
      if (step.do === 'say-slowly') {
        for (const word of step.text.match(/\S+\s*/g) ?? []) {
          await Bun.sleep(step.pauseMs);
          yield event({ content: word });
        }
      }
      if (step.do === 'say-in-pieces') {
        for (const [at, content] of step.pieces.entries()) {
          if (step.pause?.[0] === at) await step.pause[1];
          yield event({ content });
        }
      }
      for (const made of calls) yield event({ tool_calls: [made] });
      yield event({}, finishReason(step));
      yield event({}, null, { choices: [], usage });
      yield encoder.encode('data: [DONE]\n\n');
      onEnd();
    }
    return new Response(events(), { headers: { 'content-type': 'text/event-stream' } });
  }
}

const finishReason = (step: Step): string =>
  step.do === 'call' ? 'tool_calls' : step.do === 'say-too-much' ? 'length' : 'stop';

const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };

function envelope(body: ChatBody, object: string) {
  return { id: 'chatcmpl-scripted', object, created: Math.floor(Date.now() / 1000), model: body.model };
}
