/**
 * Log lines: one JSON object a line on standard error. What may stand in one is listed here by name; anything else, such as
 * a text, a token or an environment, is dropped, whoever passes it.
 */

/** Every field that a line may have, beside `at`, `level`, `part` and `what`. None of them ever holds prose or a secret. */
const knownFields = new Set([
  ...['address', 'admission', 'attachMs', 'bytes', 'code', 'command', 'connection', 'conversation', 'count', 'dataDir'],
  ...['database', 'deadlineMs', 'error', 'event', 'exit', 'generation', 'held', 'limit', 'line', 'locator', 'message'],
  ...[
    'method',
    'model',
    'ms',
    'operation',
    'organization',
    'path',
    'pid',
    'port',
    'problem',
    'reason',
    'request',
    'role',
  ],
  ...['route', 'runtime', 'seq', 'session', 'signal', 'size', 'specialist', 'state', 'status', 'token', 'type', 'url'],
  ...['version', 'watermark'],
]);
const maxText = 2_000;

export type LogFields = Readonly<Record<string, unknown>>;

export interface Log {
  info(what: string, fields?: LogFields): void;
  warn(what: string, fields?: LogFields): void;
  error(what: string, fields?: LogFields): void;
  /** The same log for another part. */
  part(name: string): Log;
}

/** `token` above is a token's id (`tok_…`); its secret starts with `egw_`. */
const secretShape = /\begw_[a-z_]+_[0-9A-Za-z_-]{20,}|\bBearer\s+\S+|:\/\/[^/\s@]*@|\b(?:sk|key)-[0-9A-Za-z_-]{16,}/g;

/** `write` gets whole lines. */
export function createLog(part: string, write: (line: string) => void = writeToStderr): Log {
  const line = (level: string, what: string, fields: LogFields) => {
    const kept: Record<string, unknown> = { at: new Date().toISOString(), level, part, what };
    for (const [name, value] of Object.entries(fields)) {
      if (knownFields.has(name) && value !== undefined) kept[name] = plain(value);
    }
    write(`${JSON.stringify(kept)}\n`);
  };
  return {
    info: (what, fields = {}) => line('info', what, fields),
    warn: (what, fields = {}) => line('warn', what, fields),
    error: (what, fields = {}) => line('error', what, fields),
    part: (name) => createLog(name, write),
  };
}

/** Scalars, and of an error its message: an object could hold anything. */
function plain(value: unknown): unknown {
  if (typeof value === 'number' || typeof value === 'boolean' || value === null) return value;
  if (typeof value === 'bigint') return value.toString();
  const text = value instanceof Error ? value.message : typeof value === 'string' ? value : `(${typeof value})`;
  return text.slice(0, maxText).replaceAll(secretShape, '(redacted)');
}

function writeToStderr(line: string): void {
  process.stderr.write(line);
}
