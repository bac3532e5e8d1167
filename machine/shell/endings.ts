/** The ways in which a command ends before its last line. */

/** The native git must do it. Thrown only while nothing is written. */
export class LeaveToNative extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'LeaveToNative';
  }
}

/** Git's own failure: a message for standard error, and an exit code. */
export class GitFailure extends Error {
  readonly exitCode: number;

  constructor(message: string, exitCode = 128) {
    super(message);
    this.name = 'GitFailure';
    this.exitCode = exitCode;
  }
}

/** `fatal: …`, exit code 128. */
export function fatal(message: string): GitFailure {
  return new GitFailure(`fatal: ${message}\n`);
}

/** `error: …` with the exit code of an ordinary failure. */
export function failure(message: string, exitCode = 1): GitFailure {
  return new GitFailure(`error: ${message}\n`, exitCode);
}

export function leave(reason: string): never {
  throw new LeaveToNative(reason);
}
