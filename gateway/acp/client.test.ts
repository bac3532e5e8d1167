import { afterEach, beforeEach, describe, expect, test } from 'bun:test';
import { mkdtempSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ContentBlock } from '../domain.ts';
import { createSchema } from '../transcript/local-sessiondb.fixture.ts';
import { type AgentClient, connectAgent, permissionAnswer } from './client.ts';
import { wholeLines } from './whole-lines.ts';

let directory: string;
let agent: Bun.Subprocess<'pipe', 'pipe', 'inherit'>;
let client: AgentClient;
let updates: Record<string, unknown>[];
let session: string;
/** Resolves with the next message chunk. */
let chunked: PromiseWithResolvers<void>;

beforeEach(async () => {
  directory = mkdtempSync(join(tmpdir(), 'edge-acp-'));
  const database = createSchema(join(directory, 'state.db'));
  database.close();
  agent = Bun.spawn(
    [process.execPath, join(import.meta.dir, 'agent.fixture.ts'), join(directory, 'state.db'), join(directory, 'log')],
    { stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' },
  );
  updates = [];
  chunked = Promise.withResolvers();
  const onUpdate = (update: Readonly<Record<string, unknown>>): void => {
    updates.push(update);
    if (update.sessionUpdate === 'agent_message_chunk') chunked.resolve();
  };
  client = connectAgent(
    { readable: agent.stdout, writable: writableOf(agent) },
    { maxLineBytes: 1024 * 1024, onUpdate },
  );
  await client.initialize();
  session = await client.newSession();
});
afterEach(async () => {
  client.close();
  agent.kill();
  await agent.exited;
  rmSync(directory, { recursive: true, force: true });
});

function writableOf(process: Bun.Subprocess<'pipe', 'pipe', 'inherit'>): WritableStream<Uint8Array> {
  return new WritableStream<Uint8Array>({
    async write(bytes) {
      process.stdin.write(bytes);
      await process.stdin.flush();
    },
  });
}
const text = (value: string): ContentBlock => ({ type: 'text', text: value });
const received = (): Record<string, unknown>[] =>
  readFileSync(join(directory, 'log'), 'utf8')
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line) as Record<string, unknown>);

test('says who it is, asks for a session in the workspace, and offers no capability', () => {
  expect(received().map(({ method, params }) => [method, params])).toEqual([
    ['initialize', { protocolVersion: 1, clientCapabilities: {}, clientInfo: { name: 'edge-gateway', version: '1' } }],
    ['session/new', { cwd: '/workspace', mcpServers: [] }],
  ]);
  expect(session).toMatch(/^[0-9a-f-]{36}$/);
});

test('the blocks go out exactly as they are', async () => {
  const blocks: ContentBlock[] = [
    text('reply \r\n lone\rCR \u2028 e\u0301 \u00e9 \ufeff 👩‍👩‍👧 \u202eRTL <<<HW_QUESTION {"a":1} </user_message>  '),
    { type: 'text', text: '', unknown: { z: 1, a: [null, 1e-7, 'x'] }, _meta: { k: 'v' } },
    { vendorFirst: true, type: 'resource_link', name: 'n', uri: 'file:///workspace/a%20b', size: 3 },
  ];
  const before = structuredClone(blocks);
  expect(await client.prompt(session, blocks)).toEqual({ kind: 'stopped', stopReason: 'end_turn' });
  expect(blocks).toEqual(before);
  const raw = readFileSync(join(directory, 'log'), 'utf8').trim().split('\n').at(-1) ?? '';
  expect(raw).toContain(JSON.stringify(blocks));
});

test('updates come as they were on the wire, unknown fields included, before the end of the prompt', async () => {
  await client.prompt(session, [text('reply hello')]);
  expect(updates).toEqual([
    { sessionUpdate: 'available_commands_update', availableCommands: [] },
    {
      sessionUpdate: 'agent_message_chunk',
      content: { type: 'text', text: 'reply hello', vendor: 1 },
      _x: { kept: [null] },
    },
  ]);
});

describe('permissions', () => {
  const options = (...kinds: string[]) =>
    kinds.map((kind, index) => ({ optionId: `${kind}-${index}`, name: kind, kind }));

  test('the offered allow_once is taken at once, by its kind', async () => {
    const offered = options('reject_once', 'allow_always', 'allow_once', 'allow_once');
    expect(await client.prompt(session, [text(`permission ${JSON.stringify(offered)}`)])).toMatchObject({
      kind: 'stopped',
    });
    const answer = { outcome: { outcome: 'selected', optionId: 'allow_once-2' } };
    expect(received().find(({ id }) => id === 'agent-1')).toEqual({ jsonrpc: '2.0', id: 'agent-1', result: answer });
  });

  test('where it is not offered, nothing is chosen', async () => {
    await client.prompt(session, [text(`permission ${JSON.stringify(options('allow_always', 'reject_once'))}`)]);
    expect(received().find(({ id }) => id === 'agent-1')?.result).toEqual({ outcome: { outcome: 'cancelled' } });
    for (const odd of [null, {}, { options: 'x' }, { options: [{ kind: 'allow_once' }] }]) {
      expect(permissionAnswer(odd)).toEqual({ outcome: { outcome: 'cancelled' } });
    }
  });

  test('kinds and fields that the SDK does not know do not get in the way', async () => {
    const offered = [{ kind: 'novel', optionId: 'n', name: 1 }, ...options('allow_once')];
    await client.prompt(session, [text(`permission ${JSON.stringify(offered)}`)]);
    expect(received().find(({ id }) => id === 'agent-1')?.result).toMatchObject({
      outcome: { optionId: 'allow_once-0' },
    });
  });
});

test('no other request of the agent is served', async () => {
  await client.prompt(session, [text('fs')]);
  expect(received().find(({ id }) => id === 'agent-1')).toMatchObject({ error: { code: -32601 } });
});

describe('ends of a prompt', () => {
  test('refusal, error, cancel', async () => {
    expect(await client.prompt(session, [text('refuse')])).toEqual({ kind: 'stopped', stopReason: 'refusal' });
    expect(await client.prompt(session, [text('error')])).toMatchObject({ kind: 'error', code: -32603 });
    const slow = client.prompt(session, [text('slow')]);
    await chunked.promise;
    await client.cancel(session);
    expect(await slow).toEqual({ kind: 'stopped', stopReason: 'cancelled' });
  });

  test('the agent dies, or never answers and is let go', async () => {
    const stubborn = client.prompt(session, [text('stubborn')]);
    client.close();
    expect(await stubborn).toEqual({ kind: 'gone' });
    expect(await client.prompt(session, [text('reply')])).toEqual({ kind: 'gone' });
  });

  test('the agent dies in the middle', async () => {
    expect(await client.prompt(session, [text('die')])).toEqual({ kind: 'gone' });
  });

  test('lines that are no JSON-RPC do not end the conversation', async () => {
    expect(await client.prompt(session, [text('garbage')])).toMatchObject({ kind: 'stopped' });
    expect(await client.prompt(session, [text('reply again')])).toMatchObject({ kind: 'stopped' });
  });

  test('a line beyond the limit ends it', async () => {
    expect(await client.prompt(session, [text(`reply ${'x'.repeat(1024 * 1024)}`)])).toEqual({ kind: 'gone' });
  });
});

describe('whole lines', () => {
  async function through(chunks: string[], maxBytes = 100): Promise<string[]> {
    const source = new ReadableStream<Uint8Array>({
      start(controller) {
        for (const chunk of chunks) controller.enqueue(new TextEncoder().encode(chunk));
        controller.close();
      },
    });
    const out: string[] = [];
    for await (const bytes of source.pipeThrough(wholeLines(maxBytes))) out.push(new TextDecoder().decode(bytes));
    return out;
  }

  test('joins what was cut and drops what the end cuts', async () => {
    expect(await through(['ab', 'c\nd', '', 'e\n\nf\ng', 'h'])).toEqual(['abc\n', 'de\n\nf\n']);
    expect(await through(['no end'])).toEqual([]);
  });

  test('bounds a line', async () => {
    await expect(through(['x'.repeat(60), 'x'.repeat(60), '\n'])).rejects.toThrow('100 bytes');
    expect(await through(['x'.repeat(99), '\n'])).toHaveLength(1);
  });
});
