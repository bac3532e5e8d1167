/** The demo's scripted model as an OpenAI-compatible server on loopback. Nothing but the `demo` command imports this. */
import { timingSafeEqual } from 'node:crypto';
import * as v from 'valibot';
import { type Answer, answer, type ChatRequest, chatRequestSchema } from './script.ts';

export interface DemoModel {
  /** Base URL for an OpenAI client. */
  readonly url: string;
  readonly port: number;
  readonly key: string;
  readonly model: string;
  stop(): Promise<void>;
}

const modelName = 'edge-gateway-demo';
const contextTokens = 200_000;
const maxBodyBytes = 64 * 1024 * 1024;
/** Requests answered at the same time. */
const maxRequests = 256;
const countPauseMs = 1_000;

/** Starts it; every request must carry `Bearer <key>`. Port 0 lets the kernel choose. Throws when the port is taken. */
export function startDemoModel(key: string, port = 0): DemoModel {
  const expected = digest(`Bearer ${key}`);
  let running = 0;
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port,
    reusePort: false,
    // A counted reply is silent for a second at a time, never longer.
    idleTimeout: 30,
    maxRequestBodySize: maxBodyBytes,
    async fetch(request) {
      if (!timingSafeEqual(digest(request.headers.get('authorization') ?? ''), expected)) {
        return failure(401, 'invalid_api_key', 'The key is wrong');
      }
      const { pathname } = new URL(request.url);
      if (request.method === 'GET' && pathname === '/v1/models')
        return Response.json({ object: 'list', data: [entry] });
      if (request.method !== 'POST' || pathname !== '/v1/chat/completions') {
        return failure(404, 'not_found', 'There is nothing here');
      }
      const body = v.safeParse(v.pipe(v.string(), v.parseJson(), chatRequestSchema), await request.text());
      if (!body.success) return failure(400, 'invalid_request_error', v.summarize(body.issues).slice(0, 500));
      if (running >= maxRequests) return failure(429, 'rate_limit_exceeded', 'Too many requests at once');
      running += 1;
      let counted = true;
      const done = () => {
        if (counted) running -= 1;
        counted = false;
      };
      return body.output.stream === true ? streamed(body.output, done) : await whole(body.output, done);
    },
  });
  const taken = server.port as number;
  const url = `http://127.0.0.1:${taken}/v1`;
  return { url, port: taken, key, model: modelName, stop: () => server.stop(true) };
}

const entry = { id: modelName, object: 'model', owned_by: 'edge-gateway', context_length: contextTokens };

function digest(text: string): Uint8Array {
  return new Bun.CryptoHasher('sha256').update(text).digest();
}

function failure(status: number, code: string, message: string): Response {
  return Response.json({ error: { message, type: code, code } }, { status });
}

/** The pieces of a text in the order in which they are streamed. */
async function* pieces(given: Exclude<Answer, { kind: 'call' }>): AsyncGenerator<string> {
  if (given.kind === 'text') {
    yield* given.text.match(/\S*\s*/g)?.filter(Boolean) ?? [];
    return;
  }
  for (let number = 1; number <= given.to; number += 1) {
    if (number > 1) await Bun.sleep(countPauseMs);
    yield `${number}${number < given.to ? ', ' : '. That was the scripted model of the demo.'}`;
  }
}

function toolCall(given: Extract<Answer, { kind: 'call' }>) {
  const id = `call_${crypto.randomUUID().replaceAll('-', '')}`;
  return { id, type: 'function', function: { name: given.tool, arguments: JSON.stringify(given.arguments) } };
}

/** A rough count, four characters a token: nobody pays for these. */
function usageOf(request: ChatRequest, completion: string) {
  const prompt_tokens = Math.ceil(JSON.stringify(request.messages).length / 4);
  const completion_tokens = Math.ceil(completion.length / 4);
  return { prompt_tokens, completion_tokens, total_tokens: prompt_tokens + completion_tokens };
}

function envelope(object: string) {
  const id = `chatcmpl-${crypto.randomUUID()}`;
  return { id, object, created: Math.floor(Date.now() / 1000), model: modelName };
}

async function whole(request: ChatRequest, done: () => void): Promise<Response> {
  try {
    const given = answer(request);
    if (given.kind === 'call') {
      const message = { role: 'assistant', content: null, tool_calls: [toolCall(given)] };
      const choices = [{ index: 0, message, finish_reason: 'tool_calls' }];
      return Response.json({ ...envelope('chat.completion'), choices, usage: usageOf(request, '') });
    }
    const content = (await Array.fromAsync(pieces(given))).join('');
    const choices = [{ index: 0, message: { role: 'assistant', content }, finish_reason: 'stop' }];
    return Response.json({ ...envelope('chat.completion'), choices, usage: usageOf(request, content) });
  } finally {
    done();
  }
}

function streamed(request: ChatRequest, done: () => void): Response {
  const head = envelope('chat.completion.chunk');
  const chunk = (delta: object, finish_reason: string | null = null) =>
    event({ ...head, choices: [{ index: 0, delta, finish_reason }] });
  async function* events(): AsyncGenerator<string> {
    try {
      const given = answer(request);
      let content = '';
      yield chunk({ role: 'assistant', content: '' });
      if (given.kind === 'call') {
        yield chunk({ tool_calls: [{ index: 0, ...toolCall(given) }] });
      } else {
        for await (const piece of pieces(given)) {
          content += piece;
          yield chunk({ content: piece });
        }
      }
      yield chunk({}, given.kind === 'call' ? 'tool_calls' : 'stop');
      yield event({ ...head, choices: [], usage: usageOf(request, content) });
      yield 'data: [DONE]\n\n';
    } finally {
      done();
    }
  }
  return new Response(bytesOf(events(), done), {
    headers: { 'content-type': 'text/event-stream', 'cache-control': 'no-store' },
  });
}

function event(body: object): string {
  return `data: ${JSON.stringify(body)}\n\n`;
}

/** Pulled by the reader; a reader that goes away ends the generator. */
function bytesOf(texts: AsyncGenerator<string>, gone: () => void): ReadableStream<Uint8Array> {
  const encoder = new TextEncoder();
  return new ReadableStream({
    async pull(controller) {
      const { done, value } = await texts.next();
      if (done) controller.close();
      else controller.enqueue(encoder.encode(value));
    },
    async cancel() {
      // A generator that was never pulled does not run its own end.
      gone();
      await texts.return(undefined);
    },
  });
}
