/** What a Hrana pipeline request must look like. Values inside statements are judged where they are bound. */
import * as v from 'valibot';
import type {
  WireCondition,
  WireNamedValue,
  WirePipelineRequest,
  WireValue,
} from '../../machine/agentfs/hrana-wire.ts';
import { RequestRefused } from './failure.ts';
import { limits } from './limits.ts';

const index = v.pipe(v.number(), v.integer(), v.minValue(0), v.maxValue(limits.stepsPerBatch));
const sqlText = v.pipe(v.string(), v.maxLength(limits.sqlBytes, 'the SQL is too long'));
const optionalSql = v.nullish(sqlText);
const optionalId = v.nullish(v.pipe(v.number(), v.integer()));
/** `decodeValue` checks each value: doing it here as well would double the work on a large push. */
const value = v.custom<WireValue>((input) => typeof input === 'object' && input !== null);
const values = v.pipe(v.array(value), v.maxLength(limits.argumentsPerStatement));
const named = v.pipe(
  v.array(v.object({ name: v.pipe(v.string(), v.maxLength(256)), value })) as v.GenericSchema<WireNamedValue[]>,
  v.maxLength(limits.argumentsPerStatement),
);
const statement = v.object({
  sql: optionalSql,
  sql_id: optionalId,
  args: v.nullish(values),
  named_args: v.nullish(named),
  want_rows: v.nullish(v.boolean()),
});

function isCondition(input: unknown, depth = 0): input is WireCondition {
  if (typeof input !== 'object' || input === null || depth > limits.conditionDepth) return false;
  const { type, step, cond, conds } = input as Record<string, unknown>;
  switch (type) {
    case 'ok':
    case 'error':
      return Number.isSafeInteger(step) && (step as number) >= 0;
    case 'not':
      return isCondition(cond, depth + 1);
    case 'and':
    case 'or':
      return Array.isArray(conds) && conds.length <= 1_000 && conds.every((one) => isCondition(one, depth + 1));
    case 'is_autocommit':
      return true;
    default:
      return false;
  }
}
const condition = v.nullish(v.custom<WireCondition>((input) => isCondition(input), 'not a condition'));

const request = v.variant('type', [
  v.object({ type: v.literal('execute'), stmt: statement }),
  v.object({
    type: v.literal('batch'),
    batch: v.object({
      steps: v.pipe(v.array(v.object({ condition, stmt: statement })), v.maxLength(limits.stepsPerBatch)),
    }),
  }),
  v.object({
    type: v.literal('sequence'),
    sql: v.nullish(v.pipe(v.string(), v.maxLength(limits.sequenceBytes))),
    sql_id: optionalId,
  }),
  v.object({ type: v.literal('describe'), sql: optionalSql, sql_id: optionalId }),
  v.object({ type: v.literal('store_sql'), sql_id: index, sql: sqlText }),
  v.object({ type: v.literal('close_sql'), sql_id: index }),
  v.object({ type: v.literal('get_autocommit') }),
  v.object({ type: v.literal('close') }),
]);

const pipeline = v.object({
  baton: v.nullish(v.pipe(v.string(), v.maxLength(128)), null),
  requests: v.pipe(v.array(request), v.maxLength(limits.requestsPerPipeline)),
});

/** @throws RequestRefused 400 that names the place, never the content */
export function parsePipeline(input: unknown): WirePipelineRequest {
  const parsed = v.safeParse(pipeline, input, { abortEarly: true });
  if (parsed.success) return parsed.output;
  const issue = parsed.issues[0];
  const where = v.getDotPath(issue) ?? 'the body';
  throw new RequestRefused(400, 'BAD_REQUEST', `not a Hrana pipeline request: ${where} is wrong`);
}
