/** The first token of an organization, made by the executable before the gateway runs; good over all its starts. */
import { builtExecutable, plainEnvironment } from './executable.ts';

/** @throws Error with what the executable said */
export function firstToken(environment: Readonly<Record<string, string>>): string {
  const made = Bun.spawnSync([builtExecutable(), 'token', 'create', '--role', 'superadmin', '--name', 'first'], {
    env: plainEnvironment(environment),
  });
  if (made.exitCode !== 0) throw new Error(`token create: ${made.stderr.toString()}`);
  return (JSON.parse(made.stdout.toString()) as { token: string }).token;
}
