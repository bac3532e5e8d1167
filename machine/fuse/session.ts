/**
 * One holder's mount: takes the kernel's messages from a byte stream, asks the gate, waits for the work boundary's pull
 * where a shared part is touched first, and answers. Requests run at once; the store's lock keeps transactions apart.
 */
import { errnoNumbers, FileError } from '../agentfs/errors.ts';
import { type FileView, type ViewNode, zoneRules } from '../agentfs/views.ts';
import type { HolderStream } from '../holders/holder-socket.ts';
import { type Answer, decodeLookup, MountContext } from './context.ts';
import { opensToWrite } from './file-operations.ts';
import { FrameDecoder } from './frames.ts';
import type { Gate, Question } from './gate.ts';
import { KernelCaches } from './kernel-caches.ts';
import { operations, touchesNothing } from './operations.ts';
import { errorReply, opcodes, Request, replyHeaderBytes } from './wire.ts';

/** The part of a work boundary that a mount needs. */
export interface TouchBoundary {
  /** Null when a shared part may be touched now; otherwise a wait, bounded, that never fails. */
  touch(): Promise<void> | null;
  /** Calls back when what the kernel remembers may be stale; returns the call that ends this. */
  onStale(listener: (why: 'begun' | 'pulled') => void): () => void;
  /** Calls back, and waits, before what is here counts as all; returns the call that ends this. */
  onFlush(listener: () => Promise<void>): () => void;
}

/**
 * Requests of one mount that work on the store at once. The store answers in the order in which it was asked: so whoever
 * else asks waits for these of each mount, and not for all that a copying program has sent.
 */
const maxWorking = 4;
/** Those that are answered from memory nearly always, or that do not keep the store. */
const quick = new Set<number>([
  opcodes.lookup,
  opcodes.getattr,
  opcodes.access,
  opcodes.statfs,
  opcodes.opendir,
  opcodes.releasedir,
  opcodes.flush,
  opcodes.fsync,
  opcodes.fsyncdir,
  opcodes.syncfs,
  opcodes.init,
  opcodes.destroy,
  opcodes.forget,
  opcodes.batchForget,
  opcodes.interrupt,
  opcodes.notifyReply,
]);
/** A close does not wait for its answer; the kernel only counts these requests, and has room for some dozens. */
const awaitedByNobody = new Set<number>([opcodes.release, opcodes.releasedir]);
const maxHeld = 16;
const heldMs = 5;
/** Requests that are being answered, and their bytes, before the stream is not read any further. */
const maxRequests = 512;
const maxRequestBytes = 8 * 1024 * 1024;

/** Where the kernel's messages come from and go to: a holder's stream, or its device by a shorter way. */
export interface FuseStream extends Omit<HolderStream, 'write'> {
  /** As of a holder's stream; null when the kernel has the messages already. */
  write(bytes: Uint8Array): Promise<void> | null;
  /** Each message goes to the kernel by itself: to keep some for later spares nothing. */
  readonly isDirect?: boolean;
}

export interface FuseSessionOptions {
  readonly view: FileView;
  readonly gate: Gate;
  readonly boundary: TouchBoundary;
  readonly stream: FuseStream;
  /** Where failures of the machine's own go; they are EIO to the caller. */
  readonly log?: (text: string) => void;
}

export class FuseSession {
  /** For whatever else looks at, or changes, the conversation's files behind this mount's back. */
  readonly caches: KernelCaches;
  readonly #context: MountContext;
  readonly #gate: Gate;
  readonly #boundary: TouchBoundary;
  readonly #stream: FuseStream;
  readonly #log: (text: string) => void;
  readonly #decoder = new FrameDecoder();
  #requests = 0;
  #requestBytes = 0;
  #working = 0;
  readonly #waiting: (() => void)[] = [];
  /** Answers that nobody waits for: they go with the next one. */
  #held: Uint8Array[] = [];
  #heldTimer: Timer | null = null;
  #paused = false;
  #closed = false;
  readonly #closing = Promise.withResolvers<void>();
  readonly #drained = Promise.withResolvers<void>();
  readonly #ended = Promise.withResolvers<void>();
  readonly #leave: () => void;

  /** Resolves when the stream has ended and nothing of the mount is open. */
  get ended(): Promise<void> {
    return this.#ended.promise;
  }

  /** Starts to serve the stream. */
  constructor(options: FuseSessionOptions) {
    this.#context = new MountContext(options.view);
    this.#gate = options.gate;
    this.#boundary = options.boundary;
    this.#stream = options.stream;
    this.#log = options.log ?? ((text) => console.error(text));
    const { store } = this.#context.files;
    this.caches = new KernelCaches(this.#context, (bytes) => this.#send(bytes), this.#log);
    const leaves = [
      this.#boundary.onStale((why) => this.forgetCaches(why)),
      this.#boundary.onFlush(() => this.caches.flush()),
      store.overlay.onChange((inos) => this.caches.forgetBase(inos)),
      store.onLost(() => this.forgetCaches('pulled')),
    ];
    this.#leave = () => leaves.forEach((leave) => void leave());
    this.#stream.onData((bytes) => this.#receive(bytes));
    this.#stream.onClose(() => void this.#finish());
  }

  /** Makes the kernel ask again for what it remembers. The work boundary calls it. */
  forgetCaches(why: 'begun' | 'pulled'): void {
    if (this.#closed) return;
    this.caches.forgetNames();
    if (why === 'pulled') this.caches.forgetOpenAttributes();
  }

  /** Ends the mount's service; resolves when nothing of it is open. */
  close(): Promise<void> {
    this.#stream.close();
    void this.#finish();
    return this.ended;
  }

  #receive(bytes: Uint8Array): void {
    if (this.#closed) return;
    try {
      this.#decoder.feed(bytes, (message) => this.#handle(message));
    } catch (error) {
      // What follows a bad length cannot be understood: the holder goes with its mount.
      this.#log(`fuse ${this.#context.view.label}: ${error}`);
      void this.close();
    }
  }

  #handle(message: Uint8Array): void {
    const request = new Request(message);
    this.#requests += 1;
    this.#requestBytes += message.length;
    this.#holdBack();
    const answer = this.#answer(request);
    if (answer instanceof Promise) {
      answer.then(
        (bytes) => this.#settle(request, bytes),
        (error: unknown) => this.#settle(request, this.#failure(request, error)),
      );
    } else {
      this.#settle(request, answer);
    }
  }

  /** Begins now, or when fewer of this mount work. */
  #inTurn(opcode: number, operate: () => Answer | Promise<Answer>): Answer | Promise<Answer> {
    if (quick.has(opcode)) return operate();
    if (this.#working < maxWorking) return this.#work(operate);
    return new Promise((resolve, reject) => {
      this.#waiting.push(() => {
        try {
          resolve(this.#work(operate));
        } catch (error) {
          reject(error);
        }
      });
    });
  }

  #work(operate: () => Answer | Promise<Answer>): Answer | Promise<Answer> {
    const done = () => {
      this.#working -= 1;
      this.#waiting.shift()?.();
    };
    this.#working += 1;
    let answer: Answer | Promise<Answer> = null;
    try {
      answer = operate();
    } finally {
      if (answer instanceof Promise) answer.then(done, done);
      else done();
    }
    return answer;
  }

  #answer(request: Request): Answer | Promise<Answer> {
    const { opcode, unique } = request.header;
    try {
      if (opcode === opcodes.notifyReply) this.caches.reached(unique);
      const operation = operations.get(opcode);
      if (!operation) return errorReply(unique, errnoNumbers.ENOSYS);
      const node = this.#context.node(request.header.node);
      if (!node) {
        // Messages that are about no node say 0; those need no gate either.
        if (touchesNothing.has(opcode)) return operation(this.#context, request, { zone: 'root', ino: 1 });
        return errorReply(unique, errnoNumbers.ESTALE);
      }
      if (!this.#gate.allows(this.#question(request, node))) return errorReply(unique, errnoNumbers.EACCES);
      const wait =
        zoneRules[node.zone].shared && this.#gate.armed && !touchesNothing.has(opcode) ? this.#boundary.touch() : null;
      const account = this.#context.view.accountOf(node.zone);
      if (account !== null) this.#context.files.store.quotas.accounts.know(node.ino, account);
      const answer = () => {
        const answered = this.#inTurn(opcode, () => operation(this.#context, request, node));
        return opcode === opcodes.readlink ? this.#unlessLedAway(request, node, answered) : answered;
      };
      return wait ? this.#after(wait, answer) : answer();
    } catch (error) {
      return this.#failure(request, error);
    }
  }

  /** What the wait delays; nothing when the session ended meanwhile. */
  async #after(wait: Promise<void>, answer: () => Answer | Promise<Answer>): Promise<Answer> {
    await Promise.race([wait, this.#closing.promise]);
    return this.#closed ? null : answer();
  }

  /** A link is followed by whoever reads it, so what it says decides who may. */
  async #unlessLedAway(request: Request, node: ViewNode, answered: Answer | Promise<Answer>): Promise<Answer> {
    const answer = await answered;
    const linksTo = Buffer.from(answer?.subarray(replyHeaderBytes) ?? []).toString('latin1');
    if (this.#gate.allows({ ...this.#question(request, node), linksTo })) return answer;
    return errorReply(request.header.unique, errnoNumbers.EACCES);
  }

  #question(request: Request, node: ViewNode): Question {
    const { opcode, pid } = request.header;
    const { view } = this.#context;
    const question = { opcode, pid, node, isRoot: !this.#gate.armed && view.isRoot(node) };
    if (opcode === opcodes.lookup && node.zone === 'home') {
      const child = view.child(node, decodeLookup(request.text(0)));
      return { ...question, leadsTo: child?.kind === 'fixed' ? child.node.zone : null };
    }
    if (opcode === opcodes.open) return { ...question, opensToWrite: opensToWrite(request.u32(0)) };
    if (opcode === opcodes.write) return { ...question, writesBack: (request.u32(20) & 1) !== 0 };
    return question;
  }

  #failure(request: Request, error: unknown): Uint8Array {
    const { opcode, unique } = request.header;
    if (error instanceof FileError) return errorReply(unique, errnoNumbers[error.errno]);
    this.#log(`fuse ${this.#context.view.label}: operation ${opcode}: ${error instanceof Error ? error.stack : error}`);
    return errorReply(unique, errnoNumbers.EIO);
  }

  #settle({ header }: Request, answer: Answer): void {
    const writing = answer && !this.#closed ? this.#answerWith(header.opcode, answer) : null;
    if (!writing) {
      this.#settled(header.length);
      return;
    }
    const done = () => this.#settled(header.length);
    writing.then(done, done);
  }

  #settled(bytes: number): void {
    this.#requests -= 1;
    this.#requestBytes -= bytes;
    if (this.#closed && this.#requests === 0) this.#drained.resolve();
    this.#letOn();
  }

  #answerWith(opcode: number, answer: Uint8Array): Promise<void> | null {
    if (this.#stream.isDirect) return this.#stream.write(answer);
    if (!awaitedByNobody.has(opcode)) return this.#stream.write(this.#withHeld(answer));
    this.#held.push(answer);
    if (this.#held.length >= maxHeld) return this.#stream.write(this.#withHeld(null));
    this.#heldTimer ??= setTimeout(() => {
      if (this.#held.length > 0) this.#send(this.#withHeld(null));
    }, heldMs);
    return null;
  }

  #withHeld(answer: Uint8Array | null): Uint8Array {
    if (this.#heldTimer) clearTimeout(this.#heldTimer);
    this.#heldTimer = null;
    if (answer && this.#held.length === 0) return answer;
    const all = answer ? [...this.#held, answer] : this.#held;
    this.#held = [];
    return Buffer.concat(all);
  }

  #send(bytes: Uint8Array): void {
    // A stream that is gone ends the session by its own close.
    if (!this.#closed) this.#stream.write(bytes)?.catch(() => undefined);
  }

  #holdBack(): void {
    if (this.#paused || (this.#requests < maxRequests && this.#requestBytes < maxRequestBytes)) return;
    this.#paused = true;
    this.#stream.pause();
  }

  #letOn(): void {
    if (!this.#paused || this.#requests > maxRequests / 2 || this.#requestBytes > maxRequestBytes / 2) return;
    this.#paused = false;
    if (!this.#closed) this.#stream.resume();
  }

  /** Commits and closes what the holder left open. */
  async #finish(): Promise<void> {
    if (this.#closed) return;
    this.#closed = true;
    if (this.#heldTimer) clearTimeout(this.#heldTimer);
    this.#leave();
    this.caches.close();
    this.#closing.resolve();
    // What is under way may still open or write something.
    if (this.#requests > 0) await this.#drained.promise;
    const handles = [...this.#context.handles.values()];
    this.#context.handles.clear();
    const { data, names: namespace } = this.#context.files;
    try {
      await data.commitAll();
      for (const handle of handles) if (handle.kind === 'file') await namespace.close(handle.node.ino);
    } catch (error) {
      this.#log(`fuse ${this.#context.view.label}: closing: ${error}`);
    } finally {
      this.#ended.resolve();
    }
  }
}
