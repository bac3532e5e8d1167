/** What one call of HyperSH Git is given, and how it ends. */

export interface GitCall {
  /** The words after `git`. */
  readonly argv: readonly string[];
  /** Absolute, inside the holder: `/workspace/…` or `/artifacts/…`. */
  readonly cwd: string;
  readonly environment: Readonly<Record<string, string>>;
  /** Everything on standard input, bounded; asked for only when the command reads it. */
  stdin(): Promise<Uint8Array>;
  stdout(bytes: Uint8Array): Promise<void>;
  stderr(bytes: Uint8Array): Promise<void>;
  readonly signal: AbortSignal;
  /**
   * `~/.gitconfig` of the caller, whose home the machine may not see. Without it the engine takes it for empty and leaves
   * `git config --global` to the native git.
   */
  readonly globalConfig?: {
    /** The whole file, bounded; null where there is none. */
    read(): Promise<Uint8Array | null>;
    write(bytes: Uint8Array): Promise<void>;
  };
  /** Which of the caller's streams are terminals; none when absent. Output is never paged, whatever they are. */
  readonly terminals?: { readonly input: boolean; readonly output: boolean; readonly errors: boolean };
  /** Of the caller: new files get these permission bits taken away. 0o022 when absent. */
  readonly umask?: number;
}

export type GitOutcome =
  | { readonly kind: 'done'; readonly exitCode: number }
  /** The native git must do it; nothing was read from standard input, written or changed. */
  | { readonly kind: 'native'; readonly reason: string };

/** A credential for a remote: for exactly this scheme, host and port, and paths below this one. */
export interface GitCredential {
  readonly scheme: 'http' | 'https';
  readonly host: string;
  readonly port: number;
  /** `/` for all of the host. */
  readonly path: string;
  readonly username: string;
  readonly password: string;
}

export interface HypershGitOptions {
  /** The variables of the conversation that credentials of remotes are taken from, as they are now. */
  credentials(): Promise<Readonly<Record<string, string>>>;
  /** Whether remotes may be on this host itself; otherwise they are refused. */
  readonly allowLoopback?: boolean;
  /** Certificates of the authorities that remotes are checked with, PEM; the host's own otherwise. */
  readonly certificates?: string;
  /** One line for the machine's log; no secret. */
  log(line: string): void;
}
