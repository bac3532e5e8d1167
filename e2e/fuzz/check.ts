/** A demo under Schemathesis, and what is looked at around it. */
import { readFileSync } from 'node:fs';
import * as v from 'valibot';
import { Gateway } from '../harness/gateway.ts';
import type { Api } from '../harness/http.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { type FuzzOptions, type FuzzOutcome, fuzz, type Known } from './schemathesis.ts';
import { answersOf, serverErrors, since, summary, unreached, untried } from './tried.ts';

export interface CheckedApi {
  /** What is wrong, one line each; nothing when all is well. */
  readonly faults: readonly string[];
  readonly report: string;
  /** By how much the gateway's own memory has grown, in MiB. */
  readonly grownMiB: number;
}

const events = '/v1/conversations/{conversation}/events';
/** What Schemathesis does not try, and why. */
export const notTried: Readonly<Record<string, string>> = {
  [`GET ${events}`]:
    'a stream that does not end: its refusals are asked for one by one below, its life is tested in events.test.ts',
};
/** What it tries and cannot make do what it is for, and why. */
export const notReached: Readonly<Record<string, string>> = {
  [`GET ${events}`]: notTried[`GET ${events}`]!,
  'GET /v1/events': 'a WebSocket, which it does not speak: socket-fuzz.test.ts does',
  'DELETE /v1/conversations/{conversation}/transcript/duplicates/{locator}':
    'only databases of before have duplicates: amending.test.ts makes some',
};

const id = v.looseObject({ id: v.string() });
const shapes = {
  specialists: v.looseObject({ specialists: v.tupleWithRest([id], id) }),
  tokens: v.looseObject({ tokens: v.array(v.looseObject({ id: v.string(), role: v.string() })) }),
  entries: v.looseObject({ entries: v.array(v.looseObject({ uri: v.string() })) }),
  turn: v.looseObject({ etag: v.string() }),
  plan: v.looseObject({ confirmation: v.string() }),
  upload: v.looseObject({ upload: v.string() }),
  document: v.looseObject({ paths: v.record(v.string(), v.record(v.string(), v.unknown())) }),
};

function residentMiB(pid: number): number {
  const line = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(`/proc/${pid}/status`, 'utf8'));
  return Number(line?.[1]) / 1024;
}

async function read<T extends v.GenericSchema>(api: Api, path: string, shape: T): Promise<v.InferOutput<T>> {
  return v.parse(shape, (await api.get(path)).json());
}

/** Makes one of everything. */
async function makeKnown(gateway: Gateway, api: Api): Promise<Known> {
  const { conversation } = gateway;
  const { message, reply } = await api.say(conversation, 'use write_file: notes.txt = some text');
  const { specialists } = await read(api, '/v1/specialists', shapes.specialists);
  const { tokens } = await read(api, '/v1/tokens', shapes.tokens);
  const { entries } = await read(api, `/v1/conversations/${conversation}/files`, shapes.entries);
  const turn = await read(api, `/v1/conversations/${conversation}/transcript/${reply.locator}`, shapes.turn);
  const make = async (path: string, json: unknown) => v.parse(id, (await api.post(path, json)).json()).id;
  const specialist = specialists[0].id;
  const targets = { conversations: [await api.createConversation(specialist)] };
  const plan = v.parse(shapes.plan, (await api.post('/v1/retention/purges', { targets })).json());
  await using client = await gateway.events('superadmin');
  client.send({ type: 'upload.announce', id: '1', conversation, name: 'fuzz.bin' });
  return {
    conversation,
    message: message.id,
    // Made to be offboarded: the other one goes on taking conversations.
    specialist: await make('/v1/specialists', { name: 'Grace', persona: 'You are Grace.' }),
    own_specialist: specialist,
    user: await make('/v1/users', { name: 'Ada', role: 'client' }),
    purge: await make('/v1/retention/purges', { targets, confirmation: plan.confirmation }),
    upload: v.parse(shapes.upload, await client.frame('upload.ready')).upload,
    token: await make('/v1/tokens', { role: 'client', name: 'to be revoked' }),
    own_token: tokens.find(({ role }) => role === 'superadmin')!.id,
    locator: reply.locator,
    etag: turn.etag,
    uri: entries[0]!.uri,
  };
}

/** What the stream of events must refuse, with its status; each answer's head alone, as a stream has no end. */
async function refusedStreams({ url, token }: Api, conversation: string): Promise<string[]> {
  const path = `/v1/conversations/${conversation}/events`;
  const authorization = `Bearer ${token}`;
  const asked: readonly (readonly [status: number, path: string, init: RequestInit])[] = [
    [401, path, {}],
    [404, '/v1/conversations/conv_no/events', { headers: { authorization } }],
    [404, '/v1/conversations/%00%ff/events', { headers: { authorization } }],
    [400, `${path}?after=-1`, { headers: { authorization } }],
    [400, `${path}?after=1e99`, { headers: { authorization } }],
    [400, path, { headers: { authorization, 'last-event-id': 'x' } }],
    [405, path, { method: 'DELETE', headers: { authorization } }],
  ];
  const wrong: string[] = [];
  for (const [status, target, init] of asked) {
    const answer = await fetch(`${url}${target}`, { ...init, signal: AbortSignal.timeout(20_000) });
    const media = answer.headers.get('content-type');
    if (answer.status !== status || media !== 'application/problem+json')
      wrong.push(`${init.method ?? 'GET'} ${target}: ${answer.status} ${media} in place of ${status}`);
    await answer.body?.cancel();
  }
  return wrong;
}

/**
 * As superadmin, who may call every route. Where the tool itself breaks, it has one more try with the next seed; what breaks
 * then is a fault too, as nothing was shown.
 */
export async function checkApi(options: { readonly seconds: number; readonly seed: number }): Promise<CheckedApi> {
  const directory = scratchDirectory('fuzz');
  try {
    await using gateway = await Gateway.start();
    const api = gateway.api('superadmin');
    const known = await makeKnown(gateway, api);
    const { paths } = await read(api, '/openapi.json', shapes.document);
    const operations = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods).map((method) => `${method.toUpperCase()} ${path}`),
    );
    const counted = async () => answersOf((await api.get('/metrics')).text);
    const [counts, memory] = [await counted(), residentMiB(gateway.pid)];
    const bearer = gateway.token('superadmin');
    const excluded = Object.keys(notTried).map((operation) => operation.split(' ')[1]!);
    const run = async (phase: FuzzOptions['phase']): Promise<FuzzOutcome> => {
      const { seed } = options;
      const outcome = await fuzz({ gateway, bearer, directory, known, excluded, phase, seed });
      if (outcome.ownErrors.length === 0 || outcome.faults.length > 0) return outcome;
      console.warn(`Schemathesis broke: ${outcome.ownErrors}; again with seed ${seed + 1}\n${outcome.report}`);
      return fuzz({ gateway, bearer, directory, known, excluded, phase, seed: seed + 1 });
    };
    const outcomes = [await run({ is: 'coverage' }), await run({ is: 'stateful', seconds: options.seconds })];
    const answers = since(counts, await counted());
    const grownMiB = residentMiB(gateway.pid) - memory;
    const faults = [
      ...outcomes.flatMap((outcome) => outcome.faults),
      ...outcomes.flatMap(({ ownErrors }) => ownErrors.map((title) => `Schemathesis broke twice: ${title}`)),
      ...serverErrors(answers),
      ...untried(operations, answers)
        .filter((one) => !(one in notTried))
        .map((one) => `not tried: ${one}`),
      ...unreached(operations, answers)
        .filter((one) => !(one in notReached))
        .map((one) => `never succeeded: ${one}: ${summary(one, answers)}`),
      ...Object.keys(notReached)
        .filter((one) => !operations.includes(one))
        .map((one) => `no such operation: ${one}`),
      ...(await refusedStreams(api, known.conversation)),
    ];
    const transcript = await api.get(`/v1/conversations/${known.conversation}/transcript`);
    if (transcript.status !== 200) faults.push(`the conversation is not there any more: ${transcript.text}`);
    const stopped = await gateway.stop();
    if (stopped !== 0) faults.push(`it did not end in order: ${stopped}`);
    const errors = gateway.log.split('\n').filter((line) => line.includes('"level":"error"'));
    faults.push(...errors.slice(0, 10).map((line) => `in the log: ${line}`));
    console.log(
      `${outcomes.map(({ cases }) => cases).join(' and ')} cases, ${operations.length} operations, memory ${grownMiB.toFixed(0)} MiB more`,
    );
    return { faults, report: outcomes.map(({ report }) => report).join('\n'), grownMiB };
  } finally {
    removeScratch(directory);
  }
}
