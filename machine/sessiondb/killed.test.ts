/** A child that is killed inside a transaction: what it held is free at once, not when the authority gives it up. */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { HranaDatabase } from '../agentfs/hrana.ts';
import { SessionRelay } from './relay.ts';
import { startAuthority, type TestAuthority } from './testing/authority.ts';
import { TestChild } from './testing/child.ts';
import { hermesEnvironment, hermesPython, makeHome, noHermes, scriptIn, spawnServed } from './testing/hermes.ts';

const python = hermesPython();
let authority: TestAuthority;
beforeAll(async () => {
  authority = await startAuthority();
  const database = new HranaDatabase(authority.address);
  await database.execute('CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, title TEXT)');
  await database.execute("INSERT INTO sessions (id, source) VALUES ('killed', 'acp'), ('other', 'acp')");
});
afterAll(() => authority.stop());

const program = `
import importlib.util, os, sqlite3, sys, time
spec = importlib.util.spec_from_file_location("edge_start", sys.argv[1])
start = importlib.util.module_from_spec(spec)
spec.loader.exec_module(start)
home = os.environ["HERMES_HOME"]
start.replace_connect(start.Channel(3), home)
connection = sqlite3.connect(home + "/state.db", isolation_level=None)
connection.execute("BEGIN IMMEDIATE")
connection.execute("UPDATE sessions SET title = 'half done' WHERE id = ?", ("killed",))
print(connection.execute("SELECT title FROM sessions WHERE title IS NOT NULL").fetchone()[0], flush=True)
time.sleep(600)
`;

test.skipIf(python === null)(
  `SIGKILL between BEGIN IMMEDIATE and COMMIT, while another child waits ${python === null ? `(${noHermes})` : ''}`,
  async () => {
    makeHome(authority.directory, '');
    const relay = new SessionRelay(authority.address, { sessions: ['killed'] });
    const { child, served } = await spawnServed(
      relay,
      [python!, '-I', '-c', program, scriptIn(authority.directory)],
      authority.directory,
      hermesEnvironment(authority.directory),
    );
    const { value } = await child.stdout.getReader().read();
    expect(new TextDecoder().decode(value)).toBe('half done\n');
    const other = new TestChild(authority.address, { sessions: ['other'] });
    let isDone = false;
    const waiting = other
      .run(1, ['BEGIN IMMEDIATE'], ["UPDATE sessions SET title = 'done' WHERE id = ?", ['other']], ['COMMIT'])
      .then((answer) => {
        isDone = true;
        return answer;
      });
    await Bun.sleep(200);
    expect(isDone).toBe(false);
    const killedAt = performance.now();
    child.kill('SIGKILL');
    expect((await waiting).e).toBeUndefined();
    const freedAfter = performance.now() - killedAt;
    console.log(`SessionDB was free ${freedAfter.toFixed(0)} ms after the SIGKILL`);
    // The authority would give up an idle transaction after ten; who waits is told "locked" after five.
    expect(freedAfter).toBeLessThan(1_000);
    expect(await served).toEqual({ end: 'closed' });
    const titles = await new HranaDatabase(authority.address).execute('SELECT id, title FROM sessions ORDER BY id');
    expect(titles.rows).toEqual([
      ['killed', null],
      ['other', 'done'],
    ]);
    await other.end();
  },
  60_000,
);
