/** The oracle itself: bare hermes-acp from the built runtime answers, so that comparisons with it mean something. */
import { expect, test } from 'bun:test';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BareHermes } from './harness/bare-hermes.ts';
import { call, lastUserText, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

function writeHome(directory: string, modelUrl: string, more: Readonly<Record<string, unknown>> = {}): void {
  mkdirSync(join(directory, 'home'));
  const model = {
    provider: 'custom',
    base_url: modelUrl,
    default: 'scripted',
    api_key: 'none',
    context_length: 200000,
    ...more,
  };
  const config = { model, agent: { environment_probe: false }, security: { tirith_enabled: false } };
  writeFileSync(join(directory, 'home/config.yaml'), JSON.stringify(config)); // JSON is YAML
}

test('bare Hermes runs a tool in its workspace and replies', async () => {
  const directory = scratchDirectory('bare');
  await using model = ScriptedModel.start();
  model.on('make a note', call('write_file', { path: 'note.txt', content: 'noted\n' }), say('There is a note.'));
  writeHome(directory, model.url);
  try {
    await using hermes = BareHermes.start({ directory });
    await hermes.acp.initialize();
    const session = await hermes.acp.newSession('/workspace');
    const stopReason = await hermes.acp.prompt(session, [{ type: 'text', text: 'Please make a note' }]);
    expect(stopReason).toBe('end_turn');
    expect(readFileSync(join(directory, 'workspace/note.txt'), 'utf8')).toBe('noted\n');
    expect(model.turns.map(({ body }) => lastUserText(body))).toEqual(['Please make a note', 'Please make a note']);
    expect(JSON.stringify(hermes.acp.updates)).toContain('There is a note.');
  } finally {
    removeScratch(directory);
  }
}, 120_000);

/**
 * What `gateway/acp/agent-profile.ts` and API.md say of attachments. A new Hermes that does otherwise is noticed here: then the rule
 * at intake, or the sentence, can go.
 */
test('bare Hermes drops attachments that come alone unless one is an image, and shows no large image', async () => {
  const directory = scratchDirectory('bare');
  await using model = ScriptedModel.start();
  writeHome(directory, model.url, { supports_vision: true });
  const artifacts = join(directory, 'artifacts');
  mkdirSync(artifacts);
  const png = Buffer.from(
    'iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg==',
    'base64',
  );
  writeFileSync(join(artifacts, 'a.pdf'), '%PDF-1.7');
  writeFileSync(join(artifacts, 'a.txt'), 'a text file');
  writeFileSync(join(artifacts, 'a.png'), png);
  writeFileSync(join(artifacts, 'large.png'), Buffer.concat([png, Buffer.alloc(512 * 1024)]));
  const link = (name: string) => ({ type: 'resource_link', name, uri: `file:///artifacts/${name}` });
  try {
    await using hermes = BareHermes.start({ directory });
    await hermes.acp.initialize();
    const session = await hermes.acp.newSession('/workspace');
    for (const name of ['a.pdf', 'a.txt']) {
      expect(await hermes.acp.prompt(session, [link(name)])).toBe('end_turn');
      expect(model.turns).toHaveLength(0);
    }
    expect(await hermes.acp.prompt(session, [link('a.png')])).toBe('end_turn');
    expect(model.turns).toHaveLength(1);
    expect(model.turns[0]!.raw.includes(png.toString('base64'))).toBe(true);
    expect(await hermes.acp.prompt(session, [{ type: 'text', text: 'look' }, link('large.png')])).toBe('end_turn');
    const shown = JSON.stringify(model.turns.at(-1)!.body.messages.at(-1));
    expect(shown).toContain('large.png');
    expect(shown).not.toContain('data:image');
  } finally {
    removeScratch(directory);
  }
}, 120_000);
