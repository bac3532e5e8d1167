/** Which certificates an agent and its tools trust: Mozilla's, or those that the organization names instead. */
import { afterAll, beforeAll, describe, expect, test } from 'bun:test';
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { Gateway } from './harness/gateway.ts';
import { call, ScriptedModel, say } from './harness/model.ts';
import { makePrivateCa, type PrivateCa, serveTls } from './harness/private-ca.ts';
import { removeScratch, scratchDirectory } from './harness/scratch.ts';

const limitMs = 240_000;
let scratch: string;
let ca: PrivateCa;
let model: ScriptedModel;
let tls: Bun.Server<undefined>;

beforeAll(() => {
  scratch = scratchDirectory('tls');
  ca = makePrivateCa(scratch);
  model = ScriptedModel.start();
  tls = serveTls(ca, model.url);
  const url = `https://127.0.0.1:${tls.port}/plain`;
  const python = (name: string, body: string) =>
    `/opt/hermes/bin/python -c '${body}' 2>&1 | tail -1 | sed 's/^/${name} /'`;
  const commands = [
    `curl -sS ${url} 2>&1 | head -1 | sed 's/^/curl /'; echo`,
    python('urllib', `import urllib.request as u; print(u.urlopen("${url}").read().decode())`),
    python('requests', `import requests; print(requests.get("${url}").text)`),
    python('httpx', `import httpx; print(httpx.get("${url}").text)`),
    python('count', 'import ssl; print(len(ssl.create_default_context().get_ca_certs()))'),
    `node -e 'fetch("${url}").then((r) => r.text()).catch((e) => e.cause?.message ?? e.message).then((t) => console.log("node", t))'`,
    `git ls-remote https://127.0.0.1:${tls.port}/repository 2>&1 | sed 's/^/git /'`,
  ];
  model.on('visit', call('terminal', { command: commands.join('\n') }), say('visited'));
  const bundle = [
    'for name in CURL_CA_BUNDLE GIT_SSL_CAINFO NODE_EXTRA_CA_CERTS REQUESTS_CA_BUNDLE SSL_CERT_FILE; do',
    '  echo "$name=$(printenv $name)"',
    'done',
    'stat -c "mode %a" /opt/edge/ca.pem',
    '(echo x >> /opt/edge/ca.pem) 2>&1; chmod u+w /opt/edge/ca.pem 2>&1; mv /opt/edge/ca.pem /tmp 2>&1',
    'sha256sum < /opt/edge/ca.pem',
  ];
  model.on('look at the bundle', call('terminal', { command: bundle.join('\n') }), say('looked'));
});

afterAll(async () => {
  await tls?.stop(true);
  await model?.stop();
  removeScratch(scratch);
});

/** What the tool of a turn printed. */
async function outputOf(gateway: Gateway, text: string): Promise<string> {
  await gateway.api().say(gateway.conversation, text);
  const { output } = JSON.parse(String(model.turns.at(-1)!.body.messages.at(-1)!.content)) as { output: string };
  return output;
}

const settings = (url: string, more: Readonly<Record<string, string>> = {}) => ({
  environment: { EDGE_MODEL_URL: url, EDGE_MODEL: 'scripted', EDGE_MODEL_KEY: 'none', ...more },
});
const overTls = () => `https://127.0.0.1:${tls.port}/v1`;

describe('by default', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await Gateway.start(settings(model.url));
  }, limitMs);
  afterAll(async () => {
    await gateway?.[Symbol.asyncDispose]();
  }, limitMs);

  test(
    "Mozilla's authorities, in a file that nobody can change",
    async () => {
      const output = await outputOf(gateway, 'look at the bundle');
      for (const name of [
        'CURL_CA_BUNDLE',
        'GIT_SSL_CAINFO',
        'NODE_EXTRA_CA_CERTS',
        'REQUESTS_CA_BUNDLE',
        'SSL_CERT_FILE',
      ])
        expect(output).toContain(`${name}=/opt/edge/ca.pem`);
      expect(output).toContain('mode 444');
      expect(output.match(/Read-only file system|Permission denied/g)?.length ?? 0, output).toBeGreaterThanOrEqual(3);
    },
    limitMs,
  );

  test(
    'no client trusts an authority that nobody knows',
    async () => {
      const output = await outputOf(gateway, 'visit');
      expect(output).not.toContain('reached over TLS');
      expect(output).toMatch(/^curl .*certificate/m);
      for (const name of ['urllib', 'requests', 'httpx'])
        expect(output).toMatch(new RegExp(`^${name} .*CERTIFICATE_VERIFY_FAILED`, 'm'));
      expect(output).toMatch(/^node .*(certificate|issuer)/m);
      expect(output).toMatch(/^git .*certificate/m);
      expect(Number(/^count (\d+)$/m.exec(output)?.[1])).toBeGreaterThan(100);
    },
    limitMs,
  );
});

describe('with EDGE_CA_BUNDLE', () => {
  let gateway: Gateway;
  beforeAll(async () => {
    gateway = await Gateway.start(settings(overTls(), { EDGE_CA_BUNDLE: ca.certificate }));
  }, limitMs);
  afterAll(async () => {
    await gateway?.[Symbol.asyncDispose]();
  }, limitMs);

  test(
    'Hermes reaches a model behind it, and every client of a tool trusts it',
    async () => {
      const output = await outputOf(gateway, 'visit');
      for (const name of ['curl', 'urllib', 'requests', 'httpx', 'node'])
        expect(output).toMatch(new RegExp(`^${name} reached over TLS$`, 'm'));
      // git gets an answer, which is no repository.
      expect(output).toMatch(/^git .*not found/m);
      expect(output).toMatch(/^count 1$/m);
    },
    limitMs,
  );

  test(
    'it is the file that was named, byte for byte',
    async () => {
      const digest = new Bun.CryptoHasher('sha256').update(readFileSync(ca.certificate)).digest('hex');
      expect(await outputOf(gateway, 'look at the bundle')).toContain(digest);
    },
    limitMs,
  );
});

test(
  'without it a model behind an unknown authority is a failed message that says so',
  async () => {
    await using gateway = await Gateway.start(settings(overTls()));
    const path = `/v1/conversations/${gateway.conversation}/messages`;
    const answer = await gateway.api().post(path, { text: 'hello' }, { prefer: 'wait=120' });
    expect(answer.status, answer.text).toBe(502);
    expect(answer.json()).toMatchObject({ type: 'urn:edge-gateway:problem:model-unreachable' });
  },
  limitMs,
);

test('a bundle that holders cannot be given stops the start before anything is made', async () => {
  const bad = join(scratch, 'bad.pem');
  writeFileSync(bad, 'no certificate');
  const start = Gateway.start(settings(model.url, { EDGE_CA_BUNDLE: bad }));
  expect(start).rejects.toThrow(`missing: EDGE_CA_BUNDLE: ${bad} holds no certificate in PEM form`);
  await start.catch(() => undefined);
});
