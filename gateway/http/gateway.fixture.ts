/**
 * A whole gateway for tests: the real server on a free port and the real governance on the embedded Postgres, with a
 * turn engine that does what a test says and an in-memory transcript in place of Hermes and SessionDB.
 */
import type { Audit } from '../audit/audit.ts';
import { liftCard } from '../cards/scanner.ts';
import type { ContentBlock, Message, PhaseTimings, Role, SessionUpdate, Specialist } from '../domain.ts';
import { roles } from '../domain.ts';
import type { Environment } from '../environment/environment.ts';
import { createEventBus, type EventFeed } from '../events/bus.ts';
import { type AnnouncedUploads, createAnnouncedUploads } from '../files/announced.ts';
import type { ConversationFiles } from '../files/conversation-files.ts';
import type { Inbox } from '../files/inbox.ts';
import { embeddedDatabase } from '../governance/databases.fixture.ts';
import { type OpenedGovernance, openGovernance } from '../governance/postgres.ts';
import type { Purge } from '../governance/purges.ts';
import {
  type ConversationId,
  type Locator,
  type MessageId,
  newConversationId,
  newMessageId,
  newOperationId,
  newTokenId,
  type OperationId,
} from '../ids.ts';
import { Problem, type ProblemDocument } from '../problem.ts';
import { noCounts } from '../retention/counts.ts';
import type { Retention } from '../retention/retention.ts';
import type { Transcript, TranscriptTurn } from '../transcript/transcript.ts';
import type { Submission, Turns } from '../turns/turns.ts';
import { ConversationRequests } from './conversation-requests.ts';
import type { ServerDeps } from './deps.ts';
import { createServer, type HttpServer } from './server.ts';

const noTimings: PhaseTimings = { attachMs: 1, admissionMs: null, firstUpdateMs: 2, loopMs: 3, settleMs: 4 };

/** Accepts into the real governance; the test settles. */
export class ScriptedTurns implements Turns {
  readonly submissions: (Submission & { readonly message: MessageId })[] = [];
  readonly cancelled: (ConversationId | MessageId)[] = [];
  readonly texts = new Map<string, string>();
  /** Called with each accepted message. */
  script: (message: Message) => void = () => undefined;
  readonly #governance: OpenedGovernance;
  readonly #bus: EventFeed;
  readonly #waiters = new Map<MessageId, Set<() => void>>();

  constructor(governance: OpenedGovernance, bus: EventFeed) {
    this.#governance = governance;
    this.#bus = bus;
  }

  /** What the content of a message is refused for. */
  refuse: () => Problem | null = () => null;
  /** What the next submission fails with. */
  failNext: Error | null = null;

  refusal(): Problem | null {
    return this.refuse();
  }

  async submit(submission: Submission): Promise<Message> {
    const { content, conversation, idempotencyKey } = submission;
    const failure = this.failNext;
    this.failNext = null;
    if (failure !== null) throw failure;
    const blocks: readonly ContentBlock[] = 'text' in content ? [{ type: 'text', text: content.text }] : content.blocks;
    if ('text' in content && content.text.trim() === '') throw new Problem('unprocessable-message', 'A blank text');
    const digest = new Bun.CryptoHasher('sha256').update(JSON.stringify(content)).digest('hex');
    const acceptance = await this.#governance.accept({
      id: newMessageId(),
      conversation: conversation.id,
      blocks,
      digest,
      key: idempotencyKey,
    });
    if (acceptance.outcome === 'key-reused') throw new Problem('idempotency-key-reused', 'Another body');
    if (acceptance.outcome === 'known') return acceptance.message;
    this.submissions.push({ ...submission, message: acceptance.message.id });
    this.#bus.publish(acceptance.event);
    this.script(acceptance.message);
    return acceptance.message;
  }

  async repeated({ content, conversation, idempotencyKey }: Submission): Promise<Message | null> {
    const known = idempotencyKey === null ? null : await this.#governance.findKeyed(conversation.id, idempotencyKey);
    if (known === null) return null;
    const digest = new Bun.CryptoHasher('sha256').update(JSON.stringify(content)).digest('hex');
    if (known.digest !== digest) throw new Problem('idempotency-key-reused', 'Another body');
    return known.message;
  }

  async isKeyUsed(conversation: ConversationId, key: string): Promise<boolean> {
    return (await this.#governance.findKeyed(conversation, key)) !== null;
  }

  async start(id: MessageId): Promise<void> {
    this.#bus.publish(await this.#governance.dispatch(id, 0, 'warm'));
  }

  async deliver(id: MessageId, text: string): Promise<Locator> {
    const locator = `loc_${crypto.randomUUID()}` as Locator;
    this.texts.set(locator, text);
    const { card } = liftCard(text);
    for (const event of await this.#governance.deliver(id, locator, noTimings, card)) this.#bus.publish(event);
    this.#settle(id);
    return locator;
  }

  async fail(id: MessageId, problem: ProblemDocument): Promise<void> {
    this.#bus.publish(await this.#governance.fail(id, problem, null));
    this.#settle(id);
  }

  async cancelMessage(id: MessageId): Promise<void> {
    this.#bus.publish(await this.#governance.cancel(id, null));
    this.#settle(id);
  }

  #settle(id: MessageId): void {
    for (const wake of this.#waiters.get(id) ?? []) wake();
    this.#waiters.delete(id);
  }

  get waiting(): number {
    return [...this.#waiters.values()].reduce((sum, set) => sum + set.size, 0);
  }

  async settled(conversation: ConversationId, id: MessageId, signal: AbortSignal): Promise<Message> {
    const read = async () => {
      const message = await this.#governance.findMessage(conversation, id);
      if (message === null) throw new Error('gone');
      return message;
    };
    const now = await read();
    if (now.state !== 'accepted' && now.state !== 'dispatched') return now;
    const { promise, resolve } = Promise.withResolvers<void>();
    const set = this.#waiters.get(id) ?? new Set();
    this.#waiters.set(id, set.add(resolve));
    signal.addEventListener('abort', () => {
      set.delete(resolve);
      resolve();
    });
    if (signal.aborted) resolve();
    await promise;
    return read();
  }

  async reply(locator: Locator) {
    const text = this.texts.get(locator);
    if (text === undefined) throw new Problem('not-found', 'There is no such reply');
    return { locator, text };
  }

  async cancel(conversation: ConversationId, message?: MessageId): Promise<boolean> {
    this.cancelled.push(message ?? conversation);
    return this.cancelled.length === 1;
  }

  async close(): Promise<void> {}
}

export class MemoryTranscript implements Transcript {
  turns: TranscriptTurn[] = [];

  async watermark(): Promise<number> {
    return 0;
  }
  async holdsSession(): Promise<boolean> {
    return true;
  }
  async replyAfter(): Promise<null> {
    return null;
  }
  async resolve(): Promise<null> {
    return null;
  }
  async turn(_: unknown, locator: string): Promise<TranscriptTurn | null> {
    return this.turns.find((turn) => turn.locator === locator) ?? null;
  }
  async read(_: unknown, view: 'client' | 'canonical', after: string | null, limit: number) {
    const start = after === null ? 0 : Number(after);
    const turns = this.turns
      .slice(start, start + limit)
      .map(({ toolCalls, ...turn }) =>
        view === 'canonical' && toolCalls !== undefined ? { ...turn, toolCalls } : turn,
      );
    return { turns, next: start + limit < this.turns.length ? String(start + limit) : null };
  }
}

const nothingHappened = async () => ({ items: [], next: null, upToDate: true });
/** Of an organization in which nothing was done. */
const emptyAudit: Audit = { toolCalls: nothingHappened, timeline: nothingHappened, diff: nothingHappened };

/** Changes the transcript in memory, whatever the change is based on. */
function memoryAmendments(transcript: MemoryTranscript): ServerDeps['amendments'] {
  return {
    async edit({ locator, text }) {
      const turn = transcript.turns.find((one) => one.locator === locator);
      if (turn === undefined) throw new Problem('not-found', 'There is no such row');
      return { ...turn, text };
    },
    duplicates: async () => [],
    removeDuplicate: async (_, locator) => ({
      locator: locator as Locator,
      original: 'o' as Locator,
      kind: 'same',
      text: '',
      etag: '"e"',
      originalText: null,
    }),
    reply: async ({ text }) => ({ locator: 'l' as Locator, role: 'assistant', text, at: new Date(0), etag: '"e"' }),
  };
}

/** Of an organization without variables. */
export const noEnvironment: Environment = {
  names: async () => [],
  set: async (_, variables) => Object.keys(variables),
  reissue: async () => ({ operation: 'op_none' as OperationId, conversations: [] }),
};

/** Every directory is empty, and so is every file. */
const emptyFiles: ConversationFiles = {
  list: async () => ({ entries: [], next: null }),
  open: async () => ({ name: 'x', size: 0, version: 'v', modifiedAt: new Date(0), async *read() {} }),
};

/** Of an organization that takes no files. */
const closedInbox: Inbox = {
  begin: () => Promise.reject(new Problem('agentfs-unavailable', 'This test has no files')),
  compare: () => {
    throw new Problem('agentfs-unavailable', 'This test has no files');
  },
  drop: async () => undefined,
  removeLeftOvers: async () => undefined,
};

/** Finds nothing, and has erased it when that is confirmed. */
export const nothingToPurge: Retention = {
  plan: async () => ({ counts: noCounts, failedProse: 0, confirmation: 'nothing', expiresAt: new Date(0) }),
  purge: async () => nothingPurged,
  resume: async () => nothingPurged,
  resumeAll: async () => undefined,
};

const nothingPurged: Purge = {
  id: newOperationId(),
  token: newTokenId(),
  user: null,
  failedProseBefore: null,
  targets: [],
  begunAt: new Date(0),
  finishedAt: new Date(0),
  result: { erased: noCounts, remaining: noCounts, failedProse: 0 },
};

export interface TestGateway {
  readonly url: string;
  readonly port: number;
  readonly server: HttpServer;
  readonly governance: OpenedGovernance;
  readonly bus: EventFeed;
  readonly turns: ScriptedTurns;
  readonly transcript: MemoryTranscript;
  readonly amendments: ServerDeps['amendments'];
  readonly audit: Audit;
  readonly inbox: Inbox;
  readonly uploads: AnnouncedUploads;
  readonly files: ConversationFiles;
  readonly specialist: Specialist;
  /** A secret for each role. */
  readonly tokens: Readonly<Record<Role, string>>;
  readonly established: ConversationId[];
  readonly log: string[];
  newConversation(): Promise<ConversationId>;
  publishUpdate(conversation: ConversationId, update: SessionUpdate['update']): void;
  /** A request to the running server, with a token of `role` unless that is null. */
  call(
    role: Role | null,
    method: string,
    path: string,
    init?: { body?: unknown; headers?: Record<string, string> },
  ): Promise<Response>;
  stop(): Promise<void>;
}

export async function startGateway(options: Partial<ServerDeps> = {}): Promise<TestGateway> {
  const database = await embeddedDatabase();
  const governance = await openGovernance({
    database: database.address,
    organizationName: 'Percy & Sons',
    failedProseDays: 7,
  });
  const log: string[] = [];
  const record = (what: string, fields: Readonly<Record<string, unknown>> = {}) => {
    log.push(
      JSON.stringify({ what, ...fields, ...(fields.error instanceof Error ? { error: fields.error.stack } : {}) }),
    );
  };
  const bus = createEventBus(governance.lastSeq(), { report: (what, error) => record(what, { error }) });
  const turns = new ScriptedTurns(governance, bus);
  const transcript = new MemoryTranscript();
  const amendments = memoryAmendments(transcript);
  const established: ConversationId[] = [];
  const uploads = options.uploads ?? createAnnouncedUploads(options.inbox ?? closedInbox);
  const server = createServer({
    governance,
    turns,
    transcript,
    amendments,
    audit: emptyAudit,
    environment: noEnvironment,
    inbox: closedInbox,
    uploads,
    files: emptyFiles,
    retention: nothingToPurge,
    requests: new ConversationRequests(),
    bus,
    logger: { info: record, error: record },
    version: '0.0.0-test',
    establish: async (conversation) => {
      established.push(conversation);
    },
    health: async () => ({
      ready: true,
      status: 'ready',
      agentfs: 'reachable',
      pendingChanges: false,
      checks: { database: { ok: true } },
    }),
    ...options,
  });
  const { url, port } = server.listen({ hostname: '127.0.0.1', port: 0 });
  const secrets: Partial<Record<Role, string>> = {};
  for (const role of roles) secrets[role] = (await governance.createToken(role, `the ${role}`)).secret;
  const tokens = secrets as Record<Role, string>;
  const specialist = await governance.createSpecialist('Eleanora', 'Be kind.');

  return {
    url,
    port,
    server,
    governance,
    bus,
    turns,
    transcript,
    amendments,
    audit: options.audit ?? emptyAudit,
    inbox: options.inbox ?? closedInbox,
    uploads,
    files: options.files ?? emptyFiles,
    specialist,
    tokens,
    established,
    log,
    newConversation: async () => (await governance.createConversation(newConversationId(), specialist.id)).id,
    publishUpdate: (conversation, update) =>
      bus.update({ type: 'session.update', conversation, at: new Date(), update }),
    call: (role, method, path, init = {}) =>
      fetch(`${url}${path}`, {
        method,
        headers: {
          ...(role === null ? {} : { authorization: `Bearer ${tokens[role]}` }),
          ...(init.body === undefined ? {} : { 'content-type': 'application/json' }),
          ...init.headers,
        },
        ...(init.body === undefined
          ? {}
          : {
              body:
                typeof init.body === 'string' || init.body instanceof Uint8Array || init.body instanceof ReadableStream
                  ? (init.body as string)
                  : JSON.stringify(init.body),
            }),
      }),
    stop: async () => {
      await server.stop(1_000);
      bus.close();
      await governance.close();
      await database.stop();
    },
  };
}
