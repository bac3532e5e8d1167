/** Real Hermes, unchanged, with start.py, a relay and the embedded authority: whole turns, sudden death, two at once. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { HranaDatabase } from '../agentfs/hrana.ts';
import { SessionRelay } from './relay.ts';
import { startAuthority, type TestAuthority } from './testing/authority.ts';
import {
  AcpChild,
  hermesEnvironment,
  hermesPython,
  makeHome,
  noHermes,
  scriptIn,
  spawnServed,
} from './testing/hermes.ts';
import { type ScriptedModel, startModel } from './testing/model.ts';

const python = hermesPython();
const config = readFileSync(join(import.meta.dir, '../../bunfs-assets/config.yaml'), 'utf8');
const persona = readFileSync(join(import.meta.dir, '../../bunfs-assets/SOUL.md'), 'utf8');
const tool = (name: string, args: object) => ({ tools: [[name, args] as const] });
const showEnvironment = 'env | sort';

const scripts = {
  hello: [{ text: 'Hello there.' }],
  work: [
    tool('write_file', { path: 'notes.txt', content: 'line one\nline two\n' }),
    tool('patch', { mode: 'replace', path: 'notes.txt', old_string: 'line two', new_string: 'line 2' }),
    tool('memory', { action: 'add', target: 'memory', content: 'Likes teal.' }),
    tool('todo', { todos: [{ id: '1', content: 'a', status: 'pending' }] }),
    { text: 'Worked.' },
  ],
  danger: [tool('terminal', { command: 'rm -rf scratch' }), { text: 'Removed.' }],
  recall: [tool('session_search', { query: 'teal' }), { text: 'Recalled.' }],
  environment: [
    tool('terminal', { command: showEnvironment }),
    tool('terminal', { command: `${showEnvironment} > pty.txt; tty >> pty.txt`, background: true, pty: true }),
    tool('execute_code', {
      code: 'import os\nfrom hermes_tools import terminal\nprint(terminal("echo called back"), sorted(os.environ.items()))',
    }),
    { text: 'Shown.' },
  ],
  delegate: [tool('delegate_task', { goal: 'SCRIPT:hello to a subagent', context: 'none' }), { text: 'Delegated.' }],
};

type Row = Record<'id' | 'session_id' | 'role' | 'content' | 'timestamp', unknown>;

describe.skipIf(python === null)(`Hermes ${python === null ? `(${noHermes})` : ''}`, () => {
  let authority: TestAuthority;
  let model: ScriptedModel;
  let cloud: HranaDatabase;
  const directories: string[] = [];
  const refused: string[] = [];

  beforeAll(async () => {
    authority = await startAuthority();
    cloud = new HranaDatabase(authority.address);
    model = startModel(scripts);
  });
  afterAll(async () => {
    model.stop();
    await authority.stop();
    for (const directory of directories) rmSync(directory, { recursive: true, force: true });
  });

  function conversation() {
    const directory = mkdtempSync(join(tmpdir(), 'edge-hermes-'));
    directories.push(directory);
    makeHome(directory, config);
    writeFileSync(join(directory, 'hermes/SOUL.md'), persona);
    writeFileSync(join(directory, 'hermes/.env'), 'IN_DOTENV=secret-in-dotenv\n');
    const variables = {
      EDGE_MODEL_PROVIDER: 'custom',
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL_KEY: 'secret-key',
      EDGE_MODEL: 'scripted-1',
      EDGE_MODEL_VISION: 'true',
      PRIVATE_THING: 'secret-thing',
    };
    const sessions: string[] = [];
    const onRefusal = (reason: string) => void refused.push(reason);
    /** A child as the machine starts one: a fresh process and relay, told the sessions of this conversation. */
    const start = () =>
      AcpChild.start(
        new SessionRelay(authority.address, { sessions: [...sessions], onRefusal }),
        python!,
        directory,
        variables,
      );
    return { directory, work: join(directory, 'work'), sessions, start };
  }

  async function rows(session: string): Promise<Row[]> {
    const sql = 'SELECT id, session_id, role, content, timestamp FROM messages WHERE session_id = ? ORDER BY id';
    const result = await cloud.execute(sql, [session]);
    return result.rows.map((row) => Object.fromEntries(result.columns.map((name, at) => [name, row[at]])) as Row);
  }

  const toolOutput = async (session: string, name: string): Promise<string> => {
    const sql = 'SELECT content FROM messages WHERE session_id = ? AND tool_name = ? ORDER BY id LIMIT 1';
    return String((await cloud.execute(sql, [session, name])).rows[0]?.[0]);
  };

  test('whole turns, kill -9, and the history is there with the same rows', async () => {
    const { directory, work, sessions, start } = conversation();
    const first = await start();
    const session = await first.newSession(work);
    sessions.push(session);
    expect((await first.prompt(session, 'SCRIPT:work please')).result).toMatchObject({ stopReason: 'end_turn' });
    expect((await first.prompt(session, 'SCRIPT:danger now')).result).toMatchObject({ stopReason: 'end_turn' });
    expect(first.permissions.length).toBeGreaterThan(0);
    expect(first.said()).toContain('Worked.');
    expect(readFileSync(join(work, 'notes.txt'), 'utf8')).toBe('line one\nline 2\n');
    // The reply is a committed row before the response of the prompt.
    const before = await rows(session);
    expect(before.at(-1)).toMatchObject({ role: 'assistant', content: 'Removed.' });
    expect(await first.kill()).toEqual({ end: 'closed' });

    const second = await start();
    const asked = model.requests.length;
    expect((await second.prompt(session, 'SCRIPT:hello again')).result).toMatchObject({ stopReason: 'end_turn' });
    const seen = JSON.stringify(model.requests[asked]);
    for (const text of ['SCRIPT:work please', 'Worked.', 'SCRIPT:danger now', 'Removed.', persona.slice(0, 40)])
      expect(seen).toContain(text);
    const after = await rows(session);
    expect(after.slice(0, before.length)).toEqual(before);
    expect(after.slice(before.length).map(({ role, content }) => [role, content])).toEqual([
      ['user', 'SCRIPT:hello again'],
      ['assistant', 'Hello there.'],
    ]);
    await second.kill();
    expect(existsSync(join(directory, 'hermes/state.db'))).toBe(false);
    expect([...model.callers]).toEqual(['Bearer secret-key scripted-1']);
  }, 180_000);

  test('the private environment reaches Hermes and none of its tools', async () => {
    const { work, start } = conversation();
    const child = await start();
    const session = await child.newSession(work);
    await child.prompt(session, 'SCRIPT:environment');
    const shown = [
      await toolOutput(session, 'terminal'),
      await toolOutput(session, 'execute_code'),
      readFileSync(join(work, 'pty.txt'), 'utf8'),
    ];
    expect(shown[0]).toContain('HERMES_SESSION_ID');
    expect(shown[1]).toContain('called back');
    expect(shown[2]).toContain('/dev/pts/');
    for (const text of shown) {
      expect(text).toContain('PATH');
      expect(text).not.toContain('secret');
      expect(text).not.toContain('EDGE_');
    }
    await child.kill();
  }, 180_000);

  test('two at once, with recall and a subagent, and each stays in its own sessions', async () => {
    const both = [conversation(), conversation()];
    const children = await Promise.all(both.map(({ start }) => start()));
    const sessions = await Promise.all(children.map((child, at) => child.newSession(both[at]!.work)));
    const turns = ['hello', 'delegate', 'work', 'recall', 'hello'];
    await Promise.all(
      children.map(async (child, at) => {
        for (const turn of turns)
          expect((await child.prompt(sessions[at]!, `SCRIPT:${turn} ${at}`)).result).toMatchObject({
            stopReason: 'end_turn',
          });
      }),
    );
    for (const session of sessions) {
      const said = (await rows(session)).filter(({ role }) => role === 'user').map(({ content }) => content);
      expect(said.length).toBe(turns.length);
      const { rows: children } = await cloud.execute('SELECT id FROM sessions WHERE parent_session_id = ?', [session]);
      expect(children.length).toBe(1);
    }
    await Promise.all(children.map((child) => child.kill()));
    expect(refused).toEqual([]);
  }, 240_000);

  test('nothing in Hermes is replaced', async () => {
    const { directory } = conversation();
    const environment = hermesEnvironment(directory, { EDGE_SELFCHECK: '1' });
    const relay = new SessionRelay(authority.address);
    const { child } = await spawnServed(relay, [python!, '-I', scriptIn(directory)], directory, environment);
    const report = JSON.parse(await new Response(child.stdout).text());
    expect(report.replaced).toEqual([]);
    expect(report.modules).toBeGreaterThan(50);
  }, 90_000);

  test.each<[string, Record<string, string>, string]>([
    ['without HERMES_HOME', { HERMES_HOME: '' }, 'HERMES_HOME is not set'],
    ['without descriptor 3', {}, 'descriptor 3, the machine channel, is not open'],
  ])('does not start %s', async (_, more, problem) => {
    const { directory } = conversation();
    const child = Bun.spawn([python!, '-I', scriptIn(directory)], {
      env: hermesEnvironment(directory, more),
      stderr: 'pipe',
    });
    expect(await new Response(child.stderr).text()).toContain(problem);
    expect(await child.exited).toBe(1);
  });
});
