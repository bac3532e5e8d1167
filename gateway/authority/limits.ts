/** Every bound of the embedded authority in one place. Sizes are bytes, times milliseconds. */
export const limits = {
  /** The line of tokens on standard input. */
  launchLineBytes: 64 * 1024,
  /** A push of the Turso client is one request, file contents in base64 included. */
  agentfsBodyBytes: 256 * 1024 * 1024,
  sessiondbBodyBytes: 32 * 1024 * 1024,
  /** A pull request holds three short strings and a bitmap of page numbers. */
  pullBodyBytes: 4 * 1024 * 1024,
  /** After a request larger than this the memory is collected at once. */
  collectAfterBytes: 8 * 1024 * 1024,
  /** For a request's body to arrive. */
  bodyWait: 120_000,

  sqlBytes: 1024 * 1024,
  sequenceBytes: 8 * 1024 * 1024,
  requestsPerPipeline: 1_000,
  stepsPerBatch: 200_000,
  argumentsPerStatement: 32_766,
  conditionDepth: 16,
  answerRows: 200_000,
  answerBytes: 64 * 1024 * 1024,

  /** Open streams of one database; each has a connection of its own. */
  streams: 256,
  /** Connections kept open for reuse after their stream ended. */
  spareConnections: 8,
  storedSqlPerStream: 64,
  cachedStatements: 192,
  /** Longer SQL is prepared each time: it is rarely repeated and would fill the cache. */
  cachedSqlBytes: 16 * 1024,
  /** A stream with an open transaction holds up other writers, so its owner must come back soon, as with Turso Cloud. */
  openTransactionIdle: 10_000,
  streamIdle: 15 * 60_000,

  /** How long a writer waits behind another stream's transaction before `SQLITE_BUSY`. */
  writeWait: 5_000,
  writeQueue: 512,
  /** Synchronous work on a large request is cut into slices of this length, so that others are answered in between. */
  workSlice: 8,

  /** A pull of more pages than this is streamed from a snapshot instead of being built in memory. */
  pullPagesInMemory: 1_024,
  pullChunkPages: 128,
  pullSnapshots: 8,
  /** A snapshot keeps the write-ahead log from being folded, so a slow client is cut off. */
  pullDeadline: 10 * 60_000,
  /** Frames in the write-ahead log of agentfs.db (4 KiB each) before they are folded into the file. */
  walFrames: 2_048,
  pages: 0x3fff_ffff,

  /** Requests under way at an orderly exit are given this long. */
  shutdown: 3_000,
} as const;
