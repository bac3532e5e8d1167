/** In which order test files run, and which of them run while nothing else does. */
import type { TestFiles } from './test-files.ts';

/** What judges time, or memory that depends on it; or takes all that it can get. */
const alone: Readonly<Record<string, string>> = {
  'e2e/crowd.test.ts': 'what the gateway keeps for readers depends on how fast they are dropped',
  'e2e/escape/end.test.ts': 'everything has to be gone within a second',
  'e2e/escape/exhaustion.test.ts': 'uses up memory, processes and time, as far as it is let',
  'e2e/large-upload.test.ts': 'what the gateway keeps of an upload depends on how fast it is stored',
  'e2e/sync-oracle.test.ts': 'tursodb drops connections on a busy machine',
};

/** Minutes in which they mostly wait, for limits of the product to pass: others run meanwhile. */
const waiting: readonly string[] = [
  'e2e/authority-trouble.test.ts',
  'e2e/failures.test.ts',
  'e2e/silence.test.ts',
  'e2e/process-tree.test.ts',
  'e2e/storm.test.ts',
];

export interface Order {
  /** Any two of these may run at the same time; the front waits most, the back least. */
  readonly together: readonly string[];
  /** Then these, one by one. */
  readonly alone: readonly string[];
}

/** Every file once. A long suite runs alone: it measures, or it is there to load the machine. */
export function orderOf({ unit, endToEnd }: TestFiles): Order {
  const isAlone = (file: string) => file in alone || file.includes('.long.test.');
  const place = (file: string) => (waiting.includes(file) ? waiting.indexOf(file) : waiting.length);
  const together = endToEnd.filter((file) => !isAlone(file)).sort((one, other) => place(one) - place(other));
  return {
    together: [...together, ...unit.filter((file) => !isAlone(file))],
    alone: [...endToEnd, ...unit].filter(isAlone),
  };
}

/** Every file that is named above, for a test that there is such a file. */
export const namedFiles: readonly string[] = [...Object.keys(alone), ...waiting];
