/** One SessionDB for the agents of all conversations: they neither fail nor hold up each other (ADR-046 §5). */
import { expect, setDefaultTimeout, test } from 'bun:test';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { FarCloud } from '../harness/far-cloud.ts';
import { hermesProcesses } from '../harness/holders.ts';
import { manyTurns } from './many-turns.ts';

setDefaultTimeout(300_000);

test('4 conversations × 5 turns at once', () => manyTurns(4, 5));

test('Hermes is killed inside a transaction: SessionDB is free for others within a second', async () => {
  await using far = await FarCloud.start();
  const killed = Promise.withResolvers<number>();
  // It gives a session its title in a transaction of several requests.
  far.cloud.trouble = (request, pass) => {
    if (!request.sql.some((sql) => /SELECT id FROM sessions WHERE title/.test(sql))) return undefined;
    far.cloud.trouble = () => undefined;
    return pass().then((answer) => {
      const [hermes] = hermesProcesses(far.gateway.pid);
      process.kill(hermes!.pid, 'SIGKILL');
      killed.resolve(performance.now());
      return answer;
    });
  };
  // The title comes after the reply.
  const conversation = await far.conversation('hello');
  const killedAt = await killed.promise;
  const { SESSIONDB_URL: url, SESSIONDB_TOKEN: token } = far.cloud.environment;
  const database = new HranaDatabase({ url: url!, token: token!, socket: null });
  await database.batch([{ sql: "UPDATE sessions SET title = title WHERE id = 'nobody'" }], { transaction: true });
  const freedAfter = performance.now() - killedAt;
  console.log(`SessionDB was free ${freedAfter.toFixed(0)} ms after the SIGKILL`);
  expect(freedAfter).toBeLessThan(1_000);
  // Whoever comes next goes on with it.
  expect((await far.api.say(conversation, 'hello again')).reply.text).not.toBe('');
});
