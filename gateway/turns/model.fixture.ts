/** A scripted OpenAI-compatible model: the last user message says, with `SCRIPT:name`, what it does. For tests. */

interface ModelMessage {
  readonly role: string;
  readonly content?: unknown;
  readonly tool_calls?: unknown;
}

export interface FixtureModel {
  readonly url: string;
  /** Bodies of the chat requests that had tools, oldest first. */
  readonly requests: { readonly messages: readonly ModelMessage[] }[];
  /** Resolves when a slow answer has begun. */
  begun: PromiseWithResolvers<void>;
  stop(): Promise<void>;
}

type Step =
  | { readonly say: string; readonly finish?: string }
  | { readonly call: string; readonly with: object }
  | { readonly status: number }
  /** Goes on until the client hangs up. */
  | { readonly slowly: string };

const scripts: Record<string, readonly Step[]> = {
  danger: [{ call: 'terminal', with: { command: 'rm -rf scratch-danger' } }, { say: 'danger done' }],
  sleep: [{ call: 'terminal', with: { command: 'sleep 30; echo woke', timeout: 60 } }, { say: 'slept' }],
  slow: [{ slowly: 'word ' }],
  empty: [{ say: '' }],
  broken: [{ status: 400 }],
};

const textOf = (message: ModelMessage | undefined): string => {
  const content = message?.content;
  if (typeof content === 'string') return content;
  return Array.isArray(content) ? content.map((part: { text?: string }) => part.text ?? '').join('\n') : '';
};

export function startModel(): FixtureModel {
  const model: Omit<FixtureModel, 'url' | 'stop'> = { requests: [], begun: Promise.withResolvers() };
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 0,
    async fetch(request) {
      const path = new URL(request.url).pathname;
      if (path.endsWith('/models')) {
        return Response.json({ object: 'list', data: [{ id: 'scripted', object: 'model', context_length: 200_000 }] });
      }
      const text = await request.text();
      // Hermes asks for other things as well, to find out what kind of server this is.
      if (!path.endsWith('/chat/completions') || text === '') return new Response(null, { status: 404 });
      const body = JSON.parse(text) as { messages: ModelMessage[]; tools?: unknown[]; stream?: boolean };
      if (body.tools) model.requests.push(body);
      const step = body.tools ? stepFor(body.messages) : ({ say: 'a title' } as const);
      if ('status' in step) return Response.json({ error: { message: 'scripted refusal' } }, { status: step.status });
      return body.stream ? streamed(step, request.signal, () => model.begun.resolve()) : whole(step);
    },
  });
  return {
    ...model,
    get begun() {
      return model.begun;
    },
    set begun(next) {
      model.begun = next;
    },
    url: `http://127.0.0.1:${server.port}/v1`,
    stop: () => server.stop(true),
  };
}

function stepFor(messages: readonly ModelMessage[]): Step {
  const last = messages.findLastIndex(({ role }) => role === 'user');
  const text = textOf(messages[last]);
  // At its end: Hermes joins a message that failed and the next one.
  const name = /SCRIPT:(\w+)\s*$/.exec(text)?.[1];
  const done = messages.slice(last + 1).filter((message) => message.tool_calls).length;
  const script = name === undefined ? undefined : scripts[name];
  return script?.[Math.min(done, script.length - 1)] ?? { say: `You said: ${text}` };
}

type Spoken = Exclude<Step, { readonly status: number }>;

const usage = { prompt_tokens: 10, completion_tokens: 1, total_tokens: 11 };

function toolCall(step: { readonly call: string; readonly with: object }): object {
  const call = { name: step.call, arguments: JSON.stringify(step.with) };
  return { index: 0, id: `call_${crypto.randomUUID().slice(0, 8)}`, type: 'function', function: call };
}

function whole(step: Spoken): Response {
  const content = 'say' in step ? step.say : 'slowly' in step ? step.slowly : null;
  const message = { role: 'assistant', content, ...('call' in step && { tool_calls: [toolCall(step)] }) };
  const choices = [{ index: 0, message, finish_reason: 'call' in step ? 'tool_calls' : 'stop' }];
  return Response.json({ id: 'c', object: 'chat.completion', created: 1, model: 'scripted', choices, usage });
}

function streamed(step: Spoken, signal: AbortSignal, begun: () => void): Response {
  const encoder = new TextEncoder();
  const body = new ReadableStream<Uint8Array>({
    async start(controller) {
      const event = (delta: object, finish: string | null = null): void => {
        const choices = [{ index: 0, delta, finish_reason: finish }];
        const chunk = { id: 'c', object: 'chat.completion.chunk', created: 1, model: 'scripted', choices };
        controller.enqueue(encoder.encode(`data: ${JSON.stringify(finish ? { ...chunk, usage } : chunk)}\n\n`));
      };
      event({ role: 'assistant', content: '' });
      if ('call' in step) event({ tool_calls: [toolCall(step)] });
      if ('say' in step) event({ content: step.say });
      if ('slowly' in step) {
        const gone = Promise.withResolvers<void>();
        signal.addEventListener('abort', () => gone.resolve(), { once: true });
        event({ content: step.slowly });
        begun();
        await gone.promise;
        controller.close();
        return;
      }
      event({}, 'call' in step ? 'tool_calls' : (step.finish ?? 'stop'));
      controller.enqueue(encoder.encode('data: [DONE]\n\n'));
      controller.close();
    },
  });
  return new Response(body, { headers: { 'content-type': 'text/event-stream' } });
}
