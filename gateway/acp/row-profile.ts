/**
 * The second part of the agent profile: what rows of SessionDB's `messages` mean that the pinned Hermes 0.19.0 wrote.
 * Measured by running it; `row-profile.test.ts` and the tests against real Hermes tell when that changes.
 */
import { pythonStrip } from './agent-profile.ts';

/** The columns that decide. */
export interface AgentRow {
  readonly role: string;
  /** `content`, decoded. */
  readonly text: string;
  readonly hasToolCalls: boolean;
  readonly finishReason: string | null;
}

/** An answer that Hermes goes on from by itself: never the end of a turn. */
const unfinished = new Set(['tool_calls', 'length', 'content_filter', 'incomplete', 'kanban_terminal_required']);

/** What Hermes keeps when the model answered nothing, after its retries. */
const emptyAnswer = '(empty)';

/**
 * Whether a turn's last row is its reply. Hermes gives no finish reason to a text that it closed a turn with by itself: in
 * a turn that ended (`end_turn`) that is its answer, in one that was cut off it is a fragment.
 */
export function isReply(row: AgentRow, turn: 'ended' | 'cut-off'): boolean {
  if (row.role !== 'assistant' || row.hasToolCalls) return false;
  if (row.finishReason === null ? turn === 'cut-off' : unfinished.has(row.finishReason)) return false;
  return pythonStrip(row.text) !== '' && row.text !== emptyAnswer;
}

/** Structured content is kept as JSON behind this mark (`_encode_content`). */
const structuredMark = '\0json:';

/** The text of a `content` value as Hermes keeps it; images have none. */
export function rowText(content: string | null): string {
  if (content === null) return '';
  if (!content.startsWith(structuredMark)) return content;
  const parts = parsed(content.slice(structuredMark.length));
  // As Hermes' own reader: what it cannot decode it shows as it is.
  if (!Array.isArray(parts)) return content;
  return parts.flatMap((part: unknown) => (isTextPart(part) ? [part.text] : [])).join('\n');
}

function parsed(json: string): unknown {
  try {
    return JSON.parse(json);
  } catch {
    return null; // Whoever asks shows the content as it is.
  }
}

function isTextPart(part: unknown): part is { readonly text: string } {
  return typeof part === 'object' && part !== null && 'text' in part && typeof part.text === 'string';
}

/** A row in its place: what its neighbours tell about it. */
export interface PlacedRow extends AgentRow {
  /** Written in one transaction with a neighbour, as context compaction does and nothing else. */
  readonly batched: boolean;
  /** An earlier row of the conversation that compaction put away is the same. */
  readonly repeats: boolean;
  /** The row before it is one that Hermes goes on from by itself. */
  readonly followsUnfinished: boolean;
}

const summaryMarks = [
  '[CONTEXT COMPACTION',
  '[CONTEXT SUMMARY]:',
  '[Your active task list was preserved across context compression]',
  'Continue from the compressed conversation context above.',
];
const mergedSummaryMark = '[END OF PRIOR CONTEXT — COMPACTION SUMMARY BELOW]';
const nudgeMarks = ['[System: ', "You've reached the maximum number of tool-calling iterations allowed."];

/**
 * What a row is to a reader. `turn`: somebody's words. `step`: a model answer on the way to a reply, with its tool calls.
 * `machinery`: Hermes' own bookkeeping, such as a copy that compaction made, its summary, or a nudge to the model.
 */
export function rowKind(row: PlacedRow): 'turn' | 'step' | 'machinery' {
  if (row.repeats) return 'machinery';
  if (row.role === 'assistant') {
    // Compaction writes no new words of the assistant but its summary.
    if (row.batched) return 'machinery';
    if (row.hasToolCalls) return 'step';
    return row.text === '' || row.text === emptyAnswer ? 'machinery' : 'turn';
  }
  if (row.role !== 'user') return 'machinery';
  // Compaction writes the current user message for the first time, beside its own texts.
  if (row.batched)
    return startsWithAny(row.text, summaryMarks) || row.text.includes(mergedSummaryMark) ? 'machinery' : 'turn';
  return row.followsUnfinished && startsWithAny(row.text, nudgeMarks) ? 'machinery' : 'turn';
}

const startsWithAny = (text: string, marks: readonly string[]): boolean => marks.some((mark) => text.startsWith(mark));
