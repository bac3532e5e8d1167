import { expect, test } from 'bun:test';
import { fileUri, followLink, parseFileUri, parseViewPath, treeNames, type ViewPath } from './view-path.ts';

test('places in their plain form', () => {
  expect(parseViewPath('/workspace')).toEqual(['workspace']);
  expect(parseViewPath('/artifacts/inbound')).toEqual(['artifacts', 'inbound']);
  expect(parseFileUri('file:///workspace/a%20b/%E6%97%A5%25.txt')).toEqual(['workspace', 'a b', '日%.txt']);
  expect(parseFileUri('file:///workspace/%252e%252e/x')).toEqual(['workspace', '%2e%2e', 'x']);
  expect(parseFileUri('file:///workspace/a%5Cb')).toEqual(['workspace', 'a\\b']);
  for (const path of [['workspace', "it's", '#?%&+ ;"', '日本', '\u{1F600}']] as unknown as ViewPath[]) {
    expect(parseFileUri(fileUri(path))).toEqual(path);
  }
  expect(treeNames('conv_x', ['workspace', 'a'])).toEqual(['conversations', 'conv_x', 'work', 'a']);
});

test.each([
  'file:///workspace',
  'file:///workspace/',
  'file:///workspace//x',
  'file:///workspace/./x',
  'file:///workspace/../.env',
  'file:///workspace/%2e%2e/.env',
  'file:///workspace/%2E%2E/.env',
  'file:///workspace/a/..',
  'file:///workspace/..%2f.env',
  'file:///workspace/%2e%2e%2f.env',
  'file:///workspace/a%00b',
  'file:///workspace/a\0b',
  'file:///workspace/a\\..\\b',
  'file:///workspace/x?y',
  'file:///workspace/x#y',
  'file:///workspace/%ff',
  'file:///workspace/%c0%ae%c0%ae/x',
  'file:///workspace/%',
  'file:///workspace/a b',
  'file:///workspace/a\nb',
  `file:///workspace/${'n'.repeat(256)}`,
  `file:///workspace/${'n/'.repeat(300)}x`,
  `file:///workspace/${'n'.repeat(20_000)}`,
  'file:///state/x',
  'file:///.env',
  'file:///conversations/conv_y/work/x',
  'file:///hermes/.env',
  'file:///__proto__/x',
  'file:///constructor/x',
  'file://workspace/x',
  'file://localhost/workspace/x',
  'file:/workspace/x',
  'FILE:///workspace/x',
  'http://x/workspace/x',
  '/workspace/x',
  'workspace/x',
  '',
])('no uri of a file: %#', (uri) => {
  expect(() => parseFileUri(uri)).toThrow('must name something');
});

test.each([
  '',
  '/',
  '/work',
  '/workspace/',
  '//workspace',
  '/workspace/../x',
  '/workspace/.',
  '/state',
  '/workspace/a\0',
  'workspace',
  '/hermes',
])('no path: %#', (path) => {
  expect(() => parseViewPath(path)).toThrow('must name something');
});

test.each([
  ['b', ['workspace', 'd', 'b']],
  ['./b//c/', ['workspace', 'd', 'b', 'c']],
  ['../b', ['workspace', 'b']],
  ['../../artifacts/b', ['artifacts', 'b']],
  ['../../../../artifacts/b', ['artifacts', 'b']],
  ['/workspace/b', ['workspace', 'b']],
  ['/artifacts', ['artifacts']],
  ['../..', null],
  ['/', null],
  ['/etc/passwd', null],
  ['../../../etc/passwd', null],
  ['/hermes/.env', null],
  ['/workspace/../hermes/.env', null],
  ['b/../c', null],
  ['', ['workspace', 'd']],
] as const)('a link in /workspace/d to %s', (target, expected) => {
  expect(followLink(['workspace', 'd', 'link'], target, [])).toEqual(expected as never);
  expect(followLink(['workspace', 'd', 'link'], target, ['rest'])).toEqual(
    expected && ([...expected, 'rest'] as never),
  );
});
