import { expect, test } from 'bun:test';
import { createLog } from './log.ts';

function logged(use: (log: ReturnType<typeof createLog>) => void): Record<string, unknown>[] {
  const lines: string[] = [];
  use(createLog('http', (line) => lines.push(line)));
  return lines.map((line) => {
    expect(line).toEndWith('\n');
    expect(line.slice(0, -1)).not.toContain('\n');
    return JSON.parse(line);
  });
}

test('a line has its time, level, part and known fields, and is one line', () => {
  const [line] = logged((log) => log.info('turn settled', { message: 'msg_1', ms: 12.5, error: new Error('a\nb') }));
  expect(line).toEqual({
    at: expect.any(String),
    level: 'info',
    part: 'http',
    what: 'turn settled',
    message: 'msg_1',
    ms: 12.5,
    error: 'a\nb',
  });
});

test('unknown fields and objects are dropped, whoever passes them', () => {
  const fields = { text: 'prose', blocks: ['prose'], env: { KEY: 'secret' }, line: { prose: 1 }, headers: 'secret' };
  const [line] = logged((log) => log.error('x', fields));
  expect(JSON.stringify(line)).not.toMatch(/prose|secret|KEY/);
});

test.each([
  `token egw_superadmin_${'a'.repeat(43)} here`,
  'Authorization: Bearer abcdef',
  'postgres://user:pass@host/db',
  'sk-ant-api03-abcdefghijklmnop',
])('what looks like a secret in an error is blacked out: %s', (text) => {
  const [line] = logged((log) => log.part('turns').error('failed', { error: new Error(text) }));
  expect(line?.error).toContain('(redacted)');
  expect(line?.error).not.toMatch(/aaaa|abcdef|pass/);
  expect(line?.part).toBe('turns');
});

test('a long text is cut', () => {
  const [line] = logged((log) => log.info('x', { reason: 'a'.repeat(10_000) }));
  expect(line).toMatchObject({ reason: 'a'.repeat(2_000) });
});
