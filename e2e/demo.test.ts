/** What the README promises: the demo gets ready, and its curl line brings a reply of Hermes. */
import { expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { requireProgram } from './harness/programs.ts';

/** The first curl command of the README, with the values of this run put in where a reader puts in theirs. */
function readmeCurl(values: Readonly<Record<string, string>>): string {
  const readme = readFileSync(join(repository, 'README.md'), 'utf8');
  const command = /```sh\n(curl [\s\S]*?)```/.exec(readme)?.[1];
  if (command === undefined) throw new Error('README.md has no curl command');
  return Object.entries(values).reduce((text, [name, value]) => text.replaceAll(`$${name}`, value), command);
}

test('the demo answers the curl line of the README', async () => {
  requireProgram('curl');
  await using gateway = await Gateway.start();
  const values = { URL: gateway.url, TOKEN: gateway.token('client'), CONVERSATION: gateway.conversation };
  const shell = Bun.spawn(['sh', '-c', readmeCurl(values)], { stdout: 'pipe', stderr: 'inherit' });
  const answer = JSON.parse(await new Response(shell.stdout).text()) as { message: unknown; reply: { text: string } };
  expect(await shell.exited).toBe(0);
  expect(answer.message).toMatchObject({ state: 'delivered' });
  expect(answer.reply.text.length).toBeGreaterThan(0);
}, 180_000);

test('SIGTERM ends the demo in order and leaves no process', async () => {
  await using gateway = await Gateway.start();
  expect(gateway.tree().length).toBeGreaterThan(2);
  expect(await gateway.stop()).toBe(0);
}, 180_000);
