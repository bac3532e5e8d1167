/** `session/request_permission` is answered `allow_once` at once, relayed unchanged and kept nowhere (ADR-046 §3). */
import { expect, test } from 'bun:test';
import { readdirSync, readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { StdinTap } from './harness/stdin-tap.ts';

interface Line {
  readonly id?: unknown;
  readonly method?: string;
  readonly result?: { readonly outcome?: unknown };
}

test('a dangerous command asks each time, is allowed once each time, and nothing remembers it', async () => {
  const scratch = scratchDirectory('permission');
  await using model = ScriptedModel.start();
  model.on(
    'dangerous',
    call('terminal', { command: 'mkdir -p marked-directory && rm -rf marked-directory && echo removed-it' }),
    say('Done.'),
  );
  await using gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
  try {
    const api = gateway.api();
    await api.say(gateway.conversation, 'hello');
    const [hermes] = hermesProcesses(gateway.pid);
    const tap = await StdinTap.attach(hermes!.pid, join(scratch, 'stdin'));
    await api.say(gateway.conversation, 'dangerous');
    await api.say(gateway.conversation, 'dangerous again');
    const lines = (await tap.stop())
      .toString('utf8')
      .split('\n')
      .filter((line) => line !== '')
      .map((line) => JSON.parse(line) as Line);
    const answers = lines.filter(({ result }) => result?.outcome !== undefined).map(({ result }) => result?.outcome);
    expect(answers).toEqual([
      { outcome: 'selected', optionId: 'allow_once' },
      { outcome: 'selected', optionId: 'allow_once' },
    ]);
    const results = model.turns.map(({ body }) => JSON.stringify(body.messages.at(-1)));
    expect(results.filter((text) => text.includes('removed-it')).length).toBe(2);
    await gateway.stop();
    expect(
      filesContaining(join(gateway.dataDirectory, 'postgres'), ['request_permission', 'allow_once', 'optionId']),
    ).toEqual([]);
  } finally {
    removeScratch(scratch);
  }
}, 180_000);

function filesContaining(directory: string, words: readonly string[]): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' })
    .map((name) => join(directory, name))
    .filter((path) => statSync(path).isFile())
    .filter((path) => words.some((word) => readFileSync(path).includes(word)));
}
