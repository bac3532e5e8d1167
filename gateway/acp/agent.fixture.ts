/**
 * A scripted ACP agent for tests: `bun agent.fixture.ts DATABASE`. It speaks newline-delimited JSON-RPC by hand, so that
 * every interleaving can be forced, and keeps rows in a SessionDB file as Hermes does. The first word of a prompt says what
 * it does; see `turns`.
 */
import { Database } from 'bun:sqlite';
import { appendFileSync } from 'node:fs';

type Json = Record<string, unknown>;
const [, , databasePath = ':memory:', logPath] = process.argv;
const database = new Database(databasePath);
database.exec('PRAGMA busy_timeout = 5000');

const write = (text: string): void => {
  process.stdout.write(text);
};
const send = (message: Json): void => write(`${JSON.stringify({ jsonrpc: '2.0', ...message })}\n`);
const update = (session: unknown, body: Json): void =>
  send({ method: 'session/update', params: { sessionId: session, update: body } });
const chunk = (session: unknown, text: string): void =>
  update(session, {
    sessionUpdate: 'agent_message_chunk',
    content: { type: 'text', text, vendor: 1 },
    _x: { kept: [null] },
  });

let clock = Date.now() / 1000;
function row(session: unknown, role: string, content: string, finish: string | null): void {
  clock += 0.001;
  database
    .prepare('INSERT INTO messages (session_id, role, content, timestamp, finish_reason) VALUES (?,?,?,?,?)')
    .run(String(session), role, content, clock, finish);
}

const waiting = new Map<string, (message: Json) => void>();
let asked = 0;
function ask(method: string, params: Json): Promise<Json> {
  asked += 1;
  const id = `agent-${asked}`;
  send({ id, method, params });
  return new Promise((resolve) => waiting.set(id, resolve));
}

let cancelled: (() => void) | null = null;
const cancellation = (): Promise<void> =>
  new Promise((resolve) => {
    cancelled = resolve;
  });

type Turn = (session: unknown, text: string) => Promise<Json | null>;
const end: Json = { stopReason: 'end_turn' };
const reply = (session: unknown, text: string): Json => {
  chunk(session, text);
  row(session, 'assistant', text, 'stop');
  return end;
};

/** Each gives the result of its prompt, or null when it answers by itself or never. */
const turns: Record<string, Turn> = {
  reply: async (session, text) => reply(session, text),
  refuse: async () => ({ stopReason: 'refusal' }),
  norow: async (session) => {
    chunk(session, 'API call failed after 3 retries: Connection error.');
    return end;
  },
  /** As Hermes does when it could not write its row. */
  silent: async (session) => {
    chunk(session, 'What was said.');
    return end;
  },
  /** Runs until it is cancelled and leaves a fragment. */
  slow: async (session) => {
    chunk(session, 'part');
    await cancellation();
    row(session, 'assistant', 'part', null);
    return { stopReason: 'cancelled' };
  },
  /** Its reply was complete when the cancel came. */
  'slow-reply': async (session, text) => {
    chunk(session, 'part');
    await cancellation();
    reply(session, text);
    return { stopReason: 'cancelled' };
  },
  /** Has answered everything but the prompt itself when the cancel comes, which it takes no notice of. */
  crossing: async (session, text) => {
    reply(session, text);
    await cancellation();
    return end;
  },
  stubborn: async (session) => {
    chunk(session, 'part');
    return null;
  },
  die: async (session) => {
    chunk(session, 'part');
    process.exit(3);
  },
  'reply-and-die': async (session, text) => {
    reply(session, text);
    process.exit(3);
  },
  garbage: async () => {
    write('{"jsonrpc":"2.0","id":\n\n[1]\nnot json\n');
    return end;
  },
  /** Asks for a permission and replies with the answer it got. */
  permission: async (session, text) => {
    const options: unknown = JSON.parse(text.slice(text.indexOf(' ') + 1));
    const answer = await ask('session/request_permission', {
      sessionId: session,
      toolCall: { toolCallId: 't' },
      options,
    });
    return reply(session, JSON.stringify(answer.result));
  },
  /** Asks for something that a client without file capabilities does not do. */
  fs: async (session) => {
    const answer = await ask('fs/read_text_file', { sessionId: session, path: '/etc/passwd' });
    return reply(session, JSON.stringify(answer.error));
  },
  /** A late update of an earlier turn is cut off by the detach. */
  cut: async (session, text) => {
    reply(session, text);
    const line = JSON.stringify({
      jsonrpc: '2.0',
      method: 'session/update',
      params: { sessionId: session, update: { sessionUpdate: 'session_info_update', title: 'x'.repeat(1000) } },
    });
    const middle = 400;
    rest = `${line.slice(middle)}\n`;
    const answer = JSON.stringify({ jsonrpc: '2.0', id: promptId, result: end });
    write(`${answer}\n${line.slice(0, middle)}`);
    return null;
  },
};
let rest = '';
let promptId: unknown = null;

async function handle(message: Json): Promise<void> {
  const { id, method } = message;
  const params = (message.params ?? {}) as Json;
  if (method === undefined) {
    waiting.get(String(id))?.(message);
    waiting.delete(String(id));
    return;
  }
  if (method === 'initialize') send({ id, result: { protocolVersion: 1, agentCapabilities: {}, novelty: true } });
  if (method === 'session/new') {
    const sessionId = crypto.randomUUID();
    database.prepare("INSERT INTO sessions (id, source, started_at) VALUES (?, 'acp', ?)").run(sessionId, clock);
    update(sessionId, { sessionUpdate: 'available_commands_update', availableCommands: [] });
    send({ id, result: { sessionId } });
  }
  if (method === 'session/cancel') cancelled?.();
  if (method === 'session/prompt') await prompt(id, params);
}

async function prompt(id: unknown, params: Json): Promise<void> {
  const session = params.sessionId;
  const text = (params.prompt as { text?: string }[]).map((block) => block.text ?? '').join('\n');
  promptId = id;
  write(rest);
  rest = '';
  if (database.prepare('SELECT 1 FROM sessions WHERE id = ?').get(String(session)) === null) {
    send({ id, result: { stopReason: 'refusal' } });
    return;
  }
  row(session, 'user', text, null);
  const word = text.split(/\s/, 1)[0] ?? '';
  if (word === 'error') {
    send({ id, error: { code: -32603, message: "'NoneType' object has no attribute 'startswith'", data: 1 } });
    return;
  }
  const result = await (turns[word] ?? turns.reply)?.(session, text);
  if (result) send({ id, result });
}

let buffered = '';
const decoder = new TextDecoder();
for await (const bytes of Bun.stdin.stream()) {
  const text = decoder.decode(bytes, { stream: true });
  buffered += text;
  const lines = buffered.split('\n');
  buffered = lines.pop() ?? '';
  for (const line of lines) {
    if (logPath !== undefined) appendFileSync(logPath, `${line}\n`);
    void handle(JSON.parse(line) as Json);
  }
}
