/** Kills parts of a running gateway at the moments of the plan, and keeps count. */
import { hermesProcesses } from '../harness/holders.ts';
import { descendants, type ProcessInfo } from '../harness/processes.ts';
import type { Journal } from './journal.ts';
import type { KeptGateway } from './kept.ts';
import type { Moments } from './moments.ts';
import { type Moment, type Pair, pairs, type Strike, type Target } from './plan.ts';

/** Messages are always under way: after a start of everything each moment comes within this, also on a busy machine. */
const momentMs = 60_000;
/** How long a gateway may take to end that has lost a part, and whoever keeps it to start it again. */
const endMs = 90_000;
/** A part that starts is there by then, or the start has failed. */
const partMs = 30_000;
/** Looks for somebody to kill: nobody tells when the process of an agent or of a part has begun. */
const lookMs = 25;
const maxLooks = 200;

export const pairName = ({ target, moment }: Pair): string => `${target}@${moment}`;

export class Striker {
  /** What was killed at which step; `any` where the step did not come, or was over. */
  readonly told: Pair[] = [];
  readonly complaints: string[] = [];
  readonly #kept: KeptGateway;
  readonly #moments: Moments;
  readonly #journal: Journal;

  constructor(kept: KeptGateway, moments: Moments, journal: Journal) {
    this.#kept = kept;
    this.#moments = moments;
    this.#journal = journal;
  }

  get count(): number {
    return this.told.length;
  }

  /** How often each target, or each moment, or each pair was struck. */
  countBy(key: (told: Pair) => string): Record<string, number> {
    const counts: Record<string, number> = {};
    for (const told of this.told) counts[key(told)] = (counts[key(told)] ?? 0) + 1;
    return counts;
  }

  /** The pairs that nobody was struck at. */
  missed(): string[] {
    const struck = this.countBy(pairName);
    return pairs.map(pairName).filter((name) => !(name in struck));
  }

  /** Waits for the strike's moment, kills, and waits until whoever has to start again does so. */
  async strike(planned: Strike): Promise<void> {
    if (planned.moment === 'recovering') return this.#strikeRecovery(planned);
    for (let look = 0; look < maxLooks; look++) {
      const came = await this.#comes(planned.moment);
      await Bun.sleep(planned.delayMs);
      if (await this.#kill(planned, came ? planned.moment : 'any')) return;
      await Bun.sleep(lookMs);
    }
    this.#journal.say('nobody to strike', { ...planned });
  }

  /** The gateway, and then somebody else, or itself again, while it starts. */
  async #strikeRecovery(planned: Strike): Promise<void> {
    if (!(await this.#kill({ ...planned, target: 'gateway' }, 'any'))) return;
    for (let waited = 0; waited < partMs && this.#victims(planned).length === 0; waited += lookMs) {
      await Bun.sleep(lookMs);
    }
    await Bun.sleep(planned.delayMs);
    await this.#kill(planned, this.#kept.isReady ? 'any' : 'recovering');
  }

  #comes(moment: Moment): Promise<boolean> {
    if (moment === 'any') return Promise.resolve(true);
    return moment === 'starting' ? this.#agentStarts() : this.#moments.next(moment, momentMs);
  }

  async #agentStarts(): Promise<boolean> {
    const pids = () => this.#holders().map(({ pid }) => pid);
    const before = new Set(pids());
    for (const from = performance.now(); performance.now() - from < momentMs; ) {
      await Bun.sleep(lookMs);
      if (pids().some((pid) => !before.has(pid))) return true;
    }
    return false;
  }

  /** Whether there was anybody to kill. */
  async #kill(planned: Strike, moment: Moment): Promise<boolean> {
    const { target } = planned;
    const also = planned.also?.target ?? target;
    // Asked for before, since it can be over at once.
    const startsAgain = target === 'holder' && also === 'holder' ? null : this.#kept.spawned(endMs);
    const atSecond = this.#journal.seconds;
    if (!this.#killNow(planned, moment)) return false;
    let struck: readonly Target[] = [target];
    if (planned.also !== null) {
      await Bun.sleep(planned.also.delayMs);
      if (this.#killNow({ ...planned, target: also }, moment)) struck = [target, also];
    }
    if (startsAgain === null || struck.every((one) => one === 'holder')) return true;
    if (await startsAgain) {
      this.#journal.say('starts again', { afterMs: Math.round((this.#journal.seconds - atSecond) * 1_000) });
    } else {
      this.complaints.push(`the gateway did not end ${endMs} ms after the death of its ${struck.join(' and ')}`);
    }
    return true;
  }

  #killNow(planned: Strike, moment: Moment): boolean {
    const victims = this.#victims(planned);
    if (victims.length > 0) this.#kept.strikes();
    const pids = victims.filter((pid) => {
      try {
        process.kill(pid, 'SIGKILL');
        return true;
      } catch {
        return false; // It ended by itself just now.
      }
    });
    if (pids.length === 0) return false;
    const { target } = planned;
    this.told.push({ target, moment });
    this.#journal.say('strike', { number: this.count, target, moment, aimedAt: planned.moment, pids });
    return true;
  }

  #victims({ target, which }: Strike): readonly number[] {
    const { pid } = this.#kept;
    if (pid === null) return [];
    if (target === 'gateway') return [pid];
    if (target === 'holder') {
      const holders = this.#holders();
      return (which === 'all' ? holders : holders.slice(which % holders.length).slice(0, 1)).map((one) => one.pid);
    }
    return partsOf(pid, target);
  }

  #holders(): readonly ProcessInfo[] {
    const { pid } = this.#kept;
    return pid === null ? [] : hermesProcesses(pid);
  }
}

function partsOf(gateway: number, target: Target): readonly number[] {
  return descendants(gateway)
    .filter(({ argv }) => argv[0]?.endsWith('/edge-gateway') && argv[1] === target)
    .map(({ pid }) => pid);
}
