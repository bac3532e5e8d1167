/**
 * `bench sync`: the embedded authority beside tursodb's own sync server, both as processes on TCP, with the same client and
 * the same rows, taking turns within one run.
 */
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { connect } from '@tursodatabase/sync';
import { builtExecutable, plainEnvironment } from '../harness/executable.ts';
import { removeScratch, scratchDirectory } from '../harness/scratch.ts';
import { startTursodb } from '../oracles/servers.ts';
import { percentile, rounded } from './figures.ts';

const token = 'a-token-for-the-benchmark';
const rowBytes = 64 * 1024;
const pushBytes = 20 * 1024 ** 2;
const bootstrapBytes = 25 * 1024 ** 2;
const smallRounds = 40;
const largeRounds = 3;

type Client = Awaited<ReturnType<typeof connect>>;

interface Peer {
  readonly url: string;
  stop(): Promise<void>;
}

/** tursodb answers one connection at a time and waits for its end: both get a connection for each request. */
const eachItsOwn: typeof fetch = Object.assign(
  (input: string | URL | Request, init?: RequestInit) => {
    const headers = new Headers(init?.headers);
    headers.set('connection', 'close');
    return fetch(input, { ...init, headers, keepalive: false });
  },
  { preconnect: fetch.preconnect },
);

async function startOurs(directory: string): Promise<Peer> {
  mkdirSync(directory, { recursive: true });
  const tokens = { EDGE_AUTHORITY_AGENTFS_TOKEN: token, EDGE_AUTHORITY_SESSIONDB_TOKEN: token };
  const argv = [builtExecutable(), 'authority', '--data', directory, '--listen', '127.0.0.1:0'];
  const child = Bun.spawn(argv, { env: plainEnvironment(tokens), stdin: 'ignore', stdout: 'pipe', stderr: 'inherit' });
  const { value } = await child.stdout.getReader().read();
  const { agentfs } = JSON.parse(Buffer.from(value ?? []).toString()) as { agentfs: string };
  return {
    url: agentfs,
    async stop() {
      child.kill('SIGTERM');
      await child.exited;
    },
  };
}

const works = ['no-op pull', '1-row push', '20 MB push', '25 MB bootstrap'] as const;
type Work = (typeof works)[number];

async function timed(work: () => Promise<unknown>): Promise<number> {
  const startedAt = performance.now();
  await work();
  return performance.now() - startedAt;
}

class Measured {
  readonly #peer: Peer;
  readonly #directory: string;
  readonly samples: Record<Work, number[]> = {
    'no-op pull': [],
    '1-row push': [],
    '20 MB push': [],
    '25 MB bootstrap': [],
  };
  #clients = 0;
  #id = 0;

  constructor(peer: Peer, directory: string) {
    this.#peer = peer;
    this.#directory = directory;
  }

  #open(): Promise<Client> {
    const name = `client-${++this.#clients}`;
    const path = join(this.#directory, `${name}.db`);
    return connect({ path, url: this.#peer.url, authToken: token, clientName: name, fetch: eachItsOwn });
  }

  /** One round of small or large work, on a client of its own. */
  async round(size: 'small' | 'large'): Promise<void> {
    const client = await this.#open();
    try {
      await client.exec('CREATE TABLE IF NOT EXISTS rows (id INTEGER PRIMARY KEY, data BLOB NOT NULL)');
      await client.push();
      if (size === 'small') await this.#small(client);
      else await this.#large(client);
    } finally {
      await client.close();
    }
  }

  async #small(client: Client): Promise<void> {
    const insert = await client.prepare('INSERT INTO rows VALUES (?, ?)');
    for (let round = 0; round < smallRounds; round++) {
      await client.pull();
      this.samples['no-op pull'].push(await timed(() => client.pull()));
      await insert.run(++this.#id, 'a small row');
      this.samples['1-row push'].push(await timed(() => client.push()));
    }
  }

  async #large(client: Client): Promise<void> {
    const fill = async (bytes: number) => {
      await client.exec('BEGIN');
      for (let at = 0; at < bytes; at += rowBytes)
        await client.exec(`INSERT INTO rows VALUES (${++this.#id}, randomblob(${rowBytes}))`);
      await client.exec('COMMIT');
    };
    await fill(pushBytes);
    this.samples['20 MB push'].push(await timed(() => client.push()));
    await fill(bootstrapBytes - pushBytes);
    await client.push();
    const startedAt = performance.now();
    const second = await this.#open();
    this.samples['25 MB bootstrap'].push(performance.now() - startedAt);
    await second.close();
  }
}

export async function benchSync() {
  const scratch = scratchDirectory('bench-sync');
  const samples = { ours: emptySamples(), tursodb: emptySamples() };
  try {
    await round('small', 0);
    for (let number = 1; number <= largeRounds; number++) await round('large', number);
  } finally {
    removeScratch(scratch);
  }
  return report(samples);

  /** Each round has new, empty databases; who goes first changes. */
  async function round(size: 'small' | 'large', number: number): Promise<void> {
    const order = number % 2 === 0 ? (['ours', 'tursodb'] as const) : (['tursodb', 'ours'] as const);
    for (const name of order) {
      const directory = join(scratch, `${name}-${size}-${number}`);
      mkdirSync(directory);
      const peer = name === 'ours' ? await startOurs(join(directory, 'authority')) : await startTursodb();
      try {
        const measured = new Measured(peer, directory);
        await measured.round(size);
        for (const work of works) samples[name][work].push(...measured.samples[work]);
      } finally {
        await peer.stop();
      }
    }
  }
}

const emptySamples = (): Record<Work, number[]> => ({
  'no-op pull': [],
  '1-row push': [],
  '20 MB push': [],
  '25 MB bootstrap': [],
});

function report(samples: { ours: Record<Work, number[]>; tursodb: Record<Work, number[]> }) {
  const rows = works.map((work) => ({
    work,
    ours: rounded(percentile(samples.ours[work], 50), 2),
    tursodb: rounded(percentile(samples.tursodb[work], 50), 2),
    unit: 'ms',
  }));
  console.log(`${''.padEnd(20)}${'ours'.padStart(10)}${'tursodb'.padStart(10)}   (median, ms)`);
  for (const { work, ours, tursodb } of rows)
    console.log(`${work.padEnd(20)}${ours.toFixed(1).padStart(10)}${tursodb.toFixed(1).padStart(10)}`);
  return { rows };
}
