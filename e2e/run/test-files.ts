/** Which test files there are, and in which phase each runs. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';

export interface TestFiles {
  readonly unit: readonly string[];
  readonly endToEnd: readonly string[];
}

const endToEndFolders = ['e2e/posix', 'e2e/escape'];
const unitFolders = ['gateway', 'machine', 'hermes-run', 'bunfs-assets', 'zig', 'e2e/run', 'e2e/harness', 'e2e/bench'];

function below(root: string, folder: string, pattern: string): string[] {
  const directory = join(root, folder);
  if (!existsSync(directory)) return [];
  return [...new Bun.Glob(pattern).scanSync(directory)].map((file) => join(folder, file)).sort();
}

/**
 * Files named `x.long.test.ts` run only with `long`. The end-to-end files stand directly in e2e/ or in a folder that is listed
 * here: what lies in e2e/pending/ waits for a part that does not exist yet.
 */
export function testFiles(
  root: string,
  chosen: { readonly long: boolean; readonly words: readonly string[] },
): TestFiles {
  const wanted = (file: string) =>
    (chosen.long || !file.includes('.long.test.')) &&
    (chosen.words.length === 0 || chosen.words.some((word) => file.includes(word)));
  return {
    unit: unitFolders.flatMap((folder) => below(root, folder, '**/*.test.ts')).filter(wanted),
    endToEnd: [
      ...below(root, 'e2e', '*.test.ts'),
      ...endToEndFolders.flatMap((folder) => below(root, folder, '**/*.test.ts')),
    ].filter(wanted),
  };
}
