/** One conversation's clients: one that sends its messages, and two that follow it. */
import type { Api } from '../harness/http.ts';
import { call, type ScriptedModel } from '../harness/model.ts';
import type { Journal } from './journal.ts';
import type { Sent } from './judge.ts';
import type { Moments } from './moments.ts';
import { type PlannedMessage, replyTo, textOf } from './plan.ts';
import type { Reader } from './reader.ts';
import type { Turnstile } from './turnstile.ts';
import { sendUntilAccepted } from './writer.ts';

/** Messages that a conversation sends before it makes room for another one. */
const burst = 25;

/** What all clients of a storm share. */
export interface Surroundings {
  readonly api: Api;
  readonly model: ScriptedModel;
  readonly moments: Moments;
  readonly journal: Journal;
  readonly turnstile: Turnstile;
  /** A message has ended by then, in milliseconds. */
  readonly endMs: number;
  isOver(): boolean;
}

export class Client {
  readonly conversation: string;
  readonly readers: readonly [Reader, Reader];
  readonly sent: Sent[] = [];
  readonly #around: Surroundings;
  readonly #messages: Iterator<PlannedMessage>;
  /** Second at which it was accepted, by the message's id. */
  readonly #unended = new Map<string, number>();

  constructor(
    conversation: string,
    readers: readonly [Reader, Reader],
    messages: Iterator<PlannedMessage>,
    around: Surroundings,
  ) {
    this.conversation = conversation;
    this.readers = readers;
    this.#messages = messages;
    this.#around = around;
  }

  /** Messages that were accepted and have not ended, with the second of their acceptance. */
  get unended(): ReadonlyMap<string, number> {
    return this.#unended;
  }

  /** Until the storm is over: some messages, one after the other or several at once, and then another conversation's. */
  async send(): Promise<void> {
    const { turnstile, isOver } = this.#around;
    while (!isOver()) {
      await turnstile.enter();
      await this.#sendBurst();
      turnstile.leave();
    }
  }

  async #sendBurst(): Promise<void> {
    const { api, model, moments, journal, turnstile, isOver } = this.#around;
    const place = { url: api.url, token: String(api.token), conversation: this.conversation };
    const inFlight: Promise<void>[] = [];
    for (let number = 0; number < burst && !isOver(); number++) {
      const planned: PlannedMessage = this.#messages.next().value;
      script(model, planned);
      const id = await sendUntilAccepted(place, planned);
      this.sent.push({ planned, id });
      this.#unended.set(id, journal.seconds);
      moments.reached('accepted');
      const ended = this.#ended(planned, id);
      // Whoever waits for it below hears of it.
      ended.catch(() => undefined);
      inFlight.push(ended);
      if (!planned.hurries) await ended;
      if (turnstile.isOverfull) break;
    }
    await Promise.all(inFlight);
  }

  async #ended(planned: PlannedMessage, id: string): Promise<void> {
    const { journal, endMs } = this.#around;
    const since = journal.seconds;
    try {
      const { type, problem } = await this.readers[0].end(id, endMs);
      journal.say('end', { planned: planned.id, id, type, problem, s: journal.seconds - since });
      this.#unended.delete(id);
    } catch (error) {
      const { message } = error as Error;
      throw new Error(`${planned.id}: ${message}\n${await this.#diagnosis(id)}`, { cause: error });
    }
  }

  /** What is known of a message that does not end. */
  async #diagnosis(id: string): Promise<string> {
    const { api, journal } = this.#around;
    const asked = (path: string) =>
      api.request('GET', path, { timeoutMs: 10_000 }).then(({ status, text }) => `${status} ${text}`, String);
    return [
      `its state: ${await asked(`/v1/conversations/${this.conversation}/messages/${id}`)}`,
      `the gateway: ${await asked('/readyz')}`,
      `in its log:\n${journal.about([id, this.conversation], 60)}`,
      `strikes and ends:\n${journal.about(['STORM'], 80)}`,
      `all of it: ${journal.path}`,
    ].join('\n');
  }
}

function script(model: ScriptedModel, { id, usesTool }: PlannedMessage): void {
  const answer = { do: 'say-slowly', text: replyTo(id), pauseMs: 15 } as const;
  if (usesTool) model.on(textOf(id), call('terminal', { command: `echo ${id} >> /workspace/log` }), answer);
  else model.on(textOf(id), answer);
}
