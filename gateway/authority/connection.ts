/** One SQLite connection with its prepared statements: executes a statement and gives the Hrana result. */
import { Database, type Statement } from 'bun:sqlite';
import type { WireColumn, WireStatementResult, WireValue } from '../../machine/agentfs/hrana-wire.ts';
import { SqlFailure } from './failure.ts';
import { limits } from './limits.ts';
import type { ScannedStatement } from './sql-text.ts';
import { type Bound, castFloats, encodedSize, encodeValue, type SqliteValue } from './values.ts';

type Prepared = {
  statement: Statement<Record<string, SqliteValue>, SqliteValue[]>;
  columns: WireColumn[];
  /** As SQLite names the columns of what is executed, which may have casts in it. */
  names: string[];
  /** Rows can be taken one by one by column name; otherwise two columns share one and all rows are taken at once. */
  iterable: boolean;
};

/** What is left of the rows and bytes that one answer may have. */
export type AnswerBudget = { rows: number; bytes: number };

/** The error that SQLite gave, as the client is told it. */
export function sqlFailure(error: unknown): SqlFailure {
  if (error instanceof SqlFailure) return error;
  if (error instanceof Error) {
    const code = (error as Error & { code?: unknown }).code;
    if (typeof code === 'string' && code.startsWith('SQLITE_')) return new SqlFailure(code, error.message);
    return new SqlFailure('SQLITE_ERROR', error.message);
  }
  return new SqlFailure('SQLITE_ERROR', 'unknown failure');
}

export class SqlConnection {
  readonly #database: Database;
  readonly #cache = new Map<string, Prepared>();
  readonly #counters: Statement<unknown, []>;

  /** @param pragmas run at once */
  constructor(file: string, pragmas: readonly string[]) {
    this.#database = new Database(file, { readwrite: true, create: true, safeIntegers: true });
    for (const pragma of pragmas) this.#database.run(pragma);
    this.#counters = this.#database.prepare('SELECT changes(), last_insert_rowid()');
  }

  get inTransaction(): boolean {
    return this.#database.inTransaction;
  }

  /** Runs internal SQL that gives no rows. */
  run(sql: string): void {
    this.#database.run(sql);
  }

  /** Rows of internal SQL. */
  query(sql: string): SqliteValue[][] {
    const statement = this.#database.prepare(sql);
    try {
      return statement.values() as SqliteValue[][];
    } finally {
      statement.finalize();
    }
  }

  rollback(): void {
    if (this.#database.inTransaction) this.#database.run('ROLLBACK');
  }

  close(): void {
    this.rollback();
    this.#forget();
    this.#counters.finalize();
    this.#database.close();
  }

  /**
   * Executes one statement.
   * @param again the second attempt, after the schema was found changed
   * @throws SqlFailure SQLite's own error, or `ANSWER_TOO_LARGE`
   */
  execute(
    statement: ScannedStatement,
    bound: Bound,
    wantRows: boolean,
    budget: AnswerBudget,
    again = false,
  ): WireStatementResult {
    const { kind } = statement;
    const counts = kind === 'insert' || kind === 'change';
    const prepared = this.#prepare(statement, bound);
    try {
      if (prepared.columns.length === 0) {
        const { changes, lastInsertRowid } = prepared.statement.run(...bound.values);
        return {
          cols: [],
          rows: [],
          affected_row_count: counts ? Number(changes) : 0,
          last_insert_rowid: kind === 'insert' ? String(lastInsertRowid) : null,
        };
      }
      const rows: WireValue[][] = [];
      const add = (row: readonly SqliteValue[]): void => {
        if (!wantRows) return;
        const encoded = row.map(encodeValue);
        budget.rows--;
        for (const value of encoded) budget.bytes -= encodedSize(value);
        if (budget.rows < 0 || budget.bytes < 0)
          throw new SqlFailure('ANSWER_TOO_LARGE', 'the answer has too many rows or bytes; ask for less');
        rows.push(encoded);
      };
      if (counts) this.#returning(() => prepared.statement.values(...bound.values) as SqliteValue[][], add);
      else if (prepared.iterable) {
        const { names } = prepared;
        for (const row of prepared.statement.iterate(...bound.values)) add(names.map((name) => row[name] ?? null));
      } else for (const row of prepared.statement.values(...bound.values) as SqliteValue[][]) add(row);
      // SQLite compiles a statement again when the schema has changed: its columns may be others than those known.
      const columns = this.#currentColumns(prepared);
      if (columns !== prepared.columns) {
        this.#evict(prepared);
        // Rows taken by the old names are wrong; what only reads can simply be done again.
        if (!counts && !again) return this.execute(statement, bound, wantRows, budget, true);
      }
      const counters = counts ? (this.#counters.values()[0] as [bigint, bigint]) : null;
      return {
        cols: columns,
        rows,
        affected_row_count: counters ? Number(counters[0]) : 0,
        last_insert_rowid: counters && kind === 'insert' ? counters[1].toString() : null,
      };
    } catch (error) {
      throw sqlFailure(error);
    }
  }

  /** Column names of a statement, without running it. @throws SqlFailure */
  describe(statement: ScannedStatement): WireColumn[] {
    return this.#prepare(statement, { values: [], floats: null }).columns;
  }

  /** A change whose RETURNING rows are too many must not stay, as the client is told that it failed. */
  #returning(change: () => SqliteValue[][], add: (row: SqliteValue[]) => void): void {
    this.#database.run('SAVEPOINT edge_returning');
    try {
      for (const row of change()) add(row);
    } catch (error) {
      // OR ROLLBACK and severe errors have ended the transaction, and the savepoint with it.
      if (this.#database.inTransaction) {
        this.#database.run('ROLLBACK TO edge_returning');
        this.#database.run('RELEASE edge_returning');
      }
      throw error;
    }
    this.#database.run('RELEASE edge_returning');
  }

  #prepare(statement: ScannedStatement, bound: Bound): Prepared {
    const sql = bound.floats ? castFloats(statement, bound.floats) : statement.sql;
    const known = this.#cache.get(sql);
    if (known) {
      this.#cache.delete(sql);
      this.#cache.set(sql, known);
      return known;
    }
    let prepared: Prepared;
    try {
      const compiled = this.#database.prepare<Record<string, SqliteValue>, SqliteValue[]>(sql);
      const names = compiled.columnNames;
      const types = names.length ? compiled.declaredTypes : [];
      let shown = names;
      if (bound.floats && names.length) {
        // The cast must not show in the name of a column that is a bare parameter.
        const plain = this.#database.prepare(statement.sql);
        shown = plain.columnNames;
        plain.finalize();
      }
      prepared = {
        statement: compiled,
        columns: shown.map((name, index) => ({ name, decltype: types[index] ?? null })),
        names,
        iterable: new Set(names).size === names.length && !names.includes('__proto__'),
      };
    } catch (error) {
      throw sqlFailure(error);
    }
    if (sql.length <= limits.cachedSqlBytes) {
      this.#cache.set(sql, prepared);
      if (this.#cache.size > limits.cachedStatements) {
        const oldest = this.#cache.entries().next().value!;
        this.#cache.delete(oldest[0]);
        oldest[1].statement.finalize();
      }
    }
    return prepared;
  }

  /** The statement's columns after it ran: the known ones, or new ones when their names have changed. */
  #currentColumns({ statement, columns, names }: Prepared): WireColumn[] {
    const current = statement.columnNames;
    if (current.length === names.length && current.every((name, index) => name === names[index])) return columns;
    const types = statement.declaredTypes;
    return current.map((name, index) => ({ name, decltype: types[index] ?? null }));
  }

  #evict(prepared: Prepared): void {
    for (const [sql, known] of this.#cache) if (known === prepared) this.#cache.delete(sql);
    prepared.statement.finalize();
  }

  #forget(): void {
    for (const { statement } of this.#cache.values()) statement.finalize();
    this.#cache.clear();
  }
}
