/** What a client of the event stream gets: frames, written as JSON once for all connections. */
import type { LoggedEvent, Role, SessionUpdate, UpdateView } from '../domain.ts';
import type { ConversationId } from '../ids.ts';

/** One frame, ready to be sent over WebSocket or as a Server-Sent Event. */
export interface Frame {
  readonly type: string;
  /** Only of logged events: where a client may resume. */
  readonly seq: number | null;
  readonly json: string;
}

const verbatimRoles: ReadonlySet<Role> = new Set(['expert', 'account_manager', 'superadmin']);

export function updateViewOf(role: Role): UpdateView {
  return verbatimRoles.has(role) ? 'verbatim' : 'client';
}

/** A logged event with `members` joined to it. */
export function eventFrame(event: LoggedEvent, members: Readonly<Record<string, unknown>> = {}): Frame {
  const { seq, type, conversation, at, ...body } = event;
  return { type, seq, json: JSON.stringify({ seq, type, conversation, at: at.toISOString(), ...body, ...members }) };
}

/** Tells a client that it has missed more than can be replayed: it reloads once and goes on from `seq`. */
export function resyncFrame(conversation: ConversationId, seq: number): Frame {
  return { type: 'resync', seq: null, json: JSON.stringify({ type: 'resync', conversation, from: seq }) };
}

/** A frame that answers a client or tells it something about the connection. */
export function plainFrame(type: string, members: Readonly<Record<string, unknown>>): Frame {
  return { type, seq: null, json: JSON.stringify({ type, ...members }) };
}

const updateFrames = new WeakMap<SessionUpdate, Map<UpdateView, Frame | null>>();

/** The frame of a native update in a view; null when that view does not show it. Written once per update and view. */
export function updateFrame(update: SessionUpdate, view: UpdateView): Frame | null {
  if (update.view !== undefined && update.view !== view) return null;
  let views = updateFrames.get(update);
  if (views === undefined) {
    views = new Map();
    updateFrames.set(update, views);
  }
  let frame = views.get(view);
  if (frame === undefined) {
    const shown = view === 'verbatim' ? update.update : clientUpdate(update.update);
    frame = shown === null ? null : nativeFrame(update, shown);
    views.set(view, frame);
  }
  return frame;
}

function nativeFrame(update: SessionUpdate, shown: Readonly<Record<string, unknown>>): Frame {
  const { type, conversation, at } = update;
  return { type, seq: null, json: JSON.stringify({ type, conversation, at: at.toISOString(), update: shown }) };
}

/**
 * What a client role sees of a native update: the reply's text as it comes, and of a tool call its kind, title and
 * status (with the id that ties the updates of one call together). Everything else is the agent's own: thoughts, plans,
 * arguments, results. Unknown kinds stay hidden.
 */
export function clientUpdate(update: Readonly<Record<string, unknown>>): Readonly<Record<string, unknown>> | null {
  switch (update.sessionUpdate) {
    case 'agent_message_chunk': {
      const content = update.content;
      if (typeof content !== 'object' || content === null) return null;
      const { type, text } = content as { type?: unknown; text?: unknown };
      if (type !== 'text' || typeof text !== 'string') return null;
      return { sessionUpdate: update.sessionUpdate, content: { type, text } };
    }
    case 'tool_call':
    case 'tool_call_update': {
      const shown: Record<string, unknown> = { sessionUpdate: update.sessionUpdate };
      for (const member of ['toolCallId', 'kind', 'title', 'status'] as const) {
        if (typeof update[member] === 'string') shown[member] = update[member];
      }
      return shown;
    }
    default:
      return null;
  }
}
