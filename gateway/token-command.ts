/** The command `edge-gateway token create`: how the first token of a gateway comes into being. */
import { parseArgs } from 'node:util';
import { readConfiguration } from './config/configuration.ts';
import { openDataDirectory } from './datadir/data-directory.ts';
import { roles } from './domain.ts';
import { openGovernanceFor } from './governance-for.ts';
import { createLog } from './log.ts';
import { StopStack } from './stop-stack.ts';
import { UsageError } from './usage-error.ts';

const maxName = 200;

/**
 * Prints one JSON line, `{"id","role","name","token"}` as `POST /v1/tokens` answers. With the embedded database the gateway must not be running: it
 * has the data directory; a running one makes tokens through `POST /v1/tokens`.
 */
export async function runToken(argv: readonly string[]): Promise<number> {
  const { values, positionals } = parseArgs({
    args: [...argv],
    options: { role: { type: 'string' }, name: { type: 'string' }, config: { type: 'string' } },
    allowPositionals: true,
    strict: true,
  });
  if (positionals.length !== 1 || positionals[0] !== 'create') throw new UsageError('write: token create --role ROLE');
  const role = roles.find((known) => known === values.role);
  if (role === undefined) throw new UsageError(`--role must be one of ${roles.join(', ')}`);
  const name = values.name ?? role;
  if (name.length === 0 || name.length > maxName || name.includes('\0')) {
    throw new UsageError(`--name must have 1 to ${maxName} characters`);
  }
  const configuration = readConfiguration(process.env, values.config ?? null);
  const log = createLog('token');
  const stack = new StopStack();
  try {
    const data = configuration.databaseUrl === null ? openDataDirectory(configuration.dataDirectory) : null;
    if (data !== null) stack.add({ name: 'data directory', limitMs: 1_000, stop: () => data.release() });
    const governance = await openGovernanceFor(configuration, data, stack, log);
    const { caller, secret } = await governance.createToken(role, name);
    console.log(JSON.stringify({ id: caller.token, role, name: caller.name, token: secret }));
    return 0;
  } finally {
    await stack.stop((what, error) => log.error('not stopped', { reason: what, error }));
  }
}
