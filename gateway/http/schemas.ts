/** Checks of what clients send, as valibot schemas that Elysia applies and OpenAPI shows. */
import * as v from 'valibot';
import type { Locator, TokenId } from '../ids.ts';
import { conversationIdSchema, messageIdSchema, operationIdSchema, specialistIdSchema, userIdSchema } from '../ids.ts';
import { Problem } from '../problem.ts';

/** What a client may be told about a schema's issues: where, and what was expected. Never the value. */
function issuesOf(issues: readonly v.BaseIssue<unknown>[]): { readonly at: string; readonly message: string }[] {
  return issues.slice(0, 10).map((issue) => ({ at: v.getDotPath(issue) ?? '', message: messageOf(issue) }));
}

// Valibot's own messages repeat what was received, and that may be prose.
function messageOf(issue: v.BaseIssue<unknown>): string {
  if (issue.kind === 'validation' && !issue.message.startsWith('Invalid ')) return issue.message;
  return issue.expected === null ? 'is not allowed' : `expected ${issue.expected}`;
}

/** Replaces how a schema is applied by Elysia; its type and its OpenAPI form stay. */
function applied<S extends v.GenericSchema>(schema: S, apply: (value: unknown) => v.InferOutput<S>): S {
  return {
    ...schema,
    '~standard': { version: 1, vendor: 'valibot', validate: (value: unknown) => ({ value: apply(value) }) },
  } as S;
}

/**
 * A body: checked, and then handed on as it was parsed. Valibot's output would be a copy without what it does not know.
 * So a schema for a body may check, and may not transform.
 */
export function exactBody<S extends v.GenericSchema>(schema: S): S {
  return applied(schema, (value) => {
    const result = v.safeParse(schema, value);
    if (!result.success) throw invalid('The body is not as it should be', result.issues);
    return value as v.InferOutput<S>;
  });
}

/** The same for a body that may also be one which its handler reads itself: such a one passes. */
export function exactBodyOr<S extends v.GenericSchema, Other>(
  other: abstract new (...args: never[]) => Other,
  schema: S,
): v.GenericSchema<v.InferInput<S> | Other, v.InferOutput<S> | Other> {
  const exact = exactBody(schema)['~standard'].validate;
  const validate = (value: unknown) => (value instanceof other ? { value } : exact(value));
  return { ...schema, '~standard': { version: 1, vendor: 'valibot', validate } } as never;
}

export function query<S extends v.GenericSchema>(schema: S): S {
  return applied(schema, (value) => {
    const result = v.safeParse(schema, value);
    if (!result.success) throw invalid('The query is not as it should be', result.issues);
    return result.output as v.InferOutput<S>;
  });
}

/** Ids in a path: a malformed one is answered as an unknown one is. */
function pathIds<S extends v.GenericSchema>(schema: S): S {
  return applied(schema, (value) => {
    const result = v.safeParse(schema, value);
    if (!result.success) throw notFound(v.getDotPath(result.issues[0]) ?? 'thing');
    return result.output as v.InferOutput<S>;
  });
}

export function notFound(what: string): Problem {
  return new Problem('not-found', `There is no such ${what}`);
}

export function invalid(what: string, issues: readonly v.BaseIssue<unknown>[]): Problem {
  const errors = issuesOf(issues);
  const first = errors[0];
  const where = first === undefined ? '' : `: ${first.at === '' ? '' : `${first.at} `}${first.message}`;
  return new Problem('invalid-request', `${what}${where}`, { errors });
}

const tokenIdSchema = v.pipe(
  v.string(),
  v.regex(/^tok_[0-9a-z]{26}$/, 'must be an id that starts with tok_'),
  v.transform((text) => text as TokenId),
);

export const conversationPath = pathIds(v.object({ conversation: conversationIdSchema }));
const uploadIdSchema = v.pipe(v.string(), v.regex(/^upl_[0-9a-f]{40}$/, 'must be an id that starts with upl_'));
export const uploadPath = pathIds(v.object({ conversation: conversationIdSchema, upload: uploadIdSchema }));
export const messagePath = pathIds(v.object({ conversation: conversationIdSchema, message: messageIdSchema }));
export const cancelQuery = query(v.object({ message: v.optional(messageIdSchema) }));
export const turnPath = pathIds(
  v.object({
    conversation: conversationIdSchema,
    locator: v.pipe(
      v.string(),
      v.regex(/^[\w-]{20,400}$/),
      v.transform((text) => text as Locator),
    ),
  }),
);
export const specialistPath = pathIds(v.object({ specialist: specialistIdSchema }));
export const userPath = pathIds(v.object({ user: userIdSchema }));
export const tokenPath = pathIds(v.object({ token: tokenIdSchema }));

const cursor = v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(1_024)));

/** Holds a path. */
const auditCursor = v.optional(v.pipe(v.string(), v.minLength(1), v.maxLength(8_192)));

/** `limit` of a list, from 1 to `most`. */
function pageLimit(most: number, usual: number) {
  return v.optional(
    v.pipe(
      v.string(),
      v.regex(/^[1-9][0-9]{0,4}$/, `must be a number from 1 to ${most}`),
      v.transform(Number),
      v.maxValue(most, `must be a number from 1 to ${most}`),
    ),
    String(usual),
  );
}

export const conversationPage = query(v.object({ cursor, limit: pageLimit(200, 50) }));
export const purgePath = pathIds(v.object({ purge: operationIdSchema }));
export const operationPage = query(v.object({ cursor, limit: pageLimit(200, 50) }));
export const userPage = query(v.object({ cursor, limit: pageLimit(200, 50) }));
export const transcriptPage = query(
  v.object({
    cursor,
    limit: pageLimit(500, 100),
    view: v.optional(v.picklist(['client', 'canonical']), 'client'),
  }),
);

export const transcriptView = query(v.object({ view: v.optional(v.picklist(['client', 'canonical']), 'client') }));

/** Rows of the ledger may have 24 KiB each. */
export const toolCallsPage = query(
  v.object({
    cursor: auditCursor,
    limit: pageLimit(200, 50),
    since: v.optional(
      v.pipe(
        v.string(),
        v.maxLength(40),
        v.isoTimestamp('must be a time such as 2030-01-31T12:00:00Z'),
        v.transform((text) => new Date(text)),
        v.check((date) => !Number.isNaN(date.getTime()), 'must be a time such as 2030-01-31T12:00:00Z'),
      ),
    ),
  }),
);
export const auditPage = query(v.object({ cursor: auditCursor, limit: pageLimit(200, 50) }));

export const filesPage = query(
  v.object({
    path: v.optional(v.pipe(v.string(), v.maxLength(4_096)), '/workspace'),
    cursor: auditCursor,
    limit: pageLimit(1_000, 100),
  }),
);
export const fileContentQuery = query(
  v.object({ uri: v.pipe(v.string(), v.maxLength(8_192), v.description('Such as file:///workspace/report.pdf')) }),
);

/** A sequence number that a client has seen. */
export const seqText = v.pipe(
  v.string(),
  v.regex(/^(?:0|[1-9][0-9]{0,14})$/, 'must be the seq of an event'),
  v.transform(Number),
);
export const afterQuery = query(v.object({ after: v.optional(seqText) }));

/** A name that people read: no control characters, no blanks around it. */
export const nameSchema = v.pipe(
  v.string(),
  v.minLength(1, 'must not be empty'),
  v.maxLength(200, 'must have 200 characters at most'),
  // No pattern: who makes names from the schema, as fuzzers do, knows no such classes.
  v.check((text) => !/[\p{Cc}\p{Cs}\p{Zl}\p{Zp}]/u.test(text), 'must be one line without control characters'),
  v.regex(/^\S(?:[\s\S]*\S)?$/u, 'must not begin or end with a blank'),
);
