/** A step of the build, skipped while the contents that it was made from and the files that it made are still there. */
import { createHash } from 'node:crypto';
import { existsSync, mkdirSync, readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs';
import { dirname, join, relative } from 'node:path';

/** What a step depends on: the contents of files, of the files below directories, or a plain text. */
export type Input = { readonly path: string } | { readonly text: string };

export interface Step {
  readonly name: string;
  readonly inputs: readonly Input[];
  /** Files that the step leaves. One that is missing makes the step run again. */
  readonly outputs: readonly string[];
  readonly make: () => Promise<void> | void;
}

/** Where a build keeps its state. */
export interface Workspace {
  readonly root: string;
  /** Directory of stamps. */
  readonly stamps: string;
  readonly say: (line: string) => void;
}

const skipped = /\.test\.ts$|^__pycache__$|^node_modules$|^zig-out$|^\.zig-cache$/;

function filesBelow(path: string): string[] {
  if (!statSync(path).isDirectory()) return [path];
  return readdirSync(path)
    .filter((name) => !skipped.test(name))
    .sort()
    .flatMap((name) => filesBelow(join(path, name)));
}

/** One digest of everything that goes into a step. Paths count relative to `root`, so that a moved checkout is no change. */
function digestOf(root: string, name: string, inputs: readonly Input[]): string {
  const hash = createHash('sha256').update(`${name}\0`);
  for (const input of inputs) {
    if ('text' in input) {
      hash.update(`text\0${input.text}\0`);
      continue;
    }
    if (!existsSync(input.path)) {
      hash.update(`absent\0${relative(root, input.path)}\0`);
      continue;
    }
    for (const file of filesBelow(input.path)) {
      const content = readFileSync(file);
      hash.update(`file\0${relative(root, file)}\0${content.length}\0`).update(content);
    }
  }
  return hash.digest('hex');
}

function stampedDigest(stamp: string): string | null {
  return existsSync(stamp) ? readFileSync(stamp, 'utf8') : null;
}

/**
 * Runs the step unless its stamp is current, and answers its digest for the steps that build on it.
 * The stamp is written last: a build that was killed runs the step again.
 */
export async function runStep(workspace: Workspace, step: Step): Promise<string> {
  const digest = digestOf(workspace.root, step.name, step.inputs);
  const stamp = join(workspace.stamps, step.name);
  if (stampedDigest(stamp) === digest && step.outputs.every((output) => existsSync(output))) return digest;
  const startMs = performance.now();
  workspace.say(`${step.name} …`);
  for (const output of step.outputs) mkdirSync(dirname(output), { recursive: true });
  await step.make();
  const missing = step.outputs.filter((output) => !existsSync(output));
  if (missing.length > 0) throw new Error(`build step ${step.name} did not make ${missing.join(', ')}`);
  mkdirSync(workspace.stamps, { recursive: true });
  writeFileSync(`${stamp}.new`, digest);
  renameSync(`${stamp}.new`, stamp);
  workspace.say(`${step.name}: ${((performance.now() - startMs) / 1000).toFixed(1)} s`);
  return digest;
}
