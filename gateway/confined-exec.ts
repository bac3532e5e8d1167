/** The embedded confined-exec, made executable for this process's children. */
import { confinedExec, readAsset } from '../bunfs-assets/assets.ts';
import { executablePath } from '../bunfs-assets/memfd.ts';

let path: string | null = null;

/** A path that this process can spawn; it lies in a sealed memory file, on no disk. */
export function confinedExecPath(): string {
  path ??= executablePath('confined-exec', readAsset(confinedExec));
  return path;
}
