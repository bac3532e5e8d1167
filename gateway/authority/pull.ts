/** `POST /pull-updates` of the Turso sync protocol: the pages that changed since a client's revision. */
import { RequestRefused } from './failure.ts';
import { limits } from './limits.ts';
import type { PagedFile, PageSource } from './paged-file.ts';
import { decodeMessage, encodeMessage, type Fields, ProtobufError, varintLength, writeVarint } from './protobuf.ts';
import { RoaringBitmap, RoaringError } from './roaring.ts';
import { PAGE_BYTES } from './wal.ts';

export type PullRequest = {
  /** The revision that the client pins a pull in several requests to; empty for any. */
  serverRevision: string;
  clientRevision: string;
  /** Pages wanted, numbered from 0; null for all. */
  selector: RoaringBitmap | null;
};

const ENCODING_RAW = 0;
/** Frame of one page in the answer: its id (varint field 1, left out for 0) and its content (bytes field 2). */
const ID_KEY = 0x08;
const CONTENT_KEY = 0x12;
const FRAME_OVERHEAD = 24;

/** @throws RequestRefused 400 */
function parsePull(body: Uint8Array): PullRequest {
  let fields: Fields;
  try {
    fields = decodeMessage(body);
    const selector = fields.get(5);
    if (typeof selector === 'number') throw new ProtobufError('the page selector is not bytes');
    const encoding = fields.get(1) ?? ENCODING_RAW;
    if (encoding !== ENCODING_RAW) throw new ProtobufError('only the raw page encoding is served');
    return {
      serverRevision: text(fields, 2),
      clientRevision: text(fields, 3),
      selector: selector?.length ? new RoaringBitmap(selector) : null,
    };
  } catch (error) {
    if (error instanceof ProtobufError || error instanceof RoaringError)
      throw new RequestRefused(400, 'BAD_REQUEST', `not a pull request: ${error.message}`);
    throw error;
  }
}

function text(fields: Fields, field: number): string {
  const value = fields.get(field);
  if (value === undefined) return '';
  if (typeof value === 'number' || value.length > 256) throw new ProtobufError(`field ${field} is not a short string`);
  return new TextDecoder().decode(value);
}

/**
 * Which pages an answer carries. A client without a revision, or with one that is not of this file's history, gets all.
 * @throws RequestRefused 409 when the pinned revision has gone by
 */
function choosePages(file: PagedFile, request: PullRequest): number[] {
  const { revisions, databasePages } = file;
  if (request.serverRevision !== '' && request.serverRevision !== revisions.current)
    throw new RequestRefused(409, 'REVISION_MOVED', 'the database has moved on from the pinned revision');
  const since = request.clientRevision === '' ? null : revisions.resolve(request.clientRevision);
  const pages =
    since === null
      ? Array.from({ length: databasePages }, (_, index) => index + 1)
      : revisions.changedSince(since, databasePages);
  const { selector } = request;
  return selector ? pages.filter((page) => selector.has(page - 1)) : pages;
}

function header(file: PagedFile): Uint8Array {
  const message = encodeMessage([
    [1, new TextEncoder().encode(file.revisions.current)],
    [2, file.databasePages],
    [3, new Uint8Array(0)],
    [8, 1],
  ]);
  const framed = new Uint8Array(varintLength(message.length) + message.length);
  framed.set(message, writeVarint(framed, 0, message.length));
  return framed;
}

function writePage(file: PagedFile, source: PageSource, target: Uint8Array, start: number): number {
  const id = source.page - 1;
  const idBytes = id === 0 ? 0 : 1 + varintLength(id);
  let at = writeVarint(target, start, idBytes + 1 + varintLength(PAGE_BYTES) + PAGE_BYTES);
  if (id !== 0) {
    target[at++] = ID_KEY;
    at = writeVarint(target, at, id);
  }
  target[at++] = CONTENT_KEY;
  at = writeVarint(target, at, PAGE_BYTES);
  file.readPage(source, target, at);
  return at + PAGE_BYTES;
}

function writePages(file: PagedFile, sources: readonly PageSource[], first: Uint8Array | null): Uint8Array {
  const buffer = new Uint8Array((first?.length ?? 0) + sources.length * (PAGE_BYTES + FRAME_OVERHEAD));
  if (first) buffer.set(first);
  let at = first?.length ?? 0;
  for (const source of sources) at = writePage(file, source, buffer, at);
  return buffer.subarray(0, at);
}

/** Answers pulls from one file. Large ones are streamed from a snapshot while writers go on. */
export class PullService {
  readonly #file: PagedFile;
  readonly #running = new Set<() => void>();

  constructor(file: PagedFile) {
    this.#file = file;
  }

  /** @throws RequestRefused */
  answer(body: Uint8Array): Response {
    const request = parsePull(body);
    // After a failed bookkeeping the pages are newer than the revision says; this tries again, or the pull fails.
    this.#file.publish();
    const sources = this.#file.locate(choosePages(this.#file, request));
    const headers = { 'content-type': 'application/protobuf' };
    if (sources.length <= limits.pullPagesInMemory)
      return new Response(writePages(this.#file, sources, header(this.#file)), { headers });
    return new Response(this.#stream(sources), { headers });
  }

  /** Cuts off all running pulls. */
  close(): void {
    for (const end of [...this.#running]) end();
  }

  #stream(sources: readonly PageSource[]): ReadableStream<Uint8Array> {
    if (this.#running.size >= limits.pullSnapshots)
      throw new RequestRefused(503, 'TOO_MANY_PULLS', `more than ${limits.pullSnapshots} large pulls are running`);
    const release = this.#file.holdSnapshot();
    const first = header(this.#file);
    let next = 0;
    let fail: (reason: Error) => void = () => {};
    const finish = (): void => {
      clearTimeout(deadline);
      this.#running.delete(cut);
      release();
    };
    const cut = (): void => {
      finish();
      fail(new Error('the pull was cut off'));
    };
    const deadline = setTimeout(cut, limits.pullDeadline);
    deadline.unref();
    this.#running.add(cut);
    return new ReadableStream<Uint8Array>({
      start: (controller) => {
        fail = (reason) => controller.error(reason);
      },
      pull: (controller) => {
        const chunk = sources.slice(next, next + limits.pullChunkPages);
        controller.enqueue(writePages(this.#file, chunk, next === 0 ? first : null));
        next += chunk.length;
        if (next < sources.length) return;
        finish();
        controller.close();
      },
      cancel: finish,
    });
  }
}
