/** Every byte that a process reads from its standard input, as the kernel tells it (strace). Needs root. */
import { requireProgram } from './programs.ts';

/** Bytes of one read that strace prints; Hermes reads at most 256 KiB at once. */
const maxReadBytes = 4 * 1024 * 1024;

export class StdinTap {
  readonly #strace: Bun.Subprocess<'ignore', 'ignore', 'pipe'>;
  readonly #output: string;

  private constructor(strace: Bun.Subprocess<'ignore', 'ignore', 'pipe'>, output: string) {
    this.#strace = strace;
    this.#output = output;
  }

  /** Resolves once the process is traced: nothing that it reads from then on is missed. */
  static async attach(pid: number, output: string): Promise<StdinTap> {
    const flags = ['-p', String(pid), '-e', 'trace=read', '-xx', '-s', String(maxReadBytes), '-o', output];
    const strace = Bun.spawn([requireProgram('strace'), ...flags], {
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
    });
    for await (const bytes of strace.stderr) {
      if (Buffer.from(bytes).includes('attached')) return new StdinTap(strace, output);
    }
    throw new Error(`strace did not attach to ${pid}`);
  }

  /** Stops tracing and returns the bytes. */
  async stop(): Promise<Buffer> {
    this.#strace.kill('SIGINT');
    await this.#strace.exited;
    const reads: Buffer[] = [];
    for (const line of (await Bun.file(this.#output).text()).split('\n')) {
      const read = /^read\(0, "((?:\\x[0-9a-f]{2})*)"(\.\.\.)?, \d+\) += (\d+)$/.exec(line);
      if (!read) continue;
      if (read[2]) throw new Error('strace cut a read');
      const bytes = Buffer.from(read[1]!.replaceAll('\\x', ''), 'hex');
      if (bytes.length !== Number(read[3])) throw new Error('strace printed another number of bytes than were read');
      reads.push(bytes);
    }
    return Buffer.concat(reads);
  }
}
