/** A child of this program: it becomes ready, is watched, and ends with us. */
import { runtimeSettings } from './runtime-settings.ts';

export interface ChildProcess {
  readonly pid: number;
  /** The members of its ready line. */
  readonly ready: Readonly<Record<string, unknown>>;
  /** Resolves with a sentence when the process is gone, however that came. */
  readonly exited: Promise<string>;
  /** One more line for its input, after it is ready; nothing when it is gone. */
  tell(line: string): void;
  /** Orderly: its input ends, which is its signal to stop. It is killed after `graceMs`. */
  stop(graceMs: number): Promise<void>;
}

export interface ChildOptions {
  /** What it is called in errors. */
  readonly name: string;
  /** The program and its arguments. */
  readonly command: readonly string[];
  /** How the program calls itself in a list of processes, where that is not the path that starts it. */
  readonly argv0?: string;
  /** One line for its input, such as secrets; its input then stays open. */
  readonly firstLine?: string;
  /** How long it may take until it prints `{"ready":true}`. */
  readonly readyMs: number;
  readonly onLog: (line: string) => void;
  /** Receives what it prints after its ready line. */
  readonly onLine?: (line: string) => void;
}

/** The end of a longer line is what is kept, in characters. */
const maxLine = 8192;
/** Nothing of the gateway's own environment, which holds keys and tokens. */
const environment = { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8', ...runtimeSettings };

/** Throws with what went wrong when it does not become ready; no process is left then. */
export async function startChild(options: ChildOptions): Promise<ChildProcess> {
  const child = Bun.spawn([...options.command], {
    ...(options.argv0 === undefined ? {} : { argv0: options.argv0 }),
    env: environment,
    stdin: 'pipe',
    stdout: 'pipe',
    stderr: 'pipe',
    // A session of its own: Ctrl-C in a terminal reaches the gateway alone, which then stops its children in order.
    detached: true,
  });
  let said = '';
  const heard = (line: string) => {
    said = line;
    options.onLog(line);
  };
  const logged = forwardLines(child.stderr, heard).then((unfinished) => {
    // The last word of a process that died in the middle of a line.
    if (unfinished !== '') heard(unfinished);
  });
  const exited = child.exited.then(async () => {
    await logged;
    const how = child.signalCode ? `ended by ${child.signalCode}` : `exit code ${child.exitCode}`;
    return said ? `${how}: ${said}` : how;
  });
  const timeout = Promise.withResolvers<never>();
  const timer = setTimeout(() => {
    const late = `not ready within ${options.readyMs} ms`;
    timeout.reject(new Error(said ? `${late}: ${said}` : late));
  }, options.readyMs);
  const first = Promise.withResolvers<string>();
  let onLine = (line: string) => {
    onLine = options.onLine ?? (() => undefined);
    first.resolve(line);
  };
  void forwardLines(child.stdout, (line) => onLine(line));
  let ready: ChildProcess['ready'];
  try {
    if (options.firstLine !== undefined) child.stdin.write(`${options.firstLine}\n`);
    await child.stdin.flush();
    ready = await Promise.race([
      first.promise.then(readyMembers),
      exited.then((how) => Promise.reject(new Error(how))),
      timeout.promise,
    ]);
  } catch (error) {
    child.kill('SIGKILL');
    await exited;
    throw new Error(`${options.name} did not start: ${(error as Error).message}`, { cause: error });
  } finally {
    clearTimeout(timer);
  }
  // What it said while it started explains no later end.
  said = '';
  return {
    pid: child.pid,
    ready,
    exited,
    tell(line) {
      try {
        child.stdin.write(`${line}\n`);
        Promise.resolve(child.stdin.flush()).catch(() => undefined);
      } catch {
        // The reader has gone, here and above: `exited` tells that, and who waits for an answer has to listen to it.
      }
    },
    async stop(graceMs) {
      child.stdin.end();
      const killer = setTimeout(() => child.kill('SIGKILL'), graceMs);
      await exited;
      clearTimeout(killer);
    },
  };
}

function readyMembers(text: string): ChildProcess['ready'] {
  const line = JSON.parse(text) as ChildProcess['ready'];
  if (line.ready === true) return line;
  throw new Error('its first line is not the ready line');
}

/** Resolves at the end of the stream with what came after the last line end. */
async function forwardLines(stream: ReadableStream<Uint8Array>, onLine: (line: string) => void): Promise<string> {
  const decoder = new TextDecoder();
  let text = '';
  for await (const bytes of stream) {
    const lines = (text + decoder.decode(bytes, { stream: true })).split('\n');
    text = (lines.pop() ?? '').slice(-maxLine);
    for (const line of lines) onLine(line);
  }
  return text;
}
