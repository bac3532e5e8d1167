/**
 * `bench files`: the same work on the organization's file system as a holder sees it (through confined-exec's relay), on the
 * Rust AgentFS mount where EDGE_BENCH_AGENTFS names its program, and on the plain disk, in the same run.
 *
 * A row that writes ends with fsync (of its file, or of the whole file system). Cold: the kernel's caches are dropped, and
 * the server is another process. The push to the embedded authority is timed apart.
 */
import { mkdirSync, readdirSync, statSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { rounded } from './figures.ts';
import { BenchAuthority, BenchMachine } from './machine.ts';
import { rustMount } from './rust-mount.ts';
import { type Done, localWorker, type Worker } from './worker.ts';

type Unit = '/s' | 'MB/s' | 's' | 'MB';
interface Step {
  /** The function of `work/files.py`; shown when there is a unit. */
  readonly work: string;
  readonly row?: string;
  readonly unit?: Unit;
  /** The server is started anew and every cache dropped before it. */
  readonly isCold?: boolean;
}

const steps: readonly Step[] = [
  { work: 'create_small', row: 'create 2,000 small files', unit: '/s' },
  { work: 'walk_stat', row: 'walk + stat', unit: '/s' },
  { work: 'read_small', row: 'read 2,000 small files', unit: '/s' },
  { work: 'write_random', row: 'write 100 MB, random', unit: 'MB/s' },
  { work: 'write_text', row: 'write 100 MB, text', unit: 'MB/s' },
  { work: 'read_random', row: 'read 100 MB, cold', unit: 'MB/s', isCold: true },
  { work: 'walk_stat', row: 'walk + stat, cold', unit: '/s' },
  { work: 'read_small', row: 'read 2,000 small files, cold', unit: '/s' },
  { work: 'make_repository' },
  { work: 'git_add', row: 'git add 500 files', unit: 's' },
  { work: 'git_commit', row: 'git commit', unit: 's' },
  { work: 'git_status', row: 'git status', unit: 's' },
  { work: 'make_tar' },
  { work: 'untar', row: 'untar 500 files', unit: 's' },
  { work: 'grep', row: 'grep -r', unit: 's' },
  { work: 'remove_trees', row: 'rm -rf', unit: 's' },
  { work: 'remove_big', row: 'rm of 200 MB', unit: 's' },
  { work: 'npm_fetch' },
  { work: 'npm_install', row: 'npm install of 300 packages', unit: 's' },
  { work: 'npm_remove', row: 'rm -rf node_modules', unit: 's' },
];

export interface Row {
  readonly work: string;
  readonly ours: number;
  readonly rust_agentfs?: number;
  readonly disk: number;
  readonly unit: Unit;
}

/** A kind of file system: where to work, and how its server is started anew. */
interface Subject {
  worker(): Promise<Worker>;
  restart(): Promise<void>;
  stop(): Promise<void>;
}

export async function benchFiles(): Promise<{ rows: Row[] }> {
  const scratch = scratchDirectory('files');
  try {
    const disk = await measure(diskSubject(join(scratch, 'disk')));
    const rust = await rustColumn(join(scratch, 'rust'));
    const ours = new OurSubject(join(scratch, 'ours'));
    const { figures, ownRows } = await ours.measured();
    return report(figures, rust, disk, ownRows);
  } finally {
    removeScratch(scratch);
  }
}

type Figures = ReadonlyMap<string, number>;

async function measure(
  subject: Subject,
  after: (step: Step, done: Done) => Promise<void> = async () => undefined,
): Promise<Figures> {
  const figures = new Map<string, number>();
  try {
    let worker = await subject.worker();
    for (const step of chosenSteps()) {
      if (step.isCold) {
        await worker.stop();
        await subject.restart();
        worker = await subject.worker();
        // The start of a holder and its first touch, which asks the cloud, are other figures than that of reading.
        await after({ work: 'touch', row: 'start, first touch' }, await worker.do('touch'));
        writeFileSync('/proc/sys/vm/drop_caches', '3');
      }
      const done = await worker.do(step.work);
      const { ms, value } = done;
      if (step.row && step.unit) figures.set(step.row, step.unit === 's' ? ms / 1000 : (Number(value) / ms) * 1000);
      await after(step, done);
    }
    await worker.stop();
  } finally {
    await subject.stop();
  }
  return figures;
}

/** The rows of npm need its registry: they are measured when EDGE_BENCH_NPM is 1. */
function chosenSteps(): readonly Step[] {
  const withNpm = Bun.which('npm') !== null && process.env.EDGE_BENCH_NPM === '1';
  return steps.filter(({ work }) => withNpm || !work.startsWith('npm'));
}

function diskSubject(directory: string): Subject {
  mkdirSync(directory, { recursive: true });
  return { worker: async () => localWorker(directory), restart: async () => undefined, stop: async () => undefined };
}

async function rustColumn(directory: string): Promise<Figures | null> {
  const program = process.env.EDGE_BENCH_AGENTFS;
  if (!program) return null;
  const mount = await rustMount(program, directory);
  return measure({
    worker: async () => localWorker(mount.path),
    restart: () => mount.restart(),
    stop: () => mount.stop(),
  });
}

const conversation = 'conv_bench';

class OurSubject implements Subject {
  readonly #directory: string;
  #authority: BenchAuthority | null = null;
  #machine: BenchMachine | null = null;
  #before = { cpuMs: 0, relayMs: 0 };

  constructor(directory: string) {
    this.#directory = directory;
  }

  async measured(): Promise<{ figures: Figures; ownRows: Row[] }> {
    const own: Row[] = [];
    const ownRow = (work: string, ours: number, unit: Unit) => own.push({ work, ours, disk: 0, unit });
    console.error('  CPU in ms: of the machine, of the relay, of the work itself');
    const figures = await measure(this, async ({ work, row }, { ms, cpuMs: workMs }) => {
      const { peakMb, cpuMs, relayMs } = await this.#machine!.memory();
      // Where others use the processors too, the time that was used says more than the time that went by.
      const used = [cpuMs - this.#before.cpuMs, relayMs - this.#before.relayMs, workMs].map((one) =>
        one.toFixed(0).padStart(6),
      );
      console.error(
        `  ${(row ?? work).padEnd(32)}${ms.toFixed(0).padStart(7)} ms, CPU: ${used.join(' ')}, at most ${peakMb.toFixed(0)} MB`,
      );
      this.#before = { cpuMs, relayMs };
      if (work === 'write_text') {
        const started = performance.now();
        const state = await this.#machine!.end(conversation);
        ownRow('push of what was written so far', (performance.now() - started) / 1000, 's');
        if (state !== 'clean') throw new Error(`the push ended ${state}`);
        ownRow('data directory after it', sizeOf(join(this.#directory, 'machine')), 'MB');
        await this.#machine!.begin(conversation);
      }
      if (work === steps.at(-1)?.work || work === 'remove_big')
        ownRow(`machine memory at most, after ${row}`, peakMb, 'MB');
    });
    return { figures, ownRows: own };
  }

  async worker(): Promise<Worker> {
    this.#authority ??= await BenchAuthority.start(this.#directory, [conversation]);
    this.#machine ??= await BenchMachine.start(join(this.#directory, 'machine'), this.#authority.address);
    return this.#machine.worker(conversation);
  }

  async restart(): Promise<void> {
    await this.#machine?.stop();
    this.#machine = null;
    this.#before = { cpuMs: 0, relayMs: 0 };
  }

  async stop(): Promise<void> {
    await this.#machine?.stop();
    await this.#authority?.stop();
  }
}

function sizeOf(directory: string): number {
  const files = readdirSync(directory, { recursive: true, withFileTypes: true }).filter((entry) => entry.isFile());
  return files.reduce((sum, { parentPath, name }) => sum + statSync(join(parentPath, name)).size, 0) / 1e6;
}

function report(ours: Figures, rust: Figures | null, disk: Figures, ownRows: readonly Row[]): { rows: Row[] } {
  const shown = steps.flatMap(({ row, unit }) => (row && unit && ours.has(row) ? [{ row, unit }] : []));
  const rows = shown.map(({ row, unit }): Row => {
    const rustFigure = rust?.get(row);
    return {
      work: row,
      ours: rounded(ours.get(row) ?? 0),
      ...(rustFigure === undefined ? {} : { rust_agentfs: rounded(rustFigure) }),
      disk: rounded(disk.get(row) ?? 0),
      unit,
    };
  });
  const all = [...rows, ...ownRows.map((row) => ({ ...row, ours: rounded(row.ours) }))];
  const cell = (value: number | undefined) => (value === undefined ? '–' : value.toLocaleString('en')).padStart(12);
  console.log(`\n${''.padEnd(44)}${['ours', 'rust', 'disk'].map((name) => name.padStart(12)).join('')}`);
  for (const row of all)
    console.log(`${row.work.padEnd(44)}${cell(row.ours)}${cell(row.rust_agentfs)}${cell(row.disk)}  ${row.unit}`);
  return { rows: all };
}
