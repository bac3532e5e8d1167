/**
 * Joins text to logged events when they are sent: the log holds locators and states, the prose stays in SessionDB
 * (ADR-046 §5). Nothing is kept: a text lives as long as the event object that it was read for.
 */
import { showReply } from '../cards/reply-view.ts';
import type { LoggedEvent, UpdateView } from '../domain.ts';
import type { Locator } from '../ids.ts';
import { Problem } from '../problem.ts';
import { eventFrame, type Frame } from './frames.ts';

export type Join = (event: LoggedEvent, view: UpdateView) => Frame | Promise<Frame>;

type JoinedEvent = LoggedEvent & { readonly type: 'reply.delivered' | 'card.opened' };
type FramesByView = Readonly<Record<UpdateView, Frame>>;

/**
 * `readReply` is asked once per event object, however many connections wait for it. When the text cannot be read, or has
 * no card any more, the frame says so in `problem` with `text` or `card` null: the delivery stands, and its text can be
 * fetched by its locator.
 */
export function createJoin(
  readReply: (locator: Locator, of: LoggedEvent) => Promise<{ readonly text: string }>,
  report: (what: string, error: unknown) => void,
): Join {
  const frames = new WeakMap<LoggedEvent, Promise<FramesByView>>();

  const join = async (event: JoinedEvent): Promise<FramesByView> => {
    try {
      const { text } = await readReply(event.locator, event);
      return event.type === 'card.opened' ? cardFrames(event, text) : replyFrames(event, text);
    } catch (error) {
      if (!(error instanceof Problem)) report(`the text of event ${event.seq} could not be read`, error);
      const problem = error instanceof Problem ? error : new Problem('internal', 'The text could not be read');
      const missing = event.type === 'card.opened' ? { card: null } : { text: null };
      return both(eventFrame(event, { ...missing, problem: problem.document }));
    }
  };

  return (event, view) => {
    if (event.type !== 'reply.delivered' && event.type !== 'card.opened') return eventFrame(event);
    let joined = frames.get(event);
    if (joined === undefined) {
      joined = join(event);
      frames.set(event, joined);
    }
    return joined.then((byView) => byView[view]);
  };
}

const both = (frame: Frame): FramesByView => ({ verbatim: frame, client: frame });

function replyFrames(event: JoinedEvent, text: string): FramesByView {
  const shown = showReply(text, 'client');
  const verbatim = eventFrame(event, { text });
  return shown.card === undefined ? both(verbatim) : { verbatim, client: eventFrame(event, { text: shown.text }) };
}

function cardFrames(event: JoinedEvent, text: string): FramesByView {
  const { card } = showReply(text, 'client');
  if (card === undefined) throw new Problem('not-found', 'The reply was edited and has no card any more');
  return both(eventFrame(event, { card }));
}
