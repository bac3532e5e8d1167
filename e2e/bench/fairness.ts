/**
 * `bench fairness`: while one conversation's holder copies gigabytes, and while its boundary is pulled and pushed, another
 * holder asks for attributes, and a client the authority. Then the same with a whole gateway, whose own API is asked. Aims:
 * `stat` p99 ≤ 20 ms, the API's p99 ≤ 50 ms.
 */
import { join } from 'node:path';
import { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { type ApiFigures, measureApi } from './fairness-api.ts';
import { type Figures, figuresHeader, figuresOf, formatFigures, rounded } from './figures.ts';
import { BenchAuthority, BenchMachine } from './machine.ts';

const quietSeconds = 3;
const copySeconds = Number(process.env.EDGE_BENCH_COPY_SECONDS ?? 10);
/** Of what a push takes, this much is looked at. */
const pushSeconds = Number(process.env.EDGE_BENCH_PUSH_SECONDS ?? 15);
const authorityPauseMs = 10;
const [copier, other] = ['conv_copier', 'conv_other'];

interface Phase {
  readonly stat: Figures;
  readonly authority: Figures;
}

export async function benchFairness() {
  const { holders, ...figures } = await besideHolder();
  const api = await measureApi({ quiet: quietSeconds, copy: copySeconds, push: pushSeconds });
  reportApi(api);
  return { ...figures, ...asJson(holders, api) };
}

async function besideHolder() {
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
      const authorityAnswers = (async () => {
        const samples: number[] = [];
        while (!isOver) {
          const from = performance.now();
          await cloud.stat(`conversations/${other}/work`);
          samples.push(performance.now() - from);
          await Bun.sleep(authorityPauseMs);
        }
        return samples;
      })();
      const { value } = await looks.do('stat_for', seconds);
      isOver = true;
      return { stat: figuresOf(value as number[]), authority: figuresOf(await authorityAnswers) };
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
    const holders = { quiet, copying: whileCopying, pushing: whilePushing, pulling: whilePulling };
    report(holders);
    console.log(
      `copied ${Number(copied).toFixed(0)} MB in ${copySeconds} s; the machine had at most ${peakMb.toFixed(0)} MB`,
    );
    void pushing.catch(() => undefined);
    return { copied_mb: rounded(Number(copied)), machine_peak_mb: rounded(peakMb), holders };
  } finally {
    // What was copied need not be pushed.
    await machine.kill();
    await authority.stop();
    removeScratch(scratch);
  }
}

function asJson(phases: Readonly<Record<string, Phase>>, api: Readonly<Record<string, ApiFigures>>) {
  const named = (name: string, { p50, p99 }: Figures) => ({
    [`${name}_p50_ms`]: rounded(p50),
    [`${name}_p99_ms`]: rounded(p99),
  });
  return Object.fromEntries(
    Object.entries(phases).map(([name, { stat, authority }]) => {
      const own = api[name];
      const ofApi = own ? { ...named('api_get', own.get), ...named('api_post', own.post) } : {};
      return [name, { ...named('stat', stat), ...named('authority', authority), ...ofApi }];
    }),
  );
}

function report(phases: Readonly<Record<string, Phase>>): void {
  console.log(`\nmilliseconds\n${figuresHeader}`);
  for (const [name, { stat, authority }] of Object.entries(phases)) {
    console.log(formatFigures(`${name}: stat of another holder`, stat));
    console.log(formatFigures(`${name}: a question to the authority`, authority));
  }
}

function reportApi(phases: Readonly<Record<string, ApiFigures>>): void {
  console.log(`\nmilliseconds, of a gateway whose agent does the same\n${figuresHeader}`);
  for (const [name, { get, post }] of Object.entries(phases)) {
    console.log(formatFigures(`${name}: GET of a conversation`, get));
    console.log(formatFigures(`${name}: POST of a message`, post));
  }
}
