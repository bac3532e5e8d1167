/**
 * Builds everything into dist/: the executable, and beside it the Hermes runtime. Each step is skipped while its inputs
 * are unchanged. Needs what `bunfs-assets/make/prerequisites.ts` checks, and the network the first time.
 */
import { existsSync, readFileSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { takeBuildLock } from './bunfs-assets/make/build-lock.ts';
import { CommandError, run } from './bunfs-assets/make/command.ts';
import { makeExecutable } from './bunfs-assets/make/executable.ts';
import { makeHermesRuntime } from './bunfs-assets/make/hermes-runtime.ts';
import { writeStrippedAddon } from './bunfs-assets/make/native-addon.ts';
import { PrerequisiteError, type Python, requirePrerequisites } from './bunfs-assets/make/prerequisites.ts';
import { makePythonTools, toolsPython } from './bunfs-assets/make/python-tools.ts';
import { runStep, type Step, type Workspace } from './bunfs-assets/make/step.ts';
import { buildConfinedExec } from './zig/build.ts';

const root = import.meta.dir;
const at = (path: string) => join(root, path);
const make = (name: string) => ({ path: at(`bunfs-assets/make/${name}`) });
const logs = at('build/logs');
const tools = at('build/python');
const addonFile = at('build/assets/turso-sync.bin');
const workspace: Workspace = { root, stamps: at('build/stamps'), say: (line) => console.error(`build: ${line}`) };

function pythonToolsStep(python: Python): Step {
  return {
    name: 'zig',
    inputs: [make('python-tools.ts'), { path: at('bunfs-assets/zig.lock') }, { text: JSON.stringify(python) }],
    outputs: [toolsPython(tools)],
    make: () => makePythonTools(tools, python, at('bunfs-assets/zig.lock'), logs),
  };
}

function confinedExecStep(toolsDigest: string): Step {
  const out = at('build/assets/confined-exec.bin');
  return {
    name: 'confined-exec',
    inputs: [{ path: at('zig') }, { text: `${toolsDigest} ${process.arch}` }],
    outputs: [out],
    make: () => buildConfinedExec(out, { pythonWithZiglang: toolsPython(tools) }),
  };
}

function copyStep(name: string, from: string, to: string): Step {
  return { name, inputs: [{ path: from }], outputs: [to], make: () => writeFileSync(to, readFileSync(from)) };
}

function postgresSteps(): Step[] {
  const pglite = (name: string) => at(`node_modules/@electric-sql/pglite/dist/${name}`);
  const seed = at('build/assets/postgres-seed.bin');
  const seedStep: Step = {
    name: 'postgres-seed',
    inputs: [make('postgres-seed.ts'), { path: at('node_modules/@electric-sql/pglite/package.json') }],
    outputs: [seed],
    make: () => run(logs, 'postgres seed', [process.execPath, at('bunfs-assets/make/postgres-seed.ts'), seed]),
  };
  const copies = ['pglite.wasm', 'initdb.wasm', 'pglite.data'];
  return [seedStep, ...copies.map((name) => copyStep(name, pglite(name), at(`build/assets/${name}.bin`)))];
}

function addonStep(): Step {
  return {
    name: 'addon',
    inputs: [make('elf.ts'), make('native-addon.ts'), { path: at('node_modules/@tursodatabase/sync/package.json') }],
    outputs: [addonFile],
    make: () => writeStrippedAddon(addonFile),
  };
}

function executableStep(parts: readonly string[]): Step {
  const sources = ['gateway', 'machine', 'hermes-run', 'bunfs-assets', 'edge-gateway.ts', 'package.json', 'bun.lock'];
  return {
    name: 'executable',
    inputs: [...sources.map((path) => ({ path: at(path) })), { text: `${Bun.version} ${parts.join(' ')}` }],
    outputs: [at('dist/edge-gateway')],
    make: () =>
      makeExecutable({
        entry: at('edge-gateway.ts'),
        outFile: at('dist/edge-gateway'),
        workDirectory: at('build/executable'),
        addonFile,
      }),
  };
}

async function buildRuntime(python: Python): Promise<string> {
  const lock = at('bunfs-assets/hermes.lock');
  const directory = at('dist/runtime');
  const request = { directory, lock, python, toolsPython: toolsPython(tools), logs, say: workspace.say };
  const runtime = await makeHermesRuntime(request);
  const minor = python.version.split('.').slice(0, 2).join('.');
  const certificates = join(runtime, `lib/python${minor}/site-packages/certifi/cacert.pem`);
  return runStep(workspace, copyStep('ca', certificates, at('build/assets/ca.pem')));
}

/** Waits for all before it reports the first failure: nothing goes on in the background after the lock is released. */
async function allOf<T>(running: readonly Promise<T>[]): Promise<T[]> {
  await Promise.allSettled(running);
  return Promise.all(running);
}

async function build(): Promise<void> {
  const python = requirePrerequisites();
  if (!existsSync(at('node_modules/elysia')))
    throw new PrerequisiteError([
      { what: 'The packages are not installed.', fix: 'Run: npx --yes bun@1.4.5 run build' },
    ]);
  const pythonSide = async () => {
    const toolsDigest = await runStep(workspace, pythonToolsStep(python));
    return allOf([runStep(workspace, confinedExecStep(toolsDigest)), buildRuntime(python)]);
  };
  const packageSide = [...postgresSteps(), addonStep()].map((step) => runStep(workspace, step));
  const parts = (await allOf<string | string[]>([pythonSide(), ...packageSide])).flat();
  await runStep(workspace, executableStep(parts));
}

const release = takeBuildLock(at('build/lock'), () => workspace.say('waiting for another build in this checkout …'));
try {
  const startMs = performance.now();
  await build();
  const megabytes = (statSync(at('dist/edge-gateway')).size / 1e6).toFixed(0);
  const runtime = readFileSync(at('dist/runtime/current'), 'utf8').slice(0, 12);
  const seconds = ((performance.now() - startMs) / 1000).toFixed(1);
  workspace.say(`dist/edge-gateway ${megabytes} MB, Hermes runtime ${runtime}, ${seconds} s`);
} catch (error) {
  if (!(error instanceof PrerequisiteError || error instanceof CommandError)) throw error;
  console.error(error.message);
  process.exitCode = 1;
} finally {
  release();
}
