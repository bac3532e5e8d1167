/** The program's version, as package.json has it. */
import { parseArgs } from 'node:util';
import { version } from '../package.json' with { type: 'json' };

export const programVersion: string = version;

/** The command `edge-gateway version`. */
export async function runVersion(argv: readonly string[]): Promise<number> {
  parseArgs({ args: [...argv], strict: true });
  console.log(`edge-gateway ${programVersion}`);
  return 0;
}
