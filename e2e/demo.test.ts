/** What the README promises: the demo gets ready, and its curl line brings a reply of Hermes. */
import { expect, test } from 'bun:test';
import { copyFileSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { builtExecutable, plainEnvironment, repository } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { linesOf } from './harness/lines.ts';
import { descendants, waitForEnd } from './harness/processes.ts';
import { requireProgram } from './harness/programs.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

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

/** What `bun run demo` of the README starts, without its build: in a directory of its own, with this project's settings. */
function runDemo(directory: string, command: readonly string[]) {
  const demo = `exec ${builtExecutable()} demo --port 0 --data ${join(directory, 'data')}`;
  writeFileSync(join(directory, 'package.json'), JSON.stringify({ scripts: { demo } }));
  copyFileSync(join(repository, 'bunfig.toml'), join(directory, 'bunfig.toml'));
  const child = Bun.spawn([...command], {
    cwd: directory,
    env: plainEnvironment(),
    stdin: 'ignore',
    stdout: 'pipe',
    stderr: 'pipe',
    detached: true, // a process group of its own, as a terminal gives one to a command
  });
  const log: string[] = [];
  const logged = (async () => {
    for await (const line of linesOf(child.stderr)) log.push(line);
  })();
  const ready = async () => {
    const line = await linesOf(child.stdout)[Symbol.asyncIterator]().next();
    expect(line.value).toContain('"conversation"');
  };
  return { child, log, logged, ready };
}

test('Ctrl-C under `bun run`, which passes it on once more, ends the demo in order', async () => {
  const directory = scratchDirectory('ctrl-c');
  try {
    const { child, log, logged, ready } = runDemo(directory, [process.execPath, 'run', 'demo']);
    await ready();
    process.kill(-child.pid, 'SIGINT');
    await Promise.all([child.exited, logged]);
    expect(log.filter((line) => line.includes('"stopped"'))).toHaveLength(1);
    expect(log.join('\n')).not.toContain('second signal');
  } finally {
    removeScratch(directory);
  }
}, 180_000);

test('the end of the shell in which npx runs `bun run demo` is the end of the demo', async () => {
  const directory = scratchDirectory('npx');
  try {
    // As npx does: a shell that waits, and passes no signal on.
    const { child, logged, ready } = runDemo(directory, ['sh', '-c', `${process.execPath} run demo; true`]);
    await ready();
    const tree = descendants(child.pid);
    expect(tree.length).toBeGreaterThan(3);
    child.kill('SIGTERM');
    await Promise.all([child.exited, logged]);
    await waitForEnd(tree, 30_000);
  } finally {
    removeScratch(directory);
  }
}, 180_000);
