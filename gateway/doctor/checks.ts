/** What this machine must have, each with how to get it. The same checks run at every start and in `edge-gateway doctor`. */
import { X509Certificate } from 'node:crypto';
import { readFileSync, statSync } from 'node:fs';
import { join } from 'node:path';
import { currentRuntime, readRuntime } from '../../bunfs-assets/runtime.ts';
import { within } from '../waits.ts';

export interface Finding {
  readonly name: string;
  /** Null: it is there. Otherwise what is wrong and what to do. */
  readonly fix: string | null;
  /** What is missing then is told, and stops nothing. */
  readonly optional?: true;
}

/** How long one check may take. */
const checkLimitMs = 30_000;
/** A process that outlives the check may hold its output open. */
const outputGraceMs = 2_000;
const maxOutput = 16_384;

/** Kernel features, as confined-exec finds them on this host. `confinedExec` is a path that executes it. */
export async function checkKernel(confinedExec: string): Promise<readonly Finding[]> {
  const { output, code } = await run([confinedExec, 'check']);
  const findings = output.split('\n').flatMap((line): Finding[] => {
    const ok = /^ok (.+)$/.exec(line);
    if (ok !== null) return [{ name: ok[1]!, fix: null }];
    const missing = /^missing ([^:]+): (.+)$/.exec(line);
    return missing === null ? [] : [{ name: missing[1]!, fix: missing[2]! }];
  });
  const complete = findings.length > 0 && (code === 0) === findings.every(({ fix }) => fix === null);
  if (complete) return findings;
  return [
    ...findings,
    {
      name: 'confined-exec',
      fix: `its check ended with ${code} (${lastLine(output)}): copy dist/ as a whole, for this machine's architecture, or build again`,
    },
  ];
}

/** The Hermes runtime directory in force. Throws with what to do when there is none. */
export function hermesRuntime(configured: string | null): string {
  const directory = configured ?? currentRuntime();
  readRuntime(directory);
  return directory;
}

/**
 * Whether Hermes can be started from the runtime. `thorough` imports it, which takes about a second; otherwise it is only
 * looked up.
 */
export async function checkRuntime(configured: string | null, thorough: boolean): Promise<Finding> {
  const name = 'Hermes runtime';
  let directory: string;
  try {
    directory = hermesRuntime(configured);
  } catch (error) {
    return { name, fix: (error as Error).message };
  }
  const script = thorough
    ? 'import acp_adapter.entry, run_agent, mcp'
    : 'import importlib.util as u, sys; sys.exit(0 if all(u.find_spec(n) for n in ("acp_adapter", "run_agent", "mcp")) else "Hermes is not installed in it")';
  // -I: nothing of the environment or the working directory may take part.
  const { output, code } = await run([join(directory, 'bin', 'python'), '-I', '-c', script]);
  if (code === 0) return { name, fix: null };
  return { name, fix: `${directory} is damaged (${lastLine(output)}): remove it and run the build again` };
}

/** Holders take no larger one (zig/limits.zig). */
const maxCaBundleBytes = 4 * 1024 * 1024;

/** Whether a CA bundle can be given to holders; nothing to say where none is configured. */
export function checkCaBundle(path: string | null): readonly Finding[] {
  if (path === null) return [];
  const flaw = flawOfCaBundle(path);
  const remedy = 'name a file of certificates in PEM form and nothing else, or leave EDGE_CA_BUNDLE unset';
  return [{ name: 'EDGE_CA_BUNDLE', fix: flaw === null ? null : `${flaw}; ${remedy}` }];
}

function flawOfCaBundle(path: string): string | null {
  let text: string;
  try {
    if (statSync(path).size > maxCaBundleBytes) return `${path} is larger than ${maxCaBundleBytes} bytes`;
    text = readFileSync(path, 'latin1');
  } catch (error) {
    return `${path} cannot be read: ${(error as Error).message}`;
  }
  // Every tool of every agent can read it.
  if (text.includes('PRIVATE KEY-----')) return `${path} holds a private key`;
  const certificates = text.match(/-----BEGIN CERTIFICATE-----[^-]*-----END CERTIFICATE-----/g) ?? [];
  const begun = text.match(/-----BEGIN /g)?.length ?? 0;
  if (certificates.length === 0) return `${path} holds no certificate in PEM form`;
  if (begun !== certificates.length) return `${path} holds something else than certificates in PEM form`;
  const bad = certificates.findIndex((certificate) => !isCertificate(certificate));
  return bad < 0 ? null : `certificate ${bad + 1} in ${path} is damaged`;
}

function isCertificate(pem: string): boolean {
  try {
    return new X509Certificate(pem).subject !== undefined;
  } catch {
    return false; // How it is damaged helps nobody.
  }
}

async function run(command: readonly string[]): Promise<{ readonly output: string; readonly code: number | string }> {
  try {
    const child = Bun.spawn([...command], {
      env: { PATH: '/usr/local/bin:/usr/bin:/bin', LANG: 'C.UTF-8', HOME: '/nonexistent' },
      cwd: '/',
      stdin: 'ignore',
      stdout: 'pipe',
      stderr: 'pipe',
      timeout: checkLimitMs,
      killSignal: 'SIGKILL',
    });
    const said = Promise.all([child.stdout.text(), child.stderr.text()]);
    const what = `the output of ${command[0]}`;
    const [[output, errors]] = await Promise.all([within(checkLimitMs + outputGraceMs, what, said), child.exited]);
    return { output: `${output}${errors}`.slice(0, maxOutput), code: child.signalCode ?? child.exitCode ?? 'no code' };
  } catch (error) {
    return { output: (error as Error).message, code: 'no start' };
  }
}

function lastLine(output: string): string {
  return output.trim().split('\n').at(-1)?.slice(0, 300) || 'it said nothing';
}

/** The findings that stop a start, one line each; null when all is there. */
export function missing(findings: readonly Finding[]): string | null {
  const lines = findings
    .filter(({ fix, optional }) => fix !== null && !optional)
    .map(({ name, fix }) => `missing: ${name}: ${fix}`);
  return lines.length === 0 ? null : lines.join('\n');
}
