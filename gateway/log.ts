/**
 * Log lines: one JSON object a line on standard error. What may stand in one is listed here by name; anything else, such as
 * a text, a token or an environment, does not compile, and is dropped when it comes all the same.
 */

/**
 * Every field that a line may have, beside `at`, `level`, `part` and `what`. None of them ever holds prose or a secret:
 * `message` and `token` are ids, `line` is what a child of the gateway said under the same rule.
 */
const fields = [
  ...([
    'conversation',
    'dataDir',
    'error',
    'line',
    'message',
    'method',
    'model',
    'ms',
    'outcome',
    'port',
    'reason',
  ] as const),
  ...(['request', 'route', 'signal', 'status', 'token', 'url', 'version'] as const),
] as const;
const knownFields: ReadonlySet<string> = new Set(fields);
const maxText = 2_000;

export type LogFields = { readonly [Name in (typeof fields)[number]]?: unknown };

export interface Log {
  info(what: string, fields?: LogFields): void;
  warn(what: string, fields?: LogFields): void;
  error(what: string, fields?: LogFields): void;
  /** The same log for another part. */
  part(name: string): Log;
}

/** A token's secret starts with `egw_`, its id with `tok_`. */
const secretShape = /\begw_[a-z_]+_[0-9A-Za-z_-]{20,}|\bBearer\s+\S+|:\/\/[^/\s@]*@|\b(?:sk|key)-[0-9A-Za-z_-]{16,}/g;

/** `write` gets whole lines. */
export function createLog(part: string, write: (line: string) => void = writeToStderr): Log {
  const line = (level: string, what: string, given: LogFields) => {
    const kept: Record<string, unknown> = { at: new Date().toISOString(), level, part, what };
    for (const [name, value] of Object.entries(given)) {
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
