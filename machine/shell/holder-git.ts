/** The `git` of one holder: HyperSH Git over its view, behind a socket of its own. */
import type { Ledger } from '../agentfs/ledger.ts';
import type { HolderView } from '../agentfs/views.ts';
import type { FuseSession } from '../fuse/session.ts';
import { readDotenv } from './dotenv.ts';
import { HypershGit } from './git.ts';
import type { KernelSide } from './running-call.ts';
import { GitService } from './service.ts';

export interface HolderGitOptions {
  readonly view: HolderView;
  /** Path of the socket; short enough for one. */
  readonly path: string;
  readonly ledger: Pick<Ledger, 'record'>;
  /** The authorities that remotes are checked with: PEM. */
  readonly certificates: string;
  /** The holder's mount; null before it is there. */
  session(): FuseSession | null;
  /** Resolves when shared files may be looked at: as the first touch through the mount does. */
  touch(): Promise<void> | null;
  log(line: string): void;
}

/** Listens at once. Throws where that cannot be. */
export function serveHolderGit(options: HolderGitOptions): GitService {
  const { view, path, ledger, certificates, log } = options;
  const line = (text: string) => log(`holder ${view.conversation}: git: ${text}`);
  const engine = new HypershGit(view, { credentials: () => credentialsOf(view), certificates, log: line });
  return new GitService({ path, conversation: view.conversation, engine, kernel: kernelSide(options), ledger, log });
}

function kernelSide({ session, touch }: HolderGitOptions): KernelSide {
  return {
    async flush() {
      await touch();
      await session()?.caches.flush();
    },
    noteChanges: () => session()?.caches.noteChanges() ?? (async () => undefined),
  };
}

/** The conversation's `.env`, as it is now: it lies in the private files, which no caller of git can name. */
async function credentialsOf(view: HolderView): Promise<Readonly<Record<string, string>>> {
  const { files, conversation } = view;
  const inode = await files.find(`/conversations/${conversation}/.env`);
  return inode ? readDotenv(await files.data.read(inode.ino, 0, maxDotenvBytes)) : {};
}

const maxDotenvBytes = 256 * 1024;
