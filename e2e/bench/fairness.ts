/**
 * `bench fairness`: while one conversation's holder copies gigabytes, and while its boundary is pulled and pushed, another
 * holder asks for attributes and a client asks the authority, as the API does. Aims: `stat` p99 ≤ 20 ms, the API's p99 ≤ 50 ms.
 */
import { join } from 'node:path';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { type Figures, figuresHeader, figuresOf, formatFigures, rounded } from './figures.ts';
import { BenchAuthority, BenchMachine } from './machine.ts';

const quietSeconds = 3;
const copySeconds = Number(process.env.EDGE_BENCH_COPY_SECONDS ?? 10);
/** Of what a push takes, this much is looked at. */
const pushSeconds = Number(process.env.EDGE_BENCH_PUSH_SECONDS ?? 15);
const apiPauseMs = 10;
const [copier, other] = ['conv_copier', 'conv_other'];

interface Phase {
  readonly stat: Figures;
  readonly api: Figures;
}

export async function benchFairness() {
  const scratch = scratchDirectory('fair');
  const authority = await BenchAuthority.start(scratch, [copier, other]);
  const machine = await BenchMachine.start(join(scratch, 'machine'), authority.address);
  const cloud = new CloudFiles(new HranaDatabase(authority.address));
  const [copies, looks] = [machine.worker(copier), machine.worker(other)];
  try {
    await looks.do('make_tree');
    await copies.do('make_tree');
    await machine.end(other);
    await machine.begin(other);

    const during = async (seconds: number): Promise<Phase> => {
      let isOver = false;
      const api = (async () => {
        const samples: number[] = [];
        while (!isOver) {
          const from = performance.now();
          await cloud.stat(`conversations/${other}/work`);
          samples.push(performance.now() - from);
          await Bun.sleep(apiPauseMs);
        }
        return samples;
      })();
      const { value } = await looks.do('stat_for', seconds);
      isOver = true;
      return { stat: figuresOf(value as number[]), api: figuresOf(await api) };
    };

    const quiet = await during(quietSeconds);
    const copying = copies.do('copy_for', copySeconds);
    const whileCopying = await during(copySeconds);
    const { value: copied } = await copying;
    const pushing = machine.end(copier);
    const whilePushing = await during(pushSeconds);
    // Begins a boundary whose first touch pulls, while the push goes on.
    await machine.begin(other);
    const whilePulling = await during(quietSeconds);
    const { peakMb } = await machine.memory();
    report({ quiet, whileCopying, whilePushing, whilePulling });
    console.log(
      `copied ${Number(copied).toFixed(0)} MB in ${copySeconds} s; the machine had at most ${peakMb.toFixed(0)} MB`,
    );
    void pushing.catch(() => undefined);
    return {
      copied_mb: rounded(Number(copied)),
      machine_peak_mb: rounded(peakMb),
      ...Object.fromEntries(
        Object.entries({ quiet, copying: whileCopying, pushing: whilePushing, pulling: whilePulling }).map(
          ([name, { stat, api }]) => [
            name,
            {
              stat_p50_ms: rounded(stat.p50),
              stat_p99_ms: rounded(stat.p99),
              api_p50_ms: rounded(api.p50),
              api_p99_ms: rounded(api.p99),
            },
          ],
        ),
      ),
    };
  } finally {
    // What was copied need not be pushed.
    await machine.kill();
    await authority.stop();
    removeScratch(scratch);
  }
}

function report(phases: Readonly<Record<string, Phase>>): void {
  console.log(`\nmilliseconds\n${figuresHeader}`);
  for (const [name, { stat, api }] of Object.entries(phases)) {
    console.log(formatFigures(`${name}: stat of another holder`, stat));
    console.log(formatFigures(`${name}: a question to the authority`, api));
  }
}
