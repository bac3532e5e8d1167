/** What start.py tells of programs over descriptor 3: all of it, unless nobody listens; and never at the price of waiting. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { channelOf } from './channel.ts';
import { type ExecutionEvent, FrameReader } from './frames.ts';
import { hermesEnvironment, hermesPython, makeHome, scriptIn } from './testing/hermes.ts';

const python = hermesPython() ?? Bun.which('python3');

describe.skipIf(python === null)('executions', () => {
  const directory = mkdtempSync(join(tmpdir(), 'edge-executions-'));
  const events: ExecutionEvent[] = [];

  beforeAll(async () => {
    makeHome(directory, '');
    const command = [python!, '-I', join(import.meta.dir, 'testing/executions.py'), scriptIn(directory)];
    const child = Bun.spawn(command, {
      env: hermesEnvironment(directory),
      stdio: ['pipe', 'pipe', 'inherit', 'socket-fd'],
    });
    const said = child.stdout.getReader();
    await said.read();
    const channel = await channelOf(child.stdio[3] as number);
    const reader = new FrameReader();
    channel.onData((bytes) => {
      for (const { request } of reader.push(bytes)) if ('p' in request) events.push(...request.p);
    });
    child.stdin.write('read\n');
    await child.stdin.flush();
    expect(new TextDecoder().decode((await said.read()).value)).toBe('done\n');
    const closed = new Promise<void>((resolve) => channel.onClose(resolve));
    child.stdin.write('end\n');
    await child.stdin.flush();
    await closed;

    const sleeper = begun('/bin/sleep')[0]!;
    expect(sleeper.a).toEqual(['/bin/sleep', '1000']);
  }, 90_000);
  afterAll(() => rmSync(directory, { recursive: true, force: true }));

  type Started = Extract<ExecutionEvent, { a: unknown }>;
  const begun = (word: string) =>
    events.filter((event): event is Started => 'a' in event && event.a.join(' ').includes(word));
  const endsOf = ({ i }: Started) => events.filter((event) => 'i' in event && event.i === i && !('a' in event));

  test('what fits is told and the rest is counted while nobody listens', () => {
    const lost = events.reduce((sum, event) => sum + ('l' in event ? event.l : 0), 0);
    expect(lost).toBeGreaterThan(100);
    const unread = begun('unread-');
    expect(unread.length + unread.flatMap(endsOf).length + lost).toBe(800);
    // In order, from the first.
    expect(unread.slice(0, 100).map(({ a }) => a[1])).toEqual(Array.from({ length: 100 }, (_, at) => `unread-${at}`));
  });

  test('everything is told again once somebody listens, whoever waits for it', () => {
    expect(begun('read-').filter(({ a }) => a[1]?.startsWith('read-')).length).toBe(20);
    const dropped = begun('dropped');
    expect(dropped.length).toBe(80);
    expect(dropped.flatMap(endsOf).length).toBe(80);
  });

  test('a program of a forked terminal is told of by its parent', () => {
    const [terminal] = begun('exit 4');
    expect(endsOf(terminal!)).toEqual([expect.objectContaining({ c: 4 })]);
  });

  test('what still runs has no end', () => {
    expect(endsOf(begun('/bin/sleep')[0]!)).toEqual([]);
  });
});
