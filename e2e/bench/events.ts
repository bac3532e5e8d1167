/** How long an event takes from its commit to 2,000 connected clients (ADR-046 §8). */
import { Crowd } from '../harness/crowd.ts';
import { Gateway } from '../harness/gateway.ts';
import { ScriptedModel } from '../harness/model.ts';
import { type Figures, figuresHeader, figuresOf, formatFigures, rounded } from './figures.ts';

const clients = 2_000;
const turns = 10;

export interface EventsResult {
  readonly clients: number;
  /** Milliseconds, over all clients and events of a turn. */
  readonly event_p50_ms: number;
  readonly event_p99_ms: number;
  readonly event_max_ms: number;
}

export async function benchEvents(): Promise<EventsResult> {
  await using model = ScriptedModel.start();
  await using gateway = await Gateway.start({
    environment: { EDGE_MODEL_URL: model.url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none' },
  });
  const api = gateway.api('superadmin');
  const conversation = await api.createConversation('Eleanora');
  await api.say(conversation, 'get warm');
  const crowd = await Crowd.gather(api, conversation, clients);
  for (let turn = 0; turn < turns; turn += 1) {
    await api.say(conversation, `turn ${turn}`);
    await crowd.all('reply.delivered', turn + 1);
  }
  crowd.leave();
  const samples = crowd.got.flat().map(({ at, receivedAt }) => Math.max(0, receivedAt - at));
  const figures: Figures = figuresOf(samples);
  console.log(`\nFrom the commit of an event to ${clients} clients, in ms\n${figuresHeader}`);
  console.log(formatFigures('event', figures));
  return {
    clients,
    event_p50_ms: rounded(figures.p50),
    event_p99_ms: rounded(figures.p99),
    event_max_ms: rounded(figures.max),
  };
}
