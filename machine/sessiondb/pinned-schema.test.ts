/** The list of schema statements against the Hermes that is installed: a new pin shows here what it brings. */
import { expect, test } from 'bun:test';
import { isPinnedSchema } from './pinned-schema.ts';
import { hermesPython, noHermes } from './testing/hermes.ts';

const python = hermesPython();
const program = `
import inspect, json, os, re, sys
import hermes_state
from tools import async_delegation
texts = [getattr(hermes_state, name) for name in ("SCHEMA_SQL", "DEFERRED_INDEX_SQL", "FTS_SQL", "FTS_TRIGRAM_SQL")]
texts.append(re.search(r'"""(CREATE TABLE.*?)"""', inspect.getsource(async_delegation._connect), re.S).group(1))
print(json.dumps({"texts": texts, "version": hermes_state.SCHEMA_VERSION}))
`;

test.skipIf(python === null)(
  `is the schema of the pinned Hermes ${python === null ? `(${noHermes})` : ''}`,
  async () => {
    const child = Bun.spawn([python!, '-I', '-c', program], {
      env: { HERMES_HOME: '/nonexistent' },
      stderr: 'inherit',
    });
    const { texts, version } = JSON.parse(await new Response(child.stdout).text());
    expect(version).toBe(22);
    expect(texts.length).toBe(5);
    for (const text of texts) expect(isPinnedSchema(text)).toBe(true);
  },
);

test('knows nothing else', () => {
  expect(isPinnedSchema('CREATE TABLE IF NOT EXISTS sessions (id TEXT)')).toBe(false);
  expect(isPinnedSchema('DELETE FROM messages_fts WHERE rowid = 1')).toBe(false);
});
