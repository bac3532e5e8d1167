/**
 * How much a server of the sync protocol may answer. The engine takes all that comes and looks at it later, so a server that
 * lies or has lost its mind could fill the machine's memory: each answer is bounded by what it says itself, and that by what
 * an organization may have.
 */

/** A page of the database, and what the message around it takes at most; a server may send some more than once. */
const pageBytes = 4096;
const pageMessageBytes = 32;
const repetitions = 4;
/** A pull's answer begins with its header: a revision and the size of the database. */
const maxHeaderBytes = 4096;
/** What the pages of a database may take beyond the files that an organization may have: tables, indexes, the ledger. */
const spareBytes = 8 * 1024 ** 3;
/** The answer to a push is a few numbers for each statement; what is no success is a sentence. */
const maxPipelineBytes = 32 * 1024 ** 2;
const maxRefusalBytes = 64 * 1024;
/** After this time an answer has to come at this pace, on average. */
const patienceMs = 60_000;
const slowestBytesPerSecond = 1024;

export class CloudAnswerError extends Error {
  override readonly name = 'CloudAnswerError';
}

/** Takes one answer piece by piece. */
export class CloudAnswer {
  readonly #begunAt = performance.now();
  /** Null until the header of a pull has come. */
  #limit: number | null;
  readonly #largestDatabase: number;
  #bytes = 0;
  #start = new Uint8Array(0);

  /** @param organizationBytes what the organization's files may have */
  constructor(path: string, status: number, organizationBytes: number) {
    const isPull = path.endsWith('/pull-updates');
    this.#limit = status !== 200 ? maxRefusalBytes : isPull ? null : maxPipelineBytes;
    this.#largestDatabase = 2 * organizationBytes + spareBytes;
  }

  /** @throws CloudAnswerError when this is more than may come, too slow, or not how a pull is answered */
  take(bytes: Uint8Array): void {
    this.#bytes += bytes.length;
    const ms = performance.now() - this.#begunAt;
    if (ms > patienceMs && this.#bytes < (ms / 1000) * slowestBytesPerSecond)
      throw new CloudAnswerError(`the cloud has sent ${this.#bytes} bytes in ${Math.round(ms / 1000)} seconds`);
    if (this.#limit === null) this.#readHeader(bytes);
    if (this.#limit !== null && this.#bytes > this.#limit)
      throw new CloudAnswerError(`the cloud sends more than the ${this.#limit} bytes that such an answer may have`);
  }

  #readHeader(bytes: Uint8Array): void {
    const start = new Uint8Array(this.#start.length + bytes.length);
    start.set(this.#start);
    start.set(bytes, this.#start.length);
    const header = headerOf(start);
    if (header === 'cut off') {
      this.#start = start;
      return;
    }
    this.#start = new Uint8Array(0);
    const pages = repetitions * header.pages * (pageBytes + pageMessageBytes);
    if (header.pages * pageBytes > this.#largestDatabase)
      throw new CloudAnswerError(`the cloud speaks of a database of ${header.pages} pages, more than there can be`);
    this.#limit = header.length + pages;
  }
}

/**
 * The header of a pull's answer: its length with the prefix, and field 2 of it, the size of the database in pages.
 * @throws CloudAnswerError for what is none
 */
function headerOf(bytes: Uint8Array): { readonly length: number; readonly pages: number } | 'cut off' {
  const prefix = varintAt(bytes, 0);
  if (prefix === 'cut off') return prefix;
  const end = prefix.next + prefix.value;
  if (prefix.value === 0 || prefix.value > maxHeaderBytes) throw noPull();
  if (bytes.length < end) return 'cut off';
  const message = bytes.subarray(prefix.next, end);
  let pages: number | null = null;
  for (let at = 0; at < message.length; ) {
    const key = varintAt(message, at);
    const value = key === 'cut off' ? key : varintAt(message, key.next);
    if (key === 'cut off' || value === 'cut off') throw noPull();
    const kind = key.value % 8;
    if (kind !== 0 && kind !== 2) throw noPull();
    if (kind === 0 && Math.floor(key.value / 8) === 2) pages = value.value;
    at = value.next + (kind === 2 ? value.value : 0);
    if (at > message.length) throw noPull();
  }
  return { length: end, pages: pages ?? 0 };
}

/** @throws CloudAnswerError when it is more than fits into a number */
function varintAt(bytes: Uint8Array, from: number): { readonly value: number; readonly next: number } | 'cut off' {
  let value = 0;
  for (let at = from; at < from + 7; at++) {
    const byte = bytes[at];
    if (byte === undefined) return 'cut off';
    value += (byte & 127) * 128 ** (at - from);
    if (byte < 128) return { value, next: at + 1 };
  }
  throw noPull();
}

const noPull = () => new CloudAnswerError('the cloud answers a pull with something else');
