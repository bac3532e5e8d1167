/** The command line or the configuration is wrong: exit code 2. The message holds no secret. */
export class UsageError extends Error {
  override readonly name = 'UsageError';
  readonly code = 'EDGE_USAGE';
}
