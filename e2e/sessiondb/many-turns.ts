/** Many conversations' agents at once on one SessionDB, and what each left there. */

import { Database } from 'bun:sqlite';
import { expect } from 'bun:test';
import { join } from 'node:path';
import { FarCloud } from '../harness/far-cloud.ts';
import { call, say } from '../harness/model.ts';

/**
 * Plays `turns` messages in each of `conversations`, all conversations at the same time; every third with a tool. Fails
 * unless each is answered by its own reply and SessionDB holds exactly their rows.
 */
export async function manyTurns(conversations: number, turns: number): Promise<void> {
  await using far = await FarCloud.start();
  far.model.on(/ look$/, call('terminal', { command: 'echo seen' }), say('Seen.'));
  const names = Array.from({ length: conversations }, (_, at) => `talker-${at}`);
  const textOf = (name: string, turn: number) => `${name} says ${turn}${turn % 3 === 2 ? ' look' : ''}`;
  const from = performance.now();
  await Promise.all(
    names.map(async (name) => {
      const conversation = await far.conversation();
      for (let turn = 0; turn < turns; turn++) {
        // Throws when it is not delivered.
        await far.api.say(conversation, textOf(name, turn), 300);
      }
    }),
  );
  const seconds = (performance.now() - from) / 1_000;
  console.log(`${conversations} conversations × ${turns} turns in ${seconds.toFixed(1)} s`);
  expect(far.gateway.log.split('\n').filter((line) => line.includes('SessionDB refused'))).toEqual([]);
  await far.cloud.endAuthority('orderly');
  using database = new Database(join(far.cloud.dataDirectory, 'sessiondb.db'), { readonly: true });
  expect(database.query('PRAGMA integrity_check').values()).toEqual([['ok']]);
  const said = database.query("SELECT session_id, content FROM messages WHERE role = 'user' ORDER BY id").values() as [
    string,
    string,
  ][];
  const sessions = Map.groupBy(said, ([session]) => session);
  expect(sessions.size).toBe(conversations);
  for (const rows of sessions.values()) {
    const name = rows[0]![1].split(' ')[0]!;
    expect(rows.map(([, text]) => text)).toEqual(Array.from({ length: turns }, (_, turn) => textOf(name, turn)));
  }
  const replies = "SELECT count(*) FROM messages WHERE role = 'assistant' AND tool_calls IS NULL GROUP BY session_id";
  expect(database.query(replies).values()).toEqual(names.map(() => [turns]));
  // What Hermes counts while it writes is what is there: no transaction was half done, none done twice.
  const counted = `SELECT count(*) FROM sessions s WHERE message_count <>
    (SELECT count(*) FROM messages m WHERE m.session_id = s.id)`;
  expect(database.query(counted).values()).toEqual([[0]]);
}
