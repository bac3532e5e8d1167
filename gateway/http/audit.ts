/** The audit of a conversation: what AgentFS itself knows of it (ADR-046 §6). Names and times, never contents. */
import * as v from 'valibot';
import type { AuditPage, FileChanged, FileDifference, TimelineEntry, ToolCall } from '../audit/audit.ts';
import { may } from './access.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { findConversation } from './conversations.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { auditPage, conversationPath, toolCallsPage } from './schemas.ts';

const callShown = v.object({
  id: v.string(),
  name: v.string(),
  status: v.picklist(['pending', 'success', 'error']),
  parameters: v.record(v.string(), v.unknown()),
  result: v.unknown(),
  error: v.nullable(v.string()),
  startedAt: v.string(),
  durationMs: v.nullable(v.number()),
});
const kindShown = v.picklist(['file', 'directory', 'symlink', 'special']);
const fileShown = v.object({ path: v.string(), kind: kindShown, size: v.number(), modifiedAt: v.string() });
const entryShown = v.variant('type', [
  v.object({ type: v.literal('tool.call'), at: v.string(), call: callShown }),
  v.object({ type: v.literal('file.changed'), at: v.string(), file: fileShown }),
]);
const differenceShown = v.object({
  path: v.string(),
  change: v.picklist(['added', 'changed', 'deleted']),
  kind: kindShown,
  now: v.nullable(v.object({ size: v.number(), mode: v.string(), modifiedAt: v.string() })),
});

const showCall = (call: ToolCall) => ({ ...call, startedAt: call.startedAt.toISOString() });
const showFile = ({ path, kind, size, modifiedAt }: FileChanged) => ({
  path,
  kind,
  size,
  modifiedAt: modifiedAt.toISOString(),
});
const showEntry = (entry: TimelineEntry) => ({
  type: entry.type,
  at: entry.at.toISOString(),
  ...(entry.type === 'tool.call' ? { call: showCall(entry.call) } : { file: showFile(entry.file) }),
});
const showDifference = ({ now, ...rest }: FileDifference) => ({
  ...rest,
  now: now && {
    size: now.size,
    mode: now.mode.toString(8).padStart(4, '0'),
    modifiedAt: now.modifiedAt.toISOString(),
  },
});

/** One page of `name`, as it is answered and as OpenAPI shows it. */
function answer<Item>(name: string, { items, next, upToDate }: AuditPage<Item>, show: (item: Item) => unknown) {
  return jsonResponse(200, { [name]: items.map(show), upToDate, ...(next === null ? {} : { next }) });
}

function answered(name: string, item: v.GenericSchema) {
  return {
    200: {
      description:
        'One page; `next` is the cursor of the next one. `upToDate` is false when the newest may be missing: the machine could not write it to the cloud in time.',
      schema: v.object({ [name]: v.array(item), upToDate: v.boolean(), next: v.optional(v.string()) }),
    },
  };
}

export function addAudit(app: App, { governance, audit }: HttpContext): void {
  const wish = (query: { readonly cursor?: string | undefined; readonly limit: number }) => ({
    cursor: query.cursor ?? null,
    limit: query.limit,
  });

  app.get(
    '/v1/conversations/:conversation/audit/tool-calls',
    async ({ params, query }) => {
      const conversation = await findConversation(governance, params.conversation);
      return answer('calls', await audit.toolCalls(conversation, wish(query), query.since ?? null), showCall);
    },
    {
      params: conversationPath,
      query: toolCallsPage,
      detail: operation('Audit', 'List the commands that were executed, newest last', answered('calls', callShown), {
        description:
          "AgentFS' own ledger: one row for each command that the agent's tools started, when it has ended. No output is kept.",
      }),
    },
  );

  app.get(
    '/v1/conversations/:conversation/audit/timeline',
    async ({ params, query, call }) => {
      const conversation = await findConversation(governance, params.conversation);
      const withPrivate = may(callerOf(call).role, 'audit.private-names');
      return answer('entries', await audit.timeline(conversation, wish(query), withPrivate), showEntry);
    },
    {
      params: conversationPath,
      query: auditPage,
      detail: operation(
        'Audit',
        'List commands and changed files in the order of time',
        answered('entries', entryShown),
        {
          description: 'A file is where it was last changed. Private files are named to superadmins alone.',
        },
      ),
    },
  );

  app.get(
    '/v1/conversations/:conversation/audit/diff',
    async ({ params, query }) => {
      const conversation = await findConversation(governance, params.conversation);
      return answer('changes', await audit.diff(conversation, wish(query)), showDifference);
    },
    {
      params: conversationPath,
      query: auditPage,
      detail: operation(
        'Audit',
        "List how the conversation's files differ from the base",
        answered('changes', differenceShown),
      ),
    },
  );
}
