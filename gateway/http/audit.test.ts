/** The audit routes over a real authority, with rows and files as a machine brings them there. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { join } from 'node:path';
import { startAuthority, type TestAuthority } from '../../machine/agentfs/authority.fixture.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { type OpenedFiles, openOrganizationFiles } from '../../machine/sync.ts';
import { createAudit } from '../audit/agentfs-audit.ts';
import type { Role } from '../domain.ts';
import { establishConversation, provisionOrganization } from '../establishment.ts';
import type { ConversationId } from '../ids.ts';
import type { SettleOutcome } from '../machine/settling.ts';
import { startGateway, type TestGateway } from './gateway.fixture.ts';

let authority: TestAuthority;
let machine: OpenedFiles;
let gateway: TestGateway;
let conversation: ConversationId;
let other: ConversationId;
let settles = 0;
let settling: () => Promise<SettleOutcome>;

beforeAll(async () => {
  authority = await startAuthority({ isProvisioned: false });
  await provisionOrganization(authority.cloud);
  machine = await openOrganizationFiles(
    { agentfs: authority.address, replicaDirectory: join(authority.directory, 'replica') },
    { log: () => undefined },
  );
  settling = () => machine.boundary.settle();
  const settleFiles = () => {
    settles += 1;
    return settling();
  };
  gateway = await startGateway({ audit: createAudit({ database: authority.sql, settleFiles }) });
  conversation = await gateway.newConversation();
  other = await gateway.newConversation();
  for (const id of [conversation, other]) await establishConversation(authority.cloud, id, gateway.specialist);
  machine.boundary.begin(conversation);
  await machine.boundary.firstTouch(conversation);
}, 90_000);
afterAll(async () => {
  await gateway?.stop();
  await machine?.boundary.close();
  await authority?.stop();
});

const read = async (role: Role, what: string, query = '', id: string = conversation) => {
  const response = await gateway.call(role, 'GET', `/v1/conversations/${id}/audit/${what}${query}`);
  return { status: response.status, body: (await response.json()) as Record<string, never> };
};
interface Call {
  readonly id: string;
  readonly parameters: { readonly argv: string[] };
}
interface Entry {
  readonly type: string;
  readonly at: string;
  readonly file?: { readonly path: string };
  readonly call?: Call;
}

const record = (at: number, argv: readonly string[], exitCode = 0, id: string = conversation) =>
  machine.ledger.record({
    name: 'shell',
    conversation: id,
    parameters: { argv, program: `/bin/${argv[0]}`, cwd: '/workspace' },
    result: { exitCode },
    error: exitCode === 0 ? null : `exit code ${exitCode}`,
    startedAt: at,
    endedAt: at + 5,
  });

async function write(path: string, text: string): Promise<void> {
  const parts = path.split('/');
  const name = parts.pop()!;
  const parent = (await machine.files.find(`/conversations/${conversation}/${parts.join('/')}`))!.ino;
  const { ino } = await machine.files.names.create({ parent, name }, 0o100640);
  await machine.files.data.write(ino, 0, Buffer.from(text));
  await machine.files.data.commit(ino);
}

describe('tool calls', () => {
  const start = Date.now() + 10_000;

  test('newest last, of this conversation alone, with what came of them, at once after they ended', async () => {
    await record(start + 2, ['false'], 1);
    await record(start, ['echo', 'one']);
    await record(start + 1_001, ['echo', 'two']);
    await record(start, ['secret'], 0, other);
    const { status, body } = await read('expert', 'tool-calls');
    expect(status).toBe(200);
    expect(body).toEqual({
      upToDate: true,
      calls: [
        expect.objectContaining({
          name: 'shell',
          status: 'success',
          parameters: { argv: ['echo', 'one'], program: '/bin/echo', cwd: '/workspace' },
          result: { exitCode: 0 },
          error: null,
          startedAt: new Date(start).toISOString(),
          durationMs: 5,
        }),
        expect.objectContaining({ status: 'error', result: { exitCode: 1 }, error: 'exit code 1' }),
        expect.objectContaining({ parameters: expect.objectContaining({ argv: ['echo', 'two'] }) }),
      ],
    } as never);
  });

  test('pages join to the whole, and since leaves out what was before', async () => {
    const whole = (await read('expert', 'tool-calls')).body.calls as unknown as Call[];
    const joined: Call[] = [];
    let cursor = '';
    do {
      const { body } = await read('expert', 'tool-calls', `?limit=1${cursor}`);
      joined.push(...(body.calls as unknown as Call[]));
      cursor = body.next ? `&cursor=${body.next}` : '';
    } while (cursor !== '');
    expect(joined).toEqual(whole);
    const since = encodeURIComponent(new Date(start + 2).toISOString());
    const later = (await read('expert', 'tool-calls', `?since=${since}`)).body.calls as unknown as Call[];
    expect(later.map(({ parameters }) => parameters.argv[0])).toEqual(['false', 'echo']);
  });
});

describe('the timeline', () => {
  test('files and calls in the order of time; private files are named to superadmins alone', async () => {
    await write('work/a.txt', 'a');
    await machine.files.names.makeDirectory(
      { parent: (await machine.files.find(`/conversations/${conversation}/work`))!.ino, name: 'deep' },
      0o755,
    );
    await write('work/deep/b.txt', 'bb');
    await write('artifacts/c.txt', 'ccc');
    await write('state/private.txt', 'p');
    const paths = async (role: Role) => {
      const entries = (await read(role, 'timeline', '?limit=200')).body.entries as unknown as Entry[];
      expect(entries.map(({ at }) => at)).toEqual(entries.map(({ at }) => at).toSorted());
      return entries.flatMap(({ file, call }) => file?.path ?? call?.parameters.argv.join(' ') ?? []);
    };
    const seen = await paths('client_admin');
    expect(seen).toEqual(
      expect.arrayContaining(['/workspace/a.txt', '/workspace/deep/b.txt', '/artifacts/c.txt', 'echo one', 'false']),
    );
    expect(seen.filter((path) => /\.env|SOUL|config\.yaml|state|logs|conversations/.test(path))).toEqual([]);
    expect(await paths('account_manager')).toEqual(seen);
    const all = await paths('superadmin');
    const own = `/conversations/${conversation}`;
    expect(all).toEqual(expect.arrayContaining([...seen, `${own}/.env`, `${own}/SOUL.md`, `${own}/state/private.txt`]));
    expect(all.filter((path) => path.includes(other))).toEqual([]);
  });

  test('pages of every size join to the whole', async () => {
    const whole = (await read('superadmin', 'timeline', '?limit=200')).body.entries as unknown as Entry[];
    expect(whole.length).toBeGreaterThan(12);
    for (const limit of [1, 2, 3, 7]) {
      const joined: Entry[] = [];
      let cursor = '';
      do {
        const { body } = await read('superadmin', 'timeline', `?limit=${limit}${cursor}`);
        joined.push(...(body.entries as unknown as Entry[]));
        cursor = body.next ? `&cursor=${body.next}` : '';
      } while (cursor !== '');
      expect(joined).toEqual(whole);
    }
  });

  test('things of one time have one order, whatever the page', async () => {
    const at = Date.now() + 20_000;
    const seconds = Math.floor(at / 1000);
    for (let count = 0; count < 5; count++) await record(at, ['same', String(count)]);
    await machine.boundary.settle();
    await authority.sql.execute(
      "UPDATE fs_inode SET ctime = ?, ctime_nsec = ? WHERE ino IN (SELECT ino FROM fs_dentry WHERE name IN ('a.txt', 'b.txt', 'c.txt'))",
      [seconds, (at % 1000) * 1_000_000],
    );
    const whole = (await read('expert', 'timeline', '?limit=200')).body.entries as unknown as Entry[];
    expect(whole.slice(-8).map(({ type }) => type)).toEqual([
      ...Array<string>(5).fill('tool.call'),
      ...Array<string>(3).fill('file.changed'),
    ]);
    for (const limit of [1, 3]) {
      const joined: Entry[] = [];
      let cursor = '';
      do {
        const { body } = await read('expert', 'timeline', `?limit=${limit}${cursor}`);
        joined.push(...(body.entries as unknown as Entry[]));
        cursor = body.next ? `&cursor=${body.next}` : '';
      } while (cursor !== '');
      expect(joined).toEqual(whole);
    }
  });
});

describe('the diff', () => {
  test('what the conversation has otherwise than the base, page by page', async () => {
    const { body } = await read('expert', 'diff');
    const changes = body.changes as unknown as { path: string; change: string; kind: string; now: object }[];
    expect(changes.map(({ path }) => path)).toEqual([
      '/artifacts/c.txt',
      '/artifacts/inbound',
      '/workspace/a.txt',
      '/workspace/deep',
      '/workspace/deep/b.txt',
    ]);
    expect(changes[0]).toMatchObject({ change: 'added', kind: 'file', now: { size: 3, mode: '0640' } });
    const first = await read('expert', 'diff', '?limit=2');
    const second = await read('expert', 'diff', `?limit=200&cursor=${first.body.next}`);
    const joined = [first, second].flatMap((page) => page.body.changes as unknown as object[]);
    expect(joined).toEqual(changes);
  });

  test('a cursor does not lead to another conversation', async () => {
    const elsewhere = Buffer.from(JSON.stringify(`/conversations/${other}/work`)).toString('base64url');
    expect((await read('expert', 'diff', `?cursor=${elsewhere}`)).status).toBe(400);
  });
});

describe('what holds for all', () => {
  test.each(['tool-calls', 'timeline', 'diff'])('%s: refusals are problems', async (what) => {
    expect((await read('client', what)).status).toBe(403);
    expect((await read('expert', what, '', 'conv_00000000000000000000000000')).status).toBe(404);
    for (const cursor of ['x', 'e30', Buffer.from('[1,2]').toString('base64url')]) {
      const { status, body } = await read('expert', what, `?cursor=${cursor}`);
      expect([status, body.type]).toEqual([400, 'urn:edge-gateway:problem:invalid-request' as never]);
    }
    expect((await read('expert', what, '?limit=0')).status).toBe(400);
    expect((await read('expert', what, '?limit=201')).status).toBe(400);
  });

  test('a time that is none is refused', async () => {
    for (const since of ['yesterday', '2030-13-01T00:00:00Z', '5']) {
      expect([since, (await read('expert', 'tool-calls', `?since=${since}`)).status]).toEqual([since, 400]);
    }
  });

  test('a machine that cannot settle is said; what is in the cloud is answered', async () => {
    const before = settles;
    settling = async () => ({ state: 'failing', reason: 'no cloud' });
    const { status, body } = await read('expert', 'tool-calls');
    settling = () => machine.boundary.settle();
    expect([status, body.upToDate]).toEqual([200, false as never]);
    expect((body.calls as unknown as Call[]).length).toBe(8);
    expect(settles).toBe(before + 1);
  });

  test('an authority that is gone is a problem that says so', async () => {
    const database = new HranaDatabase({ ...authority.address, socket: join(authority.directory, 'none.sock') });
    const audit = createAudit({ database, settleFiles: async () => ({ state: 'clean' }) });
    const found = (await gateway.governance.findConversation(conversation))!;
    const page = { cursor: null, limit: 1 };
    const questions = [
      () => audit.toolCalls(found, page, null),
      () => audit.timeline(found, page, false),
      () => audit.diff(found, page),
    ];
    for (const ask of questions) await expect(ask()).rejects.toMatchObject({ document: { status: 503 } });
  });
});
