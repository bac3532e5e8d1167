import { expect, test } from 'bun:test';
import { HranaDatabase } from './hrana.ts';

test('a database that does not answer costs its limit once, the short one then, and is heard of when that changes', async () => {
  let isSilent = true;
  const ok = (type: string, result: object) => ({ type: 'ok', response: { type, ...result } });
  const row = { cols: [], rows: [], affected_row_count: 0, last_insert_rowid: null };
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    fetch: () =>
      isSilent
        ? new Promise<Response>(() => undefined)
        : Response.json({ baton: null, base_url: null, results: [ok('execute', { result: row }), ok('close', {})] }),
  });
  const heard: boolean[] = [];
  const database = new HranaDatabase(
    { url: `http://127.0.0.1:${server.port}`, token: 'none', socket: null },
    { timeout: 400, timeoutInTrouble: 20, onAnswers: (answers) => heard.push(answers) },
  );
  await expect(database.execute('SELECT 1')).rejects.toThrow('within 400 ms');
  await expect(database.execute('SELECT 1')).rejects.toThrow('within 20 ms');
  expect(heard).toEqual([false]);
  isSilent = false;
  // A busy host may need more than the short limit for its first answer.
  for (let attempt = 0; heard.length === 1 && attempt < 50; attempt++)
    await database.execute('SELECT 1').catch(() => undefined);
  expect(heard).toEqual([false, true]);
  await server.stop(true);
});
