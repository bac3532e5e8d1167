import { describe, expect, test } from 'bun:test';
import { existsSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import type { ContentBlock } from '../domain.ts';
import {
  blocksProblem,
  commandWords,
  isAgentCommand,
  type ProfileLimits,
  pythonStrip,
  statedFailure,
} from './agent-profile.ts';

const limits: ProfileLimits = { maxBlocks: 8, maxBytes: 4 * 1024 * 1024 };
const text = (value: string): ContentBlock => ({ type: 'text', text: value });
const link = (uri: string, more: Record<string, unknown> = {}): ContentBlock => ({
  type: 'resource_link',
  uri,
  name: 'a file',
  ...more,
});
const named = (...blocks: ContentBlock[]): string | undefined => blocksProblem(blocks, limits)?.problem;

describe('agent commands', () => {
  const commands = ['help', 'model', 'tools', 'context', 'reset', 'compact', 'steer', 'queue', 'version'];

  test('every command word, in the forms that the adapter accepts', () => {
    for (const word of commands) {
      expect(isAgentCommand([`/${word}`])).toBe(true);
      expect(isAgentCommand([` \n\t//${word.toUpperCase()}  now\n`])).toBe(true);
      expect(isAgentCommand([`/${word}x`])).toBe(false);
      expect(isAgentCommand([word])).toBe(false);
      expect(isAgentCommand([`please /${word}`])).toBe(false);
    }
  });

  test('blocks are joined before they are looked at', () => {
    expect(isAgentCommand(['  ', '/reset'])).toBe(true);
    expect(isAgentCommand(['/re', 'set'])).toBe(false);
    expect(isAgentCommand(['/reset', 'and then this'])).toBe(true);
  });

  test('/steer counts as a prefix once something follows', () => {
    expect(isAgentCommand(['/steering committee meets'])).toBe(true);
    expect(isAgentCommand(['/steering'])).toBe(false);
    expect(isAgentCommand(['/Steering committee meets'])).toBe(false);
  });

  test('other words with a slash are prose', () => {
    for (const prose of ['/etc/hosts is wrong', '/', '//', '/ reset', '/resetting', '/unknown thing', '/réset']) {
      expect(isAgentCommand([prose])).toBe(false);
    }
  });

  test('a command beside another kind of block is prose for Hermes, and so for us', () => {
    expect(named(text('/reset'))).toBe('agent-command');
    expect(named(text('/reset'), link('file:///workspace/a.txt'))).toBeUndefined();
  });
});

describe('blank and dropped messages', () => {
  test('blank as Python sees it', () => {
    for (const blank of ['', ' ', '\n\r\t', '\u00a0\u3000', '\u001c\u0085', '\u2028\u2029']) {
      expect(named(text(blank))).toBe('unprocessable-message');
    }
    for (const full of ['\ufeff', '\u200b', '.', '\u200d']) expect(named(text(full))).toBeUndefined();
    expect(pythonStrip('\u0085 \ufeffa\u001f\n')).toBe('\ufeffa');
    expect(named(text(' '), text('\t'))).toBe('unprocessable-message');
    expect(named(text(' '), text('x'))).toBeUndefined();
  });

  test('attachments alone reach the model only with an image', () => {
    expect(named(link('file:///workspace/a.txt'))).toBe('unprocessable-message');
    expect(named(text(' '), link('https://example.com/a'))).toBe('unprocessable-message');
    expect(named(link('https://example.com/a.png', { mimeType: 'image/png' }))).toBe('unprocessable-message');
    expect(named(link('file:///workspace/a.txt'), link('file:///artifacts/inbound/P.PNG'))).toBeUndefined();
    expect(named(link('file:///workspace/photo', { mimeType: 'Image/JPEG; q=1' }))).toBeUndefined();
    expect(named(link('file:///workspace/.png'))).toBe('unprocessable-message');
    expect(named(link('file:///workspace/a.png.'))).toBe('unprocessable-message');
    expect(named(link('file:///workspace/a%2Epng'))).toBeUndefined();
  });
});

describe('kinds of blocks', () => {
  test('what the agent does not advertise, or only inline, is refused with what to do', () => {
    const audio = blocksProblem([{ type: 'audio', data: 'AA==', mimeType: 'audio/wav' }], limits);
    expect(audio?.document).toMatchObject({ status: 422, block: 0 });
    expect(audio?.document.detail).toContain('resource_link');
    expect(named(text('x'), { type: 'resource', resource: { uri: 'file:///a', text: 'x' } })).toBe(
      'unprocessable-message',
    );
    expect(named(text('x'), { type: 'image', data: 'AA==', mimeType: 'image/png' })).toBe('unprocessable-message');
    expect(named(text('x'), { type: 'constructor' })).toBe('unprocessable-message');
    expect(named({ type: 'image', data: '', mimeType: 'image/png', uri: 'https://example.com/a.png' })).toBeUndefined();
    expect(named(text('x'), { type: 'image', data: '', mimeType: 'image/png', uri: 'file:///workspace/a.png' })).toBe(
      'unprocessable-message',
    );
  });

  test('unknown fields pass, wrong ones are named', () => {
    expect(
      named({ ...text('x'), vendor: { deep: [1] }, _meta: { a: 1 }, annotations: { audience: ['user'] } }),
    ).toBeUndefined();
    const wrong = blocksProblem([text('x'), { type: 'text', text: 7 }], limits);
    expect(wrong?.document).toMatchObject({ block: 1 });
    expect(named({ ...text('x'), annotations: { audience: ['agent'] } })).toBe('unprocessable-message');
    expect(named({ type: 'resource_link', uri: 'file:///workspace/a' }, text('x'))).toBe('unprocessable-message');
  });

  test('texts that Hermes cannot keep', () => {
    expect(named(text('a\0b'))).toBe('unprocessable-message');
    expect(named(text('a\ud800b'))).toBe('unprocessable-message');
    expect(named({ ...text('x'), vendor: ['\udc00'] })).toBe('unprocessable-message');
    expect(named(text('😀\u202e\u0007'))).toBeUndefined();
  });

  test('sizes and counts are bounded', () => {
    expect(named()).toBe('unprocessable-message');
    expect(named(...Array.from({ length: 8 }, () => text('x')))).toBeUndefined();
    expect(named(...Array.from({ length: 9 }, () => text('x')))).toBe('unprocessable-message');
    expect(blocksProblem([text('ab')], { maxBlocks: 1, maxBytes: 28 })?.problem).toBe('body-too-large');
    expect(blocksProblem([text('ab')], { maxBlocks: 1, maxBytes: 29 })).toBeNull();
    let deep: unknown = 1;
    for (let depth = 0; depth < 40; depth += 1) deep = [deep];
    expect(named({ ...text('x'), deep })).toBe('unprocessable-message');
  });
});

describe('resource links', () => {
  const refused = [
    'file:///hermes/.env',
    'file:///workspace',
    'file:///workspace/',
    'file:///artifacts//a',
    'file:///workspace/../hermes/.env',
    'file:///workspace/%2e%2e/hermes/.env',
    'file:///workspace/a/.%2E/b',
    'file:///workspace/a%2fb',
    'file:///workspace/a%5Cb',
    'file:///workspace/a%00b',
    'file:///workspace/a%0ab',
    'file:///workspace/a%ff',
    'file:///workspace/a%zz',
    'file:///workspace/a?b',
    'file:///workspace/a#b',
    'file:///workspace/a b',
    'file:///workspace/a\\..\\b',
    'file:///workspacex/a',
    'file://localhost/workspace/a',
    'file://host/workspace/a',
    'file:/workspace/a',
    'file:workspace/a',
    'fi\nle:///hermes/.env',
    ' file:///workspace/a',
    '/hermes/.env',
    'workspace/a',
    '',
    'C:\\Users\\a',
    'data:text/plain,hi',
    'ftp://example.com/a',
    'https://user:secret@example.com/',
    'http://',
    'http://[bad/',
    'https://exa\u2100mple.com/',
    `file:///workspace/${'a'.repeat(5000)}`,
  ];
  for (const uri of refused) {
    test(`refuses ${JSON.stringify(uri.slice(0, 60))}`, () => {
      expect(named(text('x'), link(uri))).toBe('unprocessable-message');
    });
  }

  test('takes files of the conversation and web addresses', () => {
    for (const uri of [
      'file:///workspace/a.txt',
      'FILE:///artifacts/inbound/0123456789abcdef-b%20c.pdf',
      'file:///workspace/naïve/日本.md',
      'file:///workspace/%252e%252e/x',
      'file:///workspace/.hidden',
      'file:///workspace/a..b',
      'https://example.com/a?b=c#d',
      'http://[::1]:80/x',
    ]) {
      expect(named(text('x'), link(uri))).toBeUndefined();
    }
  });
});

test('a failure that Hermes states in words is told with its status and without addresses, prose is not', () => {
  expect(
    statedFailure('⚠️ API call failed after 3 retries: Connection error at http://10.0.0.1:1/v1 now\nmore'),
  ).toEqual({
    of: 'model',
    httpStatus: null,
    words: 'API call failed after 3 retries: Connection error at (address) now',
  });
  expect(statedFailure('API call failed after 3 retries: HTTP 429: slow down')?.httpStatus).toBe(429);
  expect(statedFailure('HTTP 401: no such key')).toEqual({
    of: 'model',
    httpStatus: 401,
    words: 'HTTP 401: no such key',
  });
  expect(statedFailure('Error: it broke')).toEqual({ of: 'agent', httpStatus: null, words: 'Error: it broke' });
  expect(statedFailure('I got an HTTP 401: no such key')).toBeNull();
  expect(statedFailure('All is well')).toBeNull();
});

// The same question put to the pinned Hermes itself.
const python = process.env.EDGE_TEST_PYTHON;
const havePython = python !== undefined && existsSync(python);
if (!havePython)
  console.warn('EDGE_TEST_PYTHON names no Python with hermes-agent: the command rule is not compared with it.');

const judge = `
import asyncio, json, sys, types
sys.path.insert(0, "")
from acp_adapter.server import HermesACPAgent
from acp.schema import TextContentBlock
import threading

class Reached(Exception): pass

class State:
    def __init__(self):
        self.is_running = False
        self.interrupted_prompt_text = ""
        self.queued_prompts = []
        self.runtime_lock = threading.Lock()
        self.history = []
        self.session_id = "s"
        self.agent = object()
        self.cwd = "/"
        self.model = ""
        self.seen = None
    @property
    def cancel_event(self):
        # The first thing that prompt() touches once it is past the commands.
        raise Reached()

class Manager:
    def __init__(self, state): self.state = state
    def get_session(self, _): return self.state
    def save_session(self, _): pass

# Every word that any part of the adapter knows as a command.
def commands():
    methods = {name[len("_cmd_"):] for name in dir(HermesACPAgent) if name.startswith("_cmd_")}
    advertised = {spec["name"] for spec in HermesACPAgent._ADVERTISED_COMMANDS}
    return methods | advertised | set(HermesACPAgent._SLASH_COMMANDS)

def verdict(texts):
    state = State()
    agent = HermesACPAgent(session_manager=Manager(state))
    taken = []
    for name in commands():
        setattr(agent, "_cmd_" + name, lambda args, st, name=name: taken.append(name) or "handled")
    try:
        result = asyncio.run(agent.prompt([TextContentBlock(type="text", text=t) for t in texts], "s"))
    except Reached:
        # Reached the model: with its own words, or with /steer cut off?
        joined = "\\n".join(texts).strip()
        return "prose" if state.current_prompt_text == joined else "command"
    return "command" if taken else "blank"

print(json.dumps({"commands": sorted(commands()), "verdicts": [verdict(t) for t in json.load(sys.stdin)]}))
`;

test.skipIf(!havePython)(
  'agrees with the pinned Hermes about what is a command, prose or blank',
  async () => {
    const spaces = ['', ' ', '\n', '\u0085', '\u001c', '\ufeff', '\u00a0', '\u200b', '\u3000 \r\n'];
    const words = ['Reset', 'STEER', 'steering', ...commandWords, 'foo', 'resets', 'etc/hosts', '\u212aelp'];
    const prompts: string[][] = [
      ['/'],
      ['//'],
      [''],
      ['\ufeff/reset'],
      ['/steer\u00a0x'],
      ['/steer\u200bx'],
      ['/steerx\ny'],
    ];
    for (const space of spaces) {
      for (const word of words) {
        prompts.push([`${space}/${word}`], [`${space}//${word}${space}tail words`], [space, `/${word}${space}`]);
      }
    }
    prompts.push(...spaces.map((space) => [space]), ...spaces.map((space) => [space, space]));
    const home = mkdtempSync(join(tmpdir(), 'edge-profile-'));
    const child = Bun.spawn([python ?? '', '-c', judge], {
      stdin: new Blob([JSON.stringify(prompts)]),
      stdout: 'pipe',
      stderr: 'pipe',
      env: {
        PATH: process.env.PATH ?? '',
        HERMES_HOME: home,
        PYTHONDONTWRITEBYTECODE: '1',
      },
    });
    const [out, errors, code] = await Promise.all([child.stdout.text(), child.stderr.text(), child.exited]);
    rmSync(home, { recursive: true, force: true });
    if (code !== 0) throw new Error(errors.slice(-2000));
    const said = JSON.parse(out.trim().split('\n').at(-1) ?? '') as { commands: unknown; verdicts: unknown };
    const ours = prompts.map((texts) => {
      if (pythonStrip(texts.join('\n')) === '') return 'blank';
      return isAgentCommand(texts) ? 'command' : 'prose';
    });
    expect(prompts.length).toBeGreaterThan(200);
    expect(said.verdicts).toEqual(ours);
    expect(said.commands).toEqual([...commandWords].sort());
  },
  60_000,
);
