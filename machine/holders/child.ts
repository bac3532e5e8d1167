/** A holder's process as the hermes-run relay sees it: raw standard input and output, an end, and nothing else. */
import type { RelayedChild } from '../../hermes-run/server.ts';

export type Exit = { readonly code: number | null; readonly signal: NodeJS.Signals | null };

type HolderProcess = Bun.Subprocess<'pipe', 'pipe', 'pipe'>;

/** What confined-exec itself says on standard error starts with this; everything else there is Hermes' and may be prose. */
const ownPrefix = 'confined-exec ';
const maxReportBytes = 4096;

export class HolderChild implements RelayedChild {
  readonly generation: number;
  readonly exited: Promise<Exit>;
  /** Resolves at the end of its output, which is where it can take no further turn: `exited` follows when all is cleared. */
  readonly silent: Promise<void>;
  readonly #silent = Promise.withResolvers<void>();
  readonly #process: HolderProcess;
  readonly #output: { read(): Promise<{ done: boolean; value?: Uint8Array | undefined }> };
  #pending: Promise<Uint8Array | null> | null = null;
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
    // Started at once: Bun buffers without a bound what nobody has begun to read.
    this.peek();
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

  peek(): Promise<Uint8Array | null> {
    this.#pending ??= this.#output
      .read()
      // A read error is the end of the output like any other: the exit code tells the rest.
      .catch(() => ({ value: undefined }))
      .then(({ value }) => {
        if (value) return value;
        this.#silent.resolve();
        return null;
      });
    return this.#pending;
  }

  take(): void {
    this.#pending = null;
  }

  /** Orderly end: an idle Hermes exits at the end of its input. */
  closeInput(): void {
    this.#process.stdin.end();
  }

  /** Immediate end of the holder and all that runs in it: its init dies with confined-exec. */
  kill(): void {
    this.#process.kill('SIGKILL');
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
