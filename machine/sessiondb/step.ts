/** One statement on its way to the authority, judged and with its shape, and its result on the way back. */
import type { WireStatement, WireStatementResult } from '../agentfs/hrana-wire.ts';
import { type FrameResult, type FrameStatement, fromWire } from './frames.ts';
import type { Shape } from './shapes.ts';

export type Step = {
  readonly stmt: WireStatement;
  readonly shape: Shape;
  readonly args: FrameStatement[1];
  readonly changes: boolean;
  readonly inserts: boolean;
};

/** What the child is told of a statement that went well. */
export function frameResult(result: WireStatementResult, { changes, inserts }: Step): FrameResult {
  const columns = result.cols.map(({ name }) => name);
  return {
    ...(columns.length > 0 ? { c: columns, d: result.rows.map((row) => row.map(fromWire)) } : {}),
    n: changes ? result.affected_row_count : 0,
    w: changes ? 1 : 0,
    ...(inserts && result.last_insert_rowid !== null ? { l: String(result.last_insert_rowid) } : {}),
  };
}
