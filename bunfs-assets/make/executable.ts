/** Compiles edge-gateway.ts and all that it embeds into one executable. */
import { chmodSync, mkdirSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { embeddedAddonPlugin } from './native-addon.ts';

export interface ExecutableRequest {
  readonly entry: string;
  readonly outFile: string;
  /** On the same file system as `outFile`. */
  readonly workDirectory: string;
  readonly addonFile: string;
}

/** A running executable keeps its old file: the new one takes the name at once and whole. */
export async function makeExecutable(request: ExecutableRequest): Promise<void> {
  const { entry, outFile, workDirectory, addonFile } = request;
  const unfinished = join(workDirectory, 'edge-gateway');
  mkdirSync(workDirectory, { recursive: true });
  mkdirSync(dirname(outFile), { recursive: true });
  await Bun.build({
    entrypoints: [entry],
    target: 'bun',
    format: 'esm',
    minify: true,
    bytecode: true,
    // just-bash's compression: natives that only archives of its own `tar` would need.
    external: ['@mongodb-js/zstd', 'node-liblzma'],
    sourcemap: 'inline', // 0.8 MB, for stack traces that name files and lines
    throw: true,
    plugins: [embeddedAddonPlugin(addonFile)],
    define: { 'process.env.NODE_ENV': '"production"' },
    // Neither a .env nor a bunfig.toml in the working directory may change what the executable does.
    compile: { outfile: unfinished, execArgv: ['--no-orphans'], autoloadDotenv: false, autoloadBunfig: false },
  });
  chmodSync(unfinished, 0o755);
  renameSync(unfinished, outFile);
}
