/** The peer: Hermes' own API server (`hermes gateway` with API_SERVER_ENABLED), from the same runtime with aiohttp beside it. */

import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import { benchPython } from '../../bunfs-assets/make/bench-runtime.ts';
import { freePort } from '../harness/free-port.ts';
import { linesOf } from '../harness/lines.ts';

const startTimeoutMs = 60_000;

export class HermesApiServer {
  readonly #child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>;
  readonly #url: string;
  readonly #key: string;
  readonly #session = `bench-${randomBytes(4).toString('hex')}`;

  private constructor(child: Bun.Subprocess<'ignore', 'pipe', 'pipe'>, url: string, key: string) {
    this.#child = child;
    this.#url = url;
    this.#key = key;
  }

  /** Starts it on a free port of loopback and resolves when it answers. `home` holds config.yaml and the rest. */
  static async start(home: string, environment: Readonly<Record<string, string>>): Promise<HermesApiServer> {
    const python = await benchPython();
    const port = freePort();
    const key = randomBytes(24).toString('hex');
    const child = Bun.spawn([python, '-c', 'from hermes_cli.main import main; main()', 'gateway'], {
      cwd: home,
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      env: {
        PATH: process.env.PATH ?? '/usr/bin:/bin',
        HOME: home,
        HERMES_HOME: home,
        LANG: 'C.UTF-8',
        API_SERVER_ENABLED: 'true',
        API_SERVER_HOST: '127.0.0.1',
        API_SERVER_PORT: String(port),
        API_SERVER_KEY: key,
        ...environment,
      },
    });
    let said = '';
    for (const stream of [child.stdout, child.stderr]) {
      void (async () => {
        for await (const line of linesOf(stream)) said = `${said}${line}\n`.slice(-8000);
      })();
    }
    const server = new HermesApiServer(child, `http://127.0.0.1:${port}`, key);
    const giveUpAt = performance.now() + startTimeoutMs;
    while (!(await server.#answers())) {
      if (child.exitCode !== null || performance.now() > giveUpAt) {
        child.kill('SIGKILL');
        throw new Error(`Hermes' API server did not start (${join(home, 'config.yaml')}):\n${said}`);
      }
      await Bun.sleep(100);
    }
    return server;
  }

  /** One turn of one session that goes on. */
  async say(text: string): Promise<string> {
    const response = await fetch(`${this.#url}/v1/chat/completions`, {
      method: 'POST',
      headers: {
        authorization: `Bearer ${this.#key}`,
        'content-type': 'application/json',
        'x-hermes-session-id': this.#session,
      },
      body: JSON.stringify({ model: 'hermes-agent', messages: [{ role: 'user', content: text }] }),
    });
    const body = await response.text();
    if (!response.ok) throw new Error(`Hermes' API server: HTTP ${response.status} ${body.slice(0, 500)}`);
    return body;
  }

  async stop(): Promise<void> {
    this.#child.kill('SIGKILL');
    await this.#child.exited;
  }

  async #answers(): Promise<boolean> {
    try {
      return (await fetch(`${this.#url}/health`)).ok;
    } catch {
      return false; // not listening yet
    }
  }
}
