/**
 * Keeps agents from the host's own doors: a holder shares the host's network, and what listens on it trusts the host
 * (THREAT_MODEL.md). confined-exec attaches the programs that refuse; here is decided which ports.
 */
import { hostname, networkInterfaces } from 'node:os';
import type { Configuration } from '../config/configuration.ts';
import type { Log } from '../log.ts';
import { within } from '../waits.ts';

/** As many as confined-exec takes (zig/limits.zig). */
export const maxDeniedPorts = 64;
const limitMs = 10_000;

type Wanted = Pick<Configuration, 'networkGuard' | 'deniedPorts' | 'agentfs' | 'sessiondb' | 'databaseUrl' | 'model'>;

/**
 * Keeps all that will be below `cgroup` from `port` and the other ports of this host that are nothing to agents. Throws when
 * the configuration demands it and it cannot be done; may be called again with another port.
 */
export async function guardNetwork(
  configuration: Wanted,
  confinedExec: string,
  cgroup: string | null,
  port: number,
  log: Log,
): Promise<void> {
  const { networkGuard, agentfs, sessiondb, databaseUrl, model } = configuration;
  const databases = [databaseUrl, agentfs?.url ?? null, sessiondb?.url ?? null];
  const ports = deniedPorts(port, configuration.deniedPorts, databases);
  const modelPort = localPort(model?.hermesEnvironment.EDGE_MODEL_URL ?? '');
  if (modelPort !== null && ports.includes(modelPort)) {
    throw new Error(`agents need port ${modelPort} for the model of EDGE_MODEL_URL; take it out of EDGE_DENIED_PORTS`);
  }
  const reason = await attachGuard(confinedExec, cgroup, ports);
  if (reason === null) return;
  if (networkGuard === 'require') {
    const fix = 'run as root with a writable cgroup hierarchy of version 2, or set it to when-possible';
    throw new Error(`EDGE_NETWORK_GUARD is require, but the guard cannot be had: ${reason}; ${fix}`);
  }
  log.warn("there is no network guard: agents reach this host's network as the gateway does", { reason });
}

/**
 * Attaches the guard to a cgroup and all that will be below it. Answers with null, or with why it cannot be done here.
 * `confinedExec` is a path that executes it.
 */
export async function attachGuard(
  confinedExec: string,
  cgroup: string | null,
  ports: readonly number[],
): Promise<string | null> {
  if (cgroup === null) return 'it needs root and a cgroup hierarchy of version 2 that can be written to';
  const child = Bun.spawn([confinedExec, 'guard', cgroup, ...ports.map(String)], {
    env: {},
    stdin: 'ignore',
    stdout: 'ignore',
    stderr: 'pipe',
    timeout: limitMs,
    killSignal: 'SIGKILL',
  });
  const [said, code] = await within(
    limitMs + 1_000,
    'the network guard',
    Promise.all([child.stderr.text(), child.exited]),
  );
  return code === 0 ? null : said.trim().slice(0, 300) || `confined-exec guard ended with ${child.signalCode ?? code}`;
}

/**
 * The ports of this host that no agent may reach: the gateway's own, those that the operator names, and those of databases
 * that are on this host. `port` 0 is left out: the kernel has not chosen yet.
 */
export function deniedPorts(
  port: number,
  named: readonly number[],
  databases: readonly (string | null)[],
): readonly number[] {
  const own = port === 0 ? [] : [port];
  const ofDatabases = databases.flatMap((url) => {
    const local = url === null ? null : localPort(url);
    return local === null ? [] : [local];
  });
  return [...new Set([...own, ...named, ...ofDatabases])].slice(0, maxDeniedPorts);
}

const defaultPorts: Readonly<Record<string, number>> = {
  'http:': 80,
  'https:': 443,
  'postgres:': 5432,
  'postgresql:': 5432,
};

/** The port of a URL whose host is this one; null for another host. */
export function localPort(url: string): number | null {
  const parsed = URL.parse(url);
  if (parsed === null || !isThisHost(parsed.hostname)) return null;
  return parsed.port === '' ? (defaultPorts[parsed.protocol] ?? null) : Number(parsed.port);
}

function isThisHost(name: string): boolean {
  const host = name.replace(/^\[|\]$/g, '').toLowerCase();
  if (host === '' || host === 'localhost' || host.endsWith('.localhost') || host === hostname().toLowerCase())
    return true;
  if (/^127\.|^0\.0\.0\.0$|^::1?$/.test(host)) return true;
  return Object.values(networkInterfaces()).some((all) => all?.some(({ address }) => address === host));
}
