/**
 * `.env`, `SOUL.md` and `config.yaml` of the organization and of a conversation are written once (ADR-046 §5): no turn, no
 * tool, no restart and no new replica writes one of their rows again, in the cloud or here.
 */
import { Database } from 'bun:sqlite';
import { expect, test } from 'bun:test';
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const names = ['.env', 'SOUL.md', 'config.yaml'];
const rootIno = 1;

type Row = Readonly<Record<string, unknown>>;
interface Rows {
  readonly name: Row;
  readonly inode: Row;
  /** Their row ids too: a row that is deleted and written anew gets another one. */
  readonly data: readonly Row[];
}

/** Every row of these files in an AgentFS database, which is copied first: its owner may be running. */
function rowsOf(path: string, files: readonly string[], scratch: string): Map<string, Rows> {
  const copy = join(scratch, 'copy.db');
  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(copy + suffix, { force: true });
    if (suffix !== '-shm' && existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
  }
  using database = new Database(copy);
  const entry = database.query<Row & { ino: number }, [number, string]>(
    'SELECT rowid, * FROM fs_dentry WHERE parent_ino = ? AND name = ?',
  );
  return new Map(
    files.map((file) => {
      let name: (Row & { ino: number }) | null = null;
      for (const part of file.slice(1).split('/')) name = entry.get(name?.ino ?? rootIno, part);
      if (name === null) throw new Error(`${path} has no ${file}`);
      const inode = database.query<Row, [number]>('SELECT rowid, * FROM fs_inode WHERE ino = ?').get(name.ino);
      const data = database
        .query<Row & { data: Uint8Array | string }, [number]>('SELECT rowid, * FROM fs_data WHERE ino = ?')
        .all(name.ino)
        .map(({ data: bytes, ...row }) => ({
          ...row,
          sha256: new Bun.CryptoHasher('sha256').update(bytes).digest('hex'),
        }));
      return [file, { name, inode: inode!, data }] as const;
    }),
  );
}

/** What a turn does, in turn: nothing, and every way that Hermes has to write. */
const work = [
  say('nothing'),
  call('terminal', { command: 'echo x >> notes.txt; cat /hermes/config.yaml /hermes/.env; echo y > /hermes/SOUL.md' }),
  call('write_file', { path: 'file.txt', content: 'written' }),
  call('memory', { action: 'add', target: 'memory', content: 'the user likes teal' }),
  call('skill_manage', {
    action: 'create',
    name: 'a-skill',
    content: '---\nname: a-skill\ndescription: for a test\n---\n# Skill\nText.\n',
  }),
];

test('rows and bytes are the same after 20 turns, a restart, and with a replica made anew', async () => {
  const scratch = scratchDirectory('once');
  const data = join(scratch, 'data');
  await using model = ScriptedModel.start();
  work.forEach((step, index) => {
    model.on(`kind ${index} `, step, say('done'));
  });
  const options = {
    dataDirectory: data,
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  };
  const cloud = join(data, 'authority/agentfs.db');
  const replica = join(data, 'machine/organization.db');
  try {
    let before: Map<string, Rows>;
    let files: string[];
    let conversation: string;
    {
      await using gateway = await Gateway.start(options);
      ({ conversation } = gateway);
      files = [...names, ...names.map((name) => `conversations/${conversation}/${name}`)].map((path) => `/${path}`);
      await gateway.api().say(conversation, 'first');
      before = rowsOf(cloud, files, scratch);
      for (let turn = 0; turn < 20; turn += 1) {
        await gateway.api().say(conversation, `kind ${turn % work.length} of turn ${turn}`);
      }
      expect(rowsOf(cloud, files, scratch)).toEqual(before);
      expect(await gateway.stop()).toBe(0);
    }
    for (const { data: chunks } of before.values()) expect(chunks.length).toBeLessThanOrEqual(1);
    expect(before.get('/config.yaml')!.data.length).toBe(1);
    expect(rowsOf(cloud, files, scratch)).toEqual(before);
    const inReplica = rowsOf(replica, files, scratch);
    expect(inReplica).toEqual(before);

    for (const anew of [false, true]) {
      if (anew) rmSync(join(data, 'machine'), { recursive: true });
      await using gateway = await Gateway.start(options);
      expect(gateway.conversation).toBe(conversation);
      await gateway.api().say(conversation, 'kind 2 after the restart');
      const other = await gateway.api('expert').createConversation('Eleanora');
      await gateway.api('expert').say(other, 'kind 3 elsewhere');
      expect(await gateway.stop()).toBe(0);
      expect(rowsOf(cloud, files, scratch)).toEqual(before);
      expect(rowsOf(replica, files, scratch)).toEqual(inReplica);
    }
    // That the turns did write, and that the comparison would see a row that was written again.
    expect(rowsOf(cloud, [`/conversations/${conversation}/work/file.txt`], scratch).size).toBe(1);
    expect(rowsOf(cloud, ['/memory/MEMORY.md'], scratch).size).toBe(1);
    using database = new Database(cloud);
    const ino = before.get('/SOUL.md')!.inode.ino as number;
    database.run('CREATE TEMP TABLE kept AS SELECT * FROM fs_data WHERE ino = ?', [ino]);
    database.run('DELETE FROM fs_data WHERE ino = ?', [ino]);
    database.run('INSERT INTO fs_data SELECT * FROM kept');
    database.run('PRAGMA wal_checkpoint(TRUNCATE)');
    expect(rowsOf(cloud, files, scratch)).not.toEqual(before);
  } finally {
    removeScratch(scratch);
  }
}, 400_000);
