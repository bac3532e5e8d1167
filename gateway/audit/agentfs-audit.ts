/** The audit over the organization's cloud AgentFS. */
import * as v from 'valibot';
import { deltaAgainstBase, hranaDiffSql } from '../../machine/agentfs/diff.ts';
import { type HranaDatabase, HranaError, type SqlArgument, type SqlValue } from '../../machine/agentfs/hrana.ts';
import { isDirectory, isRegular, isSymlink } from '../../machine/agentfs/schema.ts';
import type { Conversation } from '../domain.ts';
import type { SettleFiles } from '../machine/settling.ts';
import { Problem } from '../problem.ts';
import type { Audit, AuditPage, FileChanged, FileDifference, FileKind, TimelineEntry, ToolCall } from './audit.ts';
import { decodePath, decodeTime, encodePath, encodeTime, type TimePlace } from './cursor.ts';
import { fileRows, maxTreeEntries, toolCallRows } from './queries.ts';

export interface AuditParts {
  readonly database: Pick<HranaDatabase, 'execute'>;
  readonly settleFiles: SettleFiles;
}

/** How long a reader waits for the machine; then it gets what is in the cloud, and is told. */
const settleMs = 10_000;
/** The clocks of those who made the conversation and its rows may differ by this. */
const clockDifferenceMs = 60_000;

type Row = readonly (SqlValue | undefined)[];
/** What is in a page, with its place in the order. */
type Placed<Item> = { readonly item: Item; readonly place: TimePlace };

/** Each question is one settle, which makes no request when nothing is pending, and one or two requests to the cloud. */
export function createAudit({ database, settleFiles }: AuditParts): Audit {
  const settled = async (): Promise<boolean> => (await settleFiles(settleMs)).state !== 'failing';
  const query = async (sql: string, args: readonly SqlArgument[]): Promise<readonly Row[]> =>
    (await reading(database.execute(sql, args))).rows;

  const callsBehind = async (
    conversation: Conversation,
    { seconds, nanoseconds, tie }: TimePlace,
    since: Date | null,
    limit: number,
  ): Promise<Placed<ToolCall>[]> => {
    const first = Math.max(conversation.createdAt.getTime() - clockDifferenceMs, since?.getTime() ?? 0);
    const behind = seconds * 1000 + Math.floor(nanoseconds / 1e6);
    const from = Math.floor(Math.max(first, behind, 0) / 1000);
    const id = callId(tie);
    const rows = await query(toolCallRows, [from, conversation.id, first, behind, behind, id, limit]);
    return rows.map(placedCall);
  };

  const filesBehind = async (
    conversation: Conversation,
    { seconds, nanoseconds, tie }: TimePlace,
    withPrivate: boolean,
    limit: number,
  ): Promise<{ files: Placed<FileChanged>[]; isWhole: boolean }> => {
    // A call comes before a file of the same time: behind a call are all files of its time.
    const path = tie.startsWith('/') ? tie : '';
    const args = [conversation.id, withPrivate ? 1 : 0, seconds, nanoseconds, path, limit];
    const rows = await query(fileRows, args);
    return { files: rows.map(placedFile), isWhole: Number(rows[0]?.[7] ?? 0) <= maxTreeEntries };
  };

  return {
    async toolCalls(conversation, { cursor, limit }, since) {
      const place = decodeTime(cursor);
      const upToDate = await settled();
      return page(await callsBehind(conversation, place, since, limit + 1), limit, upToDate);
    },

    async timeline(conversation, { cursor, limit }, withPrivate) {
      const place = decodeTime(cursor);
      const upToDate = await settled();
      const [calls, { files, isWhole }] = await Promise.all([
        // A call's place has milliseconds: behind a file are the calls from the next millisecond on.
        callsBehind(conversation, place, null, limit + 1),
        filesBehind(conversation, place, withPrivate, limit + 1),
      ]);
      if (!isWhole) {
        const detail = `The conversation has more than ${maxTreeEntries} files: read its tool calls and its diff instead.`;
        throw new Problem('conflict', detail);
      }
      const entries = [
        ...calls.map(({ item, place: at }) =>
          placed<TimelineEntry>({ type: 'tool.call', at: item.startedAt, call: item }, at),
        ),
        ...files.map(({ item, place: at }) =>
          placed<TimelineEntry>({ type: 'file.changed', at: item.changedAt, file: item }, at),
        ),
      ];
      return page(entries.toSorted(byPlace), limit, upToDate);
    },

    async diff(conversation, { cursor, limit }) {
      const after = decodePath(cursor);
      const own = `/conversations/${conversation.id}/`;
      if (after !== null && !after.startsWith(own)) {
        throw new Problem('invalid-request', 'The cursor is not one that this route gave.');
      }
      const upToDate = await settled();
      const scope = { kind: 'conversation', conversation: conversation.id } as const;
      const { changes, next } = await reading(deltaAgainstBase(hranaDiffSql(database), scope, { limit, after }));
      const items = changes.map(
        ({ path, change, kind, now }): FileDifference => ({
          path: `/${path.slice(own.length).replace(/^work(?=\/|$)/, 'workspace')}`,
          change,
          kind,
          now: now && {
            size: now.size,
            mode: now.mode & 0o7777,
            modifiedAt: dateOf(now.mtime.seconds, now.mtime.nanoseconds),
          },
        }),
      );
      return { items, next: next === null ? null : encodePath(next), upToDate };
    },
  };
}

async function reading<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof HranaError)) throw error;
    const problem = new Problem('agentfs-unavailable', 'The files cannot be read now. Try again later.');
    problem.cause = error;
    throw problem;
  }
}

const placed = <Item>(item: Item, place: TimePlace): Placed<Item> => ({ item, place });

/** One more than asked for tells whether there is another page. */
function page<Item>(found: readonly Placed<Item>[], limit: number, upToDate: boolean): AuditPage<Item> {
  const last = found.length > limit ? found[limit - 1] : undefined;
  return {
    items: found.slice(0, limit).map(({ item }) => item),
    next: last === undefined ? null : encodeTime(last.place),
    upToDate,
  };
}

function byPlace({ place: a }: Placed<unknown>, { place: b }: Placed<unknown>): number {
  return a.seconds - b.seconds || a.nanoseconds - b.nanoseconds || compareTies(a.tie, b.tie);
}

/** Calls (`#` and the number) before files (paths). */
function compareTies(a: string, b: string): number {
  const [left, right] = [callId(a), callId(b)];
  if (left !== right && left !== anyId && right !== anyId) return left - right;
  return Buffer.compare(Buffer.from(a), Buffer.from(b));
}

/** Above every id: behind a file's place no call of the same millisecond is left. */
const anyId = Number.MAX_SAFE_INTEGER;
const callId = (tie: string): number => (tie.startsWith('#') ? Number(tie.slice(1)) : tie === '' ? -1 : anyId);

const recorded = v.looseObject({ conversation: v.string(), startedAtMs: v.number() });
const statuses = v.picklist(['pending', 'success', 'error']);

function placedCall([id, name, parameters, result, error, status, , durationMs, ms]: Row): Placed<ToolCall> {
  const { conversation: _, startedAtMs, ...rest } = v.parse(recorded, JSON.parse(String(parameters)));
  const call: ToolCall = {
    id: String(id),
    name: String(name),
    status: v.parse(statuses, status),
    parameters: rest,
    result: typeof result === 'string' ? JSON.parse(result) : null,
    error: typeof error === 'string' ? error : null,
    startedAt: new Date(startedAtMs),
    durationMs: durationMs === null ? null : Number(durationMs),
  };
  const place = { seconds: Math.floor(Number(ms) / 1000), nanoseconds: (Number(ms) % 1000) * 1e6, tie: `#${id}` };
  return { item: call, place };
}

function placedFile([path, mode, size, mtime, mtimeNs, ctime, ctimeNs]: Row): Placed<FileChanged> {
  const file: FileChanged = {
    path: String(path),
    kind: kindOf(Number(mode)),
    size: Number(size),
    changedAt: dateOf(ctime, ctimeNs),
    modifiedAt: dateOf(mtime, mtimeNs),
  };
  return { item: file, place: { seconds: Number(ctime), nanoseconds: Number(ctimeNs), tie: file.path } };
}

function kindOf(mode: number): FileKind {
  if (isRegular(mode)) return 'file';
  if (isDirectory(mode)) return 'directory';
  return isSymlink(mode) ? 'symlink' : 'special';
}

const dateOf = (seconds: unknown, nanoseconds: unknown): Date =>
  new Date(Number(seconds) * 1000 + Math.floor(Number(nanoseconds) / 1e6));
