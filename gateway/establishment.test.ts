/** The trees that are written once, against the real embedded authority (ADR-046 §5). */
import { afterAll, beforeAll, expect, test } from 'bun:test';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { CloudFiles } from '../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../machine/agentfs/hrana.ts';
import { isDirectory } from '../machine/agentfs/schema.ts';
import { openAuthorities } from './authorities.ts';
import { readConfiguration } from './config/configuration.ts';
import { openDataDirectory } from './datadir/data-directory.ts';
import type { Specialist } from './domain.ts';
import { establishConversation, provisionOrganization } from './establishment.ts';
import { newConversationId, newSpecialistId } from './ids.ts';
import { createLog } from './log.ts';
import { StopStack } from './stop-stack.ts';

const stack = new StopStack();
let root: string;
let files: CloudFiles;

beforeAll(async () => {
  root = mkdtempSync(join(tmpdir(), 'egw-est-'));
  const data = openDataDirectory(join(root, 'data'));
  stack.add({ name: 'data', limitMs: 1_000, stop: () => data.release() });
  const configuration = readConfiguration({ HOME: root }, null);
  const { agentfs } = await openAuthorities(configuration, data, stack, createLog('test'));
  files = new CloudFiles(new HranaDatabase(agentfs));
}, 60_000);
afterAll(async () => {
  await stack.stop((what, error) => console.error(what, error));
  rmSync(root, { recursive: true, force: true });
});

const text = async (path: string) => new TextDecoder().decode(await files.readFile(path));
async function tree(path: string): Promise<string[]> {
  const found: string[] = [];
  for (const { name, inode } of await files.list(path)) {
    const child = path === '/' ? `/${name}` : `${path}/${name}`;
    found.push(`${(inode.mode & 0o777).toString(8)} ${child}${isDirectory(inode.mode) ? '/' : ''}`);
    if (isDirectory(inode.mode)) found.push(...(await tree(child)));
  }
  return found.toSorted();
}
const specialist = (persona: string): Specialist => ({
  id: newSpecialistId(),
  name: 'Eleanora',
  persona,
  createdAt: new Date(),
  offboardedAt: null,
});

test('the organization gets its tree once; what it changed stays', async () => {
  await provisionOrganization(files);
  const made = await tree('/');
  expect(made).toEqual(
    ['600 /.env', '600 /SOUL.md', '600 /config.yaml', '755 /conversations/', '755 /memory/', '755 /skills/'].toSorted(),
  );
  expect(await text('/config.yaml')).toContain('{EDGE_MODEL_URL}');
  const before = await files.stat('/SOUL.md');
  await provisionOrganization(files);
  expect(await tree('/')).toEqual(made);
  expect(await files.stat('/SOUL.md')).toEqual(before);
}, 30_000);

test('a conversation gets its own copies, the persona behind the organization’s', async () => {
  await provisionOrganization(files);
  const id = newConversationId();
  await establishConversation(files, id, specialist('  Answer in verse.\n'));
  const home = `/conversations/${id}`;
  expect(await tree(home)).toEqual(
    [
      ...['600 .env', '600 SOUL.md', '600 config.yaml'],
      ...['755 artifacts/', '755 artifacts/inbound/', '755 logs/', '755 state/', '755 work/'],
    ]
      .map((line) => line.replace(' ', ` ${home}/`))
      .toSorted(),
  );
  expect(await text(`${home}/SOUL.md`)).toBe(`${(await text('/SOUL.md')).trimEnd()}\n\nAnswer in verse.\n`);
  expect(await text(`${home}/config.yaml`)).toBe(await text('/config.yaml'));
  const before = await tree(home);
  await establishConversation(files, id, specialist('Something else.'));
  expect(await tree(home)).toEqual(before);
  expect(await text(`${home}/SOUL.md`)).toContain('Answer in verse.');

  const plain = newConversationId();
  await establishConversation(files, plain, specialist(''));
  expect(await text(`/conversations/${plain}/SOUL.md`)).toBe(await text('/SOUL.md'));
}, 30_000);
