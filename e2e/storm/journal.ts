/** What happened in a storm, in order: what the storm did, and the log of every gateway that lived in it. */
import { appendFileSync, mkdirSync, writeFileSync } from 'node:fs';
import { dirname } from 'node:path';

/** The lines that are kept in memory, to be shown with a failure. */
const keptLines = 20_000;

export class Journal {
  readonly path: string;
  readonly #from = performance.now();
  readonly #lines: string[] = [];
  #unwritten = '';
  #writing: ReturnType<typeof setTimeout> | null = null;

  /** @param path is begun anew */
  constructor(path: string) {
    this.path = path;
    mkdirSync(dirname(path), { recursive: true });
    writeFileSync(path, '');
  }

  /** Seconds since the storm began. */
  get seconds(): number {
    return (performance.now() - this.#from) / 1_000;
  }

  /** Something that the storm did or saw. */
  say(what: string, details: Readonly<Record<string, unknown>> = {}): void {
    this.#add(`STORM ${what} ${JSON.stringify(details)}`);
  }

  /** A line of a gateway's log. */
  heard(line: string): void {
    this.#add(line);
  }

  /** The last lines that name one of these words. */
  about(words: readonly string[], most: number): string {
    const found = this.#lines.filter((line) => words.some((word) => line.includes(word)));
    return found.slice(-most).join('\n');
  }

  flush(): void {
    if (this.#writing !== null) clearTimeout(this.#writing);
    this.#writing = null;
    appendFileSync(this.path, this.#unwritten);
    this.#unwritten = '';
  }

  #add(line: string): void {
    const whole = `${this.seconds.toFixed(3)} ${line}`;
    this.#lines.push(whole);
    if (this.#lines.length > 2 * keptLines) this.#lines.splice(0, keptLines);
    this.#unwritten += `${whole}\n`;
    this.#writing ??= setTimeout(() => this.flush(), 1_000);
  }
}
