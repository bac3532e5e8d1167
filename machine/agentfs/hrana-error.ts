/** How a Hrana request can fail. */

export type HranaErrorKind =
  /** No answer: whether the request was carried out is unknown unless it was a read. */
  | 'unreachable'
  /** No answer in time, or the caller's signal fired; the same uncertainty. */
  | 'timeout'
  | 'aborted'
  | 'unauthorized'
  /** The stream is gone, and with it what was not committed. */
  | 'stream-expired'
  /** The request or its answer is larger than allowed. */
  | 'too-large'
  /** The answer is not Hrana, or the server failed. */
  | 'protocol'
  /** SQLite refused the statement; `code` is its name, such as `SQLITE_CONSTRAINT_UNIQUE` or `SQLITE_BUSY`. */
  | 'sql';

export class HranaError extends Error {
  readonly kind: HranaErrorKind;
  readonly code: string;
  /** Index of the failed statement in a batch. */
  readonly statement: number | null;
  constructor(kind: HranaErrorKind, code: string, message: string, statement: number | null = null) {
    super(message);
    this.name = 'HranaError';
    this.kind = kind;
    this.code = code;
    this.statement = statement;
  }
}

/** The answer is not what Hrana promises. */
export const malformed = (message: string): HranaError => new HranaError('protocol', 'PROTOCOL', message);
