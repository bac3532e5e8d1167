/** Messages between their acceptance and their end, for those who wait for them in this process. */
import type { Message } from '../domain.ts';
import type { MessageId } from '../ids.ts';

interface Flight {
  message: Message;
  readonly landed: PromiseWithResolvers<Message>;
}

export class Flights {
  readonly #flights = new Map<MessageId, Flight>();

  begin(message: Message): void {
    this.#flights.set(message.id, { message, landed: Promise.withResolvers() });
  }

  /** The message in flight as it stands now. */
  current(id: MessageId): Message | null {
    return this.#flights.get(id)?.message ?? null;
  }

  /** A state on the way; unknown ids are ignored. */
  update(message: Message): void {
    const flight = this.#flights.get(message.id);
    if (flight !== undefined) flight.message = message;
  }

  /** The end of the flight: everybody who waits gets the message. */
  land(message: Message): void {
    const flight = this.#flights.get(message.id);
    this.#flights.delete(message.id);
    flight?.landed.resolve(message);
  }

  /** The end of all flights, at the end of the process: who waits gets the messages as they stand. */
  landAll(): void {
    for (const { message } of [...this.#flights.values()]) this.land(message);
  }

  /** Resolves with the message at its end, or as it stands when `signal` aborts; null when it is not in flight. */
  async landing(id: MessageId, signal: AbortSignal): Promise<Message | null> {
    const flight = this.#flights.get(id);
    if (flight === undefined) return null;
    if (signal.aborted) return flight.message;
    const aborted = Promise.withResolvers<Message>();
    const onAbort = () => aborted.resolve(flight.message);
    signal.addEventListener('abort', onAbort, { once: true });
    try {
      return await Promise.race([flight.landed.promise, aborted.promise]);
    } finally {
      signal.removeEventListener('abort', onAbort);
    }
  }
}
