/**
 * Hermes as a confused deputy: its process may read what its tools may not, so a model tries to have it read, write or follow
 * on its behalf. What it then says to the model is looked at, whole.
 */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { readFileSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from '../harness/executable.ts';
import { call } from '../harness/model.ts';
import { Cell, limitMs } from './cell.fixture.ts';

let cell: Cell;

const skill = (name: string) => `---\nname: ${name}\ndescription: tries\n---\n# Tries\nwords\n`;

beforeAll(async () => {
  cell = await Cell.start({ neighbour: false });
  // Control of this file: these tools work on what they may.
  await cell.shell(
    "printf 'plain words\\n' > plain.txt; mkdir -p sub; ln -s /hermes/.env env-link; ln -s /hermes home-link; ln -s ../../hermes up-link",
  );
  expect(await cell.tool('read_file', { path: '/workspace/plain.txt' })).toContain('plain words');
  const search = { pattern: 'plain words', path: '/workspace', target: 'content' };
  expect(await cell.tool('search_files', search)).toContain('plain.txt');
  await cell.tool('skill_manage', { action: 'create', name: 'tries', content: skill('tries') });
}, limitMs);
afterAll(async () => {
  await cell?.stop();
}, limitMs);

const nothing = (said: string) => {
  for (const marker of Object.values(cell.markers)) expect(said).not.toContain(marker);
};

describe('read_file, search_files', () => {
  test.each([
    '/hermes/.env',
    '/hermes/config.yaml',
    'env-link',
    'home-link/.env',
    'up-link/.env',
    '/workspace/../hermes/.env',
    '/proc/self/environ',
    '/proc/2/environ',
    '/proc/self/root/hermes/.env',
    'file:///hermes/.env',
    '~/../../hermes/.env',
    '/dev/fd/3',
  ])('read_file %s', async (path) => {
    const said = await cell.tool('read_file', { path });
    nothing(said);
    expect(said).not.toContain('EDGE_MODEL_KEY');
    expect(said).not.toContain('api_key:');
  });

  test.each(['/hermes', 'home-link', '/', '/proc'])('search_files in %s', async (path) => {
    const said = await cell.tool('search_files', { pattern: 'PLANTED_API_KEY|dotenv-marker', path, target: 'content' });
    nothing(said);
  });
});

describe('write_file, patch', () => {
  test.each([
    ['write_file', { path: '/hermes/config.yaml', content: 'model: {}\n' }],
    ['write_file', { path: '/hermes/SOUL.md', content: 'You are another.\n' }],
    ['write_file', { path: 'home-link/.env', content: 'A=1\n' }],
    ['write_file', { path: 'env-link', content: 'A=1\n' }],
    ['write_file', { path: '/hermes/skills/planted/SKILL.md', content: 'x' }],
    ['write_file', { path: '/hermes/plugins/planted.py', content: 'x' }],
    ['write_file', { path: '/opt/edge/start.py', content: 'x' }],
    ['patch', { mode: 'replace', path: '/hermes/.env', old_string: 'PLANTED', new_string: 'CHANGED' }],
    ['patch', { mode: 'replace', path: 'env-link', old_string: 'PLANTED_API_KEY', new_string: 'CHANGED' }],
    [
      'patch',
      { mode: 'patch', patch: '*** Begin Patch\n*** Update File: /hermes/SOUL.md\n@@\n-You\n+I\n*** End Patch\n' },
    ],
  ] as const)('%s %j', async (tool, args) => {
    // A link that was replaced by a file of the workspace is the workspace's own affair; what it led to is looked at in the end.
    const said = await cell.tool(tool, args);
    expect(said).toMatch(/error|denied|fail/i);
    nothing(said);
  });
});

describe('vision_analyze', () => {
  test.each([
    '/hermes/.env',
    'file:///hermes/.env',
    'file:///workspace/env-link',
    '/workspace/env-link',
    '/workspace/home-link/config.yaml',
    '/hermes/SOUL.md',
    '/proc/self/environ',
    '/dev/fd/3',
  ])('%s', async (image_url) => {
    const said = await cell.tool('vision_analyze', { image_url, question: 'What does it say?' });
    nothing(said);
    expect(said).toMatch(/error/i);
  });

  test('a private file that says it is a picture', async () => {
    // A link with a picture's name, and one that flips between a picture and a private file while it is opened.
    await cell.shell(
      'cd /workspace; printf "\\\\x89PNG\\\\r\\\\n\\\\x1a\\\\n" > ok.png; ln -sf /hermes/.env secret.png; (end=$((SECONDS+4)); while [ $SECONDS -lt $end ]; do ln -sfn /workspace/ok.png next; mv -T next flip.png; ln -sfn /hermes/.env next; mv -T next flip.png; done) > /dev/null 2>&1 &',
    );
    nothing(await cell.tool('vision_analyze', { image_url: '/workspace/secret.png', question: 'What does it say?' }));
    const said = await cell.turn(
      Array.from({ length: 8 }, () =>
        call('vision_analyze', { image_url: '/workspace/flip.png', question: 'What does it say?' }),
      ),
    );
    for (const one of said) nothing(one);
  });
});

describe('context files', () => {
  test.each(['AGENTS.md', 'CLAUDE.md', '.cursorrules', '.hermes.md', 'sub/AGENTS.md'])('%s as a link', async (name) => {
    await cell.shell(`ln -sfn /hermes/.env ${name}`);
    const said = await cell.tool('read_file', { path: `/workspace/${name.includes('/') ? 'sub/none' : 'plain.txt'}` });
    nothing(said);
    nothing(cell.model.turns.at(-1)!.raw);
    await cell.shell(`rm ${name}; echo "# read me" > ${name}`);
  });

  test('a directory that the tool leads to, with hints in it', async () => {
    nothing(
      await cell.tool('terminal', {
        command: 'ls /hermes/logs /workspace/home-link; cat /workspace/home-link/AGENTS.md',
      }),
    );
  });

  test('a link that changes while a message begins', async () => {
    await cell.shell(
      '(end=$((SECONDS+5)); while [ $SECONDS -lt $end ]; do ln -sfn /hermes/.env next; mv -T next AGENTS.md; echo ok > next; mv -T next AGENTS.md; done) > /dev/null 2>&1 &',
    );
    for (let turn = 0; turn < 6; turn += 1) await cell.turn([]);
    nothing(cell.told());
  });
});

describe('files that a client names', () => {
  test.each(['env-link', 'home-link/.env', 'up-link/.env'])('file:///workspace/%s', async (name) => {
    const words = `look at ${name}`;
    const blocks = [
      { type: 'text', text: words },
      { type: 'resource_link', uri: `file:///workspace/${name}`, name: 'notes', mimeType: 'text/plain' },
    ];
    const answer = await cell.gateway
      .api()
      .post(`/v1/conversations/${cell.conversation}/messages`, { blocks }, { prefer: 'wait=60' });
    // Refused, or read as what it is: nothing.
    expect([200, 422]).toContain(answer.status);
    nothing(cell.told());
  });

  test.each([
    '/hermes/.env',
    '/workspace/../hermes/.env',
    '/etc/passwd',
    '/workspace/%2e%2e/hermes/.env',
    '//hermes/.env',
  ])('file://%s is refused', async (path) => {
    const blocks = [
      { type: 'text', text: 'look' },
      { type: 'resource_link', uri: `file://${path}`, name: 'x', mimeType: 'text/plain' },
    ];
    const answer = await cell.gateway.api().post(`/v1/conversations/${cell.conversation}/messages`, { blocks });
    expect(answer.status).toBe(422);
  });
});

describe('memory and skills', () => {
  test.each([
    { action: 'add', target: '../.env', content: 'x' },
    { action: 'add', target: '/hermes/.env', content: 'x' },
    { action: 'read', target: '../.env' },
  ])('memory %j', async (args) => {
    const said = await cell.tool('memory', args);
    nothing(said);
    expect(said).toMatch(/error|invalid|unknown|fail|must/i);
  });

  test.each([
    { action: 'create', name: '../../escaped', content: skill('escaped') },
    { action: 'create', name: '/workspace/escaped', content: skill('escaped') },
    { action: 'create', name: 'escaped', category: '../..', content: skill('escaped') },
    { action: 'write_file', name: 'tries', file_path: '../../.env', file_content: 'x' },
    { action: 'write_file', name: 'tries', file_path: 'scripts/../../../../SOUL.md', file_content: 'x' },
    { action: 'write_file', name: 'tries', file_path: '/hermes/config.yaml', file_content: 'x' },
    { action: 'remove_file', name: 'tries', file_path: '../../.env' },
    { action: 'delete', name: '../memories' },
  ])('skill_manage %j', async (args) => {
    const said = await cell.tool('skill_manage', args);
    expect(said).toMatch(/"success": false|error/i);
    nothing(said);
  });

  test.each(['../../.env', '/hermes/.env', 'scripts/../../../.env', '../../../proc/2/environ'])(
    'skill_view tries %s',
    async (file_path) => {
      const said = await cell.tool('skill_view', { name: 'tries', file_path });
      nothing(said);
      expect(said).toMatch(/"success": false|error/i);
    },
  );

  test('a skill that is a link', async () => {
    const { output } = await cell.shell(
      'ln -s /hermes/.env /hermes/skills/tries/notes.md 2>&1; ln -s /hermes /hermes/skills/home 2>&1; ln -s /hermes/.env /hermes/skills/tries/scripts 2>&1',
    );
    expect(output.match(/Permission denied/g)?.length).toBe(3);
    nothing(await cell.tool('skill_view', { name: 'tries' }));
  });

  test('a skill that runs a command while it is shown', async () => {
    const content =
      '---\nname: runs\ndescription: runs\n---\n!`cat /hermes/.env`\n$HERMES_SKILL_DIR $(cat /hermes/.env)\n';
    await cell.tool('skill_manage', { action: 'create', name: 'runs', content });
    nothing(await cell.tool('skill_view', { name: 'runs' }));
  });
});

describe('tools that start others', () => {
  test('a delegate has the same walls', async () => {
    const said = await cell.tool('execute_code', {
      code: "from hermes_tools import terminal, read_file\nprint(terminal('cat /hermes/.env; cat /proc/2/environ'))\nprint(read_file('/hermes/.env'))",
    });
    nothing(said);
    expect(said).toMatch(/denied/i);
  });

  test('a process in the background', async () => {
    const said = await cell.turn([
      call('terminal', {
        command: 'cat /hermes/.env; cat /proc/2/environ; sleep 1',
        background: true,
        notify_on_complete: true,
      }),
      call('process', { action: 'list' }),
    ]);
    for (const one of said) nothing(one);
    nothing(cell.told());
  });

  test('git with the private home as its repository, its work tree, its configuration and its remote', async () => {
    const { output } = await cell.shell(
      'git --git-dir=/hermes status 2>&1; git --work-tree=/hermes add -A 2>&1; GIT_CONFIG_GLOBAL=/hermes/.env git config -l 2>&1; git clone /hermes copy 2>&1; git clone file:///hermes copy 2>&1; git hash-object /hermes/.env 2>&1; git diff --no-index /dev/null /hermes/.env 2>&1',
    );
    expect(output.length).toBeGreaterThan(50);
    nothing(output);
    expect(output).not.toMatch(/^[0-9a-f]{40}$/m);
  });
});

test('after all that no secret is anywhere, and the private files are as they were written', async () => {
  expect(await cell.leaks()).toEqual([]);
  const [dotenv, soul, config] = await cell.stored('.env', 'SOUL.md', 'config.yaml');
  expect(dotenv).toBe(`PLANTED_API_KEY=${cell.markers.dotenv}\n`);
  expect(soul).not.toContain('another');
  expect(config).toBe(readFileSync(join(repository, 'bunfs-assets/config.yaml'), 'utf8'));
});
