/**
 * The embedded cloud authority of one organization: agentfs.db by the Turso sync protocol and Hrana, sessiondb.db by Hrana
 * (ADR-046 §5). A replacement for a Turso Cloud account that speaks the same protocols.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
import type { WirePipelineResponse } from '../../machine/agentfs/hrana-wire.ts';
import { RequestRefused } from './failure.ts';
import { HranaService } from './hrana.ts';
import { limits } from './limits.ts';
import { PAGED_FILE_PRAGMAS, PagedFile } from './paged-file.ts';
import { PullService } from './pull.ts';
import { StreamTable } from './streams.ts';
import { parsePipeline } from './wire-schema.ts';

export type AuthorityOptions = {
  /** Directory of the database files; made (0700) if it is not there. */
  directory: string;
  tokens: { agentfs: string; sessiondb: string };
  log: (line: string) => void;
};

type Served = {
  tokenDigest: Buffer;
  bodyBytes: number;
  streams: StreamTable;
  hrana: HranaService;
  pull: PullService | null;
};

// A reply counts as delivered once its row is here, so a commit is on the disk before it is answered.
const SESSIONDB_PRAGMAS = ['PRAGMA journal_mode=WAL', 'PRAGMA synchronous=FULL', 'PRAGMA foreign_keys=OFF'];

const digest = (token: string): Buffer => createHash('sha256').update(token).digest();

export class Authority {
  readonly #file: PagedFile;
  readonly #pull: PullService;
  readonly #served: ReadonlyMap<string, Served>;
  readonly #log: (line: string) => void;
  #requests = 0;
  #closing = false;
  #idle: () => void = () => {};

  /** Opens both databases. @throws when the directory is served by another process, or cannot be used */
  constructor({ directory, tokens, log }: AuthorityOptions) {
    this.#log = log;
    mkdirSync(directory, { recursive: true, mode: 0o700 });
    const agentfs = join(directory, 'agentfs.db');
    this.#file = new PagedFile(agentfs);
    this.#pull = new PullService(this.#file);
    const agentfsStreams = new StreamTable({
      file: agentfs,
      pragmas: PAGED_FILE_PRAGMAS,
      keepStreams: false,
      onCommit: () => this.#publish(),
    });
    const sessiondbStreams = new StreamTable({
      file: join(directory, 'sessiondb.db'),
      pragmas: SESSIONDB_PRAGMAS,
      keepStreams: true,
      onCommit: () => {},
    });
    this.#served = new Map([
      [
        'agentfs',
        {
          tokenDigest: digest(tokens.agentfs),
          bodyBytes: limits.agentfsBodyBytes,
          streams: agentfsStreams,
          hrana: new HranaService(agentfsStreams),
          pull: this.#pull,
        },
      ],
      [
        'sessiondb',
        {
          tokenDigest: digest(tokens.sessiondb),
          bodyBytes: limits.sessiondbBodyBytes,
          streams: sessiondbStreams,
          hrana: new HranaService(sessiondbStreams),
          pull: null,
        },
      ],
    ]);
  }

  /** Answers one HTTP request. Never throws: failures are JSON `{message, code}`. */
  async fetch(request: Request): Promise<Response> {
    if (this.#closing) return failure(503, 'CLOSING', 'the authority is closing');
    this.#requests++;
    try {
      return await this.#route(request);
    } catch (error) {
      if (error instanceof RequestRefused) return failure(error.status, error.code, error.message);
      this.#log(`request failed: ${error instanceof Error ? error.message : 'unknown failure'}`);
      return failure(500, 'INTERNAL', 'the authority failed; see its log');
    } finally {
      this.#requests--;
      if (this.#requests === 0) this.#idle();
    }
  }

  /** Waits a bounded time for running requests, rolls back what is open, folds the log and closes. */
  async close(): Promise<void> {
    if (this.#closing) return;
    this.#closing = true;
    await new Promise<void>((resolve) => {
      this.#idle = resolve;
      if (this.#requests === 0) resolve();
      else setTimeout(resolve, limits.shutdown).unref();
    });
    this.#pull.close();
    for (const { streams } of this.#served.values()) streams.closeAll();
    this.#file.close();
  }

  async #route(request: Request): Promise<Response> {
    const [, name = '', ...rest] = new URL(request.url).pathname.split('/');
    const served = this.#served.get(name);
    if (!served) throw new RequestRefused(404, 'NOT_FOUND', 'there is no such database');
    const token = /^Bearer (.+)$/i.exec(request.headers.get('authorization') ?? '')?.[1] ?? '';
    if (!timingSafeEqual(digest(token), served.tokenDigest))
      throw new RequestRefused(401, 'UNAUTHORIZED', 'the token is not valid for this database');
    const path = rest.join('/');
    if (request.method === 'GET' && (path === 'v2' || path === 'v3')) return Response.json({ version: path });
    if (request.method === 'POST' && (path === 'v2/pipeline' || path === 'v3/pipeline')) {
      return Response.json(await this.#runPipeline(request, served));
    }
    if (request.method === 'POST' && path === 'pull-updates' && served.pull)
      return served.pull.answer(
        new Uint8Array(await readBody(request, limits.pullBodyBytes, () => request.arrayBuffer())),
      );
    throw new RequestRefused(404, 'NOT_FOUND', 'there is no such operation');
  }

  async #runPipeline(request: Request, { bodyBytes, hrana }: Served): Promise<WirePipelineResponse> {
    // Bun parses while it decodes, with half the time and a fraction of the memory of doing one after the other.
    const body = await readBody(request, bodyBytes, () => request.json());
    const answer = await hrana.pipeline(parsePipeline(body), request.signal);
    // A push of files leaves hundreds of megabytes that the collector would keep for a long time.
    if (Number(request.headers.get('content-length')) > limits.collectAfterBytes) setTimeout(() => Bun.gc(true), 0);
    return answer;
  }

  #publish(): void {
    try {
      this.#file.publish();
    } catch (error) {
      // The transaction is committed and must be answered as such. The next commit or pull publishes it, or fails itself.
      this.#log(`a revision could not be recorded yet: ${error instanceof Error ? error.message : 'unknown failure'}`);
    }
  }
}

const failure = (status: number, code: string, message: string): Response =>
  Response.json({ message, code }, { status });

/**
 * The body as `read` gives it, within a bounded time.
 * @throws RequestRefused 413 or 400
 */
async function readBody<T>(request: Request, limit: number, read: () => Promise<T>): Promise<T> {
  const length = request.headers.get('content-length');
  if (length === null) throw new RequestRefused(411, 'LENGTH_REQUIRED', 'the request must say how long its body is');
  if (Number(length) > limit) throw new RequestRefused(413, 'BODY_TOO_LARGE', `the body is larger than ${limit} bytes`);
  let deadline: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    deadline = setTimeout(() => reject(new Error('late')), limits.bodyWait);
  });
  try {
    return await Promise.race([read(), late]);
  } catch {
    // Late, cut off, or not what `read` expects: in each case the sender's doing.
    throw new RequestRefused(400, 'BAD_REQUEST', 'the body could not be read');
  } finally {
    clearTimeout(deadline);
  }
}
