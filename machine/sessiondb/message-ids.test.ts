import { beforeEach, expect, test } from 'bun:test';
import { MessageIds } from './message-ids.ts';

let ids: MessageIds;
const [one, two, three] = [{}, {}, {}];
beforeEach(() => {
  ids = new MessageIds();
});

test('nobody can tell before a row was seen, nor after a wrong guess', async () => {
  expect(await ids.claim(one)).toBeNull();
  expect(ids.isFree).toBe(true);
  ids.saw(7n);
  ids.saw(5n);
  expect(await ids.claim(one)).toBe(8n);
  ids.wasWrong();
  ids.release(one);
  expect(await ids.claim(two)).toBeNull();
});

test('one after the other, in the order in which they came', async () => {
  ids.saw(1n);
  await ids.claim(one);
  const order: [string, bigint | null][] = [];
  const waiting = [
    ids.claim(two).then((id) => order.push(['two', id])),
    ids.claim(three).then((id) => order.push(['three', id])),
  ];
  ids.release(three);
  ids.saw(2n);
  ids.release(one);
  await waiting[0];
  ids.saw(3n);
  ids.release(two);
  await waiting[1];
  expect(order).toEqual([
    ['two', 3n],
    ['three', 4n],
  ]);
});

test('one that has stopped loses its turn to who waits longest, and gives nothing back later', async () => {
  ids.saw(1n);
  await ids.claim(one);
  expect(await ids.claim(two)).toBe(2n);
  ids.release(one);
  expect(ids.isFree).toBe(false);
  ids.release(two);
  expect(ids.isFree).toBe(true);
});
