/** Waits for a named step among all that passes, and holds it up until somebody has been killed. */
import type { Cloud, CloudRequest } from '../harness/cloud.ts';
import { type Moment, requestSteps, statementSteps } from './plan.ts';

interface Lying {
  readonly moment: Moment;
  readonly met: () => void;
  /** Resolves when the kill is done. */
  readonly struck: Promise<void>;
}

/** A moment that has come, or of which nobody waits any longer. */
export interface Met {
  readonly came: boolean;
  /** To be called when the kill is done: what was held up goes on. */
  over(): void;
}

export class Ambush {
  #lying: Lying | null = null;

  constructor(cloud: Cloud) {
    cloud.trouble = (request, pass) => this.#pass(request, pass);
  }

  /** What Postgres logs. */
  heard(log: string): void {
    const lying = this.#lying;
    if (lying?.moment.at === 'a statement' && statementSteps[lying.moment.step].test(log)) this.#meet(lying);
  }

  /** Resolves when the moment has come, or after `limitMs`. */
  async wait(moment: Moment, limitMs: number): Promise<Met> {
    if (moment.at === 'any time' || moment.at === 'its start') {
      await Bun.sleep(moment.at === 'any time' ? moment.delayMs : 0);
      return { came: true, over: () => undefined };
    }
    const met = Promise.withResolvers<boolean>();
    const struck = Promise.withResolvers<void>();
    this.#lying = { moment, met: () => met.resolve(true), struck: struck.promise };
    const timer = setTimeout(() => met.resolve(false), limitMs);
    const came = await met.promise;
    clearTimeout(timer);
    this.#lying = null;
    return { came, over: () => struck.resolve() };
  }

  #meet(lying: Lying): void {
    this.#lying = null;
    lying.met();
  }

  #pass(request: CloudRequest, pass: () => Promise<Response>): Promise<Response> | undefined {
    const lying = this.#lying;
    if (lying?.moment.at !== 'a request' || !requestSteps[lying.moment.step](request)) return undefined;
    return lying.moment.when === 'arrived' ? this.#before(lying, pass) : this.#behind(lying, pass);
  }

  async #before(lying: Lying, pass: () => Promise<Response>): Promise<Response> {
    this.#meet(lying);
    await lying.struck;
    return pass();
  }

  async #behind(lying: Lying, pass: () => Promise<Response>): Promise<Response> {
    // Whoever comes next while this one is answered is not waited for.
    this.#lying = null;
    const answer = await pass();
    const body = await answer.arrayBuffer();
    lying.met();
    await lying.struck;
    const type = answer.headers.get('content-type') ?? 'application/octet-stream';
    return new Response(body, { status: answer.status, headers: { 'content-type': type } });
  }
}
