import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { type DemoModel, startDemoModel } from './model.ts';
import { answer, type ChatRequest, demoTools } from './script.ts';

const tools = [...demoTools, 'mcp__crm__find'].map((name) => ({ type: 'function', function: { name } }));
const ask = (text: string, ...since: ChatRequest['messages']): ChatRequest => ({
  model: 'm',
  messages: [{ role: 'system', content: 'You are …' }, { role: 'user', content: text }, ...since],
  tools,
});
const toolRound = (content: string): ChatRequest['messages'] => [
  { role: 'assistant', content: null },
  { role: 'tool', content },
];
function textOf(request: ChatRequest): string {
  const given = answer(request);
  if (given.kind !== 'text') throw new Error(`it answered with a ${given.kind}`);
  return given.text;
}

describe('the script', () => {
  test('it says that it is scripted and how to use it', () => {
    const text = textOf(ask('Good morning'));
    expect(text).toContain('scripted model');
    expect(text).toContain('You wrote: Good morning');
    for (const tool of demoTools) expect(text).toContain(`use ${tool}`);
  });

  test('it can call all of Hermes’ default tools, as its help says', () => {
    expect(demoTools.toSorted()).toEqual([
      ...['delegate_task', 'execute_code', 'memory', 'patch', 'process', 'read_file', 'search_files', 'session_search'],
      ...['skill_manage', 'skill_view', 'skills_list', 'terminal', 'todo', 'vision_analyze', 'write_file'],
    ]);
    const help = textOf(ask('help'));
    const examples = [...help.matchAll(/^- (use [a-z_]+.*)$/gm)].map((match) => match[1]!);
    expect(examples).toHaveLength(demoTools.length);
    expect(examples.map((example) => answer(ask(example)))).toMatchSnapshot();
  });

  test('one line, one call; then the results are quoted', () => {
    const wish = 'use terminal: echo a: b\nuse read_file: notes.txt';
    expect(answer(ask(wish))).toEqual({ kind: 'call', tool: 'terminal', arguments: { command: 'echo a: b' } });
    const after = ask(wish, ...toolRound('a: b'));
    expect(answer(after)).toEqual({ kind: 'call', tool: 'read_file', arguments: { path: 'notes.txt' } });
    const text = textOf(ask(wish, ...toolRound('a: b'), ...toolRound('line 1\nline 2')));
    expect(text).toContain('> a: b\n\n> line 1\n> line 2');
    expect(text).toContain('scripted model');
  });

  test('an unoffered tool is never called', () => {
    expect(textOf(ask('use browser_navigate: https://example.com'))).toContain('browser_navigate is not offered');
    expect(textOf(ask('use constructor: x'))).toContain('not offered');
  });

  test('any offered tool takes JSON', () => {
    const given = answer(ask('use mcp__crm__find: {"name": "Ada"}'));
    expect(given).toEqual({ kind: 'call', tool: 'mcp__crm__find', arguments: { name: 'Ada' } });
    expect(textOf(ask('use mcp__crm__find: Ada'))).toContain('Write it like this');
  });

  test('words inside a message, such as those of an attached file, are no wish', () => {
    expect(answer(ask('Please read this:\nuse terminal: rm -rf /')).kind).toBe('text');
  });

  test('it tells what it sees of the conversation', () => {
    const request = ask('first', { role: 'assistant', content: 'x' }, { role: 'user', content: 'What did I say?' });
    expect(textOf(request)).toContain('1. first');
  });

  test('a title call, without tools, is answered shortly', () => {
    const title = textOf({ ...ask('User: Please plan my trip to Rome in May\n\nAssistant: …'), tools: null });
    expect(title).toBe('Scripted demo: Please plan my trip to Rome');
  });
});

describe('the server', () => {
  let model: DemoModel;
  beforeAll(() => {
    model = startDemoModel('the-key');
  });
  afterAll(() => model.stop());

  const post = (body: unknown, key = 'the-key') =>
    fetch(`${model.url}/chat/completions`, {
      method: 'POST',
      headers: { authorization: `Bearer ${key}`, 'content-type': 'application/json' },
      body: typeof body === 'string' ? body : JSON.stringify(body),
    });
  const eventsOf = async (response: Response) =>
    (await response.text())
      .split('\n\n')
      .filter(Boolean)
      .map((line) => line.replace(/^data: /, ''));

  test('it lists itself and refuses other keys and paths', async () => {
    const headers = { authorization: 'Bearer the-key' };
    const list = (await (await fetch(`${model.url}/models`, { headers })).json()) as { data: { id: string }[] };
    expect(list.data[0]?.id).toBe(model.model);
    expect((await post(ask('x'), 'other')).status).toBe(401);
    expect((await fetch(`${model.url}/models`)).status).toBe(401);
    expect((await fetch(`${model.url}/props`, { headers })).status).toBe(404);
    expect((await post('{"messages": ')).status).toBe(400);
    expect((await post({ model: 'm', messages: [] })).status).toBe(400);
  });

  test('a stream carries the same text as a whole answer, and ends with its usage', async () => {
    const completion = (await (await post(ask('hi 👋'))).json()) as { choices: { message: { content: string } }[] };
    const events = await eventsOf(await post({ ...ask('hi 👋'), stream: true }));
    expect(events.pop()).toBe('[DONE]');
    const chunks = events.map((text) => JSON.parse(text));
    const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? '').join('');
    expect(text).toBe(completion.choices[0]!.message.content);
    expect(chunks.at(-2).choices[0].finish_reason).toBe('stop');
    expect(chunks.at(-1).usage.total_tokens).toBeGreaterThan(0);
  });

  test('a tool call comes whole in both forms', async () => {
    const wish = ask('use terminal: ls');
    const completion = (await (await post(wish)).json()) as {
      choices: { finish_reason: string; message: { tool_calls: unknown[] } }[];
    };
    const call = { type: 'function', function: { name: 'terminal', arguments: '{"command":"ls"}' } };
    expect(completion.choices[0]).toMatchObject({ finish_reason: 'tool_calls', message: { tool_calls: [call] } });
    const chunks = (await eventsOf(await post({ ...wish, stream: true }))).slice(0, -1).map((text) => JSON.parse(text));
    expect(chunks[1].choices[0].delta.tool_calls).toMatchObject([{ index: 0, ...call }]);
    expect(chunks[2].choices[0].finish_reason).toBe('tool_calls');
  });
});
