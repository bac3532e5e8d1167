/** Finds what a test wrote in plain files of the host. */
import { existsSync, readdirSync, readFileSync, readlinkSync } from 'node:fs';
import { join } from 'node:path';

/** Where programs leave files when they should not. */
const suspectPlaces = ['/tmp', '/var/tmp', '/dev/shm', '/run', '/root', '/home', '/srv', '/var/lib', '/mnt'];
/** Where a holder has its own: none of them may come to be on the host. */
export const holderPlaces = ['/workspace', '/artifacts', '/hermes', '/opt/hermes', '/opt/edge'];

/**
 * The files changed since `stamp` was written, below `more` and where stray files usually end up, whose bytes hold
 * `words`; without those that `except` names by the beginning of their path.
 */
export async function filesHolding(
  words: readonly string[],
  stamp: string,
  more: readonly string[],
  except: readonly string[],
): Promise<string[]> {
  const places = [...more, ...suspectPlaces, ...holderPlaces].filter((place) => existsSync(place));
  const patterns = words.flatMap((word) => ['-e', word]);
  const search = Bun.spawn(
    ['find', ...places, '-xdev', '-type', 'f', '-newer', stamp, '-exec', 'grep', '-laF', ...patterns, '{}', '+'],
    { stdin: 'ignore', stdout: 'pipe', stderr: 'ignore' }, // other programs' files vanish meanwhile
  );
  const found = (await search.stdout.text()).split('\n').filter((path) => path !== '');
  return [...new Set(found)].filter((path) => !except.some((start) => path.startsWith(start))).toSorted();
}

/** Every path below a directory, relative to it. */
export function pathsBelow(directory: string): string[] {
  return readdirSync(directory, { recursive: true, encoding: 'utf8' }).toSorted();
}

/** The processes of the whole host that have a file below `directory` open or mapped. */
export function processesUsing(directory: string): number[] {
  const uses = (pid: string): boolean => {
    try {
      if (readFileSync(`/proc/${pid}/maps`, 'utf8').includes(`${directory}/`)) return true;
      return readdirSync(`/proc/${pid}/fd`).some((fd) => {
        try {
          return readlinkSync(join(`/proc/${pid}/fd`, fd)).startsWith(`${directory}/`);
        } catch {
          return false; // closed between the listing and the reading
        }
      });
    } catch {
      return false; // it ended between the listing and the reading
    }
  };
  return readdirSync('/proc')
    .filter((name) => /^\d+$/.test(name) && uses(name))
    .map(Number);
}
