/** The in-process event bus: puts committed events back into the order of their `seq` and hands them out. */
import type { LoggedEvent, SessionUpdate } from '../domain.ts';
import type { EventBus, Listener } from './events.ts';

/** The bus as its readers see it. */
export interface EventFeed extends EventBus {
  /** `seq` of the newest event that listeners have got. */
  readonly position: number;
  /**
   * `onGap` is called with the last event before a hole, when that was waited for long enough: what comes after it has
   * to be read from the log. The log has it, since events are committed in their order.
   */
  subscribe(listener: Listener, onGap?: (last: number) => void): () => void;
  /** Forgets listeners and held events, and stops the gap timer. */
  close(): void;
}

export interface EventBusOptions {
  /** Events held back at most while one before them is missing. */
  readonly maxHeld?: number;
  /** How long, in milliseconds, a missing event is waited for. */
  readonly gapMs?: number;
  /** Told about gaps and about listeners that throw. */
  readonly report?: (what: string, error?: unknown) => void;
}

interface Subscription {
  readonly listener: Listener;
  readonly onGap: (last: number) => void;
}

const defaults = { maxHeld: 1024, gapMs: 2_000 } as const;

/** `lastSeq` is the newest event of the log when the process started. */
export function createEventBus(lastSeq: number, options: EventBusOptions = {}): EventFeed {
  const maxHeld = options.maxHeld ?? defaults.maxHeld;
  const gapMs = options.gapMs ?? defaults.gapMs;
  const report = options.report ?? (() => undefined);
  const subscriptions = new Set<Subscription>();
  const held = new Map<number, LoggedEvent>();
  let position = lastSeq;
  let gapTimer: ReturnType<typeof setTimeout> | null = null;

  /** A publisher is a turn that has just committed: the fault of one connection must not become that turn's. */
  const guarded = (call: () => void): void => {
    try {
      call();
    } catch (error) {
      report('an event listener threw', error);
    }
  };
  const tell = (event: LoggedEvent | SessionUpdate): void => {
    for (const { listener } of subscriptions) guarded(() => listener(event));
  };

  const releaseHeld = (): void => {
    for (let next = held.get(position + 1); next !== undefined; next = held.get(position + 1)) {
      held.delete(next.seq);
      position = next.seq;
      tell(next);
    }
    if (gapTimer !== null) clearTimeout(gapTimer);
    // One shot for this gap: it waits for a publisher that is between its commit and its publish.
    gapTimer = held.size === 0 ? null : setTimeout(skipGap, gapMs);
    gapTimer?.unref();
  };

  const skipGap = (): void => {
    const next = Math.min(...held.keys());
    report(`events ${position + 1} to ${next - 1} were never published; listeners read them from the log`);
    const last = position;
    position = next - 1;
    for (const { onGap } of subscriptions) guarded(() => onGap(last));
    releaseHeld();
  };

  return {
    get position() {
      return position;
    },
    publish(event) {
      // Published twice, or after its gap was given up and read from the log.
      if (event.seq <= position) return;
      if (event.seq === position + 1) {
        position = event.seq;
        tell(event);
        if (held.size > 0) releaseHeld();
        return;
      }
      held.set(event.seq, event);
      if (held.size > maxHeld) skipGap();
      else if (gapTimer === null) releaseHeld();
    },
    update(update) {
      tell(update);
    },
    subscribe(listener, onGap = () => undefined) {
      const subscription = { listener, onGap };
      subscriptions.add(subscription);
      return () => {
        subscriptions.delete(subscription);
      };
    },
    close() {
      subscriptions.clear();
      held.clear();
      if (gapTimer !== null) clearTimeout(gapTimer);
      gapTimer = null;
    },
  };
}
