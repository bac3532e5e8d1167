/**
 * What the gateway tells the machine at its start: one JSON line on standard input. The end of standard input is the end
 * of the gateway, and so of the machine. The machine answers with one JSON line on standard output when it can be used,
 * and later with one for each child that has ended, and one whenever a cloud database begins or ceases to answer. Behind the
 * launch line the gateway may ask for something, one line each, which is answered by one line too.
 */
import * as v from 'valibot';

const authority = v.strictObject({
  /** `http(s)://…` of the database, or of any host when `socket` is given. */
  url: v.pipe(v.string(), v.url()),
  token: v.string(),
  /** Unix socket of the embedded authority; null for a remote one. */
  socket: v.nullable(v.string()),
});
export type AuthorityAddress = v.InferOutput<typeof authority>;

const count = v.pipe(v.number(), v.integer(), v.minValue(1));
const usage = v.strictObject({ bytes: count, inodes: count });
const fileLimits = v.strictObject({
  /** Bytes of one file; beyond them EFBIG. */
  largestFile: count,
  /** Beyond them EDQUOT. */
  conversation: usage,
  /** Beyond them ENOSPC. */
  organization: usage,
});
/** What the organization's files may have. */
export type FileLimits = v.InferOutput<typeof fileLimits>;

export const launchSchema = v.strictObject({
  version: v.literal(1),
  /** Secret that hermes-run peers must show: 64 hex digits, new at each start. */
  token: v.pipe(v.string(), v.regex(/^[0-9a-f]{64}$/)),
  /** Directory (0700) for sockets; short enough for a unix socket path. */
  runDirectory: v.string(),
  /** Directory of the local AgentFS replica. */
  replicaDirectory: v.string(),
  agentfs: authority,
  sessiondb: authority,
  /** The Hermes runtime directory (a Python environment). */
  runtimeDirectory: v.string(),
  /** PEM file of certificate authorities for the holders; null for the embedded ones. */
  caBundle: v.nullable(v.string()),
  /** Variables for every Hermes process of this organization, such as EDGE_MODEL_URL. Never logged. */
  hermesEnvironment: v.record(v.string(), v.string()),
  /** Whether what HyperSH Git leaves undone goes to the host's git, where there is one. */
  nativeGit: v.boolean(),
  fileLimits,
  maxHolders: v.pipe(v.number(), v.integer(), v.minValue(1), v.maxValue(1000)),
  /** Where each holder gets cgroups of its own, one a hierarchy, and their limits; null where the host has none for us. */
  cgroups: v.nullable(
    v.strictObject({
      directories: v.pipe(v.array(v.string()), v.minLength(1), v.maxLength(4)),
      memoryBytes: v.nullable(v.pipe(v.number(), v.integer(), v.minValue(1))),
      processes: v.nullable(v.pipe(v.number(), v.integer(), v.minValue(1))),
    }),
  ),
});
export type Launch = v.InferOutput<typeof launchSchema>;

export const readySchema = v.strictObject({ ready: v.literal(true), hermesRunSocket: v.string() });
export type Ready = v.InferOutput<typeof readySchema>;

const childEnd = v.strictObject({
  /** As in the answer to an attachment. */
  generation: v.pipe(v.number(), v.integer(), v.minValue(1)),
  code: v.nullable(v.number()),
  signal: v.nullable(v.string()),
  /** What confined-exec said about it, if anything; never a word of Hermes or of a user. */
  report: v.pipe(v.string(), v.maxLength(1000)),
  /** Whether it was killed, and by the kernel because its memory was full as far as can be told. */
  outOfMemory: v.boolean(),
});
/** How one Hermes ended that had been ready to be attached to. */
export type ChildEnd = v.InferOutput<typeof childEnd>;
/** Each line after the first: a child has ended. It may come before or after the end of the child's stream. */
export const endedSchema = v.strictObject({ ended: childEnd });
export type Ended = v.InferOutput<typeof endedSchema>;

const settleId = v.pipe(v.number(), v.safeInteger(), v.minValue(1));
/** Each line after the launch line: bring all that was changed or recorded until now into the cloud. */
export const settleSchema = v.strictObject({ settle: v.strictObject({ id: settleId }) });
export type Settle = v.InferOutput<typeof settleSchema>;

const settled = v.variant('state', [
  /** Everything is in the cloud. */
  v.strictObject({ id: settleId, state: v.literal('clean') }),
  /** More was changed meanwhile. */
  v.strictObject({ id: settleId, state: v.literal('pending') }),
  v.strictObject({ id: settleId, state: v.literal('failing'), reason: v.pipe(v.string(), v.maxLength(1000)) }),
]);
export const settledSchema = v.strictObject({ settled });
/** The answer to a settle. */
export type Settled = v.InferOutput<typeof settledSchema>;

/** Conversations of one request. */
export const maxHolderConversations = 500;
/**
 * What is to become of the children of these conversations.
 *
 * - `replace`: pulls; then each child that there is takes no further turn. One that is in a turn ends behind it.
 * - `end`: ends each child at once and waits until nothing of it is left; then all that was changed is in the cloud.
 */
export const holdersSchema = v.strictObject({
  holders: v.strictObject({
    id: settleId,
    what: v.picklist(['replace', 'end']),
    conversations: v.pipe(v.array(v.pipe(v.string(), v.maxLength(100))), v.maxLength(maxHolderConversations)),
  }),
});
export type HoldersRequest = v.InferOutput<typeof holdersSchema>;

/** What became of a child: it was idle and ends, it is in a turn (or starting) and ends behind that, there was none. */
const fate = v.picklist(['ended', 'after-turn', 'none']);
export type ChildFate = v.InferOutput<typeof fate>;
const holdersDone = v.variant('state', [
  /** One for each conversation, in their order. */
  v.strictObject({
    id: settleId,
    state: v.literal('done'),
    fates: v.pipe(v.array(fate), v.maxLength(maxHolderConversations)),
  }),
  /** The cloud could not be reached; the children are as they were, or, with `end`, ended. */
  v.strictObject({ id: settleId, state: v.literal('failing'), reason: v.pipe(v.string(), v.maxLength(1000)) }),
]);
export const holdersDoneSchema = v.strictObject({ holdersDone });
/** The answer to a request about holders. */
export type HoldersDone = v.InferOutput<typeof holdersDoneSchema>;

const filesState = v.strictObject({
  /** Why the last request to the cloud AgentFS failed; null when it did not. */
  trouble: v.nullable(v.pipe(v.string(), v.maxLength(1000))),
  /** Whether changed files waited for the cloud when the last work boundary ended. */
  pending: v.boolean(),
});
/** How the replica of AgentFS stands with its cloud, as its last requests met it. */
export type FilesState = v.InferOutput<typeof filesState>;
/** A line behind the first: that has changed. */
export const filesStateSchema = v.strictObject({ files: filesState });

const sessiondbState = v.strictObject({
  generation: v.pipe(v.number(), v.safeInteger(), v.minValue(1)),
  /** Whether the last request of that child got an answer of the SessionDB authority. */
  answers: v.boolean(),
});
/** A line behind the first: for that child this has changed. */
export const sessiondbStateSchema = v.strictObject({ sessiondb: sessiondbState });
export type SessiondbState = v.InferOutput<typeof sessiondbState>;

/** Everything that the machine says behind its first line. */
export const saidSchema = v.union([
  endedSchema,
  settledSchema,
  holdersDoneSchema,
  filesStateSchema,
  sessiondbStateSchema,
]);
export type Said = v.InferOutput<typeof saidSchema>;
