/** The oracle itself: bare hermes-acp from the built runtime answers, so that comparisons with it mean something. */
import { expect, test } from 'bun:test';
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { BareHermes } from './harness/bare-hermes.ts';
import { call, lastUserText, ScriptedModel, say } from './harness/model.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

function writeHome(directory: string, modelUrl: string): void {
  mkdirSync(join(directory, 'home'));
  const model = {
    provider: 'custom',
    base_url: modelUrl,
    default: 'scripted',
    api_key: 'none',
    context_length: 200000,
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
