/** Programs that start.py lets Hermes start: through the launcher, without private variables, otherwise as ever. */
import { beforeAll, describe, expect, test } from 'bun:test';
import { chmodSync, copyFileSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { hermesPython, makeHome, scriptIn } from './testing/hermes.ts';

const python = hermesPython() ?? Bun.which('python3');

/** Stands for `confined-exec shell`: notes its arguments, then executes the first candidate that is there. */
const launcherText = `#!/bin/bash
printf '%s\\n' "$*" >> "\${0%/*}/launched"
[ "$1" = shell ] || exit 125
n=$2; shift 2
program=
for ((i = 0; i < n; i++)); do [ -z "$program" ] && [ -x "$1" ] && program=$1; shift; done
name=$1; shift
exec -a "$name" "$program" "$@"
`;

/** As the build makes it. */
const confinedExec = join(import.meta.dir, '../../build/assets/confined-exec.bin');

async function run(launcher: 'stand-in' | 'confined-exec' | 'none') {
  const directory = mkdtempSync(join(tmpdir(), 'edge-programs-'));
  makeHome(directory, '');
  const path = join(directory, 'launcher');
  if (launcher === 'confined-exec') copyFileSync(confinedExec, path);
  else writeFileSync(path, launcherText);
  chmodSync(path, 0o755);
  writeFileSync(join(directory, 'hermes/.env'), '# a comment\nDOTENV=secret\n');
  const child = Bun.spawn(
    [
      python!,
      '-I',
      join(import.meta.dir, 'testing/programs.py'),
      scriptIn(directory),
      launcher === 'none' ? '-' : path,
    ],
    {
      cwd: join(directory, 'work'),
      env: {
        PATH: '/usr/bin:/bin',
        HERMES_HOME: join(directory, 'hermes'),
        PRIVATE: 'secret',
        DOTENV: 'secret',
        LC_ALL: 'C',
        TMPDIR: directory,
      },
      stderr: 'pipe',
    },
  );
  const [printed, problems] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  if ((await child.exited) !== 0) throw new Error(problems);
  const launched = join(directory, 'launched');
  const result = {
    outcome: JSON.parse(printed.replaceAll(directory, 'DIR')) as Record<string, unknown>,
    launched: existsSync(launched)
      ? readFileSync(launched, 'utf8').replaceAll(directory, 'DIR').trim().split('\n')
      : [],
  };
  rmSync(directory, { recursive: true });
  return result;
}

describe.skipIf(python === null)('programs', () => {
  let direct: Awaited<ReturnType<typeof run>>;
  let confined: Awaited<ReturnType<typeof run>>;
  beforeAll(async () => {
    [direct, confined] = await Promise.all([run('none'), run('stand-in')]);
  }, 90_000);

  test('get public variables, and what Hermes set itself, but no private one', () => {
    const shown = 'name:argument:none:none:none:none:t:by hermes:C\n';
    for (const way of ['run', 'executable', 'asyncio']) expect([way, direct.outcome[way]]).toEqual([way, shown]);
    expect(direct.outcome.inherited).toBe(shown.replace(':t:', ':none:'));
    for (const way of ['execve', 'posix_spawn', 'posix_spawnp']) expect(direct.outcome[way]).toEqual([0, shown]);
    expect(direct.outcome.terminal).toBe(shown.replace('\n', '\r\n'));
    expect(direct.outcome['after a change of .env']).toContain(':none:none:C');
    expect(direct.outcome['a forked child that cannot read .env']).toEqual([0, 'none:none\n']);
  });

  test('behave with the launcher as without', () => {
    expect(confined.outcome).toEqual(direct.outcome);
    expect(direct.outcome).toMatchObject({
      missing: ['FileNotFoundError', 2, 'no-such-program'],
      'missing path': ['FileNotFoundError', 2, '/no/such'],
      'not executable': ['PermissionError', 13, 'DIR/work/bin/plain'],
      directory: ['PermissionError', 13, 'DIR/work'],
      'missing cwd': ['FileNotFoundError', 2, '/no/such'],
      'exit code': 7,
      signal: -9,
      system: [5, -15],
      spawnv: 6,
      'execvp missing': [9, 'FileNotFoundError'],
      path: 'tool x\n',
      'relative to cwd': 'tool y\n',
      'new session': 'leader\n',
      dumpable: 0,
    });
  });

  test.skipIf(!existsSync(confinedExec))(
    'and with the confined-exec that was built',
    async () => {
      expect((await run('confined-exec')).outcome).toEqual(direct.outcome);
    },
    90_000,
  );

  test('are told of once each, with their own arguments and their own end, before and behind a launcher', () => {
    const executions = confined.outcome.executions as [string, string[], string, unknown][];
    expect(confined.outcome['in order']).toBe(true);
    expect(executions.length).toBe(23);
    expect(executions).toContainEqual(['/bin/sh', ['/bin/sh', '-c', 'exit 7'], 'DIR/work', { c: 7 }]);
    expect(executions).toContainEqual(['/bin/sh', ['/bin/sh', '-c', 'kill -9 $$'], 'DIR/work', { s: 9 }]);
    expect(executions).toContainEqual(['/bin/sh', ['sh', '-c', 'exit 6'], 'DIR/work', { c: 6 }]);
    expect(executions).toContainEqual(['DIR/work/bin/tool', ['tool', 'x'], 'DIR/work', { c: 0 }]);
    const forks = executions.filter(([, argv]) => argv[0] === 'sh' && argv[2]?.startsWith('echo $0'));
    // execlp does not say its own name; posix_spawnp does not either; the terminal's program is `sh` and ends well.
    expect(forks.map(([program, , , end]) => [program.endsWith('/sh'), end])).toEqual([[true, { c: 0 }]]);
    const ends = executions.map(([, , , end]) => end);
    expect(ends.filter((end) => Array.isArray(end))).toEqual([]);
  });

  test('all start through it, by the form that confined-exec knows', () => {
    expect(direct.launched).toEqual([]);
    expect(confined.launched).toContain('shell 2 /nonexistent/tool DIR/work/bin/tool tool x');
    expect(confined.launched).toContain('shell 1 /bin/sh sh -c exit 6');
    expect(confined.launched).toContain('shell 1 /bin/sh /bin/sh -c exit 5');
    expect(confined.launched.length).toBe(24);
  });
});
