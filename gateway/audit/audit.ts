/**
 * What AgentFS natively knows of a conversation's work (ADR-046 §6): the commands that it executed, when its files changed, and
 * how its tree differs from the base. Read from the organization's cloud AgentFS for each question; no copy is kept.
 * Implemented in `agentfs-audit.ts`.
 */
import type { DeltaChange } from '../../machine/agentfs/diff.ts';
import type { Conversation } from '../domain.ts';

/** One row of the ledger. */
export interface ToolCall {
  readonly id: string;
  readonly name: string;
  readonly status: 'pending' | 'success' | 'error';
  /** What was started: `argv`, `program` and `cwd` of a shell command. */
  readonly parameters: Readonly<Record<string, unknown>>;
  /** How it ended. */
  readonly result: unknown;
  readonly error: string | null;
  readonly startedAt: Date;
  readonly durationMs: number | null;
}

export type FileKind = DeltaChange['kind'];

/** The last change of a file as the file system itself dates it: no program can set that time. */
export interface FileChanged {
  /** Below /workspace or /artifacts; a private file's path in the organization's tree. */
  readonly path: string;
  readonly kind: FileKind;
  readonly size: number;
  readonly changedAt: Date;
  /** When its contents were changed; a program can set this. */
  readonly modifiedAt: Date;
}

export type TimelineEntry =
  | { readonly type: 'tool.call'; readonly at: Date; readonly call: ToolCall }
  | { readonly type: 'file.changed'; readonly at: Date; readonly file: FileChanged };

export interface FileDifference {
  readonly path: string;
  readonly change: DeltaChange['change'];
  readonly kind: FileKind;
  /** Of what is there now; null for what was deleted. */
  readonly now: { readonly size: number; readonly mode: number; readonly modifiedAt: Date } | null;
}

export interface AuditPage<Item> {
  readonly items: readonly Item[];
  /** The cursor of the next page; null at the end. */
  readonly next: string | null;
  /** False when the machine could not bring everything into the cloud in time: what is newer may be missing. */
  readonly upToDate: boolean;
}

export interface PageWish {
  /** A cursor of an earlier page. */
  readonly cursor: string | null;
  readonly limit: number;
}

/** Every call first lets the machine settle. Failures of the authority are Problems. */
export interface Audit {
  /** In the order in which they were started. A command is there once it has ended. */
  toolCalls(conversation: Conversation, page: PageWish, since: Date | null): Promise<AuditPage<ToolCall>>;
  /** Tool calls and files in the order of time. `withPrivate` also names the conversation's private files. */
  timeline(conversation: Conversation, page: PageWish, withPrivate: boolean): Promise<AuditPage<TimelineEntry>>;
  /** In the order of a walk. */
  diff(conversation: Conversation, page: PageWish): Promise<AuditPage<FileDifference>>;
}
