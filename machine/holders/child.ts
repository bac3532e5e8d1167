/** A holder's process as the hermes-run relay sees it: raw standard input and output, an end, and nothing else. */
import type { RelayedChild } from '../../hermes-run/server.ts';

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

type HolderProcess = Bun.Subprocess<'pipe', 'pipe', 'pipe'>;

/** What confined-exec itself says on standard error starts with this; everything else there is Hermes' and may be prose. */
const ownPrefix = 'confined-exec ';
const maxReportBytes = 4096;
/** Output that is kept for the next peer. */
const maxAheadBytes = 256 * 1024;

export class HolderChild implements RelayedChild {
  readonly generation: number;
  readonly exited: Promise<Exit>;
  /** Resolves at the end of its output, which is where it can take no further turn: `exited` follows when all is cleared. */
  readonly silent: Promise<void>;
  readonly #silent = Promise.withResolvers<void>();
  readonly #process: HolderProcess;
  readonly #output: { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> };
  readonly #ahead: Uint8Array[] = [];
  #aheadBytes = 0;
  #hasEnded = false;
  #arrival = Promise.withResolvers<void>();
  #room = Promise.withResolvers<void>();
  #report = '';

  constructor(process: HolderProcess, generation: number) {
    this.#process = process;
    this.generation = generation;
    this.exited = process.exited.then(() => ({
      code: process.exitCode,
      signal: process.signalCode as NodeJS.Signals | null,
    }));
    this.silent = this.#silent.promise;
    this.#output = process.stdout.getReader();
    // At once: Bun buffers without a bound what nobody has begun to read.
    void this.#readAhead();
    // Without a report the exit code has to do.
    this.#readReport().catch(() => undefined);
  }

  get pid(): number {
    return this.#process.pid;
  }

  /** What confined-exec said about itself, for the log; never a word of Hermes or of a user. */
  get report(): string {
    return this.#report;
  }

  async write(bytes: Uint8Array): Promise<void> {
    // Bun does not throw when the reader has gone.
    if (this.#process.exitCode !== null || this.#process.signalCode !== null) throw new Error('the child has ended');
    this.#process.stdin.write(bytes);
    await this.#process.stdin.flush();
  }

  async peek(): Promise<Uint8Array | null> {
    for (;;) {
      const first = this.#ahead[0];
      if (first) return first;
      if (this.#hasEnded) return null;
      await this.#arrival.promise;
    }
  }

  take(): void {
    this.#aheadBytes -= this.#ahead.shift()?.length ?? 0;
    this.#room.resolve();
  }

  /** Orderly end: an idle Hermes exits at the end of its input. */
  closeInput(): void {
    this.#process.stdin.end();
  }

  /** Immediate end of the holder and all that runs in it: its init dies with confined-exec. */
  kill(): void {
    this.#process.kill('SIGKILL');
  }

  /**
   * Reads on while nobody is attached, so that the end is seen behind what Hermes says between two turns; up to a bound,
   * where the pipe fills up and the child waits.
   */
  async #readAhead(): Promise<void> {
    while (!this.#hasEnded) {
      if (this.#aheadBytes >= maxAheadBytes) {
        this.#room = Promise.withResolvers();
        await this.#room.promise;
        continue;
      }
      // A read error is the end of the output like any other: the exit code tells the rest.
      const { value } = await this.#output.read().catch(() => ({ value: undefined }));
      if (value) {
        this.#ahead.push(value);
        this.#aheadBytes += value.length;
      } else {
        this.#hasEnded = true;
        this.#silent.resolve();
      }
      this.#arrival.resolve();
      this.#arrival = Promise.withResolvers();
    }
  }

  async #readReport(): Promise<void> {
    const decoder = new TextDecoder();
    let line = '';
    for await (const bytes of this.#process.stderr) {
      line += decoder.decode(bytes, { stream: true });
      const lines = line.split('\n');
      line = (lines.pop() ?? '').slice(-maxReportBytes);
      const own = lines.filter((text) => text.startsWith(ownPrefix)).join('\n');
      if (own) this.#report = `${this.#report}${own}\n`.slice(-maxReportBytes);
    }
  }
}
