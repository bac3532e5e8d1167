/**
 * The native ledger (ADR-046 §6): what a conversation executes is one row each of AgentFS' `tool_calls`, from where it ran;
 * nothing of it is anywhere else, and rows alone make no request.
 */
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, test } from 'bun:test';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';

interface Row {
  readonly id: number;
  readonly name: string;
  readonly status: string;
  readonly error: string | null;
  readonly result: { readonly exitCode?: number; readonly signal?: string } | null;
  readonly parameters: { readonly conversation: string; readonly argv: readonly string[]; readonly cwd: string };
}

let model: ScriptedModel;
let gateway: Gateway;

/** Rows of the machine's own replica that say `word`. */
function rows(word: string): Row[] {
  const database = new Database(join(gateway.dataDirectory, 'authority/agentfs.db'), { readonly: true });
  const found = database.query('SELECT * FROM tool_calls ORDER BY started_at').all() as Record<string, string>[];
  database.close();
  return found
    .map(
      (row) => ({ ...row, parameters: JSON.parse(row.parameters!), result: JSON.parse(row.result ?? 'null') }) as Row,
    )
    .filter(({ parameters }) => parameters.argv.join(' ').includes(word));
}

beforeAll(async () => {
  model = ScriptedModel.start();
  gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
}, 180_000);

afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
}, 120_000);

test('two commands of the terminal, one of which fails, and a script: one row each, with their ends', async () => {
  model.on(
    'work please',
    call('terminal', { command: 'echo first-mark > first.txt' }),
    call('terminal', { command: 'echo second-mark; exit 3' }),
    call('execute_code', {
      code: "import subprocess\nsubprocess.run(['true', 'third-mark'])\nopen('third.txt','w').write('x')",
    }),
    say('worked'),
  );
  const api = gateway.api('expert');
  await api.say(gateway.conversation, 'hello');
  await api.say(gateway.conversation, 'work please');
  await gateway.stop();
  for (const r of rows('')) console.log(JSON.stringify(r));
}, 180_000);
