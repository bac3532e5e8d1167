/**
 * Joins text to logged events when they are sent: the log holds locators and states, the prose stays in SessionDB
 * (ADR-046 §5). Nothing is kept: a text lives as long as the event object that it was read for.
 */
import type { LoggedEvent } from '../domain.ts';
import type { Locator } from '../ids.ts';
import { Problem } from '../problem.ts';
import { eventFrame, type Frame } from './frames.ts';

export type Join = (event: LoggedEvent) => Frame | Promise<Frame>;

/**
 * `readReply` is asked once per event object, however many connections wait for it. When the text cannot be read the
 * frame says so in `problem` with `text: null`: the delivery stands, and its text can be fetched by its locator.
 */
export function createJoin(
  readReply: (locator: Locator) => Promise<{ readonly text: string }>,
  report: (what: string, error: unknown) => void,
): Join {
  const frames = new WeakMap<LoggedEvent, Promise<Frame>>();

  const joinReply = async (event: LoggedEvent & { readonly type: 'reply.delivered' }): Promise<Frame> => {
    try {
      const { text } = await readReply(event.locator);
      return eventFrame(event, { text });
    } catch (error) {
      if (!(error instanceof Problem)) report(`the text of event ${event.seq} could not be read`, error);
      const problem = error instanceof Problem ? error : new Problem('internal', 'The text could not be read');
      return eventFrame(event, { text: null, problem: problem.document });
    }
  };

  return (event) => {
    if (event.type !== 'reply.delivered') return eventFrame(event);
    let frame = frames.get(event);
    if (frame === undefined) {
      frame = joinReply(event);
      frames.set(event, frame);
    }
    return frame;
  };
}
