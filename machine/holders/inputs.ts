/** What every holder of this machine is given: the sealed inputs on fds 4–7 and the program itself. */
import { existsSync, readdirSync, readFileSync, rmSync, symlinkSync } from 'node:fs';
import { join } from 'node:path';
import { caBundle, confinedExec, readAsset } from '../../bunfs-assets/assets.ts';
import { executablePath, sealedMemfd } from '../../bunfs-assets/memfd.ts';
import { readRuntime } from '../../bunfs-assets/runtime.ts';
import { startScript } from '../../bunfs-assets/start-script.ts';
import type { Launch } from '../launch.ts';
import { type Bind, formatManifest, type HolderManifest } from './manifest.ts';

/** Where programs look for git, in the order of the PATH. */
export const gitPlaces = ['/usr/local/bin/git', '/usr/bin/git'];

function nativeGit(): string | null {
  return gitPlaces.find((place) => existsSync(place)) ?? null;
}

/** Where a holder sees the Hermes runtime, whatever its place outside. */
const runtimeTarget = '/opt/hermes';

export interface HolderInputs {
  /** Path that executes confined-exec. */
  readonly confinedExec: string;
  /** The authorities that holders trust, and git for them: PEM. */
  readonly certificates: string;
  /** Sealed memfds that all holders share. */
  readonly caBundle: number;
  readonly environment: number;
  readonly startScript: number;
  /** A sealed memfd with the launch manifest of one holder; the caller closes it. */
  manifest(holder: HolderOwn): number;
}

/** What the manifests of two holders differ in. */
export interface HolderOwn extends Pick<HolderManifest, 'uid' | 'fuseSocket' | 'fuseToken' | 'cgroups'> {
  readonly gitSocket: string;
}

/** Reads the runtime and the embedded files once. Throws with what is missing and how to fix it. */
export function prepareInputs(launch: Launch): HolderInputs {
  const runtime = readRuntime(launch.runtimeDirectory);
  const binds = holderBinds(oneWordPath(launch), runtime.basePrefix);
  const authorities = launch.caBundle === null ? readAsset(caBundle) : readFileSync(launch.caBundle);
  const git = { native: launch.nativeGit ? nativeGit() : null, places: gitPlaces };
  return {
    confinedExec: executablePath('confined-exec', readAsset(confinedExec)),
    certificates: Buffer.from(authorities).toString('latin1'),
    caBundle: sealedMemfd('ca-bundle', authorities),
    environment: sealedMemfd('environment', formatEnvironment(launch.hermesEnvironment, runtime.basePrefix)),
    startScript: sealedMemfd('start-script', startScript()),
    manifest: ({ gitSocket, ...holder }) =>
      sealedMemfd(
        'manifest',
        Buffer.from(
          formatManifest({
            ...holder,
            binds,
            program: `${runtimeTarget}/bin/python`,
            args: ['-I', '/opt/edge/start.py'],
            git: { ...git, socket: gitSocket },
          }),
        ),
      ),
  };
}

/** The manifest cannot name a path with white space in it: the runtime is then named by a link in the run directory. */
function oneWordPath({ runtimeDirectory, runDirectory }: Launch): string {
  if (!/\s/.test(runtimeDirectory)) return runtimeDirectory;
  const link = join(runDirectory, 'runtime');
  rmSync(link, { force: true });
  symlinkSync(runtimeDirectory, link);
  return link;
}

/** Read-only system directories that exist here, the runtime, and Python's own directory where that is elsewhere. */
function holderBinds(runtimeDirectory: string, basePrefix: string): Bind[] {
  const binds: Bind[] = [{ source: '/usr', target: '/usr', optional: false }];
  binds.push({ source: runtimeDirectory, target: runtimeTarget, optional: false });
  if (basePrefix !== '/usr') binds.push({ source: basePrefix, target: basePrefix, optional: false });
  return binds;
}

/**
 * Hermes' environment as NUL-separated entries. The names of the organization's own variables are private: the start
 * script keeps them from every tool.
 */
function formatEnvironment(own: Readonly<Record<string, string>>, basePrefix: string): Uint8Array {
  const path = ['/opt/edge/bin', '/usr/local/sbin', '/usr/local/bin', '/usr/sbin', '/usr/bin', '/sbin', '/bin'];
  if (basePrefix !== '/usr' && existsSync(`${basePrefix}/bin`) && readdirSync(`${basePrefix}/bin`).length > 0) {
    path.push(`${basePrefix}/bin`);
  }
  const entries: Record<string, string> = {
    ...own,
    EDGE_PRIVATE_NAMES: Object.keys(own).join(' '),
    HOME: '/tmp/home',
    LANG: 'C.UTF-8',
    PATH: path.join(':'),
    SHELL: '/bin/bash',
    // What a pseudo-terminal of a tool behaves like; without one, programs ask whether they have a terminal first.
    TERM: 'xterm-256color',
    TMPDIR: '/tmp',
    USER: 'agent',
  };
  return Buffer.from(
    Object.entries(entries)
      .map(([name, value]) => `${name}=${value}\0`)
      .join(''),
  );
}
