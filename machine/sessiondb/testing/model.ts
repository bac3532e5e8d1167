/** A scripted OpenAI-compatible model: the words `SCRIPT:name` in the last user message choose what it does. */

export type Step = { readonly text: string } | { readonly tools: readonly (readonly [name: string, args: unknown])[] };

export interface Message {
  readonly role: string;
  readonly content?: unknown;
  readonly tool_calls?: unknown;
}

export interface ScriptedModel {
  readonly url: string;
  /** `messages` of every request, oldest first. */
  readonly requests: readonly (readonly Message[])[];
  /** What came in the authorization header, and the model that was asked for, without repetitions. */
  readonly callers: ReadonlySet<string>;
  /** Requests for anything else than a completion. */
  readonly others: readonly string[];
  stop(): void;
}

const textOf = ({ content }: Message): string =>
  typeof content === 'string'
    ? content
    : Array.isArray(content)
      ? content.map((part: { text?: string }) => part.text ?? '').join('\n')
      : '';

export function startModel(scripts: Readonly<Record<string, readonly Step[]>>): ScriptedModel {
  const requests: (readonly Message[])[] = [];
  const callers = new Set<string>();
  const others: string[] = [];
  const server = Bun.serve({
    port: 0,
    hostname: '127.0.0.1',
    idleTimeout: 0,
    async fetch(request) {
      if (!request.url.endsWith('/chat/completions')) {
        others.push(`${request.method} ${new URL(request.url).pathname}`);
        return Response.json({ data: [{ id: 'scripted', object: 'model' }] });
      }
      const body = (await request.json()) as { messages: Message[]; model: string; stream?: boolean; tools?: unknown };
      requests.push(body.messages);
      callers.add(`${request.headers.get('authorization')} ${body.model}`);
      const last = body.messages.findLastIndex(({ role }) => role === 'user');
      const name = [...textOf(body.messages[last]!).matchAll(/SCRIPT:(\w+)/g)].at(-1)?.[1];
      const steps: readonly Step[] = (body.tools && name ? scripts[name] : null) ?? [{ text: 'A title' }];
      const done = body.messages.slice(last + 1).filter((message) => message.tool_calls).length;
      const step = steps[Math.min(done, steps.length - 1)]!;
      return body.stream ? streamed(step, body.model) : Response.json(whole(step, body.model));
    },
  });
  return { url: `http://127.0.0.1:${server.port}/v1`, requests, callers, others, stop: () => void server.stop(true) };
}

const usage = { prompt_tokens: 100, completion_tokens: 10, total_tokens: 110 };
const finish = (step: Step) => ('text' in step ? 'stop' : 'tool_calls');
const calls = (step: Step) =>
  'text' in step
    ? undefined
    : step.tools.map(([name, args], index) => ({
        index,
        id: `call_${crypto.randomUUID().slice(0, 8)}`,
        type: 'function',
        function: { name, arguments: JSON.stringify(args) },
      }));

function whole(step: Step, model: string) {
  const message = { role: 'assistant', content: 'text' in step ? step.text : null, tool_calls: calls(step) };
  const choices = [{ index: 0, message, finish_reason: finish(step) }];
  return { id: 'x', object: 'chat.completion', created: 1, model, choices, usage };
}

function streamed(step: Step, model: string): Response {
  const chunk = (delta: object, finish_reason: string | null = null, more: object = {}) =>
    `data: ${JSON.stringify({ id: 'x', object: 'chat.completion.chunk', created: 1, model, choices: [{ index: 0, delta, finish_reason }], ...more })}\n\n`;
  const words = 'text' in step ? (step.text.match(/\S+\s*/g) ?? []) : [];
  const parts = [
    chunk({ role: 'assistant', content: '' }),
    ...words.map((content) => chunk({ content })),
    ...('text' in step ? [] : [chunk({ tool_calls: calls(step) })]),
    chunk({}, finish(step)),
    chunk({}, null, { choices: [], usage }),
    'data: [DONE]\n\n',
  ];
  return new Response(parts.join(''), { headers: { 'content-type': 'text/event-stream' } });
}
