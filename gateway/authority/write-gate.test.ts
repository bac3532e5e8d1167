import { expect, test } from 'bun:test';
import { WriteGate } from './write-gate.ts';

const never = new AbortController().signal;

test('waiters are served in the order they came', async () => {
  const gate = new WriteGate(5_000, 10);
  const [first, second, third] = [{}, {}, {}];
  expect(gate.tryAcquire(first)).toBe(true);
  expect(gate.tryAcquire(first)).toBe(true);
  expect(gate.tryAcquire(second)).toBe(false);
  const order: string[] = [];
  const two = gate.acquire(second, never).then(() => order.push('second'));
  const three = gate.acquire(third, never).then(() => order.push('third'));
  gate.release(first);
  await two;
  expect(gate.isOwnedBy(second)).toBe(true);
  expect(order).toEqual(['second']);
  gate.release(second);
  await three;
  expect(order).toEqual(['second', 'third']);
  gate.release(third);
  expect(gate.tryAcquire(first)).toBe(true);
});

test('a wait ends as SQLITE_BUSY, and the one behind it moves up', async () => {
  const gate = new WriteGate(10, 10);
  const [owner, patient] = [{}, {}];
  gate.tryAcquire(owner);
  await expect(gate.acquire({}, never)).rejects.toMatchObject({ code: 'SQLITE_BUSY', message: 'database is locked' });
  const later = gate.acquire(patient, never);
  gate.release(owner);
  await later;
  expect(gate.isOwnedBy(patient)).toBe(true);
});

test('a waiter that has gone does not get the lock', async () => {
  const gate = new WriteGate(5_000, 10);
  const [owner, other] = [{}, {}];
  gate.tryAcquire(owner);
  const gone = new AbortController();
  const waiting = gate.acquire({}, gone.signal);
  const next = gate.acquire(other, never);
  gone.abort();
  await expect(waiting).rejects.toMatchObject({ code: 'SQLITE_BUSY' });
  gate.release(owner);
  await next;
  expect(gate.isOwnedBy(other)).toBe(true);
  await expect(gate.acquire({}, gone.signal)).rejects.toMatchObject({ code: 'SQLITE_BUSY' });
});

test('the queue is bounded, and only the owner can release', async () => {
  const gate = new WriteGate(5_000, 1);
  const [owner, waiter] = [{}, {}];
  gate.tryAcquire(owner);
  const waiting = gate.acquire(waiter, never);
  await expect(gate.acquire({}, never)).rejects.toMatchObject({ code: 'SQLITE_BUSY' });
  gate.release({});
  expect(gate.isOwnedBy(owner)).toBe(true);
  gate.release(owner);
  await waiting;
});
