/** The connection that start.py gives Hermes behaves like SQLite's own, compared call by call with a local file. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { SessionRelay } from './relay.ts';
import { startAuthority, type TestAuthority } from './testing/authority.ts';
import { hermesEnvironment, hermesPython, makeHome, noHermes, scriptIn, spawnServed } from './testing/hermes.ts';

const python = hermesPython();
type Said = Readonly<Record<'hermes' | 'manual' | 'automatic', readonly unknown[]>> & { readonly waiting: unknown };

describe.skipIf(python === null)(`the remote connection ${python === null ? `(${noHermes})` : ''}`, () => {
  let authority: TestAuthority;
  let outcome: { local: Said; remote: Said; files: string[] };
  const refused: string[] = [];

  beforeAll(async () => {
    authority = await startAuthority();
    makeHome(authority.directory, '');
    const relay = new SessionRelay(authority.address, { onRefusal: (reason) => refused.push(reason) });
    const command = [python!, '-I', join(import.meta.dir, 'testing/dialogue.py'), scriptIn(authority.directory)];
    const { child, served } = await spawnServed(
      relay,
      command,
      authority.directory,
      hermesEnvironment(authority.directory),
    );
    const printed = await new Response(child.stdout).text();
    if ((await child.exited) !== 0) throw new Error(await Bun.file(join(authority.directory, 'stderr')).text());
    await served;
    outcome = JSON.parse(printed);
  }, 180_000);
  afterAll(() => authority?.stop());

  test("answers Hermes' SessionDB as a local file does", () => {
    expect(outcome.remote.hermes).toEqual(outcome.local.hermes);
    expect(outcome.local.hermes.length).toBeGreaterThan(25);
  });

  test('without an isolation level', () => expect(outcome.remote.manual).toEqual(outcome.local.manual));
  test('with implicit transactions', () => expect(outcome.remote.automatic).toEqual(outcome.local.automatic));
  test('waits for a lock without holding up others', () =>
    expect(outcome.remote.waiting).toEqual(outcome.local.waiting));
  test('leaves no file', () => expect(outcome.files.filter((name) => name.startsWith('state.db'))).toEqual([]));
  test('refuses nothing that Hermes says', () => expect(refused).toEqual([]));
});
