/** Test programs that are Rust crates: compiled once into build/, by version. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { repository } from '../harness/executable.ts';
import { requireProgram } from '../harness/programs.ts';

const crates = {
  pjdfstest: '0.2.2',
  fsx: '0.3.2',
} as const;
/** Compiling one, with its dependencies, on one slow core. */
export const compileTimeoutMs = 10 * 60_000;

/** The path of a crate's program. The first call compiles it, which needs the registry of Rust packages; Rust 1.85 or later does. */
export function crateProgram(name: keyof typeof crates): string {
  const root = join(repository, 'build/crates', `${name}-${crates[name]}`);
  const program = join(root, 'bin', name);
  if (existsSync(program)) return program;
  console.log(`compiling ${name} ${crates[name]} …`);
  const argv = [requireProgram('cargo'), 'install', name, '--version', crates[name], '--locked', '--root', root];
  const { success, stderr } = Bun.spawnSync(argv, { stdin: 'ignore', stdout: 'ignore', timeout: compileTimeoutMs });
  if (!success) throw new Error(`${name} ${crates[name]} cannot be compiled here:\n${stderr.toString().slice(-2000)}`);
  return program;
}
