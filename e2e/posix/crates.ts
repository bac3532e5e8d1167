/** Test programs that are Rust crates: compiled once into build/, by version. */
import { existsSync } from 'node:fs';
import { join } from 'node:path';
import { takeBuildLock } from '../../bunfs-assets/make/build-lock.ts';
import { repository } from '../harness/executable.ts';
import { requireProgram } from '../harness/programs.ts';

const crates = {
  pjdfstest: '0.2.2',
  fsx: '0.3.2',
} as const;
/** They wait for a file system far more than they compute: compiling them fast saves more than it costs. */
const profile = {
  CARGO_PROFILE_RELEASE_OPT_LEVEL: '1',
  CARGO_PROFILE_RELEASE_LTO: 'off',
  CARGO_PROFILE_RELEASE_CODEGEN_UNITS: '16',
};
/** Compiling one, with its dependencies, on one slow core. */
export const compileTimeoutMs = 10 * 60_000;

/** The path of a crate's program. The first call compiles it, which needs the registry of Rust packages; Rust 1.85 or later does. */
export function crateProgram(name: keyof typeof crates): string {
  const root = join(repository, 'build/crates', `${name}-${crates[name]}`);
  const program = join(root, 'bin', name);
  // Two files of tests may want it at the same time: the second finds it, once the first has made it.
  const release = takeBuildLock(join(repository, 'build/crates/lock'), () => {});
  try {
    if (!existsSync(program)) compile(name, root);
    return program;
  } finally {
    release();
  }
}

function compile(name: keyof typeof crates, root: string): void {
  console.log(`compiling ${name} ${crates[name]} …`);
  const argv = [requireProgram('cargo'), 'install', name, '--version', crates[name], '--locked', '--root', root];
  const { success, stderr } = Bun.spawnSync([...argv, '--target-dir', join(repository, 'build/crates/target')], {
    env: { ...process.env, ...profile },
    stdin: 'ignore',
    stdout: 'ignore',
    timeout: compileTimeoutMs,
  });
  if (!success) throw new Error(`${name} ${crates[name]} cannot be compiled here:\n${stderr.toString().slice(-2000)}`);
}
