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
import startScript from './hermes/start.py' with { type: 'file' };
import defaultSoul from './SOUL.md' with { type: 'file' };

/** Paths of the embedded files. */
export const assets = {
  /** The static executable of zig/. */
  confinedExec,
  /** What Python runs first in a holder. */
  startScript,
  /** Mozilla's certificate authorities, PEM. */
  caBundle,
  /** SOUL.md and config.yaml of a new organization. */
  defaultSoul,
  defaultConfig,
  /** The embedded Postgres: two WebAssembly modules, its file bundle, and a data directory as .tar.gz. */
  pgliteWasm,
  initdbWasm,
  pgliteData,
  postgresSeed,
} as const satisfies Record<string, string>;

export type AssetName = keyof typeof assets;

/** The whole content of an embedded file. */
export function readAsset(name: AssetName): Uint8Array<ArrayBuffer> {
  return new Uint8Array(readFileSync(assets[name]));
}

/** The content of an embedded text file. */
export function readAssetText(name: AssetName): string {
  return readFileSync(assets[name], 'utf8');
}

/** An embedded file as a Blob that is read when it is used. */
export function assetFile(name: AssetName): Bun.BunFile {
  return Bun.file(assets[name]);
}
