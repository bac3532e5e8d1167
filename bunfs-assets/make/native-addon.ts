/** The native addon of @tursodatabase/sync: where it is, and how the executable loads it from memory instead of a file. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { withoutDebugSections } from './elf.ts';

const root = join(import.meta.dir, '../..');
const syncPackage = join(root, 'node_modules/@tursodatabase/sync');

/** The addon as npm installed it for this machine. */
export function tursoAddon(): string {
  return Bun.resolveSync(`@tursodatabase/sync-linux-${process.arch}-gnu`, syncPackage);
}

export function writeStrippedAddon(outFile: string): void {
  writeFileSync(outFile, withoutDebugSections(readFileSync(tursoAddon())));
}

/**
 * Replaces the addon search of @tursodatabase/sync in the bundle: same exports, taken from the embedded `addonFile`.
 * @throws Error when a new version of the package no longer looks as expected
 */
export function embeddedAddonPlugin(addonFile: string): Bun.BunPlugin {
  return {
    name: 'embedded-addon',
    setup(build) {
      build.onLoad({ filter: /@tursodatabase\/sync\/index\.js$/ }, async ({ path }) => {
        const source = await Bun.file(path).text();
        const names = [...source.matchAll(/^export \{ (\w+) \}$/gm)].map((found) => found[1]!);
        if (!names.includes('SyncEngine')) throw new Error(`${path} no longer exports its addon by name`);
        const lines = [
          `import file from ${JSON.stringify(addonFile)} with { type: 'file' };`,
          `import { readFileSync } from 'node:fs';`,
          `import { loadNative } from ${JSON.stringify(join(root, 'bunfs-assets/native.ts'))};`,
          `const addon = loadNative('turso-sync', readFileSync(file));`,
          ...names.map((name) => `export const ${name} = addon.${name};`),
        ];
        return { loader: 'js', contents: lines.join('\n') };
      });
    },
  };
}
