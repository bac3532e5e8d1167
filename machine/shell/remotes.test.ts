/** HyperSH Git with a real smart HTTP server, against a real git with another one. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { remotes } from './comparison/remotes.fixture.ts';
import { described, hasGit, TwoWorlds } from './comparison.fixture.ts';
import { password, type RemoteServer, serveRepositories } from './remote-server.fixture.ts';

let root: string;
let server: RemoteServer;

/** A bare repository with two branches and a tag, twice the same. */
export async function makeRemotes(worlds: TwoWorlds, at: string): Promise<void> {
  mkdirSync(join(at, 'work'), { recursive: true });
  const run = async (...argv: string[]) => {
    const { exitCode, stderr } = await worlds.native(argv, join(at, 'work'));
    if (exitCode !== 0) throw new Error(`git ${argv.join(' ')}: ${stderr}`);
  };
  await run('init', '-q', '-b', 'main');
  for (const [name, text] of [
    ['README.md', '# Remote\n'],
    ['run.sh', '#!/bin/sh\n'],
  ] as const) {
    writeFileSync(join(at, 'work', name), text);
  }
  await run('add', '-A');
  await run('update-index', '--chmod=+x', 'run.sh');
  await run('commit', '-q', '-m', 'first');
  await run('tag', '-a', 'v1', '-m', 'one');
  await run('branch', 'feature');
  await run('commit', '-q', '--allow-empty', '-m', 'second');
  for (const side of ['native', 'engine']) {
    await run('clone', '-q', '--bare', '.', join(at, side, 'x.git'));
    await worlds.native(['config', 'http.receivepack', 'true'], join(at, side, 'x.git'));
  }
}

describe.skipIf(!hasGit)('remotes', () => {
  beforeAll(() => {
    root = mkdtempSync(join(tmpdir(), 'git-remotes-'));
    server = serveRepositories(root);
  });
  afterAll(() => {
    server.stop();
    rmSync(root, { recursive: true });
  });

  for (const { name, steps } of remotes) {
    test(name, async () => {
      const withPassword = (side: string) => server.url.replace('//', `//${side}:${password}@`);
      const worlds = await TwoWorlds.open({ GIT_CREDENTIALS: withPassword('engine') });
      writeFileSync(join(worlds.root, 'home', '.git-credentials'), `${withPassword('native')}\n`);
      writeFileSync(join(worlds.root, 'home', '.gitconfig'), '[credential]\n\thelper = store\n');
      worlds.remote = server.url;
      await makeRemotes(worlds, root);
      const wrong: string[] = [];
      for (const step of steps) {
        const compared = await worlds.step(step);
        if (compared?.engine && !Bun.deepEquals(compared.engine, compared.native)) {
          wrong.push(`${compared.words}\n${JSON.stringify(compared.native)}\n${JSON.stringify(compared.engine)}`);
        }
        if (compared && !compared.engine) wrong.push(`${compared.words}: ${compared.reason}`);
      }
      expect(wrong.join('\n')).toBe('');
      const exported = await worlds.export();
      for (const repository of ['repo', 'repo2', 'repo3']) {
        expect(await described(worlds, exported, repository)).toEqual(await described(worlds, worlds.root, repository));
      }
      const remoteRefs = async (side: string) =>
        (await worlds.native(['for-each-ref'], join(root, side, 'x.git'))).stdout;
      expect(await remoteRefs('engine')).toBe(await remoteRefs('native'));
      expect((await worlds.native(['fsck'], join(root, 'engine', 'x.git'))).exitCode).toBe(0);
      // What is sent to a place is what it is given for, and nothing of it is kept.
      expect(await new Response(Bun.spawn(['grep', '-r', password, exported]).stdout).text()).toBe('');
      rmSync(exported, { recursive: true });
      await worlds.close();
    }, 120_000);
  }
});
