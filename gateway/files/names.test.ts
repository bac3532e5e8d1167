import { expect, test } from 'bun:test';
import { linkFlaw } from '../acp/resource-link.ts';
import { inboundName, inboundUri, mediaTypeOf, safeName, titleOf } from './names.ts';

const hostile = [
  '',
  '.',
  '..',
  '../../etc/passwd',
  '..\\..\\windows\\system32\\x.dll',
  '/etc/shadow',
  'a/b/',
  '.env',
  '-rf',
  '--help',
  'a\0b',
  'line\r\nbreak: x',
  'tab\tname',
  'quote"\'`$(reboot);|&<>*?[]{}~!#%^',
  '%2e%2e%2f.txt',
  'e\u0301\u0301\u0301.txt',
  '\u0301combining first',
  '\u202egpj.exe',
  'zero\u200bwidth',
  '日本語 ファイル.pdf',
  '\u{1F600}.png',
  '\ud800lone',
  `${'n'.repeat(4_000)}.tar.gz`,
  `${'日'.repeat(1_000)}.pdf`,
  `${'\u{20000}'.repeat(1_000)}`,
  'CON',
  'with space.txt',
];

test.each(hostile.map((name) => [JSON.stringify(name).slice(0, 60), name] as const))(
  '%s is safe everywhere',
  (_, name) => {
    const safe = safeName(name);
    expect(safe).toMatch(/^[\p{L}\p{N}_+][\p{L}\p{M}\p{N}._+-]*$/u);
    const stored = inboundName('0123456789abcdef'.repeat(4), name);
    expect(stored.startsWith('0123456789abcdef-')).toBe(true);
    expect(Buffer.byteLength(stored)).toBeLessThanOrEqual(255);
    expect(safeName(safe)).toBe(safe);
    expect(linkFlaw(inboundUri(stored))).toBeNull();
    expect(decodeURIComponent(inboundUri(stored))).toBe(`file:///artifacts/inbound/${stored}`);
    const title = titleOf(name);
    expect(title.length).toBeGreaterThan(0);
    expect(title.length).toBeLessThanOrEqual(255);
    expect(title).not.toMatch(/[/\\]|\p{Cc}/u);
    expect(['.', '..']).not.toContain(title);
  },
);

test('names keep what tells people what it is', () => {
  expect(safeName('Quarterly report (final).pdf')).toBe('Quarterly_report__final_.pdf');
  expect(safeName('C:\\Users\\a\\photo.JPG')).toBe('photo.JPG');
  expect(safeName('Żółć-日本.txt')).toBe('Żółć-日本.txt');
  expect(safeName(`${'x'.repeat(300)}.tar`)).toEndWith('x.tar');
  expect(safeName('..')).toBe('file');
  expect(titleOf('Quarterly report (final).pdf')).toBe('Quarterly report (final).pdf');
  expect(titleOf('/home/a/b c.txt')).toBe('b c.txt');
});

test('media types go on as declared, and what is none is refused', () => {
  expect(mediaTypeOf(null)).toBeNull();
  expect(mediaTypeOf('text/plain; charset=utf-8')).toBe('text/plain; charset=utf-8');
  expect(mediaTypeOf('application/vnd.ms-excel')).toBe('application/vnd.ms-excel');
  for (const bad of ['text', 'a/b/c', 'text/plain\nx: y', `a/${'b'.repeat(300)}`, 'te xt/plain', 'text/plain; é']) {
    expect(() => mediaTypeOf(bad)).toThrow();
  }
});
