/**
 * Stops every program that a process or one of its descendants starts, right at its start: what it inherited can be looked
 * at before it has run one instruction. By strace; needs root.
 */
import { descendants, type ProcessInfo, readProcess } from './processes.ts';
import { requireProgram } from './programs.ts';

export class ExecStops {
  readonly #strace: Bun.Subprocess<'ignore', 'ignore', 'pipe'>;
  readonly #root: number;

  private constructor(strace: Bun.Subprocess<'ignore', 'ignore', 'pipe'>, root: number) {
    this.#strace = strace;
    this.#root = root;
  }

  static async attach(root: number): Promise<ExecStops> {
    const flags = ['-f', '-e', 'trace=execve', '-e', 'inject=execve:signal=SIGSTOP', '-o', '/dev/null'];
    const strace = Bun.spawn([requireProgram('strace'), ...flags, '-p', String(root)], {
      stdin: 'ignore',
      stdout: 'ignore',
      stderr: 'pipe',
    });
    const reader = strace.stderr.getReader();
    let text = '';
    while (!text.includes(`Process ${root} attached`)) {
      const { value } = await reader.read();
      if (!value) throw new Error(`strace did not attach to ${root}: ${text}`);
      text += Buffer.from(value).toString();
    }
    void (async () => {
      while (!(await reader.read()).done); // one line a new process: keeps the pipe empty
    })();
    return new ExecStops(strace, root);
  }

  /** The first stopped program with such arguments. @throws Error when there is none after `timeoutMs` */
  async stopped(wants: (argv: readonly string[]) => boolean, timeoutMs = 60_000): Promise<ProcessInfo> {
    const deadlineMs = performance.now() + timeoutMs;
    for (;;) {
      const found = descendants(this.#root).find(({ argv, state }) => wants(argv) && /^[Tt]$/.test(state));
      if (found) return found;
      if (performance.now() > deadlineMs) throw new Error(`no such program was started in ${timeoutMs} ms`);
      await Bun.sleep(5);
    }
  }

  go({ pid }: ProcessInfo): void {
    process.kill(pid, 'SIGCONT');
  }

  /** Stops no further program, and lets the stopped ones go. */
  async detach(): Promise<void> {
    if (this.#strace.exitCode !== null) return;
    this.#strace.kill('SIGINT');
    await this.#strace.exited;
    for (const { pid } of descendants(this.#root)) {
      if (readProcess(pid)?.state === 'T') process.kill(pid, 'SIGCONT');
    }
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.detach();
  }
}
