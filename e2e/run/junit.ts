/** Counts and failures from the report that `bun test --reporter=junit` writes. */

export interface Counts {
  readonly passed: number;
  readonly failed: number;
  readonly skipped: number;
  readonly failures: readonly string[];
}

export const noCounts: Counts = { passed: 0, failed: 0, skipped: 0, failures: [] };

/** Something that failed as a whole. */
export function crashed(what: string): Counts {
  return { passed: 0, failed: 1, skipped: 0, failures: [what] };
}

export function sum(all: readonly Counts[]): Counts {
  const add = (key: 'passed' | 'failed' | 'skipped') => all.reduce((total, one) => total + one[key], 0);
  const failures = all.flatMap((one) => one.failures);
  return { passed: add('passed'), failed: add('failed'), skipped: add('skipped'), failures };
}

const entities: Readonly<Record<string, string>> = { quot: '"', apos: "'", lt: '<', gt: '>', amp: '&' };
const unescaped = (text: string) => text.replaceAll(/&(quot|apos|lt|gt|amp);/g, (_, name: string) => entities[name]!);

function attribute(tag: string, name: string): string {
  return unescaped(new RegExp(`\\b${name}="([^"]*)"`).exec(tag)?.[1] ?? '');
}

/** Every test case of a report counts once. */
export function countJunit(xml: string): Counts {
  const failures: string[] = [];
  let passed = 0;
  let skipped = 0;
  for (const [whole, attributes = '', body = ''] of xml.matchAll(
    /<testcase\b([^>]*?)(?:\/>|>([\s\S]*?)<\/testcase>)/g,
  )) {
    if (/<(failure|error)\b/.test(body)) failures.push(`${attribute(attributes, 'file')}: ${attribute(whole, 'name')}`);
    else if (/<skipped\b/.test(body)) skipped += 1;
    else passed += 1;
  }
  return { passed, failed: failures.length, skipped, failures };
}
