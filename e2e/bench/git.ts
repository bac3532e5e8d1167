/**
 * `bench git`: HyperSH Git beside the host's native git, on the same mount in the same holder, by the terminal of a real
 * Hermes: the start of the client is in each figure. Each works on a repository of its own with the same files.
 */
import * as v from 'valibot';
import { ToolShell } from '../harness/tool-shell.ts';
import { percentile, rounded } from './figures.ts';

const sizes = [500, 5_000] as const;
const rounds = 5;

/** Prints one JSON line: for each engine and work the milliseconds of each round. */
const script = (files: number) => `cat > measure.py <<'END'
import json, os, subprocess, time
FILES, ROUNDS = ${files}, ${rounds}
ENGINES = {"ours": "git", "native": "/opt/edge/native-git"}
ENV = dict(os.environ, GIT_AUTHOR_NAME="A", GIT_AUTHOR_EMAIL="a@example.test", GIT_COMMITTER_NAME="A",
           GIT_COMMITTER_EMAIL="a@example.test", GIT_CONFIG_GLOBAL="/dev/null", GIT_PAGER="cat")
times = {engine: {} for engine in ENGINES}

def run(engine, work, *arguments):
    started = time.perf_counter()
    done = subprocess.run([ENGINES[engine], *arguments], cwd=engine, env=ENV, capture_output=True)
    took = (time.perf_counter() - started) * 1000
    if done.returncode != 0:
        raise SystemExit(f"{engine} {arguments}: {done.stderr.decode()}")
    times[engine].setdefault(work, []).append(took)

def write(engine, number, text):
    path = f"{engine}/d{number % 50}/file{number}.txt"
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as file:
        file.write(text * 20)

for engine in ENGINES:
    os.mkdir(engine)
    for number in range(FILES):
        write(engine, number, f"line of file {number}\\n")
    run(engine, "init", "init", "-q")
order = list(ENGINES)
for engine in order:
    run(engine, "add", "add", "-A")
    run(engine, "commit", "commit", "-q", "-m", "all files")
for number in range(ROUNDS):
    for engine in order[:: 1 if number % 2 else -1]:
        run(engine, "status", "status", "--short")
        write(engine, number, f"changed in round {number}\\n")
        run(engine, "diff", "diff")
        run(engine, "add one", "add", "-A")
        run(engine, "commit one", "commit", "-q", "-m", f"round {number}")
        run(engine, "log", "log", "--oneline", "-n", "20")
print(json.dumps(times))
END
python3 measure.py; rm -rf ours native`;

const timesSchema = v.record(v.picklist(['ours', 'native']), v.record(v.string(), v.array(v.number())));

export async function benchGit() {
  const rows: { work: string; ours: number; native: number; unit: 'ms' }[] = [];
  await using shell = await ToolShell.start();
  for (const files of sizes) {
    const { output, exitCode } = await shell.run(`bench-${files}`, script(files));
    if (exitCode !== 0) throw new Error(`the benchmark failed: ${output}`);
    const times = v.parse(timesSchema, JSON.parse(output.trim().split('\n').at(-1) ?? ''));
    for (const work of ['add', 'commit', 'status', 'diff', 'add one', 'commit one', 'log']) {
      const median = (engine: 'ours' | 'native') => rounded(percentile(times[engine]?.[work] ?? [], 50), 1);
      rows.push({ work: `${work}, ${files} files`, ours: median('ours'), native: median('native'), unit: 'ms' });
    }
  }
  console.log(`${''.padEnd(26)}${'HyperSH Git'.padStart(12)}${'native git'.padStart(12)}   (median, ms)`);
  for (const { work, ours, native } of rows)
    console.log(`${work.padEnd(26)}${ours.toFixed(1).padStart(12)}${native.toFixed(1).padStart(12)}`);
  return { rows };
}
