/**
 * `bench rtt`: what a round trip of 30 ms to both cloud databases adds to a warm turn without tools and to one with a tool.
 * Each turn with the delay follows one without, so that what else the host does weighs on both alike.
 */
import { FarCloud } from '../harness/far-cloud.ts';
import { call, say } from '../harness/model.ts';
import { figuresHeader, figuresOf, formatFigures, percentile, rounded } from './figures.ts';

const roundTripMs = 30;
const rounds = 30;
/** What a turn leaves to be done, as the boundary of one that used files, is not the next one's. */
const settleMs = 300;

const kinds = { text: 'words', tool: 'look' } as const;
type Kind = keyof typeof kinds;

export async function benchRoundTrips() {
  await using far = await FarCloud.start();
  far.model.on('look', call('terminal', { command: 'echo seen' }), say('Seen.'));
  const conversation = await far.conversation('hello', 'words first', 'look first', 'words', 'look');
  const samples: Record<Kind, { near: number[]; far: number[] }> = {
    text: { near: [], far: [] },
    tool: { near: [], far: [] },
  };
  const requests: Record<Kind, number> = { text: 0, tool: 0 };
  for (let round = 0; round < rounds; round++) {
    for (const kind of ['text', 'tool'] as const) {
      for (const distance of ['near', 'far'] as const) {
        await Bun.sleep(settleMs);
        far.cloud.roundTripMs = distance === 'far' ? roundTripMs : 0;
        const from = far.cloud.requests.all.length;
        const startedAt = performance.now();
        await far.api.say(conversation, `${kinds[kind]} ${distance} ${round}`);
        samples[kind][distance].push(performance.now() - startedAt);
        requests[kind] = Math.max(requests[kind], far.cloud.since(from).length);
      }
    }
  }
  return report(samples, requests);
}

function report(samples: Record<Kind, { near: number[]; far: number[] }>, requests: Record<Kind, number>) {
  console.log(`\nreply of a warm turn, milliseconds\n${figuresHeader}`);
  const result: Record<string, unknown> = { round_trip_ms: roundTripMs };
  for (const kind of ['text', 'tool'] as const) {
    const { near, far } = samples[kind];
    console.log(formatFigures(`${kind}, no delay`, figuresOf(near)));
    console.log(formatFigures(`${kind}, ${roundTripMs} ms to the cloud`, figuresOf(far)));
    const added = percentile(
      far.map((ms, round) => ms - near[round]!),
      50,
    );
    result[kind] = {
      reply_p50_ms: rounded(percentile(near, 50)),
      reply_far_p50_ms: rounded(percentile(far, 50)),
      added_p50_ms: rounded(added),
      requests: requests[kind],
    };
    console.log(`${kind}: ${added.toFixed(0)} ms more (the median of pairs), ${requests[kind]} requests`);
  }
  return result;
}
