/**
 * What the demo's scripted model answers: a pure function of the request. It is no language model and says so; on request
 * it calls each of Hermes' default tools, so that one can see the whole path work without a provider.
 */
import * as v from 'valibot';

const partSchema = v.looseObject({ type: v.string(), text: v.optional(v.string()) });
const messageSchema = v.looseObject({
  role: v.string(),
  content: v.nullish(v.union([v.string(), v.array(partSchema)])),
});
export const chatRequestSchema = v.looseObject({
  model: v.string(),
  messages: v.pipe(v.array(messageSchema), v.minLength(1)),
  stream: v.optional(v.nullable(v.boolean())),
  tools: v.optional(v.nullable(v.array(v.looseObject({ function: v.optional(v.looseObject({ name: v.string() })) })))),
});
export type ChatRequest = v.InferOutput<typeof chatRequestSchema>;
type ChatMessage = ChatRequest['messages'][number];

export type Answer =
  | { readonly kind: 'text'; readonly text: string }
  /** One number a second, to have something to watch and to cancel. */
  | { readonly kind: 'count'; readonly to: number }
  | { readonly kind: 'call'; readonly tool: string; readonly arguments: Readonly<Record<string, unknown>> };

interface Phrase {
  readonly example: string;
  /** Arguments for what stands behind the colon; null when it cannot be understood. */
  readonly read: (text: string) => Readonly<Record<string, unknown>> | null;
}

const whole =
  (name: string, more: Readonly<Record<string, unknown>> = {}) =>
  (text: string) =>
    text === '' ? null : { ...more, [name]: text };

/** `first: rest`, both needed. */
function pair(text: string, separator: string): readonly [string, string] | null {
  const at = text.indexOf(separator);
  if (at <= 0) return null;
  return [text.slice(0, at).trim(), text.slice(at + separator.length).trim()];
}

/** Hermes' default tools, each with a short phrase. Any tool that is offered takes `use NAME: {"json": "arguments"}`. */
const phrases: Readonly<Record<string, Phrase>> = {
  terminal: { example: 'use terminal: ls -la', read: whole('command') },
  process: { example: 'use process: list', read: whole('action') },
  write_file: {
    example: 'use write_file: notes.txt = some text',
    read: (text) => {
      const parts = pair(text, '=');
      return parts && { path: parts[0], content: `${parts[1]}\n` };
    },
  },
  read_file: { example: 'use read_file: notes.txt', read: whole('path') },
  patch: {
    example: 'use patch: notes.txt: some => more',
    read: (text) => {
      const parts = pair(text, ':');
      const change = parts && pair(parts[1], '=>');
      return change && { mode: 'replace', path: parts[0], old_string: change[0], new_string: change[1] };
    },
  },
  // Not `.`: Hermes runs grep with --exclude-dir=.*, which excludes that too.
  search_files: {
    example: 'use search_files: text',
    read: whole('pattern', { target: 'content', path: '/workspace' }),
  },
  execute_code: { example: 'use execute_code: print(6 * 7)', read: whole('code') },
  memory: { example: 'use memory: I like teal', read: whole('content', { action: 'add', target: 'memory' }) },
  todo: {
    example: 'use todo: buy milk; call Ada',
    read: (text) => {
      const items = text.split(';').map((item) => item.trim());
      const todos = items.filter(Boolean).map((content, at) => ({ id: String(at + 1), content, status: 'pending' }));
      return todos.length === 0 ? null : { todos };
    },
  },
  session_search: { example: 'use session_search: teal', read: whole('query') },
  skills_list: { example: 'use skills_list', read: () => ({}) },
  skill_view: { example: 'use skill_view: demo-skill', read: whole('name') },
  skill_manage: {
    example: 'use skill_manage: demo-skill = Say good morning.',
    read: (text) => {
      const parts = pair(text, '=');
      if (parts === null) return null;
      const [name, body] = parts;
      const content = `---\nname: ${name}\ndescription: made by the scripted demo model\n---\n# ${name}\n${body}\n`;
      return { action: 'create', name, content };
    },
  },
  vision_analyze: {
    example: 'use vision_analyze: picture.png = what is it?',
    read: (text) => {
      const parts = pair(text, '=');
      return parts && { image_url: parts[0], question: parts[1] };
    },
  },
  delegate_task: { example: 'use delegate_task: say hello', read: whole('goal', { context: 'none' }) },
};

export const demoTools = Object.keys(phrases);

const introduction =
  'I am the scripted model of the edge-gateway demo: no language model, only a script. Set a provider key, such as OPENROUTER_API_KEY, for real answers.';
const help = [
  'On request I call the tools of the agent, one line each:',
  ...Object.values(phrases).map(({ example }) => `- ${example}`),
  '- use NAME: {"argument": "value"} for any other tool',
  '- count to 10 (one number a second, to watch it stream or to cancel it)',
  '- what did I say? (tells what I see of this conversation)',
].join('\n');

const maxQuoted = 4_000;
const maxCount = 600;
const maxTitleWords = 6;

/** The next answer in the conversation that the request shows. */
export function answer(request: ChatRequest): Answer {
  const offered = (request.tools ?? []).flatMap((tool) => tool.function?.name ?? []);
  const last = request.messages.findLastIndex((message) => message.role === 'user');
  const user = last < 0 ? '' : textOf(request.messages[last]!);
  // Hermes' side calls, above all the one for a title, offer no tools.
  if (offered.length === 0) return { kind: 'text', text: titleOf(user) };

  const since = request.messages.slice(last + 1);
  const results = since.filter((message) => message.role === 'tool').map(textOf);
  const made = since.filter((message) => message.role === 'assistant').length;
  const wishes = wishesOf(user);
  const next = wishes[made];
  if (next !== undefined) return fulfil(next, offered, results);
  if (wishes.length > 0) return { kind: 'text', text: closing(results) };

  const count = /^count to ([0-9]{1,3})\b/i.exec(user.trim());
  if (count !== null) return { kind: 'count', to: Math.min(Number(count[1]), maxCount) };
  if (/^what did i say/i.test(user.trim())) return { kind: 'text', text: recall(request.messages, last) };
  return { kind: 'text', text: `${introduction}\n\nYou wrote: ${clip(user, 500)}\n\n${help}` };
}

interface Wish {
  readonly tool: string;
  readonly text: string;
}

/** The lines `use NAME: …` with which a message begins. What follows other words is never taken as a wish. */
function wishesOf(user: string): readonly Wish[] {
  const wishes: Wish[] = [];
  for (const line of user.trim().split('\n')) {
    const match = /^\s*use\s+([A-Za-z0-9_]+)\s*(?::\s*(.*?))?\s*$/i.exec(line);
    if (match === null) break;
    wishes.push({ tool: match[1]!, text: match[2] ?? '' });
  }
  return wishes;
}

function fulfil(wish: Wish, offered: readonly string[], results: readonly string[]): Answer {
  if (!offered.includes(wish.tool)) {
    const text = `${introduction}\n\nThe tool ${wish.tool} is not offered to me. These are: ${[...offered].sort().join(', ')}.`;
    return { kind: 'text', text: results.length === 0 ? text : `${text}\n\n${quote(results)}` };
  }
  const given = argumentsOf(wish);
  if (given !== null) return { kind: 'call', tool: wish.tool, arguments: given };
  const example = phrases[wish.tool]?.example ?? `use ${wish.tool}: {"argument": "value"}`;
  return { kind: 'text', text: `${introduction}\n\nWrite it like this: ${example}` };
}

function argumentsOf(wish: Wish): Readonly<Record<string, unknown>> | null {
  const json = v.safeParse(v.pipe(v.string(), v.parseJson(), v.record(v.string(), v.unknown())), wish.text);
  if (json.success) return json.output;
  const phrase = Object.hasOwn(phrases, wish.tool) ? phrases[wish.tool] : undefined;
  return phrase?.read(wish.text) ?? null;
}

function closing(results: readonly string[]): string {
  return `${introduction}\n\nThe tools answered:\n\n${quote(results)}`;
}

function quote(results: readonly string[]): string {
  return results.map((result) => `> ${clip(result, maxQuoted).replaceAll('\n', '\n> ')}`).join('\n\n');
}

function recall(messages: readonly ChatMessage[], last: number): string {
  const said = messages.slice(0, last).filter((message) => message.role === 'user');
  const lines = said.map((message, at) => `${at + 1}. ${clip(textOf(message), 200)}`);
  const list = lines.length === 0 ? 'Nothing before this.' : lines.join('\n');
  return `${introduction}\n\nI see ${messages.length} messages. You said before:\n${list}`;
}

function titleOf(user: string): string {
  const words = /User:\s*(.+)/i.exec(user)?.[1] ?? user;
  const title = words.split(/\s+/).slice(0, maxTitleWords).join(' ').trim();
  return `Scripted demo: ${clip(title, 50) || 'conversation'}`;
}

function textOf(message: ChatMessage): string {
  const { content } = message;
  if (typeof content === 'string') return content;
  return (content ?? []).flatMap((part) => part.text ?? []).join('\n');
}

/** Cut by code points, so that no emoji is torn. */
function clip(text: string, limit: number): string {
  const points = [...text.slice(0, limit * 2)];
  return points.length > limit || text.length > limit * 2 ? `${points.slice(0, limit).join('')} …` : text;
}
