/**
 * The embedded defaults are replaced by configuration alone: a Postgres server by DATABASE_URL, the cloud databases by their
 * URLs. The authority here is the embedded one behind TCP, which speaks the same protocols.
 */
import { expect, test } from 'bun:test';
import { existsSync, mkdirSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { installedPostgres, realDatabase } from '../gateway/governance/databases.fixture.ts';
import { builtExecutable, plainEnvironment } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { Api } from './harness/http.ts';
import { ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const bin = installedPostgres();
if (bin === null)
  console.error('SKIPPED: no installed Postgres (apt install postgresql); remote databases are not tested');

const tokens = { agentfs: 'a'.repeat(32), sessiondb: 's'.repeat(32) };

/** The authority as a stranger's service on TCP: `http://127.0.0.1:PORT/agentfs` and `/sessiondb`. */
async function cloud(directory: string) {
  mkdirSync(join(directory, 'authority'));
  const socket = join(directory, 'authority.sock');
  const child = Bun.spawn(
    [builtExecutable(), 'authority', '--data', join(directory, 'authority'), '--socket', socket],
    { env: plainEnvironment(), stdin: 'pipe', stdout: 'pipe', stderr: 'inherit' },
  );
  child.stdin.write(`${JSON.stringify({ tokens })}\n`);
  await child.stdin.flush();
  const reader = child.stdout.getReader();
  await reader.read();
  const paths = new Set<string>();
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    idleTimeout: 120,
    async fetch(request) {
      const { pathname } = new URL(request.url);
      paths.add(pathname.split('/')[1]!);
      const init = {
        method: request.method,
        headers: request.headers,
        body: await request.arrayBuffer(),
        unix: socket,
      };
      return fetch(`http://localhost${pathname}`, init);
    },
  });
  return {
    url: `http://127.0.0.1:${server.port}`,
    paths,
    async stop() {
      await server.stop(true);
      child.stdin.end();
      await child.exited;
    },
  };
}

test.skipIf(bin === null)(
  'a real Postgres and remote authorities carry a conversation over a restart on another data directory',
  async () => {
    const directory = scratchDirectory('remote');
    const database = await realDatabase(bin!);
    const authority = await cloud(directory);
    await using model = ScriptedModel.start();
    model.on('teal', say('Noted.')).on('again', say('As before.'));
    const environment = {
      DATABASE_URL: database.address.kind === 'url' ? database.address.url : '',
      AGENTFS_URL: `${authority.url}/agentfs`,
      AGENTFS_TOKEN: tokens.agentfs,
      SESSIONDB_URL: `${authority.url}/sessiondb`,
      SESSIONDB_TOKEN: tokens.sessiondb,
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL: 'scripted',
    };
    try {
      const made = Bun.spawnSync([builtExecutable(), 'token', 'create', '--role', 'superadmin', '--name', 'first'], {
        env: plainEnvironment({ ...environment, EDGE_DATA_DIR: join(directory, 'none') }),
      });
      expect(made.exitCode).toBe(0);
      expect(existsSync(join(directory, 'none'))).toBe(false);
      const { token } = JSON.parse(made.stdout.toString()) as { token: string };

      let conversation = '';
      {
        await using gateway = await Gateway.start({
          command: 'serve',
          environment,
          dataDirectory: join(directory, 'one'),
        });
        expect(gateway.ready).toEqual({ url: gateway.url, dataDir: join(directory, 'one') });
        const api = new Api(gateway.url, token);
        expect((await api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' })).status).toBe(201);
        conversation = await api.createConversation('Eleanora');
        expect((await api.say(conversation, 'I like teal')).reply.text).toBe('Noted.');
        for (const part of ['postgres', 'authority']) expect(readdirSync(join(directory, 'one', part))).toEqual([]);
        const commands = gateway.tree().map(({ argv }) => argv.join(' '));
        expect(commands.filter((command) => / (postgres|authority) --/.test(command))).toEqual([]);
      }
      expect(authority.paths).toEqual(new Set(['agentfs', 'sessiondb']));

      await using gateway = await Gateway.start({
        command: 'serve',
        environment,
        dataDirectory: join(directory, 'two'),
      });
      const api = new Api(gateway.url, token);
      expect((await api.say(conversation, 'again')).reply.text).toBe('As before.');
      const request = await model.waitForTurn('again');
      expect(JSON.stringify(request.body.messages)).toContain('I like teal');
    } finally {
      await authority.stop();
      await database.stop();
      removeScratch(directory);
    }
  },
  240_000,
);

test('a database that does not answer stops the start with what to do, and without its password', async () => {
  const environment = {
    DATABASE_URL: 'postgres://user:hunter2@127.0.0.1:1/x',
    EDGE_MODEL_URL: 'http://127.0.0.1:9/v1',
  };
  const started = Gateway.start({ command: 'serve', environment: { ...environment, EDGE_MODEL: 'm' } });
  const error = await started.then(
    () => null,
    (thrown: unknown) => String(thrown),
  );
  expect(error).toContain('The database does not answer');
  expect(error).toContain('DATABASE_URL');
  expect(error).not.toContain('hunter2');
}, 60_000);
