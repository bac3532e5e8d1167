/**
 * The parts of a multipart body (RFC 7578), one after the other and while they arrive. What a sender meant as a part and
 * cannot be read as one fails the body: nothing is left out silently.
 */
import { Dicer } from '@fastify/busboy';
import { Problem } from '../problem.ts';

export interface Part {
  /** Of the form's field. */
  readonly name: string;
  /** Null: the part has none, so it is a plain field. */
  readonly fileName: string | null;
  readonly contentType: string | null;
  /** To be read to its end before the next part comes. */
  readonly content: AsyncIterable<Uint8Array>;
}

/** What is given to the parser at once, and may wait in a part that nobody reads yet. */
const pieceBytes = 64 * 1024;

/** The boundary of a `Content-Type`; null when it is no multipart form. Throws `unsupported-media-type` for one without. */
export function multipartBoundary(contentType: string): string | null {
  const [type = '', ...parameters] = contentType.split(';');
  if (type.trim().toLowerCase() !== 'multipart/form-data') return null;
  for (const parameter of parameters) {
    const boundary = /^\s*boundary=(?:"([^"\\]{1,70})"|([^\s"]{1,70}))\s*$/i.exec(parameter);
    const found = boundary?.[1] ?? boundary?.[2];
    if (found !== undefined) return found;
  }
  throw new Problem('unsupported-media-type', 'multipart/form-data needs a boundary of 1 to 70 characters');
}

const broken = (detail: string): Problem => new Problem('invalid-request', `The multipart body ${detail}`);

/**
 * Throws `invalid-request` when the body is no multipart form, and whatever `body` throws. Leaving the loop early leaves the
 * rest of the body unread.
 */
export async function* partsOf(
  body: AsyncIterable<Uint8Array>,
  boundary: string,
  maxParts: number,
): AsyncGenerator<Part> {
  const parser = new Parser(boundary, maxParts);
  // Ends by itself: with the body, or with its next bytes after `close`.
  void parser.feed(body);
  try {
    for (let part = await parser.next(); part !== null; part = await parser.next()) yield part;
  } finally {
    parser.close();
  }
}

type Headers = Readonly<Record<string, readonly string[] | undefined>>;
type PartStream = Dicer.PartStream;

class Parser {
  readonly #dicer: Dicer;
  readonly #maxParts: number;
  /** Bounded by what fits into one piece. */
  readonly #ready: Part[] = [];
  #count = 0;
  #ended = false;
  #closed = false;
  #failure: unknown = null;
  #streams = new Set<PartStream>();
  #wake: () => void = () => undefined;
  #written: (() => void) | null = null;

  constructor(boundary: string, maxParts: number) {
    this.#maxParts = maxParts;
    const settings = { boundary, maxHeaderPairs: 16, maxHeaderSize: 8 * 1024, partHwm: pieceBytes };
    this.#dicer = new Dicer(settings);
    this.#dicer.on('part', (stream) => this.#begin(stream));
    // The last boundary has come, and every part is read.
    this.#dicer.on('finish', () => {
      this.#ended = true;
      this.#wake();
    });
    this.#dicer.on('error', () => this.#fail(broken('is malformed or ends before its last boundary')));
  }

  /** The next part that has begun; null at the end. Throws what went wrong. */
  async next(): Promise<Part | null> {
    for (;;) {
      if (this.#failure !== null) throw this.#failure;
      const part = this.#ready.shift();
      if (part !== undefined) return part;
      if (this.#ended) return null;
      await new Promise<void>((resolve) => {
        this.#wake = resolve;
      });
    }
  }

  /** Never rejects: a failure is that of `next` and of the part under way. */
  async feed(body: AsyncIterable<Uint8Array>): Promise<void> {
    try {
      for await (const bytes of body) {
        for (let at = 0; at < bytes.length; at += pieceBytes) {
          await this.#write(bytes.subarray(at, at + pieceBytes));
          if (this.#closed || this.#failure !== null) return;
        }
      }
      // Tells an error unless the last boundary has come.
      this.#dicer.end();
    } catch (error) {
      this.#fail(error);
    }
  }

  close(): void {
    this.#closed = true;
    for (const stream of this.#streams) stream.destroy();
    this.#written?.();
  }

  /** Resolves when the parser wants more: not before the parts that it filled are read. */
  #write(piece: Uint8Array): Promise<void> {
    return new Promise((resolve) => {
      this.#written = resolve;
      this.#dicer.write(piece, () => resolve());
    });
  }

  #begin(stream: PartStream): void {
    this.#count += 1;
    // The failure is told by `fail`, which knows more.
    stream.on('error', () => this.#fail(broken('is malformed or ends before its last boundary')));
    if (this.#count > this.#maxParts) {
      this.#fail(broken(`may have ${this.#maxParts} parts at most`));
      return;
    }
    let isKnown = false;
    this.#streams.add(stream);
    stream.on('close', () => this.#streams.delete(stream));
    stream.on('header', (headers) => {
      isKnown = true;
      try {
        this.#ready.push({ ...readPart(headers as Headers), content: this.#contentOf(stream) });
        this.#wake();
      } catch (error) {
        this.#fail(error);
      }
    });
    // A part without a whole header ends without having told of itself.
    const push = stream.push.bind(stream);
    stream.push = (chunk, encoding) => {
      if (chunk === null && !isKnown) this.#fail(broken('has a part without a header'));
      return push(chunk, encoding);
    };
  }

  async *#contentOf(stream: PartStream): AsyncGenerator<Uint8Array> {
    try {
      yield* stream as AsyncIterable<Uint8Array>;
    } catch (error) {
      throw this.#failure ?? error;
    }
    if (this.#failure !== null) throw this.#failure;
  }

  #fail(error: unknown): void {
    if (this.#failure !== null) return;
    this.#failure = error;
    for (const stream of this.#streams) stream.destroy(error as Error);
    this.#wake();
    this.#written?.();
  }
}

/** Throws `invalid-request`. */
function readPart(headers: Headers): Omit<Part, 'content'> {
  const [disposition, second] = headers['content-disposition'] ?? [];
  if (disposition === undefined) throw broken('has a part without a Content-Disposition');
  if (second !== undefined) throw broken('has a part with two Content-Dispositions');
  const parameters = dispositionParameters(utf8Of(disposition));
  const name = parameters.get('name');
  if (name === undefined) throw broken('has a part without a name');
  const encoding = headers['content-transfer-encoding']?.[0]?.trim().toLowerCase();
  if (encoding !== undefined && !['7bit', '8bit', 'binary'].includes(encoding)) {
    throw broken('has a part with a Content-Transfer-Encoding; send the bytes as they are');
  }
  const contentType = headers['content-type']?.[0];
  return {
    name,
    fileName: parameters.get('filename') ?? extendedValue(parameters.get('filename*')),
    contentType: contentType === undefined ? null : utf8Of(contentType),
  };
}

/** RFC 8187, which forms should not use and some libraries do for names that are not ASCII. */
function extendedValue(value: string | undefined): string | null {
  if (value === undefined) return null;
  try {
    return decodeURIComponent(/^utf-8'[\w-]*'(.*)$/i.exec(value)![1]!);
  } catch {
    throw broken("has a filename* that is not UTF-8''…; send filename in UTF-8");
  }
}

/** The parser hands a header's bytes on as characters. */
function utf8Of(bytes: string): string {
  try {
    return new TextDecoder('utf-8', { fatal: true }).decode(Buffer.from(bytes, 'latin1'));
  } catch {
    throw broken('has a header that is not UTF-8');
  }
}

/** The parameters of `form-data; name="…"; filename="…"`. Browsers escape a quote as %22, others with a backslash. */
function dispositionParameters(value: string): ReadonlyMap<string, string> {
  const parameters = new Map<string, string>();
  let rest = /^\s*form-data\s*(.*)$/is.exec(value)?.[1];
  if (rest === undefined) throw broken('has a part that is no form-data');
  while (rest !== '') {
    const found: RegExpExecArray | null = /^;\s*([\w!#$&+.^`|~*-]+)=(?:"((?:[^"\\]|\\.)*)"|([^\s;"]*))\s*/s.exec(rest);
    if (found === null) throw broken('has a Content-Disposition that cannot be read');
    const name = found[1]!.toLowerCase();
    if (parameters.has(name)) throw broken('has a Content-Disposition that says something twice');
    parameters.set(name, found[2]?.replace(/\\(["\\])/g, '$1') ?? found[3] ?? '');
    rest = rest.slice(found[0].length);
  }
  return parameters;
}
