/**
 * What must be on a machine before anything of ours can run: Linux, Node (for npx) and Python with venv. Checked first
 * and by name, so that nobody learns of a missing one from a stack trace. Imports nothing that has to be installed.
 */
import { realpathSync } from 'node:fs';

/** The interpreter that the runtime is made from, never one inside a virtual environment or behind a shim. */
export interface Python {
  readonly interpreter: string;
  readonly basePrefix: string;
  /** `major.minor.patch`. */
  readonly version: string;
}

/** One thing that is missing and what to do about it. */
export interface Problem {
  readonly what: string;
  readonly fix: string;
}

export class PrerequisiteError extends Error {
  readonly problems: readonly Problem[];
  constructor(problems: readonly Problem[]) {
    super(['edge-gateway cannot be built here:', ...problems.map((p) => `  - ${p.what}\n    ${p.fix}`)].join('\n'));
    this.name = 'PrerequisiteError';
    this.problems = problems;
  }
}

const pythonFix =
  'Install Python 3.11, 3.12 or 3.13 with venv (Debian: apt install python3 python3-venv), or name one in BUILD_PYTHON.';
const probe = `
import json, sys
found = {"executable": getattr(sys, "_base_executable", None) or sys.executable, "basePrefix": sys.base_prefix,
         "version": "%d.%d.%d" % sys.version_info[:3], "implementation": sys.implementation.name, "venv": True}
try:
    import ensurepip, venv
except ImportError:
    found["venv"] = False
print(json.dumps(found))
`;

export interface ProbedPython {
  readonly executable: string;
  readonly basePrefix: string;
  readonly version: string;
  readonly implementation: string;
  readonly venv: boolean;
}

/** What keeps one interpreter from being used, or null. Hermes 0.19 itself refuses Python 3.14 and later. */
export function pythonProblem(command: string, found: ProbedPython): Problem | null {
  const [major = 0, minor = 0] = found.version.split('.').map(Number);
  if (found.implementation !== 'cpython')
    return { what: `${command} is ${found.implementation}, not CPython.`, fix: pythonFix };
  if (major !== 3 || minor < 11 || minor > 13)
    return { what: `${command} is Python ${found.version}; 3.11, 3.12 or 3.13 is needed.`, fix: pythonFix };
  if (!found.venv)
    return {
      what: `${command} (Python ${found.version}) has no venv module.`,
      fix: `Install it (Debian: apt install python3-venv or python3.${minor}-venv).`,
    };
  return null;
}

/** What keeps this version of Node (as `node --version` prints it, null when there is none) from being used, or null. */
export function nodeProblem(version: string | null): Problem | null {
  const fix =
    'Install Node 20 or later with npx (Debian 13: apt install nodejs npm; Debian 12 has only Node 18: see nodejs.org).';
  if (version === null) return { what: 'Node was not found on the PATH.', fix };
  const major = Number(/^v(\d+)\./.exec(version)?.[1] ?? 0);
  return major >= 20 ? null : { what: `Node is ${version.trim()}; 20 or later is needed.`, fix };
}

function outputOf(command: readonly string[]): string | null {
  try {
    const done = Bun.spawnSync([...command], { stdin: 'ignore', stderr: 'ignore', env: pythonEnvironment() });
    return done.exitCode === 0 ? done.stdout.toString() : null;
  } catch {
    return null; // spawnSync throws when there is no such program: that is the answer, not an error
  }
}

/** The environment for every Python that the build starts: nothing of the caller's may redirect it. */
export function pythonEnvironment(): Record<string, string> {
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(process.env)) {
    if (value === undefined || name === 'VIRTUAL_ENV' || name.startsWith('BUN_')) continue;
    if (name.startsWith('PYTHON')) continue;
    kept[name] = value;
  }
  return { ...kept, PIP_DISABLE_PIP_VERSION_CHECK: '1', PIP_NO_INPUT: '1', PIP_REQUIRE_VIRTUALENV: '0' };
}

/** The Python that everything is built with, or the problems that keep each candidate from it. */
function findPython(): Python | readonly Problem[] {
  const named = process.env.BUILD_PYTHON;
  const candidates = named ? [named] : ['python3', 'python3.13', 'python3.12', 'python3.11'];
  const problems: Problem[] = [];
  for (const command of candidates) {
    const answer = outputOf([command, '-I', '-c', probe]);
    if (answer === null) continue;
    const found = JSON.parse(answer) as ProbedPython;
    const problem = pythonProblem(command, found);
    if (problem === null) {
      return {
        interpreter: realpathSync(found.executable),
        basePrefix: realpathSync(found.basePrefix),
        version: found.version,
      };
    }
    problems.push(problem);
  }
  if (problems.length > 0) return problems.slice(0, 1);
  return [
    { what: named ? `BUILD_PYTHON=${named} does not run.` : 'Python was not found on the PATH.', fix: pythonFix },
  ];
}

/**
 * Checks everything and answers the Python to build with.
 * @throws PrerequisiteError naming all that is missing at once
 */
export function requirePrerequisites(): Python {
  const problems: Problem[] = [];
  if (process.platform !== 'linux' || (process.arch !== 'x64' && process.arch !== 'arm64'))
    problems.push({
      what: `This is ${process.platform} on ${process.arch}.`,
      fix: 'Use 64-bit Linux on x86_64 or aarch64.',
    });
  const node = nodeProblem(outputOf(['node', '--version']));
  if (node) problems.push(node);
  const python = findPython();
  if (!('interpreter' in python)) problems.push(...python);
  if (problems.length > 0 || !('interpreter' in python)) throw new PrerequisiteError(problems);
  return python;
}

if (import.meta.main) {
  try {
    requirePrerequisites();
  } catch (error) {
    if (!(error instanceof PrerequisiteError)) throw error;
    console.error(error.message);
    process.exit(1);
  }
}
