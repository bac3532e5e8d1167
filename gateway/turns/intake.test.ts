import { expect, test } from 'bun:test';
import type { ContentBlock } from '../domain.ts';
import { contentBlocks, contentDigest } from './intake.ts';

test('a text is one text block with every character kept; blocks are the same objects', () => {
  const text = '  \r\n\ttrailing \u2028 <<<HW> e\u0301 \ufeff ';
  expect(contentBlocks({ text })).toEqual([{ type: 'text', text }]);
  const blocks: ContentBlock[] = [{ type: 'text', text: 'x', vendor: { a: 1 } }];
  expect(contentBlocks({ blocks })).toBe(blocks);
});

test('the digest goes by content, not by the order of members', () => {
  const digest = (block: object) => contentDigest([block as ContentBlock]);
  expect(digest({ type: 'text', text: 'x' })).toBe(digest({ text: 'x', type: 'text' }));
  const others = [
    { type: 'text', text: 'x' },
    { type: 'text', text: 'x ' },
    { type: 'text', text: 'x', a: {} },
    { type: 'text', text: 'x', a: [] },
    { type: 'text', text: 'x', a: null },
    { type: 'text', text: 'x', a: [['b', 1]] },
    { type: 'text', text: 'x', a: [{ b: 1 }] },
  ].map(digest);
  expect(new Set(others).size).toBe(others.length);
  expect(others[0]).toMatch(/^[0-9a-f]{64}$/);
});
