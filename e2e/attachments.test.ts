/**
 * The file API with real Hermes: an attachment is written once to the cloud AgentFS and goes to the agent as its own resource
 * block (acceptance 2); what the agent makes can be downloaded as soon as its reply is delivered.
 */
import { Database } from 'bun:sqlite';
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { copyFileSync, existsSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { sendForm } from './harness/form.ts';
import { Gateway } from './harness/gateway.ts';
import { hermesProcesses } from './harness/holders.ts';
import { call, lastUserText, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';
import { StdinTap } from './harness/stdin-tap.ts';

const png = Buffer.from(
  'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
  'base64',
);
const noise = (length: number) =>
  Buffer.concat(
    Array.from({ length: Math.ceil(length / 65_536) }, () => crypto.getRandomValues(new Uint8Array(65_536))),
  ).subarray(0, length);
const sha256 = (bytes: Uint8Array | string) => new Bun.CryptoHasher('sha256').update(bytes).digest('hex');

let model: ScriptedModel;
let gateway: Gateway;
let data: string;
let options: Parameters<typeof Gateway.start>[0];

beforeAll(async () => {
  data = scratchDirectory('attachments');
  model = ScriptedModel.start();
  options = {
    dataDirectory: data,
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  };
  gateway = await Gateway.start(options);
}, 180_000);
afterAll(async () => {
  await gateway?.[Symbol.asyncDispose]();
  await model?.stop();
  removeScratch(data);
}, 120_000);

const sums = 'cd /artifacts/inbound && for f in *; do sha256sum -- "$f"; stat -c %h -- "$f"; done';

/** To the model, or to what describes images for one that sees none. */
const wasShown = (image: Buffer) => model.requests.all.some(({ raw }) => raw.includes(image.toString('base64')));

interface Stored {
  readonly name: string;
  readonly ino: number;
  readonly nlink: number;
  readonly sha256: string;
}

/** The conversation's inbound files in an AgentFS database, and how many inodes of the whole of it have their contents. */
function stored(path: string, conversation: string): { files: Stored[]; copies: number } {
  const copy = join(data, 'copy.db');
  for (const suffix of ['', '-wal', '-shm']) {
    rmSync(copy + suffix, { force: true });
    if (suffix !== '-shm' && existsSync(path + suffix)) copyFileSync(path + suffix, copy + suffix);
  }
  using database = new Database(copy);
  const child = database.query<{ ino: number }, [number, string]>(
    'SELECT ino FROM fs_dentry WHERE parent_ino = ? AND name = ?',
  );
  let parent = 1;
  for (const name of ['conversations', conversation, 'artifacts', 'inbound']) parent = child.get(parent, name)!.ino;
  const contents = database.query<{ data: Uint8Array }, [number]>(
    'SELECT data FROM fs_data WHERE ino = ? ORDER BY chunk_index',
  );
  const digest = (ino: number) => {
    const hasher = new Bun.CryptoHasher('sha256');
    for (const { data: bytes } of contents.all(ino)) hasher.update(bytes);
    return hasher.digest('hex');
  };
  const files = database
    .query<{ name: string; ino: number; nlink: number }, [number]>(
      'SELECT d.name, d.ino, i.nlink FROM fs_dentry d JOIN fs_inode i ON i.ino = d.ino WHERE d.parent_ino = ? ORDER BY d.name',
    )
    .all(parent)
    .map((row) => ({ ...row, sha256: digest(row.ino) }));
  const all = database.query<{ ino: number }, []>('SELECT DISTINCT ino FROM fs_data').all();
  const wanted = new Set(files.map((file) => file.sha256));
  return { files, copies: all.filter(({ ino }) => wanted.has(digest(ino))).length };
}

test('what is attached is stored once, whole for the agent, and goes to it as blocks of its own', async () => {
  const api = gateway.api();
  const { conversation } = gateway;
  const files = [
    { name: 'notes for you.txt', bytes: 'the secret word is teal\n', type: 'text/plain;charset=utf-8' },
    { name: 'report.pdf', bytes: Buffer.concat([Buffer.from('%PDF-1.7\n'), noise(300_000)]), type: 'application/pdf' },
    { name: 'archive.tar.gz', bytes: noise(1_500_000), type: 'application/gzip' },
    { name: 'pixel.png', bytes: png, type: 'image/png' },
    { name: '../../etc/pass"wd\u202e', bytes: 'hostile' },
  ];
  model.on('sums of these', call('terminal', { command: sums }), say('Here they are.'));
  await api.say(conversation, 'warm up');
  const [hermes] = hermesProcesses(gateway.pid);
  const tap = await StdinTap.attach(hermes!.pid, join(data, 'tap'));
  await using events = await gateway.events('superadmin');
  events.send({ type: 'subscribe', conversation });
  await events.frame('subscribed');

  const answer = await sendForm(api, conversation, ['sums of these:', ...files, 'Thanks.\n']);
  expect([answer.status, answer.text]).toEqual([200, expect.stringContaining('Here they are.')]);
  const turn = model.turns.filter(({ body }) => lastUserText(body).includes('sums of these'));
  const output = JSON.stringify(turn.at(-1)!.body.messages.at(-1));
  for (const { name, bytes } of files) expect([name, output.includes(sha256(bytes))]).toEqual([name, true]);
  // Hermes read the text and the image by their links; nobody else put them in.
  expect(lastUserText(turn[0]!.body).includes('the secret word is teal')).toBe(true);
  expect(wasShown(png)).toBe(true);

  const prompt = (await tap.stop())
    .toString('utf8')
    .split('\n')
    .map((line) =>
      line.trim() === '' ? null : (JSON.parse(line) as { method?: string; params: { prompt: unknown[] } }),
    )
    .find((line) => line?.method === 'session/prompt');
  const uri = ({ name, bytes }: { name: string; bytes: Uint8Array | string }) =>
    `file:///artifacts/inbound/${sha256(bytes).slice(0, 16)}-${name}`;
  expect(prompt!.params.prompt).toEqual([
    { type: 'text', text: 'sums of these:' },
    {
      type: 'resource_link',
      uri: uri({ ...files[0]!, name: 'notes_for_you.txt' }),
      name: 'notes for you.txt',
      mimeType: 'text/plain;charset=utf-8',
      size: 24,
    },
    { type: 'resource_link', uri: uri(files[1]!), name: 'report.pdf', mimeType: 'application/pdf', size: 300_009 },
    {
      type: 'resource_link',
      uri: uri(files[2]!),
      name: 'archive.tar.gz',
      mimeType: 'application/gzip',
      size: 1_500_000,
    },
    { type: 'resource_link', uri: uri(files[3]!), name: 'pixel.png', mimeType: 'image/png', size: png.length },
    expect.objectContaining({ type: 'resource_link', name: 'pass%22wd\u202e', size: 7 }),
    { type: 'text', text: 'Thanks.\r\n' },
  ] as never);

  // No bytes, host path or second description in anything that a client or an operator sees.
  await events.frame('reply.delivered');
  const payloads = [answer.text, JSON.stringify(events.frames.all)].join('\n');
  for (const secret of [png.toString('base64'), 'the secret word', data, 'content_base64', 'data:image']) {
    expect([secret, payloads.includes(secret)]).toEqual([secret, false]);
  }
  for (const secret of [png.toString('base64'), 'the secret word', 'notes for you', 'report.pdf']) {
    expect([secret, gateway.log.includes(secret)]).toEqual([secret, false]);
  }
}, 200_000);

test('one inode before and after a reload, a cold restart and a new replica; a retry adds none', async () => {
  const { conversation } = gateway;
  const cloud = join(data, 'authority/agentfs.db');
  const before = stored(cloud, conversation);
  expect(before.files).toHaveLength(5);
  for (const { name, nlink, sha256: digest } of before.files) {
    expect(name.startsWith(`${digest.slice(0, 16)}-`)).toBe(true);
    expect(nlink).toBe(1);
  }
  expect(before.copies).toBe(5);
  const again = await sendForm(gateway.api(), conversation, [
    'once more',
    { name: 'pixel.png', bytes: png, type: 'image/png' },
  ]);
  expect(again.status).toBe(200);
  expect(stored(cloud, conversation)).toEqual(before);

  for (const anew of [false, true]) {
    expect(await gateway.stop()).toBe(0);
    if (anew) rmSync(join(data, 'machine'), { recursive: true });
    gateway = await Gateway.start(options);
    const from = model.turns.length;
    model.on('and now the sums', call('terminal', { command: sums }), say('The same.'));
    expect((await gateway.api().say(conversation, 'and now the sums')).reply.text).toBe('The same.');
    const output = JSON.stringify(model.turns.slice(from).at(-1)!.body.messages.at(-1));
    for (const { sha256: digest } of before.files) expect([digest, output.includes(digest)]).toEqual([digest, true]);
    expect(stored(cloud, conversation)).toEqual(before);
  }
}, 300_000);

test('files alone: an image is a message, anything else asks for a line of text and leaves nothing', async () => {
  const { conversation } = gateway;
  const cloud = join(data, 'authority/agentfs.db');
  const before = stored(cloud, conversation);
  const from = model.turns.length;
  const refused = await sendForm(gateway.api(), conversation, [{ name: 'only.pdf', bytes: '%PDF-1.7' }]);
  expect([refused.status, refused.text]).toEqual([422, expect.stringContaining('Add a text to the message')]);
  expect(stored(cloud, conversation)).toEqual(before);
  expect(model.turns.length).toBe(from);

  const image = await sendForm(gateway.api(), conversation, [{ name: 'only.png', bytes: png, type: 'image/png' }]);
  expect([image.status, image.text]).toEqual([200, expect.stringContaining('"text":"ok"')]);
  expect(lastUserText(model.turns.at(-1)!.body)).toContain('only.png');
  expect(wasShown(png)).toBe(true);
}, 120_000);

test('a new file that a delivered reply names can be downloaded at once, and only in its conversation', async () => {
  const { conversation } = gateway;
  const api = gateway.api();
  const other = await gateway.api('superadmin').createConversation('Eleanora');
  const content = (uri: string, of = conversation) =>
    gateway.api('superadmin').get(`/v1/conversations/${of}/files/content?uri=${encodeURIComponent(uri)}`);
  for (let index = 0; index < 6; index += 1) {
    const uri = `file:///${index % 2 === 0 ? 'workspace' : 'artifacts'}/made-${index}.txt`;
    const command = `head -c ${index * 400_000 + 5} /dev/zero | tr '\\0' 'x' > ${uri.slice('file://'.length)}`;
    model.on(`make file ${index}`, call('terminal', { command }), say(`See ${uri}`));
    const { reply } = await api.say(conversation, `make file ${index}`);
    const answer = await content(reply.text.slice('See '.length));
    expect([answer.status, answer.text.length]).toEqual([200, index * 400_000 + 5]);
    expect((await content(uri, other)).status).toBe(404);
  }
  const listed = await api.get(`/v1/conversations/${conversation}/files`);
  expect(listed.text).toContain('"uri":"file:///workspace/made-0.txt"');
  // What the agent keeps to itself, as links that it makes to it.
  const command =
    'cd /workspace; ln -s /hermes/.env a; ln -s ../.env b; ln -s /etc/passwd c; ln -s ../../ d; mkfifo e; ln made-0.txt f';
  model.on('make links', call('terminal', { command }), say('done'));
  await api.say(conversation, 'make links');
  for (const name of ['a', 'b', 'c', 'd', 'd/.env', 'e']) {
    expect([name, (await content(`file:///workspace/${name}`)).status]).toEqual([name, 404]);
  }
  expect((await content('file:///workspace/f')).status).toBe(200);
}, 240_000);
