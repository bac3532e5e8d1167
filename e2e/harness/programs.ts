/** Programs of the operating system that only tests need. `e2e/run.ts` reads the calls below and installs what is missing. */
import { test } from 'bun:test';
import { holderPath } from './holder-path.ts';

/** Answers the path of a program. Write the call with a literal name: that is how the test run learns of the need. */
export function requireProgram(name: 'strace' | 'chromium' | 'openssl' | 'curl' | 'git' | 'cargo'): string {
  const path = Bun.which(name);
  if (path === null) throw new Error(`This test needs ${name}: apt-get install ${name}`);
  return path;
}

/**
 * Whether a holder has a program. The test run installs it where it can; where it cannot, what tests it is skipped. Write
 * the call with a literal name.
 */
export function holderHas(name: string): boolean {
  return Bun.which(name, { PATH: holderPath }) !== null;
}

/** `test`, or `test.skip` where one of these answers of `holderHas` is no. */
export function testWith(...there: readonly boolean[]): typeof test {
  return (there.every(Boolean) ? test : test.skip) as typeof test;
}
