/**
 * The embedded cloud authority of one organization: agentfs.db by the Turso sync protocol and Hrana, sessiondb.db by Hrana
 * (ADR-046 §5). A replacement for a Turso Cloud account that speaks the same protocols.
 */
import { createHash, timingSafeEqual } from 'node:crypto';
import { mkdirSync } from 'node:fs';
import { join } from 'node:path';
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
      const parsed = parsePipeline(await readJson(request, served.bodyBytes));
      return Response.json(await served.hrana.pipeline(parsed, request.signal));
    }
    if (request.method === 'POST' && path === 'pull-updates' && served.pull)
      return served.pull.answer(new Uint8Array(await readBody(request, limits.pullBodyBytes)));
    throw new RequestRefused(404, 'NOT_FOUND', 'there is no such operation');
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

const tooLarge = (limit: number): RequestRefused =>
  new RequestRefused(413, 'BODY_TOO_LARGE', `the body is larger than ${limit} bytes`);

/** @throws RequestRefused 413 or 400 */
async function readBody(request: Request, limit: number): Promise<ArrayBuffer> {
  if (Number(request.headers.get('content-length') ?? 0) > limit) throw tooLarge(limit);
  let deadline: ReturnType<typeof setTimeout> | undefined;
  const late = new Promise<never>((_, reject) => {
    deadline = setTimeout(() => reject(new Error('late')), limits.bodyWait);
  });
  let body: ArrayBuffer;
  try {
    body = await Promise.race([request.arrayBuffer(), late]);
  } catch {
    // Also when Bun gives up on a body without a length that outgrows `maxRequestBodySize`: it has answered 413 itself.
    throw new RequestRefused(400, 'BODY_UNREADABLE', 'the body could not be read');
  } finally {
    clearTimeout(deadline);
  }
  if (body.byteLength > limit) throw tooLarge(limit);
  return body;
}

/** @throws RequestRefused 413 or 400 */
async function readJson(request: Request, limit: number): Promise<unknown> {
  const body = await readBody(request, limit);
  try {
    return JSON.parse(new TextDecoder('utf-8', { fatal: true }).decode(body)) as unknown;
  } catch {
    throw new RequestRefused(400, 'BAD_REQUEST', 'the body is not JSON in UTF-8');
  }
}
