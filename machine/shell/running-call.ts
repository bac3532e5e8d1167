/** One connection of a holder's `git`: one call, from its words to its exit code. */
import type { GitCall, GitOutcome } from './git-call.ts';
import { outsidePath, type PlacedCall, placeCall } from './place.ts';
import {
  type ClientCall,
  type ClientFrame,
  encode,
  FrameReader,
  limits,
  type MachineFrame,
  type ProcessEnd,
  ProtocolError,
} from './protocol.ts';

/** What runs git in the machine. */
export interface GitEngine {
  run(call: GitCall): Promise<GitOutcome>;
}

/** The kernel's side of the conversation's files. */
export interface KernelSide {
  /** Brings here what programs changed in files that they map. */
  flush(): Promise<void>;
  /** From here on changes are noted; the call that is returned ends that, when the kernel has forgotten what they changed. */
  noteChanges(): () => Promise<void>;
}

/** A call that has ended, for the ledger. */
export interface EndedCall {
  readonly argv: readonly string[];
  readonly cwd: string;
  readonly engine: 'just-git' | 'native' | 'none';
  /** Why it was left to the native git, or was not there. */
  readonly reason: string | null;
  /** Null when the caller was gone before its end. */
  readonly end: ProcessEnd | null;
  /** Milliseconds since 1970. */
  readonly startedAt: number;
  readonly endedAt: number;
}

export interface CallContext {
  readonly engine: GitEngine;
  readonly kernel: KernelSide;
  /** Takes the place of one running call until it is given back; null when all are taken. */
  take(): (() => void) | null;
  record(call: EndedCall): void;
  log(line: string): void;
  readonly input: InputRoom;
  readonly wallMs: number;
}

/** What the calls of one holder may keep of their standard inputs, together. */
export interface InputRoom {
  readonly limit: number;
  /** False when there is no room for so many bytes more. */
  take(bytes: number): boolean;
  giveBack(bytes: number): void;
}

/** The socket, as a call needs it. */
export interface Outgoing {
  /** Resolves when the kernel has taken the bytes. One call at a time. Rejects when the client is gone. */
  write(bytes: Uint8Array): Promise<void>;
  /** Closes after what was written. */
  end(): void;
  /** Closes at once. */
  cut(): void;
}

type State =
  | { readonly state: 'listening' }
  | { readonly state: 'running'; readonly call: ClientCall }
  | { readonly state: 'native'; readonly ended: (end: ProcessEnd) => void }
  | { readonly state: 'over' };

/** Git's exit code for what is not the command's own failure. */
const fatalCode = 128;
/** Frames that may say again what was said. */
const maxRepetitions = 16;

export class RunningCall {
  readonly #context: CallContext;
  readonly #out: Outgoing;
  readonly #reader = new FrameReader();
  readonly #abort = new AbortController();
  readonly #startedAt = Date.now();
  readonly #over = Promise.withResolvers<void>();
  #state: State = { state: 'listening' };
  #isGone = false;
  #interruptedBy: number | null = null;
  #problem: string | null = null;
  #repetitions = 0;
  #tail: Promise<void> = Promise.resolve();
  #input: Input | null = null;
  #configWritten: ((errno: number) => void) | null = null;

  constructor(context: CallContext, out: Outgoing) {
    this.#context = context;
    this.#out = out;
  }

  /** Resolves when nothing of the call is left. */
  get over(): Promise<void> {
    return this.#over.promise;
  }

  /** Whether the call has not been said yet. */
  get isListening(): boolean {
    return this.#state.state === 'listening';
  }

  /** Bytes of the client. What makes no sense ends the connection. */
  received(bytes: Uint8Array): void {
    if (this.#isGone) return;
    try {
      for (const frame of this.#reader.feed(bytes)) this.#take(frame);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#context.log(`git: a client that is none of ours: ${error.message}`);
      this.#out.cut();
      this.gone();
    }
  }

  /** The connection has ended, on whose wish ever. */
  gone(): void {
    if (this.#isGone) return;
    this.#isGone = true;
    this.#abort.abort(new Error('the caller has gone'));
    this.#input?.fail(new Error('the caller has gone'));
    this.#configWritten?.(0);
    if (this.#state.state === 'listening') this.#finish();
  }

  /** Ends the call from outside. */
  stop(): void {
    this.#out.cut();
    this.gone();
  }

  #take(frame: ClientFrame): void {
    const state = this.#state;
    if (state.state === 'listening' && frame.kind === 'call') {
      this.#state = { state: 'running', call: frame.call };
      void this.#run(frame.call);
      return;
    }
    if (state.state === 'native' && frame.kind === 'native-ended') {
      state.ended(frame.end);
      return;
    }
    if (frame.kind === 'abort') {
      this.#repetitions += 1;
      if (this.#repetitions > maxRepetitions) throw new ProtocolError('an endless abort');
      this.#interruptedBy ??= frame.signal;
      this.#abort.abort(new Error('interrupted'));
      this.#input?.fail(new Error('interrupted'));
      return;
    }
    if (frame.kind === 'input' && this.#input) {
      this.#input.add(frame.bytes);
      return;
    }
    if (frame.kind === 'config-written' && this.#configWritten) {
      this.#configWritten(frame.errno);
      this.#configWritten = null;
      return;
    }
    throw new ProtocolError(`${frame.kind} out of its place`);
  }

  async #run(call: ClientCall): Promise<void> {
    const giveBack = this.#context.take();
    if (!giveBack) {
      await this.#refuse('too many git commands run here at once; try again when some have ended');
      return;
    }
    const timer = setTimeout(() => {
      this.#problem = `git took longer than ${this.#context.wallMs / 1000} s and was ended`;
      this.#abort.abort(new Error(this.#problem));
      this.#input?.fail(new Error(this.#problem));
    }, this.#context.wallMs);
    try {
      const outcome = await this.#outcome(call);
      clearTimeout(timer);
      if (outcome.kind === 'native') await this.#leaveToNative(call, outcome.reason, giveBack);
      else await this.#exit(call, outcome.exitCode);
    } catch (error) {
      // The client is gone, or a failure of the machine's own that has been logged: in any case there is nobody to tell.
      this.#context.log(`git: ${error instanceof Error ? error.message : String(error)}`);
      this.#out.cut();
    } finally {
      clearTimeout(timer);
      giveBack();
      this.#finish();
    }
  }

  async #outcome(call: ClientCall): Promise<GitOutcome> {
    const { engine, kernel, log } = this.#context;
    const place = placeCall(call.argv, call.cwd, call.environment);
    if ('outside' in place) return { kind: 'native', reason: notInView(place.outside) };
    const path = call.hasNative ? outsidePath(place.argv, place.cwd) : null;
    if (path !== null) return { kind: 'native', reason: notInView(path) };
    await kernel.flush();
    if (this.#abort.signal.aborted) return { kind: 'done', exitCode: fatalCode };
    const changesKnown = kernel.noteChanges();
    try {
      return await engine.run(this.#asked(call, place));
    } catch (error) {
      if (!this.#abort.signal.aborted) {
        log(`git: ${error instanceof Error ? (error.stack ?? error.message) : String(error)}`);
        this.#problem ??= 'git failed in the machine; its log says why';
      }
      return { kind: 'done', exitCode: fatalCode };
    } finally {
      await changesKnown();
    }
  }

  #asked(call: ClientCall, place: PlacedCall): GitCall {
    let { config } = call;
    return {
      ...place,
      environment: call.environment,
      terminals: call.terminals,
      umask: call.umask,
      stdin: () => this.#wholeInput(),
      stdout: (bytes) => this.#write('output', bytes),
      stderr: (bytes) => this.#write('errors', bytes),
      signal: this.#abort.signal,
      globalConfig: {
        read: async () => config,
        write: async (text) => {
          await this.#putConfig(text);
          config = text;
        },
      },
    };
  }

  #wholeInput(): Promise<Uint8Array> {
    if (this.#input) return this.#input.whole;
    const input = new Input(this.#context.input, (problem) => {
      this.#problem = problem;
      this.#abort.abort(new Error(problem));
    });
    this.#input = input;
    if (this.#abort.signal.aborted) input.fail(new Error('the call has ended'));
    else this.#send({ kind: 'want-input' }).catch((error: Error) => input.fail(error));
    return input.whole;
  }

  async #putConfig(text: Uint8Array): Promise<void> {
    if (text.length > limits.config) throw new Error(`the user's configuration file may have ${limits.config} bytes`);
    if (this.#configWritten) throw new Error('the configuration is being written already');
    const written = Promise.withResolvers<number>();
    this.#configWritten = written.resolve;
    await this.#send({ kind: 'put-config', bytes: text });
    const errno = await written.promise;
    this.#abort.signal.throwIfAborted();
    if (errno !== 0) throw new Error(`the user's configuration file cannot be written: errno ${errno}`);
  }

  async #write(kind: 'output' | 'errors', bytes: Uint8Array): Promise<void> {
    for (let at = 0; at < bytes.length; at += limits.data) {
      this.#abort.signal.throwIfAborted();
      await this.#send({ kind, bytes: bytes.subarray(at, at + limits.data) });
    }
  }

  #send(frame: MachineFrame): Promise<void> {
    const sent = this.#tail.then(() => {
      if (this.#isGone) throw new Error('the caller has gone');
      return this.#out.write(encode(frame));
    });
    // The chain goes on after a failure; whoever sent gets the failure.
    this.#tail = sent.catch(() => undefined);
    return sent;
  }

  async #exit(call: ClientCall, exitCode: number): Promise<void> {
    const signal = this.#interruptedBy;
    const code = signal !== null ? 128 + signal : this.#problem === null ? exitCode & 0xff : fatalCode;
    const end: ProcessEnd = signal !== null ? { kind: 'killed', signal } : { kind: 'exited', code };
    this.#record(call, 'just-git', this.#problem, this.#isGone && signal === null ? null : end);
    if (this.#isGone) return;
    if (this.#problem !== null) await this.#send(message(`fatal: ${this.#problem}`));
    await this.#send({ kind: 'exit', code });
    this.#out.end();
  }

  async #leaveToNative(call: ClientCall, reason: string, giveBack: () => void): Promise<void> {
    if (!call.hasNative) {
      await this.#answerUnavailable(call, reason);
      return;
    }
    // It runs by itself now, as any other program of the holder.
    giveBack();
    const ended = Promise.withResolvers<ProcessEnd | null>();
    this.#state = { state: 'native', ended: ended.resolve };
    this.#abort.signal.addEventListener('abort', () => ended.resolve(null));
    if (this.#abort.signal.aborted) ended.resolve(null);
    if (!this.#isGone) await this.#send({ kind: 'native' });
    this.#record(call, 'native', reason, await ended.promise);
    if (!this.#isGone) this.#out.end();
  }

  async #answerUnavailable(call: ClientCall, reason: string): Promise<void> {
    this.#record(call, 'none', reason, { kind: 'exited', code: 1 });
    await this.#send(message(`git: '${shortForm(call.argv)}' is not available here (${oneLine(reason)})`));
    await this.#send({ kind: 'exit', code: 1 });
    this.#out.end();
  }

  async #refuse(why: string): Promise<void> {
    try {
      await this.#send(message(`fatal: ${why}`));
      await this.#send({ kind: 'exit', code: fatalCode });
    } catch {
      // Gone meanwhile: there is nobody to tell.
    }
    this.#out.end();
    this.#finish();
  }

  #record(call: ClientCall, engine: EndedCall['engine'], reason: string | null, end: ProcessEnd | null): void {
    const { argv, cwd } = call;
    this.#context.record({ argv, cwd, engine, reason, end, startedAt: this.#startedAt, endedAt: Date.now() });
  }

  #finish(): void {
    this.#state = { state: 'over' };
    this.#input?.close();
    this.#over.resolve();
  }
}

/** Standard input as it comes, up to a limit. */
class Input {
  #chunks: Uint8Array[] = [];
  readonly #result = Promise.withResolvers<Uint8Array>();
  readonly #room: InputRoom;
  readonly #onTooMuch: (problem: string) => void;
  #state: 'open' | 'whole' | 'failed' = 'open';
  #size = 0;

  constructor(room: InputRoom, onTooMuch: (problem: string) => void) {
    this.#room = room;
    this.#onTooMuch = onTooMuch;
    // Whoever waits gets the failure; nobody may be waiting.
    this.#result.promise.catch(() => undefined);
  }

  get whole(): Promise<Uint8Array> {
    return this.#result.promise;
  }

  add(bytes: Uint8Array): void {
    if (this.#state === 'whole') throw new ProtocolError('input after its end');
    // What was under way when the call failed.
    if (this.#state === 'failed') return;
    if (bytes.length === 0) {
      this.#state = 'whole';
      this.#result.resolve(Buffer.concat(this.#chunks));
      this.#chunks = [];
      return;
    }
    if (!this.#room.take(bytes.length)) {
      const problem = `standard input is longer than the ${this.#room.limit} bytes that git reads here at once`;
      this.fail(new Error(problem));
      this.#onTooMuch(problem);
      return;
    }
    this.#size += bytes.length;
    this.#chunks.push(bytes);
  }

  fail(error: Error): void {
    if (this.#state === 'open') this.#state = 'failed';
    this.#chunks = [];
    this.#result.reject(error);
  }

  /** Gives the room back: the call has ended. */
  close(): void {
    this.fail(new Error('the call has ended'));
    this.#room.giveBack(this.#size);
    this.#size = 0;
  }
}

function notInView(path: string): string {
  return `${path} is neither in /workspace nor in /artifacts`;
}

function message(line: string): MachineFrame {
  return { kind: 'errors', bytes: Buffer.from(`${line}\n`).subarray(0, limits.data) };
}

/** Options before the command whose value is the next word. */
const withValue = new Set(['-C', '-c', '--git-dir', '--work-tree', '--namespace', '--config-env']);

/** Command and first option: `rebase -i`. */
function shortForm(argv: readonly string[]): string {
  let at = 0;
  while (argv[at]?.startsWith('-')) at += withValue.has(argv[at]!) ? 2 : 1;
  const [command = argv[0] ?? '', ...rest] = argv.slice(at);
  const option = rest.find((word) => word.startsWith('-'));
  return oneLine(option === undefined ? command : `${command} ${option}`);
}

function oneLine(text: string): string {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is taken out.
  return text.replace(/[\u0000-\u001f\u007f]+/g, ' ').slice(0, 300);
}
