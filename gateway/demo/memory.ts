/** What the demo remembers between two starts, in one file of its data directory. */
import { readFileSync, renameSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import * as v from 'valibot';

const schema = v.strictObject({
  /**
   * Port of the scripted model. Hermes keeps the provider's URL in a session, so an earlier conversation only goes on
   * when the model is found where it was.
   */
  modelPort: v.nullable(v.number()),
  /** The demo's conversation, and the model that it began with. */
  conversation: v.nullable(v.strictObject({ id: v.string(), model: v.string() })),
});
export type DemoMemory = v.InferOutput<typeof schema>;

const nothing: DemoMemory = { modelPort: null, conversation: null };
const fileOf = (dataDirectory: string) => join(dataDirectory, 'demo.json');

export function recall(dataDirectory: string): DemoMemory {
  let text: string;
  try {
    text = readFileSync(fileOf(dataDirectory), 'utf8');
  } catch (error) {
    // Whether the directory can be used is told, with what to do, when it is opened.
    if (
      ['ENOENT', 'ENOTDIR', 'EACCES', 'ENAMETOOLONG', 'ELOOP'].includes((error as NodeJS.ErrnoException).code ?? '')
    ) {
      return nothing;
    }
    throw error;
  }
  // A damaged memory costs a new conversation, no more.
  const parsed = v.safeParse(v.pipe(v.string(), v.parseJson(), schema), text);
  return parsed.success ? parsed.output : nothing;
}

export function remember(dataDirectory: string, memory: DemoMemory): void {
  const unfinished = `${fileOf(dataDirectory)}.unfinished`;
  writeFileSync(unfinished, `${JSON.stringify(memory)}\n`, { mode: 0o600 });
  renameSync(unfinished, fileOf(dataDirectory));
}
