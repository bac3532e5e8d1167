/** How events reach listeners inside this process. Implemented in `bus.ts`. */
import type { LoggedEvent, SessionUpdate } from '../domain.ts';

export type Listener = (event: LoggedEvent | SessionUpdate) => void;

export interface EventBus {
  /** Hands a committed event to the listeners, in order of `seq`: a later one waits for an earlier one still committing. */
  publish(event: LoggedEvent): void;
  /** Hands an ephemeral update to the listeners of its conversation. */
  update(update: SessionUpdate): void;
  /** Adds a listener for everything; returns the call that removes it. A listener must not throw and must not block. */
  subscribe(listener: Listener): () => void;
}
