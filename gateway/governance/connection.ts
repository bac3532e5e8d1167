/** One way to reach Postgres, embedded or not, and how its errors are told apart. */
import postgres from 'postgres';

export type Sql = postgres.Sql<Record<string, never>>;

/** Where the database is. The embedded one answers on a unix socket and has a single backend. */
export type DatabaseAddress =
  | { readonly kind: 'url'; readonly url: string }
  | { readonly kind: 'socket'; readonly directory: string };

/** A statement that has not answered by then counts as lost. */
const statementDeadlineMs = 30_000;
const connectTimeoutS = 10;
const remoteConnections = 8;
const oldestServer = 14;
const malformedUrl =
  'DATABASE_URL is not a Postgres URL; write postgres://user:password@host:5432/database, or …/database?host=/socket/directory';

/** The database cannot be used as it is; the message says what to do and holds no credential. */
export class DatabaseUnusable extends Error {
  override readonly name = 'DatabaseUnusable';
}

/**
 * Opens the ordinary client and checks that the server is one we can work with.
 * Throws {@link DatabaseUnusable}. Relies on no session state: no SET, LISTEN, advisory lock or temporary table, which
 * the embedded database's one shared backend would mix up between connections.
 */
export async function connect(address: DatabaseAddress): Promise<Sql> {
  const options = {
    connect_timeout: connectTimeoutS,
    // Neither a lifetime nor an idle limit: a connection is not renewed by a timer.
    max_lifetime: null,
    fetch_types: false,
    onnotice: () => undefined,
    connection: { application_name: 'edge-gateway' },
  } as const;
  let sql: Sql;
  if (address.kind === 'url') {
    const parsed = URL.parse(address.url);
    // The message does not quote the URL: it holds a password.
    if (parsed === null || !/^postgres(ql)?:$/.test(parsed.protocol)) throw new DatabaseUnusable(malformedUrl);
    // A unix socket directory as libpq writes it, which the client does not know.
    const directory = parsed.searchParams.get('host');
    parsed.searchParams.delete('host');
    const host = directory === null ? {} : { host: directory };
    sql = postgres(parsed.href, { ...options, ...host, max: remoteConnections });
  } else {
    // pglite-socket hands the protocol messages of all connections to one backend in turn, so two connections would take
    // each other's unnamed portal. One connection, pipelined, is as fast there.
    sql = postgres({ ...options, host: address.directory, port: 5432, user: 'postgres', database: 'postgres', max: 1 });
  }
  try {
    const [server] = await withDeadline(
      sql<{ version: string; encoding: string }[]>`
        select current_setting('server_version_num') as version, current_setting('server_encoding') as encoding`,
    );
    const major = Math.floor(Number(server?.version) / 10_000);
    if (!(major >= oldestServer)) {
      throw new DatabaseUnusable(
        `Postgres ${oldestServer} or newer is needed, and the server is version ${major}; name another in DATABASE_URL`,
      );
    }
    if (server?.encoding !== 'UTF8') {
      throw new DatabaseUnusable(`The database is encoded as ${server?.encoding}; create it with encoding UTF8`);
    }
    return sql;
  } catch (error) {
    await sql.end({ timeout: 1 });
    if (error instanceof DatabaseUnusable) throw error;
    throw new DatabaseUnusable(`The database does not answer: ${describe(error)}. Check DATABASE_URL and the server`, {
      cause: error,
    });
  }
}

/** The server refused the statement, so nothing of it was kept. Everything else may have been committed. */
export function isRefusal(error: unknown): error is postgres.PostgresError {
  return error instanceof postgres.PostgresError;
}

/** True when `error` is the violation of this unique or foreign key constraint. */
export function violates(error: unknown, constraint: string): boolean {
  return isRefusal(error) && (error.code === '23505' || error.code === '23503') && error.constraint_name === constraint;
}

/** Rejects with {@link Unanswered} when no answer came, or none in time. */
export async function withDeadline<T>(work: PromiseLike<T>, limitMs: number = statementDeadlineMs): Promise<T> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  const deadline = new Promise<never>((_, reject) => {
    timer = setTimeout(() => reject(new Unanswered(`the database did not answer within ${limitMs} ms`)), limitMs);
  });
  try {
    return await Promise.race([work, deadline]);
  } catch (error) {
    throw isNoAnswer(error) ? new Unanswered(describe(error), { cause: error }) : error;
  } finally {
    clearTimeout(timer);
  }
}

/** The database did not answer: what it was asked for may have been done. */
export class Unanswered extends Error {
  override readonly name = 'Unanswered';
}

/** The client's own words for a connection that ended, the system's, and those of a server that ends it. */
function isNoAnswer(error: unknown): boolean {
  // A server that is told to stop says so also to whom it has just committed something.
  if (isRefusal(error)) return error.severity === 'FATAL' || error.severity === 'PANIC';
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === 'string' && /^(?:CONNECT|E[A-Z]+$)/.test(code);
}

/** Before a statement that got no answer is run again, in milliseconds. */
const repeatPausesMs = [50, 250, 1_000];

/** Runs statements that do the same when they run twice: again when no answer came. */
export async function repeatable<T>(statement: () => PromiseLike<T>): Promise<T> {
  for (const pauseMs of repeatPausesMs) {
    try {
      return await withDeadline(statement());
    } catch (error) {
      if (!(error instanceof Unanswered)) throw error;
      await Bun.sleep(pauseMs);
    }
  }
  return withDeadline(statement());
}

/**
 * Inserts a row with a new id of its own, again when no answer came. When the constraint `ownKey` forbids it then, the row is
 * there already: that is the only row that can have this id, and the answer is null.
 */
export async function inserted<T>(insert: () => PromiseLike<T>, ownKey: string): Promise<T | null> {
  let isRepeated = false;
  return repeatable(async () => {
    try {
      return await insert();
    } catch (error) {
      if (isRepeated && violates(error, ownKey)) return null;
      throw error;
    } finally {
      isRepeated = true;
    }
  });
}

/** A one-line description without parameters or credentials. */
export function describe(error: unknown): string {
  if (isRefusal(error)) return `${error.code} ${error.message}`;
  if (error instanceof Error) {
    const code = (error as { code?: unknown }).code;
    return typeof code === 'string' && !error.message.includes(code) ? `${code} ${error.message}` : error.message;
  }
  return String(error);
}
