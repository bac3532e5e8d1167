/**
 * Scripts that run as the agent's own tools do: Hermes' write_file puts one into the holder, its terminal runs it. The same
 * script can run on plain disk, as a reference for what a file system does.
 */
import { expect } from 'bun:test';
import { chownSync } from 'node:fs';
import * as v from 'valibot';
import { Gateway } from './gateway.ts';
import { holderPath } from './holder-path.ts';
import { call, lastUserText, ScriptedModel, say } from './model.ts';
import { removeScratch, scratchDirectory } from './scratch.ts';

export interface ScriptEnd {
  /** Standard output and error together, without white space at the ends. */
  readonly output: string;
  readonly exitCode: number;
}

const endSchema = v.object({ output: v.string(), exit_code: v.number() });
/** How long a script may run: below what the gateway's client waits for an answer. */
const scriptSeconds = 140;
/** The first lines of each script: it stands in a directory of its own, and stops at the first command that fails. */
const head = (directory: string) => `set -eu -o pipefail\nmkdir -p '${directory}'\ncd '${directory}'\n`;

export class ToolShell {
  readonly gateway: Gateway;
  readonly model: ScriptedModel;
  #runs = 0;

  private constructor(gateway: Gateway, model: ScriptedModel) {
    this.gateway = gateway;
    this.model = model;
  }

  static async start(): Promise<ToolShell> {
    const model = ScriptedModel.start();
    try {
      const environment = { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' };
      return new ToolShell(await Gateway.start({ environment }), model);
    } catch (error) {
      await model.stop();
      throw error;
    }
  }

  /** Runs a bash script in `/workspace/<directory>`, which is made. */
  async run(directory: string, script: string): Promise<ScriptEnd> {
    this.#runs += 1;
    const path = `/tmp/script-${this.#runs}.sh`;
    const content = `${head(`/workspace/${directory}`)}${script}\n`;
    const [, ran] = await this.tools([
      ['write_file', { path, content }],
      ['terminal', { command: `bash ${path} 2>&1`, timeout: scriptSeconds }],
    ]);
    const end = v.safeParse(endSchema, JSON.parse(ran ?? 'null'));
    if (!end.success) throw new Error(`the terminal did not run it: ${ran}`);
    return { output: `${end.output.output.trim()}\n`, exitCode: end.output.exit_code };
  }

  /** One turn with these tool calls, one after the other; what each answered. */
  async tools(calls: readonly (readonly [name: string, args: Readonly<Record<string, unknown>>])[]): Promise<string[]> {
    const text = `run ${crypto.randomUUID()}`;
    this.model.on(text, ...calls.map(([name, args]) => call(name, args)), say('done'));
    await this.gateway.api().say(this.gateway.conversation, text, scriptSeconds);
    // Hermes has turns of its own in between, when it reviews the conversation.
    const asked = this.model.turns.filter(({ body }) => lastUserText(body).includes(text));
    return asked.slice(1).map(({ body }) => String(body.messages.at(-1)!.content));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.gateway[Symbol.asyncDispose]();
    await this.model.stop();
  }
}

/** The script on a plain directory of the host, as the same user with the same programs. Needs root. */
export async function onPlainDisk(script: string): Promise<ScriptEnd> {
  const directory = scratchDirectory('plain');
  try {
    const home = scratchDirectory('home');
    for (const path of [directory, home]) chownSync(path, 1000, 1000);
    const child = Bun.spawn(
      [
        'setpriv',
        '--reuid=1000',
        '--regid=1000',
        '--clear-groups',
        'bash',
        '-c',
        `exec 2>&1\n${head(directory)}${script}\n`,
      ],
      {
        stdin: 'ignore',
        stdout: 'pipe',
        stderr: 'inherit',
        env: { PATH: holderPath, HOME: home, LANG: 'C.UTF-8', TMPDIR: home, USER: 'agent' },
      },
    );
    const output = await child.stdout.text();
    removeScratch(home);
    return { output: `${output.trim()}\n`, exitCode: await child.exited };
  } finally {
    removeScratch(directory);
  }
}

/** Runs the script in the holder and on plain disk: both succeed and print the same, which is answered. */
export async function sameAsPlainDisk(shell: ToolShell, directory: string, script: string): Promise<string> {
  const here = await shell.run(directory, script);
  const there = await onPlainDisk(script);
  expect(there.exitCode, there.output).toBe(0);
  expect(here, directory).toEqual(there);
  return here.output;
}
