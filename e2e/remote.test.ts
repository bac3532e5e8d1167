/**
 * The embedded defaults are replaced by configuration alone: a Postgres server by DATABASE_URL, the cloud databases by their
 * URLs. The authority here is the embedded one behind TCP, which speaks the same protocols.
 */
import { expect, test } from 'bun:test';
import { existsSync, readdirSync } from 'node:fs';
import { join } from 'node:path';
import { installedPostgres, realDatabase } from '../gateway/governance/databases.fixture.ts';
import { Cloud } from './harness/cloud.ts';
import { builtExecutable, plainEnvironment } from './harness/executable.ts';
import { Gateway } from './harness/gateway.ts';
import { Api } from './harness/http.ts';
import { ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const bin = installedPostgres();
if (bin === null)
  console.error('SKIPPED: no installed Postgres (apt install postgresql); remote databases are not tested');

test.skipIf(bin === null)(
  'a real Postgres and remote authorities carry a conversation over a restart on another data directory',
  async () => {
    const directory = scratchDirectory('remote');
    const database = await realDatabase(bin!);
    const cloud = await Cloud.start(directory);
    await using model = ScriptedModel.start();
    model.on('teal', say('Noted.')).on('again', say('As before.'));
    const environment = {
      DATABASE_URL: database.address.kind === 'url' ? database.address.url : '',
      ...cloud.environment,
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
      expect(new Set(cloud.requests.all.map(({ database }) => database))).toEqual(new Set(['agentfs', 'sessiondb']));

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
      await cloud.stop();
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
