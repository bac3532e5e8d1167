/**
 * The loop in which this process waits for the next request of its mounts by itself. Who has just got an answer nearly always
 * asks again at once, and a wait on the device costs a fifth of what the way through relay, socket and event loop costs.
 *
 * All mounts that are followed take turns, message by message, and the event loop has its turn after a millisecond. A mount
 * that asks nothing for some microseconds is left to its relay and costs nothing.
 */
import { drainMicrotasks } from 'bun:jsc';
import { waitReadable } from './device.ts';

/** A mount whose device this process reads. */
export interface Followed {
  /** The device; negative when it is closed. */
  readonly fd: number;
  /** Takes the next message and begins to answer it. False when there is none, or none is taken now. */
  step(): boolean;
  /** Whether something was answered since the last call. */
  hasAnswered(): boolean;
  /** It is followed no longer: the relay watches from here on. */
  rest(): void;
}

export interface FollowingTimes {
  /** How long the event loop may have to wait for its turn. */
  readonly turnMs: number;
  /** How long to wait for the next request of those who were answered. */
  readonly waitMicroseconds: number;
}

const usualTimes: FollowingTimes = { turnMs: 1, waitMicroseconds: 50 };

export class Following {
  readonly #times: FollowingTimes;
  readonly #followed = new Set<Followed>();
  #state: 'resting' | 'scheduled' | 'turning' = 'resting';

  constructor(times: FollowingTimes = usualTimes) {
    this.#times = times;
  }

  /** Follows a mount at once. Called by the event loop only, with no other code of ours waiting. */
  begin(one: Followed): void {
    this.#followed.add(one);
    if (this.#state === 'resting') this.#turn();
  }

  /** The same from anywhere: in the event loop's next turn. */
  beginSoon(one: Followed): void {
    this.#followed.add(one);
    if (this.#state === 'resting') this.#schedule();
  }

  /** Nothing of it is read any more. */
  leave(one: Followed): void {
    this.#followed.delete(one);
  }

  #schedule(): void {
    this.#state = 'scheduled';
    setImmediate(() => this.#turn());
  }

  #turn(): void {
    this.#state = 'turning';
    try {
      const until = performance.now() + this.#times.turnMs;
      do {
        let took = false;
        for (const one of this.#followed) took = one.step() || took;
        // Nearly every operation of the store comes to its end in these.
        drainMicrotasks();
        if (!took) this.#wait();
      } while (this.#followed.size > 0 && performance.now() < until);
    } finally {
      this.#state = 'resting';
      if (this.#followed.size > 0) this.#schedule();
    }
  }

  /** Those that were not answered wait for something that only the event loop brings. */
  #wait(): void {
    const fds: number[] = [];
    for (const one of this.#followed) {
      if (one.hasAnswered() && one.fd >= 0) fds.push(one.fd);
      else this.#letRest(one);
    }
    if (fds.length === 0 || waitReadable(fds, this.#times.waitMicroseconds)) return;
    for (const one of this.#followed) this.#letRest(one);
  }

  #letRest(one: Followed): void {
    this.#followed.delete(one);
    one.rest();
  }
}

/** Of this process, whose thread is one. */
export const following = new Following();
