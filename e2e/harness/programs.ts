/** Programs of the operating system that only tests need. `e2e/run.ts` reads the calls below and installs what is missing. */

/** Answers the path of a program. Write the call with a literal name: that is how the test run learns of the need. */
export function requireProgram(name: 'strace' | 'chromium' | 'openssl' | 'curl' | 'git' | 'cargo'): string {
  const path = Bun.which(name);
  if (path === null) throw new Error(`This test needs ${name}: apt-get install ${name}`);
  return path;
}
