/**
 * The files that are embedded in the executable. Compiled, a path lies in Bun's own file system: read it with the
 * functions here, no other process can open it. From source the same paths lead into build/, so a build must come first.
 */
import { readFileSync } from 'node:fs';
import caBundle from '../build/assets/ca.pem' with { type: 'file' };
import confinedExec from '../build/assets/confined-exec.bin' with { type: 'file' };
import initdbWasm from '../build/assets/initdb.wasm.bin' with { type: 'file' };
import pgliteData from '../build/assets/pglite.data.bin' with { type: 'file' };
import pgliteWasm from '../build/assets/pglite.wasm.bin' with { type: 'file' };
import postgresSeed from '../build/assets/postgres-seed.bin' with { type: 'file' };
import defaultConfig from './config.yaml' with { type: 'file' };
import defaultSoul from './SOUL.md' with { type: 'file' };

/**
 * Paths of the embedded files: the static executable of zig/, Mozilla's certificate authorities (PEM), SOUL.md and
 * config.yaml of a new organization, and of the embedded Postgres two WebAssembly modules, a file bundle and a fresh
 * cluster as tar.gz. What Python runs first in a holder is in start-script.ts.
 */
export { caBundle, confinedExec, defaultConfig, defaultSoul, initdbWasm, pgliteData, pgliteWasm, postgresSeed };

/** The whole content of an embedded file, given its path. */
export function readAsset(path: string): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(path));
}
