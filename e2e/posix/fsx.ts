/** fsx, the file system exerciser: random reads, writes, mappings, truncations and holes of one file, checked by it. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { apart, onTree } from './apart.ts';
import { crateProgram } from './crates.ts';

/** Every kind of operation; small files that meet each row's bounds, and larger ones of several rows. */
const configuration = (largest: number, opsize: number) => `
flen = ${largest}
nomsyncafterwrite = ${largest > 1_000_000}
[opsize]
max = ${opsize}
[weights]
close_open = 2
invalidate = 1
mapread = 10
mapwrite = 10
read = 10
write = 10
truncate = 5
fsync = 0.5
fdatasync = 0.5
posix_fallocate = 2
punch_hole = 3
sendfile = 3
posix_fadvise = 1
copy_file_range = 5
`;

/**
 * Runs with one seed after the other until the time is over, each on a fresh file of one mount. Throws with the seed and what
 * fsx says when the file is not what it must be.
 */
export async function exercise(scratch: string, firstSeed: number, seconds: number): Promise<{ runs: number }> {
  for (const [name, largest, opsize] of [
    ['small', 262_144, 65_536],
    ['large', 2_000_000, 300_000],
  ] as const) {
    writeFileSync(join(scratch, `${name}.toml`), configuration(largest, opsize));
  }
  const log = join(scratch, 'fsx.log');
  const script = `
end=$(( $(date +%s) + ${seconds} )); seed=${firstSeed}; runs=0
while [ $(date +%s) -lt $end ]; do
  for size in small:4000 large:1000; do
    operations=\${size#*:}; size=\${size%:*}
    "$0" -S $seed -N $operations -f "$1/$size.toml" -P "$1" "$1/tree/file-$size" > "$1/fsx.log" 2>&1 || { echo "seed $seed, $size"; exit 1; }
    runs=$((runs + 1))
  done
  seed=$((seed + 1))
done
echo "$runs runs"`;
  const argv = apart(scratch, onTree(scratch, ['bash', '-c', script, crateProgram('fsx'), scratch]));
  const child = Bun.spawn(argv, { stdin: 'ignore', stdout: 'pipe', stderr: 'pipe' });
  const [out, err] = await Promise.all([new Response(child.stdout).text(), new Response(child.stderr).text()]);
  if ((await child.exited) !== 0) throw new Error(`${out}${err}\n${readFileSync(log, 'utf8').slice(-4000)}`);
  const runs = Number(/(\d+) runs/.exec(out)?.[1]);
  if (!(runs > 0)) throw new Error(`fsx ran not once: ${out}${err}`);
  return { runs };
}
