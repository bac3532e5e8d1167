/**
 * The JSON of Hrana over HTTP (versions 2 and 3), as far as this project speaks it: the types that the client (`hrana.ts`)
 * and the embedded authority (`gateway/authority/`) share. Types only; each side validates what it receives.
 */

export type WireValue =
  | { type: 'null' }
  /** Decimal digits of a signed 64-bit integer: JSON numbers would lose what is beyond 2^53. */
  | { type: 'integer'; value: string }
  | { type: 'float'; value: number }
  | { type: 'text'; value: string }
  | { type: 'blob'; base64: string };

export type WireNamedValue = { name: string; value: WireValue };

/** One statement. Exactly one of `sql` and `sql_id` (stored earlier on the same stream) is given. */
export type WireStatement = {
  sql?: string | null | undefined;
  sql_id?: number | null | undefined;
  args?: readonly WireValue[] | null | undefined;
  named_args?: readonly WireNamedValue[] | null | undefined;
  want_rows?: boolean | null | undefined;
};

export type WireCondition =
  | { type: 'ok'; step: number }
  | { type: 'error'; step: number }
  | { type: 'not'; cond: WireCondition }
  | { type: 'and'; conds: readonly WireCondition[] }
  | { type: 'or'; conds: readonly WireCondition[] }
  | { type: 'is_autocommit' };

export type WireStep = { condition?: WireCondition | null | undefined; stmt: WireStatement };

type WireSqlSource = { sql?: string | null | undefined; sql_id?: number | null | undefined };

export type WireRequest =
  | { type: 'execute'; stmt: WireStatement }
  | { type: 'batch'; batch: { steps: readonly WireStep[] } }
  | ({ type: 'sequence' } & WireSqlSource)
  | ({ type: 'describe' } & WireSqlSource)
  | { type: 'store_sql'; sql_id: number; sql: string }
  | { type: 'close_sql'; sql_id: number }
  | { type: 'get_autocommit' }
  | { type: 'close' };

export type WireColumn = { name: string; decltype: string | null };

export type WireStatementResult = {
  cols: WireColumn[];
  rows: WireValue[][];
  /** Rows that an INSERT, UPDATE or DELETE changed itself (triggers not counted); 0 for every other statement. */
  affected_row_count: number;
  /** Decimal digits, after an INSERT or REPLACE; otherwise null. */
  last_insert_rowid: string | null;
};

export type WireError = { message: string; code: string | null };

export type WireBatchResult = {
  step_results: (WireStatementResult | null)[];
  step_errors: (WireError | null)[];
};

export type WireDescribeResult = {
  params: { name: string | null }[];
  cols: WireColumn[];
  is_explain: boolean;
  is_readonly: boolean;
};

export type WireResponse =
  | { type: 'execute'; result: WireStatementResult }
  | { type: 'batch'; result: WireBatchResult }
  | { type: 'describe'; result: WireDescribeResult }
  | { type: 'sequence' }
  | { type: 'store_sql' }
  | { type: 'close_sql' }
  | { type: 'get_autocommit'; is_autocommit: boolean }
  | { type: 'close' };

export type WireResult = { type: 'ok'; response: WireResponse } | { type: 'error'; error: WireError };

export type WirePipelineRequest = { baton: string | null; requests: readonly WireRequest[] };

/** `baton` is null once the stream is closed. */
export type WirePipelineResponse = { baton: string | null; base_url: string | null; results: WireResult[] };
