/** Brings one conversation's Hermes up behind its walls: view, mount, gate, SessionDB channel, work boundary. */
import { randomBytes } from 'node:crypto';
import { closeSync } from 'node:fs';
import { dirname, join } from 'node:path';
import type { OrganizationFiles } from '../agentfs/files.ts';
import type { Ledger } from '../agentfs/ledger.ts';
import type { HolderView } from '../agentfs/views.ts';
import { DirectStream } from '../fuse/direct-stream.ts';
import { Gate } from '../fuse/gate.ts';
import { FuseSession } from '../fuse/session.ts';
import type { AuthorityAddress, ChildEnd, Launch, SessiondbState } from '../launch.ts';
import { channelOf } from '../sessiondb/channel.ts';
import { MessageIds } from '../sessiondb/message-ids.ts';
import { SessionRelay } from '../sessiondb/relay.ts';
import { serveHolderGit } from '../shell/holder-git.ts';
import type { GitService } from '../shell/service.ts';
import type { WorkBoundary } from '../sync.ts';
import { atMost } from '../waits.ts';
import { HolderCgroup, LeftCgroups } from './cgroup.ts';
import { HolderChild } from './child.ts';
import { DeviceHandoff } from './device-handoff.ts';
import { Executions } from './executions.ts';
import type { HolderSocket, HolderStream } from './holder-socket.ts';
import type { Holder, Start, StartHolder } from './holders.ts';
import { gitPlaces, type HolderInputs, type HolderOwn } from './inputs.ts';
import type { HostUids } from './uids.ts';

export interface StartDependencies {
  readonly inputs: HolderInputs;
  readonly socket: HolderSocket;
  readonly uids: HostUids;
  readonly cgroups: Launch['cgroups'];
  readonly sessiondb: AuthorityAddress;
  readonly files: OrganizationFiles;
  readonly ledger: Ledger;
  readonly boundary: WorkBoundary;
  /** Called once for each holder that was started, when its child has ended. */
  onEnd(end: ChildEnd): void;
  /** Called when SessionDB begins or ceases to answer a holder's child. */
  onSessiondb(state: SessiondbState): void;
  /** A line for the log; holds no secret and no prose. */
  log(line: string): void;
}

/** How long confined-exec may take from its spawn to a confined Hermes. */
const startTimeoutMs = 30_000;
/** How long an idle Hermes may take to end once its input has ended. */
const retireTimeoutMs = 5_000;
/** How long the word of a child's end waits for SessionDB's last answers: shorter than the gateway waits for that word. */
const lastAnswersMs = 4_000;

/** What the machine's holders share besides. */
type Shared = StartDependencies & { readonly messageIds: MessageIds };

export function createStartHolder(given: StartDependencies): StartHolder {
  const leftCgroups = new LeftCgroups();
  const dependencies: Shared = { ...given, messageIds: new MessageIds() };
  return async (conversation, session, generation): Promise<Start> => {
    const startedAt = performance.now();
    dependencies.boundary.begin(conversation);
    const view = await openView(dependencies, conversation);
    if (!view) {
      void dependencies.boundary.end(conversation);
      return { outcome: 'refused', refusal: 'unknown-conversation', detail: 'this conversation was never established' };
    }
    const starting = new StartingHolder(dependencies, leftCgroups, view, conversation, session, generation);
    try {
      const holder = await starting.run();
      return { outcome: 'started', holder, admissionMs: performance.now() - startedAt };
    } catch (error) {
      dependencies.log(`holder ${conversation}: ${(error as Error).message}`);
      return { outcome: 'refused', refusal: 'failed', detail: (error as Error).message };
    }
  };
}

/** The conversation's view; established since the last pull, it is there after this boundary's pull. Null when it is not. */
async function openView({ files, boundary }: StartDependencies, conversation: string): Promise<HolderView | null> {
  const here = await files.view(conversation);
  if (here) return here;
  await boundary.firstTouch(conversation);
  return files.view(conversation);
}

class StartingHolder {
  readonly #dependencies: Shared;
  readonly #leftCgroups: LeftCgroups;
  readonly #view: HolderView;
  readonly #conversation: string;
  readonly #session: string | null;
  readonly #generation: number;
  readonly #gate = new Gate();
  readonly #armed = Promise.withResolvers<void>();
  readonly #executions: Executions;
  #device: DeviceHandoff | null = null;
  #fuse: FuseSession | null = null;
  #control: HolderStream | null = null;
  #child: SpawnedHolder | null = null;

  constructor(
    dependencies: Shared,
    leftCgroups: LeftCgroups,
    view: HolderView,
    conversation: string,
    session: string | null,
    generation: number,
  ) {
    this.#dependencies = dependencies;
    this.#leftCgroups = leftCgroups;
    this.#view = view;
    this.#conversation = conversation;
    this.#session = session;
    this.#generation = generation;
    this.#executions = new Executions(dependencies.ledger, conversation, gitPlaces);
  }

  async run(): Promise<Holder> {
    const { socket, uids, boundary, log, onEnd, cgroups } = this.#dependencies;
    const uid = uids.take();
    const token = randomBytes(32).toString('hex');
    const unexpect = socket.expect({
      token,
      onFuse: (stream) => this.#serveFuse(stream),
      onControl: (stream) => this.#listen(stream),
    });
    let child: SpawnedHolder;
    let cgroup: HolderCgroup | null = null;
    let git: GitService | null = null;
    try {
      git = this.#serveGit(uid);
      if (cgroups !== null) cgroup = HolderCgroup.make(cgroups, `holder.${this.#generation}`);
      child = this.#spawn({ uid, fuseToken: token, cgroups: cgroup?.directories ?? [], gitSocket: git.path });
      this.#child = child;
    } catch (error) {
      // There is no process whose end would clear this up.
      if (cgroup) this.#leftCgroups.leave(cgroup);
      this.#device?.close();
      unexpect();
      void git?.close();
      uids.release(uid);
      void boundary.end(this.#conversation);
      throw error;
    }
    // Before anybody is told of the end, and removed only behind that.
    const exit = child.exited.then((how) => ({
      ...how,
      outOfMemory: how.signal === 'SIGKILL' && cgroup?.ranOutOfMemory() === true,
    }));
    const ended = this.#whenGone({ child, uid, git, cgroup }, exit);
    try {
      await Promise.race([
        this.#armed.promise,
        child.exited.then((exit) => Promise.reject(new Error(`the holder ended: ${describe(exit, child.report)}`))),
        deadline(startTimeoutMs, 'the holder did not start in time'),
      ]);
    } catch (error) {
      child.kill();
      await ended;
      throw error;
    } finally {
      unexpect();
    }
    exit.then(async (how) => {
      // Once its end is told, nothing of what it had sent can still come to stand in SessionDB: a turn is settled by that.
      // A channel that failed has carried nothing.
      await atMost(lastAnswersMs, child.relayed).catch(() => undefined);
      onEnd({ generation: this.#generation, ...how, report: child.report.trim().slice(-1000) });
      if (how.code !== 0) log(`holder ${this.#conversation}: ended: ${describe(how, child.report)}`);
    });
    return this.#holder(child, ended);
  }

  #serveGit(uid: number): GitService {
    const { inputs, socket, ledger, boundary, log } = this.#dependencies;
    return serveHolderGit({
      view: this.#view,
      path: join(dirname(socket.path), `git-${uid}.sock`),
      ledger,
      certificates: inputs.certificates,
      session: () => this.#fuse,
      touch: () => boundary.firstTouch(this.#conversation),
      log,
    });
  }

  #spawn(own: Omit<HolderOwn, 'fuseSocket'>): SpawnedHolder {
    const { inputs, socket, sessiondb, messageIds, onSessiondb, log } = this.#dependencies;
    const manifest = inputs.manifest({ ...own, fuseSocket: socket.path });
    try {
      const device = new DeviceHandoff();
      this.#device = device;
      const process = Bun.spawn([inputs.confinedExec, 'holder'], {
        argv0: 'confined-exec',
        // Nothing of the machine's environment: confined-exec gives Hermes what fd 6 holds.
        env: {},
        stdio: [
          ...(['pipe', 'pipe', 'pipe', 'socket-fd'] as const),
          ...[manifest, inputs.caBundle, inputs.environment, inputs.startScript, device.childEnd],
        ],
      });
      const relay = new SessionRelay(sessiondb, {
        sessions: this.#session === null ? [] : [this.#session],
        onRefusal: (reason) => log(`holder ${this.#conversation}: SessionDB refused: ${reason}`),
        messageIds,
        onExecutions: (events) => this.#executions.heard(events),
        onAnswers: (answers) => {
          onSessiondb({ generation: this.#generation, answers });
          if (!answers) this.#endWithoutSessionDb();
        },
      });
      const relayed = channelOf(process.stdio[3] as number).then((channel) => relay.serve(channel));
      return new SpawnedHolder(process as Bun.Subprocess<'pipe', 'pipe', 'pipe'>, this.#generation, relayed);
    } finally {
      closeSync(manifest);
      this.#device?.closeChildEnd();
    }
  }

  /**
   * Hermes goes on without what it could not read, such as all of the conversation so far, or could not keep, such as its
   * reply: of such a turn nothing could be trusted, and so there is none.
   */
  #endWithoutSessionDb(): void {
    this.#dependencies.log(`holder ${this.#conversation}: SessionDB did not answer; its agent is ended`);
    this.#child?.kill();
  }

  #serveFuse(stream: HolderStream): void {
    if (this.#fuse) {
      stream.close();
      return;
    }
    const { boundary, log } = this.#dependencies;
    this.#fuse = new FuseSession({
      view: this.#view,
      gate: this.#gate,
      boundary: boundary.of(this.#conversation),
      stream: new DirectStream({ relay: stream, takeDevice: () => this.#device?.take() ?? null, log }),
      log,
    });
  }

  #listen(stream: HolderStream): void {
    if (this.#control) {
      stream.close();
      return;
    }
    this.#control = stream;
    let text = '';
    stream.onData((bytes) => {
      text += Buffer.from(bytes).toString('latin1');
      const pid = /^pid (\d{1,10})\n$/.exec(text)?.[1];
      if (pid !== undefined) {
        this.#gate.arm(Number(pid));
        stream.write(Buffer.from('go\n')).then(this.#armed.resolve, this.#armed.reject);
      } else if (text.length > 1024 || text.includes('\n')) {
        // A failure, which confined-exec says on standard error too, or nothing that it ever says.
        stream.close();
      }
    });
  }

  /** Resolves when the process is gone and nothing of what served it is open. */
  async #whenGone(parts: HolderParts, exit: Promise<unknown>): Promise<void> {
    const { child, uid, git, cgroup } = parts;
    await exit;
    this.#control?.close();
    this.#device?.close();
    // Before the mount: what is under way is in the conversation's files when the boundary ends.
    await git.close();
    await Promise.all([this.#fuse?.close(), child.relayed]);
    this.#dependencies.uids.release(uid);
    if (cgroup) this.#leftCgroups.leave(cgroup);
    await this.#executions.holderEnded();
    void this.#dependencies.boundary.end(this.#conversation);
    // Rows of the ledger are no reason for a request, but for this one.
    void this.#dependencies.boundary.settle();
  }

  #holder(child: SpawnedHolder, ended: Promise<void>): Holder {
    const { boundary } = this.#dependencies;
    return {
      child,
      silent: child.silent,
      ended,
      beginWork: () => boundary.begin(this.#conversation),
      endWork: () => void boundary.end(this.#conversation),
      retire: () => {
        child.closeInput();
        const killer = setTimeout(() => child.kill(), retireTimeoutMs);
        child.exited.then(() => clearTimeout(killer));
      },
      kill: () => child.kill(),
    };
  }
}

/** What a holder has while it lives. */
interface HolderParts {
  readonly child: SpawnedHolder;
  readonly uid: number;
  readonly git: GitService;
  readonly cgroup: HolderCgroup | null;
}

class SpawnedHolder extends HolderChild {
  /** Resolves when the SessionDB streams of the child are closed. */
  readonly relayed: Promise<unknown>;

  constructor(process: Bun.Subprocess<'pipe', 'pipe', 'pipe'>, generation: number, relayed: Promise<unknown>) {
    super(process, generation);
    this.relayed = relayed;
  }
}

function describe(exit: { code: number | null; signal: string | null; outOfMemory?: boolean }, report: string): string {
  const memory = exit.outOfMemory ? ', its memory was full' : '';
  const how = exit.signal ? `by ${exit.signal}${memory}` : `exit code ${exit.code}${memory}`;
  return report ? `${how}: ${report.trim()}` : how;
}

function deadline(ms: number, what: string): Promise<never> {
  return new Promise((_, reject) => {
    setTimeout(() => reject(new Error(what)), ms).unref();
  });
}
