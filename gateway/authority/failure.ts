/** An error that the client is told: `code` is SQLite's name of it or one of our own. */
export class SqlFailure extends Error {
  readonly code: string;
  constructor(code: string, message: string) {
    super(message);
    this.name = 'SqlFailure';
    this.code = code;
  }
}

/** A request that is refused as a whole, with its HTTP status. */
export class RequestRefused extends Error {
  readonly status: number;
  readonly code: string;
  constructor(status: number, code: string, message: string) {
    super(message);
    this.name = 'RequestRefused';
    this.status = status;
    this.code = code;
  }
}
