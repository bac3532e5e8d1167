/**
 * The organization's variables as lines of a `.env` file, in the one form that everybody who reads it understands alike:
 * python-dotenv and Hermes' own reader, which differ in escapes, and HyperSH Git's.
 */
import { Problem } from '../problem.ts';

export const environmentLimits = { variables: 200, nameLength: 128, valueBytes: 16 * 1024, bytes: 128 * 1024 } as const;

const namePattern = /^[A-Za-z_][A-Za-z0-9_]*$/;
const lineName = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=/;

/**
 * What every holder is given by the machine, but for the model (EDGE_MODEL_KEY may be rotated like any other key), and what
 * would change which code a process runs. A variable of the organization replaces one of the process, so it may not have
 * such a name.
 */
const reservedNames =
  /^(?:PATH|HOME|SHELL|USER|LOGNAME|LANG|TERM|TMPDIR|IFS|ENV|BASH_ENV|BASH_FUNC_.*|HERMES_HOME|EDGE_(?!MODEL).*|LD_.*|PYTHON.*|GCONV_PATH)$/i;

/** What a `PUT` says of each variable: its new value, or null for the one that it has. */
export type NewVariables = Readonly<Record<string, string | null>>;

/** The names in a file, each once, in order. */
export function namesIn(file: Uint8Array): string[] {
  return [...linesOf(file).keys()].toSorted();
}

/**
 * The file with exactly these variables. Throws `invalid-request`, naming the variable and what to do and never a value, for
 * what cannot be written so that it is read as it is, and for a name to keep that has no value.
 */
export function withVariables(file: Uint8Array, variables: NewVariables): Uint8Array {
  const names = Object.keys(variables);
  if (names.length > environmentLimits.variables) {
    throw refused(`There may be ${environmentLimits.variables} variables at most`);
  }
  const known = linesOf(file);
  const lines = names.map((name) => {
    checkName(name);
    const value: unknown = variables[name] ?? null;
    // Names that objects have by themselves, such as `constructor`, pass a schema of records unseen.
    if (value !== null && typeof value !== 'string') throw refused(`${name}: a value is a string, or null`);
    if (value !== null) return lineOf(name, value);
    const kept = known.get(name);
    if (kept === undefined) throw refused(`${name} has no value to be kept: give it one`);
    return kept;
  });
  const bytes = Buffer.from(lines.map((line) => `${line}\n`).join(''));
  if (bytes.length > environmentLimits.bytes) {
    throw refused(`All variables together may have ${environmentLimits.bytes} bytes at most`);
  }
  return bytes;
}

/** The lines that assign something, by name; the last one of a name counts. */
function linesOf(file: Uint8Array): Map<string, string> {
  const lines = new Map<string, string>();
  for (const line of Buffer.from(file).toString('utf8').split(/\r?\n/)) {
    const name = lineName.exec(line)?.[1];
    if (name !== undefined) lines.set(name, line);
  }
  return lines;
}

function checkName(name: string): void {
  if (name.length > environmentLimits.nameLength || !namePattern.test(name)) {
    throw refused(
      `A name has letters, digits and underscores, no digit first and ${environmentLimits.nameLength} characters at most`,
    );
  }
  if (reservedNames.test(name)) throw refused(`${name} is set by the machine itself; choose another name`);
}

function lineOf(name: string, value: string): string {
  if (value.length > environmentLimits.valueBytes) {
    throw refused(`${name}: a value may have ${environmentLimits.valueBytes} characters at most`);
  }
  // The readers differ in every escape, and one of them puts in the variable that ${NAME} names.
  if (!/^[\x20-\x7e]*$/.test(value) || /\\|\$\{/.test(value)) {
    throw refused(`${name}: a value is one line of printable ASCII without backslashes and without \${`);
  }
  if (!value.includes("'")) return `${name}='${value}'`;
  if (!value.includes('"')) return `${name}="${value}"`;
  throw refused(`${name}: a value may have single quotes or double quotes, not both`);
}

const refused = (detail: string): Problem => new Problem('invalid-request', detail);
