/** The command `edge-gateway doctor`. */
import { accessSync, constants, existsSync } from 'node:fs';
import { dirname } from 'node:path';
import { parseArgs } from 'node:util';
import { HranaDatabase } from '../../machine/agentfs/hrana.ts';
import { type CloudDatabase, type Configuration, readConfiguration } from '../config/configuration.ts';
import { modelMissing } from '../config/model.ts';
import { confinedExecPath } from '../confined-exec.ts';
import { openDataDirectory } from '../datadir/data-directory.ts';
import { connect } from '../governance/connection.ts';
import { openCgroups } from '../machine/cgroups.ts';
import { attachGuard } from '../machine/network-guard.ts';
import { checkCaBundle, checkKernel, checkRuntime, type Finding } from './checks.ts';

const databaseLimitMs = 15_000;

/** Prints what is there and what is missing, with how to fix it. Exit code 1 when something is missing. */
export async function runDoctor(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({ args: [...argv], options: { config: { type: 'string' } }, strict: true });
  const configuration = readConfiguration(process.env, values.config ?? null);
  const found: readonly (readonly Finding[])[] = await Promise.all([
    checkKernel(confinedExecPath()),
    checkRuntime(configuration.hermesRuntime, true).then((finding) => [finding]),
    Promise.resolve(checkCaBundle(configuration.caBundle)),
    Promise.resolve([checkDataDirectory(configuration)]),
    checkDatabases(configuration),
    checkIsolation(configuration),
    Promise.resolve([{ name: 'model', fix: configuration.model === null ? modelMissing() : null }]),
  ]);
  const findings = found.flat();
  for (const { name, fix, optional } of findings) {
    console.log(fix === null ? `ok       ${name}` : `${optional ? 'without ' : 'missing '} ${name}: ${fix}`);
  }
  const bad = findings.filter(({ fix, optional }) => fix !== null && !optional).length;
  console.log(bad === 0 ? '\nEverything is there.' : `\n${bad} of ${findings.length} things are missing.`);
  return bad === 0 ? 0 : 1;
}

/** A directory that does not exist is not made: looking changes nothing. */
function checkDataDirectory(configuration: Configuration): Finding {
  const name = 'data directory';
  const { dataDirectory } = configuration;
  try {
    if (existsSync(dataDirectory)) {
      openDataDirectory(dataDirectory).release();
      return { name, fix: null };
    }
    let above = dirname(dataDirectory);
    while (!existsSync(above)) above = dirname(above);
    accessSync(above, constants.W_OK | constants.X_OK);
    return { name, fix: null };
  } catch (error) {
    return { name, fix: (error as Error).message };
  }
}

/** What only a privileged start can have: tried on cgroups that are removed again. */
async function checkIsolation({ networkGuard }: Configuration): Promise<readonly Finding[]> {
  const cgroups = openCgroups();
  try {
    const reason = await attachGuard(confinedExecPath(), cgroups.unified, []);
    const memory = 'it needs root and a memory cgroup; as a service of systemd, Delegate=yes';
    return [
      { name: 'network guard', fix: reason, ...(networkGuard === 'require' ? {} : { optional: true }) },
      { name: 'memory limit of an agent', fix: cgroups.limitsMemory ? null : memory, optional: true },
    ];
  } finally {
    cgroups.remove();
  }
}

async function checkDatabases(configuration: Configuration): Promise<readonly Finding[]> {
  const checks: Promise<Finding>[] = [];
  const { databaseUrl, agentfs, sessiondb } = configuration;
  if (databaseUrl !== null) checks.push(checkPostgres(databaseUrl));
  if (agentfs !== null) checks.push(checkCloud('AGENTFS_URL', agentfs));
  if (sessiondb !== null) checks.push(checkCloud('SESSIONDB_URL', sessiondb));
  return Promise.all(checks);
}

async function checkPostgres(url: string): Promise<Finding> {
  try {
    const sql = await connect({ kind: 'url', url });
    await sql.end({ timeout: 1 });
    return { name: 'DATABASE_URL', fix: null };
  } catch (error) {
    return { name: 'DATABASE_URL', fix: (error as Error).message };
  }
}

async function checkCloud(name: string, database: CloudDatabase): Promise<Finding> {
  try {
    await new HranaDatabase({ ...database, socket: null }, { timeout: databaseLimitMs }).execute('SELECT 1');
    return { name, fix: null };
  } catch (error) {
    return { name, fix: `${(error as Error).message}; check the URL, its token and the network` };
  }
}
