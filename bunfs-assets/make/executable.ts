/** Compiles edge-gateway.ts and all that it embeds into one executable. */
import { chmodSync, mkdirSync, renameSync } from 'node:fs';
import { dirname, join } from 'node:path';
import { embeddedAddonPlugin } from './native-addon.ts';

export interface ExecutableRequest {
  readonly entry: string;
  readonly outFile: string;
  readonly addonFile: string;
}

/** A running executable keeps its old file: the new one takes the name at once and whole. */
export async function makeExecutable({ entry, outFile, addonFile }: ExecutableRequest): Promise<void> {
  const temporary = join(dirname(outFile), `.${process.pid}-edge-gateway`);
  mkdirSync(dirname(outFile), { recursive: true });
  await Bun.build({
    entrypoints: [entry],
    target: 'bun',
    format: 'esm',
    minify: true,
    bytecode: true,
    throw: true,
    plugins: [embeddedAddonPlugin(addonFile)],
    define: { 'process.env.NODE_ENV': '"production"' },
    // Neither a .env nor a bunfig.toml in the working directory may change what the executable does.
    compile: { outfile: temporary, execArgv: ['--no-orphans'], autoloadDotenv: false, autoloadBunfig: false },
  });
  chmodSync(temporary, 0o755);
  renameSync(temporary, outFile);
}
