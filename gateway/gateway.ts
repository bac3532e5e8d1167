/**
 * The organization's gateway, put together: every part is started here, in one order, and stopped in the reverse of it. A
 * start that fails leaves nothing behind.
 */
import { createServer as createProbe } from 'node:net';
import { CloudFiles } from '../machine/agentfs/cloud.ts';
import { HranaDatabase } from '../machine/agentfs/hrana.ts';
import type { Launch } from '../machine/launch.ts';
import { createAudit } from './audit/agentfs-audit.ts';
import { openAuthorities, randomToken } from './authorities.ts';
import type { Configuration } from './config/configuration.ts';
import { modelMissing } from './config/model.ts';
import { confinedExecPath } from './confined-exec.ts';
import { openDataDirectory } from './datadir/data-directory.ts';
import { checkCaBundle, checkKernel, checkRuntime, hermesRuntime, missing } from './doctor/checks.ts';
import type { Conversation, Specialist } from './domain.ts';
import { createEnvironment } from './environment/environment.ts';
import { establishConversation, provisionOrganization } from './establishment.ts';
import { createEventBus } from './events/bus.ts';
import { createAnnouncedUploads } from './files/announced.ts';
import { createConversationFiles } from './files/conversation-files.ts';
import { createInbox } from './files/inbox.ts';
import type { Governance } from './governance/governance.ts';
import { openGovernanceFor } from './governance-for.ts';
import { createHealth } from './health.ts';
import { ConversationRequests } from './http/conversation-requests.ts';
import { createServer, type HttpServer } from './http/server.ts';
import { newConversationId } from './ids.ts';
import type { Log } from './log.ts';
import { openCgroups } from './machine/cgroups.ts';
import { guardNetwork } from './machine/network-guard.ts';
import { startMachine } from './machine/start.ts';
import { createRetention } from './retention/retention.ts';
import { selfCommand } from './self.ts';
import { StopStack } from './stop-stack.ts';
import { createAmendments } from './transcript/amendments.ts';
import { createTranscript } from './transcript/sessiondb.ts';
import { createTurns } from './turns/engine.ts';
import { programVersion } from './version.ts';
import { within } from './waits.ts';

export interface RunningGateway {
  readonly url: string;
  readonly dataDirectory: string;
  readonly governance: Governance;
  /** Writes the conversation's tree, then routes it. */
  createConversation(specialist: Specialist): Promise<Conversation>;
  /** Resolves with a sentence when a part is lost that cannot be done without: the gateway must be stopped. */
  readonly lost: Promise<string>;
  /** Orderly and bounded; never rejects. */
  stop(): Promise<void>;
}

/** Bounds in milliseconds. Together they are how long a stop can take at most. */
const graces = { http: 3_000, turns: 10_000, machine: 20_000 } as const;
const machineReadyMs = 60_000;
/** For one question to the transcript; at a turn's end it is asked several times. */
const sessiondbAnswerMs = 10_000;
/** Each step of a start ends: far above what it takes, and with its name when it does not. */
const stepMs = 120_000;

/**
 * Throws with what is missing and how to fix it, or when `stopping` aborts (noticed between two steps of the start);
 * everything that was started is stopped by then.
 */
export async function startGateway(
  configuration: Configuration,
  log: Log,
  stopping: AbortSignal,
): Promise<RunningGateway> {
  const stack = new StopStack();
  const stop = () => stack.stop((what, error) => log.error('not stopped in order', { reason: what, error }));
  try {
    return await start(configuration, log, stack, stop, stopping);
  } catch (error) {
    await stop();
    throw error;
  }
}

async function start(
  configuration: Configuration,
  log: Log,
  stack: StopStack,
  stop: () => Promise<void>,
  stopping: AbortSignal,
): Promise<RunningGateway> {
  // Before anything is created: what can be known to be wrong.
  const { model } = configuration;
  if (model === null) throw new Error(modelMissing());
  await within(stepMs, 'looking up EDGE_HOST', checkPort(configuration.host, configuration.port));
  const checks = Promise.all([
    checkKernel(confinedExecPath()),
    checkRuntime(configuration.hermesRuntime, false),
    checkCaBundle(configuration.caBundle),
  ]);
  const findings = await within(stepMs, 'the check of the kernel and the Hermes runtime', checks);
  const lacking = missing(findings.flat());
  if (lacking !== null) throw new Error(lacking);
  stopping.throwIfAborted();

  const data = openDataDirectory(configuration.dataDirectory);
  stack.add({ name: 'data directory', limitMs: 5_000, stop: () => data.release() });
  const lost = Promise.withResolvers<string>();

  // Both take about a second and do not know of each other; both are waited for, so that none starts behind a failure.
  const [governed, authorized] = await Promise.allSettled([
    within(stepMs, 'opening the database', openGovernanceFor(configuration, data, stack, log)),
    within(stepMs, 'starting the embedded authority', openAuthorities(configuration, data, stack, log)),
  ]);
  if (governed.status === 'rejected') throw governed.reason;
  if (authorized.status === 'rejected') throw authorized.reason;
  stopping.throwIfAborted();
  const governance = governed.value;
  const authorities = authorized.value;
  let turnsGraceMs: number = graces.turns;
  const withoutDatabase = (reason: string) => {
    // What a turn comes to could not be read or recorded any more: nothing is worth waiting for.
    turnsGraceMs = 0;
    lost.resolve(reason);
  };
  governance.lost.then(withoutDatabase);
  authorities.lost.then(withoutDatabase);

  const agentfs = new HranaDatabase(authorities.agentfs);
  const files = new CloudFiles(agentfs, configuration.fileLimits.largestFile);
  const nameOf = (name: 'AGENTFS_URL' | 'SESSIONDB_URL', remote: unknown) =>
    remote === null ? 'The embedded authority' : `The database of ${name}`;
  const agentfsName = nameOf('AGENTFS_URL', configuration.agentfs);
  await usable(agentfsName, provisionOrganization(files));
  const sessiondb = new HranaDatabase(authorities.sessiondb, { timeout: sessiondbAnswerMs });
  // Of the transcript's own questions none may tell why it failed.
  await usable(nameOf('SESSIONDB_URL', configuration.sessiondb), sessiondb.execute('SELECT 1'));
  const transcript = createTranscript(sessiondb);
  stopping.throwIfAborted();

  const cgroups = openCgroups();
  stack.add({ name: 'cgroups', limitMs: 1_000, stop: () => cgroups.remove() });
  const guardPort = (port: number) => guardNetwork(configuration, confinedExecPath(), cgroups.unified, port, log);
  await guardPort(configuration.port);
  if (!cgroups.limitsMemory) log.warn('agents have no limit of memory: it needs root and a memory cgroup');

  const launch: Launch = {
    version: 1,
    token: randomToken(),
    runDirectory: data.run,
    replicaDirectory: data.machine,
    agentfs: authorities.agentfs,
    sessiondb: authorities.sessiondb,
    runtimeDirectory: hermesRuntime(configuration.hermesRuntime),
    caBundle: configuration.caBundle,
    hermesEnvironment: { ...model.hermesEnvironment },
    nativeGit: configuration.nativeGit,
    fileLimits: configuration.fileLimits,
    maxHolders: configuration.maxHolders,
    cgroups:
      cgroups.directories.length === 0
        ? null
        : {
            directories: [...cgroups.directories],
            memoryBytes: cgroups.limitsMemory ? configuration.holderMemoryBytes : null,
            processes: cgroups.limitsProcesses ? configuration.holderProcesses : null,
          },
  };
  const machine = await startMachine({
    launch,
    confinedExec: confinedExecPath(),
    command: [...selfCommand(), 'machine'],
    readyMs: machineReadyMs,
    onLog: (line) => log.part('machine').info('said', { line }),
  });
  stack.add({ name: 'machine', limitMs: graces.machine + 1_000, stop: () => machine.stop(graces.machine) });
  stopping.throwIfAborted();
  let machineEnd: string | null = null;
  machine.exited.then((how) => {
    machineEnd = how;
    lost.resolve(`the machine ended (${how})`);
  });

  const bus = createEventBus(governance.lastSeq(), {
    report: (what, error) => log.part('events').warn(what, { error }),
  });
  stack.add({ name: 'events', limitMs: 1_000, stop: () => bus.close() });
  const amendments = createAmendments({
    database: sessiondb,
    log: governance.amendments,
    bus,
    sessionOf: async (id) => (await governance.findConversation(id))?.session ?? null,
    logger: log.part('transcript'),
  });
  await within(stepMs, 'looking after what the last run left of changes to transcripts', amendments.start());
  const turns = createTurns({
    governance,
    transcript,
    amendments,
    bus,
    hermesRun: {
      socketPath: machine.socket,
      token: launch.token,
      childEnd: machine.childEnd,
      sessiondbFailedSince: machine.sessiondbFailedSince,
    },
    limits: {
      maxMessageBytes: configuration.maxMessageBytes,
      runningTurns: configuration.maxHolders,
      turnMs: configuration.turnDeadlineS * 1_000,
    },
    logger: log.part('turns'),
  });
  // Before anything else is stopped: what waits would only fail, and is left to the next start with what runs.
  lost.promise.then(() => turns.close(0));
  stack.add({ name: 'turns', limitMs: graces.turns + 2_000, stop: () => turns.close(turnsGraceMs) });
  await within(stepMs, 'settling what the last run left', turns.start());
  stopping.throwIfAborted();

  const inbox = createInbox({ sql: agentfs, files, limits: configuration.fileLimits, log: log.part('files') });
  await within(stepMs, 'looking for unfinished uploads', inbox.removeLeftOvers());

  const uploads = createAnnouncedUploads(inbox);
  const requests = new ConversationRequests();
  const retention = createRetention({
    governance,
    sessiondb,
    agentfs,
    holders: machine.holders,
    endTurns: (conversation) => turns.retire(conversation),
    requestsEnded: async (conversation) => {
      await requests.ended(conversation);
      await uploads.retire(conversation);
    },
    report: (what, error) => log.part('retention').warn(what, { error }),
  });
  // Beside what follows: nobody can reach what is being erased.
  const resuming = retention.resumeAll();
  stack.add({ name: 'retention', limitMs: 5_000, stop: () => resuming });

  const establish = (id: Conversation['id'], specialist: Specialist) => establishConversation(files, id, specialist);
  const health = createHealth({
    database: () => governance.ping(),
    sessiondb: (signal) => sessiondb.execute('SELECT 1', [], { signal }),
    agentfs: (signal) => agentfs.execute('SELECT 1', [], { signal }),
    files: machine.files,
    isMachineRunning: () => machineEnd === null,
  });
  const server = createServer({
    governance,
    turns,
    transcript,
    retention,
    requests,
    environment: createEnvironment({ governance, files, holders: machine.holders }),
    amendments,
    audit: createAudit({ database: agentfs, settleFiles: machine.settleFiles }),
    inbox,
    uploads,
    files: createConversationFiles({
      sql: agentfs,
      files,
      settleFiles: machine.settleFiles,
      largestFile: configuration.fileLimits.largestFile,
    }),
    bus,
    logger: log.part('http'),
    version: programVersion,
    limits: { messageBytes: configuration.maxMessageBytes },
    establish,
    health,
  });
  const { url } = listen(server, configuration.host, configuration.port);
  stack.add({ name: 'http', limitMs: graces.http + 2_000, stop: () => server.stop(graces.http) });
  // Only now is it known which port the kernel chose.
  if (configuration.port === 0) await guardPort(Number(new URL(url).port));

  return {
    url,
    dataDirectory: data.path,
    governance,
    async createConversation(specialist) {
      const id = newConversationId();
      await establish(id, specialist);
      return governance.createConversation(id, specialist.id);
    },
    lost: lost.promise,
    stop,
  };
}

/** Settles as `work` does, in time; a failure says which database it is and what to look at. */
async function usable(database: string, work: Promise<unknown>): Promise<void> {
  try {
    await within(stepMs, 'its answer', work);
  } catch (error) {
    const fix = database.includes('URL') ? '. Check the address, its token and the server' : '';
    throw new Error(`${database} cannot be used: ${(error as Error).message}${fix}`, { cause: error });
  }
}

/** The port was free when the start began; somebody may have taken it since. */
function listen(server: HttpServer, hostname: string, port: number): { readonly url: string } {
  try {
    return server.listen({ hostname, port });
  } catch (error) {
    const fix = 'stop what uses it or choose another with EDGE_HOST and EDGE_PORT';
    throw new Error(`cannot listen on ${hostname} port ${port} any more; ${fix}`, { cause: error });
  }
}

/** Throws when the address cannot be listened on now. */
async function checkPort(host: string, port: number): Promise<void> {
  const probe = createProbe();
  const { promise, resolve, reject } = Promise.withResolvers<void>();
  probe.once('error', (error: NodeJS.ErrnoException) => {
    const why: Record<string, string> = {
      EADDRINUSE: `port ${port} on ${host} is in use; stop what uses it or choose another with EDGE_PORT (demo: --port)`,
      EACCES: `port ${port} needs privileges; choose one above 1023 with EDGE_PORT`,
      EADDRNOTAVAIL: `${host} is not an address of this machine; choose another with EDGE_HOST`,
      ENOTFOUND: `${host} is not a host name that can be resolved; choose another with EDGE_HOST`,
    };
    const other = `cannot listen on ${host} port ${port}: ${error.message}; check EDGE_HOST and EDGE_PORT`;
    reject(new Error(why[error.code ?? ''] ?? other));
  });
  probe.listen(port, host, resolve);
  await promise;
  await new Promise<void>((closed) => probe.close(() => closed()));
}
