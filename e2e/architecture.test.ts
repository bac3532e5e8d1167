/** The rules about the code itself: who imports whom, and what must never exist (ADR-046 §§1, 4–6, 8). */
import { expect, test } from 'bun:test';
import { readdirSync, readFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';
import { repository } from './harness/executable.ts';

interface Source {
  /** Relative to the repository. */
  readonly path: string;
  readonly text: string;
}

const ignored = new Set(['node_modules', 'dist', 'build', '.git', '__pycache__', 'zig-out', '.zig-cache']);

function filesBelow(folder: string, extensions: RegExp): Source[] {
  return readdirSync(join(repository, folder), { withFileTypes: true }).flatMap((entry) => {
    const path = join(folder, entry.name);
    if (ignored.has(entry.name)) return [];
    if (entry.isDirectory()) return filesBelow(path, extensions);
    return extensions.test(entry.name) ? [{ path, text: readFileSync(join(repository, path), 'utf8') }] : [];
  });
}

const folders = ['gateway', 'machine', 'hermes-run', 'bunfs-assets', 'zig'] as const;
const sources = [...folders.flatMap((folder) => filesBelow(folder, /\.(ts|tsx|zig|py|sql|css|html)$/)), ...entry()];
const isTest = ({ path }: Source) => /\.(test|fixture)\.tsx?$|(^|\/)test_|_test\.(zig|py)$/.test(path);
const production = sources.filter((source) => !isTest(source));

function entry(): Source[] {
  return [{ path: 'edge-gateway.ts', text: readFileSync(join(repository, 'edge-gateway.ts'), 'utf8') }];
}

/** Folder → what it may import beside itself. */
const mayImport: Readonly<Record<string, readonly string[]>> = {
  gateway: ['hermes-run/', 'machine/agentfs/', 'machine/launch.ts', 'bunfs-assets/', 'package.json'],
  machine: ['hermes-run/', 'bunfs-assets/'],
  'hermes-run': [],
  'bunfs-assets': ['build/assets/'],
  zig: [],
};

function importsOf({ path, text }: Source): string[] {
  const found = text.matchAll(/(?:\bfrom\s+|\bimport\s*\(?\s*|new URL\(\s*)'(\.{1,2}\/[^']+)'/g);
  return [...found].map((match) => relative('.', join(dirname(path), match[1]!)));
}

/** `who → whom` for every import that the table does not allow. */
function forbiddenImports(files: readonly Source[]): string[] {
  return files.flatMap((source) => {
    const folder = source.path.split('/')[0]!;
    const allowed = mayImport[folder];
    if (allowed === undefined) return [];
    return importsOf(source)
      .filter((target) => !target.startsWith(`${folder}/`) && !allowed.some((prefix) => target.startsWith(prefix)))
      .map((target) => `${source.path} → ${target}`);
  });
}

test('the folders import only what the table allows', () => {
  expect(production.length).toBeGreaterThan(50);
  expect(forbiddenImports(production)).toEqual([]);
});

test('the import check would notice a forbidden import', () => {
  const wrong = [
    { path: 'gateway/http/a.ts', text: `import { x } from '../../machine/holders/holders.ts';` },
    { path: 'machine/a.ts', text: `import type { x } from '../gateway/ids.ts';` },
    { path: 'hermes-run/a.ts', text: `await import('../machine/launch.ts');` },
  ];
  expect(forbiddenImports(wrong)).toHaveLength(3);
  expect(forbiddenImports([{ path: 'gateway/a.ts', text: `export { x } from '../machine/launch.ts';` }])).toEqual([]);
});

/** What was once wrong in systems of this kind, and must never come to be here. */
const forbidden: readonly (readonly [RegExp, string])[] = [
  [/held_for_review|waiting_approval|confidence_threshold/i, 'no gate before a delivery (§4)'],
  [/delivered_message>|projectedDelivery|projected_delivery/i, 'no second transcript (§6)'],
  [/kbContext|<user_message|current_expert_request|granted_tool_capabilities/i, 'no words around a message (§1)'],
  [/local_progress|local_execution/i, 'no second tool ledger (§6)'],
  [/content_base64/i, 'no file bytes outside AgentFS (file API)'],
  [/\bsetInterval\b/, 'no polling (§8)'],
  [/longPollTimeout|\bredis\b/i, 'no held request and no other channel (§5)'],
];

/** The keep-alive of a silent event stream writes a comment and reads nothing: the one timer that repeats. */
const keepAlive = 'gateway/http/event-stream.ts';

function forbiddenWords(files: readonly Source[]): string[] {
  return files.flatMap(({ path, text }) =>
    forbidden.filter(([pattern]) => pattern.test(text)).map(([pattern, why]) => `${path}: ${pattern.source}: ${why}`),
  );
}

test('nothing that must not exist exists', () => {
  expect(forbiddenWords(production.filter(({ path }) => path !== keepAlive))).toEqual([]);
  const excepted = production.filter(({ path }) => path === keepAlive);
  expect(forbiddenWords(excepted)).toHaveLength(1);
  expect(excepted[0]?.text.match(/\bsetInterval\(/g)).toHaveLength(1);
});

test('the word check would notice one', () => {
  expect(forbiddenWords([{ path: 'x.ts', text: `setInterval(read, 1000); state = 'held_for_review'` }])).toHaveLength(
    2,
  );
});

/** Code without comments: what it says about a word is no use of it. */
const withoutComments = (text: string) => text.replaceAll(/\/\*[\s\S]*?\*\/|\/\/[^\n]*/g, '');

test('hermes-run knows not one ACP word (ADR-046 §1)', () => {
  const relay = production.filter(({ path }) => path.startsWith('hermes-run/'));
  expect(relay.length).toBeGreaterThan(2);
  const spoken = relay.filter(({ text }) =>
    /jsonrpc|session\/|prompt|agentclientprotocol/i.test(withoutComments(text)),
  );
  expect(spoken.map(({ path }) => path)).toEqual([]);
});

/** Where a second ledger would be: columns and tables of the governance database, and what reads Hermes' updates. */
const toolWord = /tool[_.]?(call|use|run|execution)|executed|ledger|audit/i;

/** Files of the gateway that know an ACP tool call, and what for. */
const knowsToolCalls: Readonly<Record<string, string>> = {
  'gateway/acp/agent-profile.ts': 'which update is the first that the model caused, for the phase timings',
  'gateway/cards/client-stream.ts': 'that a reply begins anew after a call, and so does the search for its card',
  'gateway/events/frames.ts': 'what of an update a client may see, as it passes by',
};

test('there is one ledger: AgentFS, written by the machine (ADR-046 §6)', () => {
  const migrations = production.filter(({ path }) => path.startsWith('gateway/governance/migrations/'));
  expect(migrations.some(({ path }) => path.endsWith('.sql'))).toBe(true);
  const governance = production.filter(({ path }) => path.startsWith('gateway/governance/'));
  const speaking = governance.filter(({ text }) => toolWord.test(withoutComments(text.replaceAll(/--[^\n]*/g, ''))));
  expect(speaking.map(({ path }) => path)).toEqual([]);
  // Nobody writes rows but the ledger, and it stands in the machine; nobody takes any away but the erasure of a conversation.
  const touching = (statement: RegExp) =>
    production.filter(({ text }) => statement.test(withoutComments(text))).map(({ path }) => path);
  expect(touching(/(INSERT (OR \w+ )?INTO|UPDATE)\s+tool_calls\b/i)).toEqual(['machine/agentfs/ledger.ts']);
  expect(touching(/DELETE FROM\s+tool_calls\b/i)).toEqual(['gateway/retention/file-rows.ts']);
  const recorders = production.filter(({ text }) => /\.record\(\{/.test(withoutComments(text)));
  expect(recorders.filter(({ path }) => !path.startsWith('machine/')).map(({ path }) => path)).toEqual([]);
  // Updates that tell of tool calls pass by: no file that reads them writes anywhere.
  const readers = production.filter(({ text }) => /'tool_call(_update)?'/.test(withoutComments(text)));
  expect(readers.map(({ path }) => path).sort()).toEqual(Object.keys(knowsToolCalls));
});

test('the top level holds the six folders, the entry points and configuration only', () => {
  const known = [
    ...folders,
    ...['e2e', '.ci', '.git', 'node_modules', 'dist', 'build', '.gitignore', '.dockerignore'],
    ...['build.ts', 'edge-gateway.ts', 'package.json', 'bun.lock', 'tsconfig.json', 'biome.json', 'bunfig.toml'],
    'Dockerfile',
    ...['README.md', 'DEPENDENCIES.md', 'API.md', 'THREAT_MODEL.md'],
  ];
  expect(readdirSync(repository).filter((name) => !known.includes(name))).toEqual([]);
});
