/** The variables of a `.env` file: `NAME=value` a line, with or without `export`, quotes and a comment. */

const line = /^\s*(?:export\s+)?([A-Za-z_][A-Za-z0-9_]*)\s*=\s*(.*)$/;

/** What is no assignment is passed over; the last of a name counts. Nothing is expanded. */
export function readDotenv(bytes: Uint8Array): Record<string, string> {
  const variables: Record<string, string> = {};
  for (const text of Buffer.from(bytes).toString('utf8').split(/\r?\n/)) {
    const [, name, value] = line.exec(text) ?? [];
    if (name !== undefined && value !== undefined) variables[name] = unquoted(value);
  }
  return variables;
}

function unquoted(value: string): string {
  const quoted = /^(["'])(.*?)\1\s*(?:#.*)?$/.exec(value);
  return quoted ? quoted[2]! : value.replace(/\s+#.*$/, '').trimEnd();
}
