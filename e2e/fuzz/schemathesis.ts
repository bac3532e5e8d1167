/**
 * Schemathesis against the running executable: it sends what /openapi.json allows, and what it forbids, and checks that nothing
 * is answered with a fault of ours, in another form than said, or not at all. What it says of itself is told apart from that.
 */
import { readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';
import type { Gateway } from '../harness/gateway.ts';
import { pythonEnvironment } from '../harness/python-environment.ts';

/** What there is in the gateway: random ids find nothing. `hooks.py` puts it into the requests. */
export type Known = Readonly<
  Record<
    | 'conversation'
    | 'message'
    | 'specialist'
    | 'own_specialist'
    | 'user'
    | 'purge'
    | 'upload'
    | 'token'
    | 'own_token'
    | 'locator'
    | 'etag'
    | 'uri',
    string
  >
>;

export interface FuzzOptions {
  readonly gateway: Gateway;
  readonly bearer: string;
  /** Where its reports go. */
  readonly directory: string;
  readonly known: Known;
  /** Paths of the document that it must leave alone. */
  readonly excluded: readonly string[];
  /** `coverage` sends a set of requests for each operation, to its end; `stateful` follows links, for so many seconds. */
  readonly phase: { readonly is: 'coverage' } | { readonly is: 'stateful'; readonly seconds: number };
  readonly seed: number;
}

export interface FuzzOutcome {
  /** Faults of the gateway, or of what the test says to the tool: one line each. */
  readonly faults: readonly string[];
  /** Titles of what broke in the tool itself, with how often: it says nothing of the gateway. */
  readonly ownErrors: readonly string[];
  readonly cases: number;
  /** What it says about each, with the request to repeat it. */
  readonly report: string;
}

const checks = [
  'not_a_server_error',
  'status_code_conformance',
  'content_type_conformance',
  'response_headers_conformance',
  'response_schema_conformance',
  'unsupported_method',
  'allow_header_conformance',
  'missing_required_header',
  'ignored_auth',
];
/** Its titles of exceptions within itself; a server that does not answer, or a hook that fails, has another one. */
const ownTitles: ReadonlySet<string> = new Set(['Runtime Error', 'Failed Health Check']);
/** An answer that takes longer is none. */
const answerSeconds = 20;
/** To start, and for what has no time of its own; it takes 10 on an idle machine. */
const spareSeconds = 120;

const reportSchema = v.object({
  complete: v.boolean(),
  stop_reason: v.string(),
  exit_code: v.number(),
  test_cases: v.object({ generated: v.number() }),
  failures: v.array(v.object({ title: v.string(), count: v.number(), operations: v.array(v.unknown()) })),
  errors: v.array(v.object({ title: v.string(), count: v.number() })),
});
export type Report = v.InferOutput<typeof reportSchema>;

/** Tells what is ours from what is the tool's own. A run that did not come to its end is a fault. */
export function judge(report: Report): Pick<FuzzOutcome, 'faults' | 'ownErrors'> {
  const say = ({ title, count }: { title: string; count: number }) => `${title} (${count})`;
  const own = report.errors.filter(({ title }) => ownTitles.has(title));
  const faults = [
    ...report.failures.map((failure) => `${say(failure)}: ${JSON.stringify(failure.operations)}`),
    ...report.errors.filter(({ title }) => !ownTitles.has(title)).map(say),
  ];
  if (!report.complete || !['completed', 'max_time'].includes(report.stop_reason))
    faults.push(`it stopped: ${report.stop_reason}`);
  if (report.exit_code !== 0 && faults.length + own.length === 0) faults.push(`it ended with ${report.exit_code}`);
  return { faults, ownErrors: own.map(say) };
}

/** Runs one phase of it. The same seed sends the same requests, as far as the answers are the same. @throws Error when it leaves no report */
export async function fuzz(options: FuzzOptions): Promise<FuzzOutcome> {
  const { gateway, bearer, directory, known, excluded, phase, seed } = options;
  const python = await pythonEnvironment('fuzz', join(import.meta.dir, 'python.lock'));
  const [said, reportFile] = [join(directory, 'said.txt'), join(directory, 'report.json')];
  rmSync(reportFile, { force: true });
  const flags = {
    header: `Authorization: Bearer ${bearer}`,
    checks: checks.join(','),
    phases: phase.is,
    ...(phase.is === 'stateful' ? { 'max-time': String(phase.seconds) } : {}),
    'request-timeout': String(answerSeconds),
    seed: String(seed),
    // More threads than one break `ast.parse` of CPython 3.11.7 and before (gh-106905), which Hypothesis calls.
    workers: '1',
    warnings: 'off',
    report: 'json',
    'report-json-path': reportFile,
  };
  const child = Bun.spawn(
    [
      ...[python, '-m', 'schemathesis.cli', '--no-color'],
      ...['--config-file', join(import.meta.dir, 'schemathesis.toml')],
      ...['run', `${gateway.url}/openapi.json`],
      ...Object.entries(flags).flatMap(([name, value]) => [`--${name}`, value]),
      ...excluded.flatMap((path) => ['--exclude-path', path]),
      ...['--continue-on-failure', '--no-shrink'],
    ],
    {
      cwd: directory,
      stdin: 'ignore',
      stdout: Bun.file(said),
      stderr: 'inherit',
      env: {
        PATH: process.env.PATH ?? '',
        HOME: directory,
        PYTHONPATH: import.meta.dir,
        PYTHONDONTWRITEBYTECODE: '1',
        SCHEMATHESIS_HOOKS: 'hooks',
        FUZZ_KNOWN: JSON.stringify(known),
      },
      timeout: ((phase.is === 'stateful' ? phase.seconds : 0) + spareSeconds) * 1_000,
      killSignal: 'SIGKILL',
    },
  );
  await child.exited;
  const text = readFileSync(said, 'utf8').slice(-40_000);
  if (!(await Bun.file(reportFile).exists())) throw new Error(`Schemathesis left no report:\n${text}`);
  const report = v.parse(reportSchema, JSON.parse(readFileSync(reportFile, 'utf8')));
  return { ...judge(report), cases: report.test_cases.generated, report: text };
}
