/**
 * Statements of a local @tursodatabase/sync database, run in the caller's thread. The package's own statements send each
 * page of 4 KiB that is not in the engine's cache through two hops of a thread pool, which is nearly all that a cold read
 * costs; nothing of ours needs that, because no page is ever fetched from the network (no partial sync).
 */
import type { LocalDatabase, Prepared, SqlRow, SqlValue } from './driver.ts';
import { type NativeRows, rowReader } from './native-rows.ts';

/** What the engine is below the package's classes; its version is pinned. */
interface NativeDatabase {
  prepare(sql: string): NativeStatement;
  ioLoopSync(): unknown;
  ioLoopAsync(): Promise<unknown>;
  totalChanges(): number;
  changes(): number;
}
interface NativeStatement extends NativeRows {
  bindAt(index: number, value: SqlValue): unknown;
  stepSync(): number;
  reset(): unknown;
  finalize(): unknown;
}
const steps = { row: 1, done: 2, io: 3 } as const;

/**
 * `readingMs`: how long one statement may read the disk before the rest of the machine has its turn.
 * @throws Error when the package is another than the one that this was written for
 */
export function directStatements(database: Pick<LocalDatabase, 'exec'> & object, readingMs = 4): LocalDatabase {
  const native = nativeOf(database);
  let running: Promise<unknown> = Promise.resolve();
  let isRunning = false;

  /** One statement after the other: one that waits for the disk is not done yet. */
  async function alone<Result>(work: () => Result | Promise<Result>): Promise<Result> {
    while (isRunning) await running;
    const result = work();
    if (!(result instanceof Promise)) return result;
    isRunning = true;
    running = result.then(
      () => undefined,
      () => undefined,
    );
    try {
      return await result;
    } finally {
      isRunning = false;
    }
  }

  return {
    exec: (sql) => database.exec(sql),
    prepare: async (sql) => {
      const statement = native.prepare(sql);
      return preparedOf({ native, statement, readingMs }, alone);
    },
  };
}

interface Engine {
  readonly native: NativeDatabase;
  readonly statement: NativeStatement;
  readonly readingMs: number;
}
type Alone = <Result>(work: () => Result | Promise<Result>) => Promise<Result>;

function preparedOf(engine: Engine, alone: Alone): Prepared {
  const { native, statement } = engine;
  const row = rowReader(statement);
  const bind = (args: readonly SqlValue[]) => {
    for (let index = 0; index < args.length; index++) statement.bindAt(index + 1, args[index] ?? null);
  };
  return {
    run: (...args) =>
      alone(() => {
        bind(args);
        const before = native.totalChanges();
        const changes = () => ({ changes: native.totalChanges() === before ? 0 : native.changes() });
        return stepped(engine, () => undefined, changes);
      }),
    get: (...args) =>
      alone(() => {
        bind(args);
        let first: SqlRow | undefined;
        const take = () => {
          first ??= row();
        };
        return stepped(engine, take, () => first);
      }),
    all: (...args) =>
      alone(() => {
        bind(args);
        const rows: SqlRow[] = [];
        return stepped(
          engine,
          () => rows.push(row()),
          () => rows,
        );
      }),
    close: () => {
      statement.finalize();
    },
  };
}

/** Runs a statement to its end: at once, unless it reads from the disk for long. */
function stepped<Result>(engine: Engine, onRow: () => unknown, result: () => Result): Result | Promise<Result> {
  let isLeft = false;
  try {
    if (stepFor(engine, onRow)) return result();
    isLeft = true;
    return rest(engine, onRow, result);
  } finally {
    if (!isLeft) engine.statement.reset();
  }
}

async function rest<Result>(engine: Engine, onRow: () => unknown, result: () => Result): Promise<Result> {
  try {
    do await engine.native.ioLoopAsync();
    while (!stepFor(engine, onRow));
    return result();
  } finally {
    engine.statement.reset();
  }
}

/** @returns whether the statement is at its end; otherwise it waits for the disk, and has done so for a while */
function stepFor({ native, statement, readingMs }: Engine, onRow: () => unknown): boolean {
  let giveWayAt = 0;
  for (;;) {
    const step = statement.stepSync();
    if (step === steps.done) return true;
    if (step === steps.row) onRow();
    else {
      const now = performance.now();
      if (giveWayAt === 0) giveWayAt = now + readingMs;
      else if (now > giveWayAt) return false;
      native.ioLoopSync();
    }
  }
}

function nativeOf(database: object): NativeDatabase {
  const native: unknown = 'db' in database ? database.db : null;
  if (!isNative(native)) throw new Error('@tursodatabase/sync is not the version that this was built for');
  return native;
}

function isNative(native: unknown): native is NativeDatabase {
  const names = ['prepare', 'ioLoopSync', 'ioLoopAsync', 'totalChanges', 'changes'];
  return (
    typeof native === 'object' &&
    native !== null &&
    names.every((name) => typeof Reflect.get(native, name) === 'function')
  );
}
