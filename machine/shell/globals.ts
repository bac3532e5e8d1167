/** What stands before a command's name, and what the environment says to every command. */
import { fatal, leave } from './endings.ts';
import { type ConfigEntry, canonicalKey, parseConfig } from './repository/config.ts';
import { binaryOf, binaryOfBytes } from './text.ts';
import type { Tree } from './tree/tree.ts';

export interface Globals {
  /** Absolute, as asked for. */
  readonly cwd: string;
  readonly gitDirectory: string | null;
  readonly workTree: string | null;
  readonly config: readonly ConfigEntry[];
  readonly command: string;
  readonly argv: readonly string[];
}

/** Variables that change nothing here, or that commands read themselves. */
const known = new Set([
  'GIT_AUTHOR_NAME',
  'GIT_AUTHOR_EMAIL',
  'GIT_AUTHOR_DATE',
  'GIT_COMMITTER_NAME',
  'GIT_COMMITTER_EMAIL',
  'GIT_COMMITTER_DATE',
  'GIT_DIR',
  'GIT_WORK_TREE',
  'GIT_EDITOR',
  'GIT_SEQUENCE_EDITOR',
  'GIT_MERGE_AUTOEDIT',
  'GIT_PAGER',
  'GIT_TERMINAL_PROMPT',
  'GIT_ASKPASS',
  'GIT_SSL_CAINFO',
  'GIT_CONFIG_NOSYSTEM',
  'GIT_CONFIG_GLOBAL',
  'GIT_CONFIG_SYSTEM',
  'GIT_CONFIG_COUNT',
  'GIT_OPTIONAL_LOCKS',
  'GIT_CREDENTIALS',
  'GIT_TEMPLATE_DIR',
  'GIT_EXEC_PATH',
  'GIT_SSH_COMMAND',
  'GIT_SSH',
]);

export function parseGlobals(
  argv: readonly string[],
  cwd: string,
  environment: Readonly<Record<string, string>>,
): Globals {
  for (const [name, value] of Object.entries(environment)) {
    if (!name.startsWith('GIT_') || known.has(name) || /^GIT_CONFIG_(KEY|VALUE)_\d+$/.test(name)) continue;
    if (name.startsWith('GIT_TRACE') && /^(|0|false)$/i.test(value)) continue;
    leave(`the variable ${name}`);
  }
  let directory = cwd;
  let gitDirectory: string | null = environment.GIT_DIR ? absolute(cwd, environment.GIT_DIR) : null;
  let workTree: string | null = environment.GIT_WORK_TREE ? absolute(cwd, environment.GIT_WORK_TREE) : null;
  const config = environmentConfig(environment);
  let at = 0;
  for (; argv[at]?.startsWith('-'); at++) {
    const word = argv[at]!;
    const value = () => argv[++at] ?? leave(`${word} without a value`);
    if (word === '-C') {
      const to = value();
      if (to !== '') directory = absolute(directory, to);
    } else if (word === '-c') config.push(givenConfig(value()));
    else if (word === '--git-dir') gitDirectory = absolute(directory, value());
    else if (word.startsWith('--git-dir=')) gitDirectory = absolute(directory, word.slice(10));
    else if (word === '--work-tree') workTree = absolute(directory, value());
    else if (word.startsWith('--work-tree=')) workTree = absolute(directory, word.slice(12));
    else if (word === '--version' || word === '-v')
      return { cwd: directory, gitDirectory, workTree, config, command: 'version', argv: argv.slice(at + 1) };
    else if (!['--no-pager', '-P', '-p', '--paginate', '--no-optional-locks'].includes(word))
      leave(`the option ${word}`);
  }
  const command = argv[at] ?? leave('no command');
  return { cwd: directory, gitDirectory, workTree, config, command, argv: argv.slice(at + 1) };
}

const absolute = (from: string, path: string): string => (path.startsWith('/') ? path : `${from}/${path}`);

function environmentConfig(environment: Readonly<Record<string, string>>): ConfigEntry[] {
  const count = environment.GIT_CONFIG_COUNT;
  if (count === undefined || count === '') return [];
  if (!/^\d{1,3}$/.test(count)) throw fatal(`bogus count in GIT_CONFIG_COUNT`);
  return Array.from({ length: Number(count) }, (_, number) => {
    const [key, value] = [environment[`GIT_CONFIG_KEY_${number}`], environment[`GIT_CONFIG_VALUE_${number}`]];
    if (key === undefined || value === undefined) throw fatal(`missing config key GIT_CONFIG_KEY_${number}`);
    return { key: canonicalKey(key) ?? leave(`the key ${key}`), value: binaryOf(value), scope: 'command' };
  });
}

function givenConfig(text: string): ConfigEntry {
  const equals = text.indexOf('=');
  const key = canonicalKey(equals < 0 ? text : text.slice(0, equals)) ?? leave(`-c ${text}`);
  return { key, value: equals < 0 ? null : binaryOf(text.slice(equals + 1)), scope: 'command' };
}

/** Where the user's own configuration is kept. */
export interface GlobalConfigFile {
  /** The whole file; null where there is none. */
  read(): Promise<Uint8Array | null>;
  write(bytes: Uint8Array): Promise<void>;
}

/** `~/.gitconfig`: of the tree where the home is there, else what the caller has of it. */
export function globalConfigFile(
  tree: Tree,
  environment: Readonly<Record<string, string>>,
  ofCaller: GlobalConfigFile | undefined,
): GlobalConfigFile | null {
  const named = environment.GIT_CONFIG_GLOBAL;
  if (named === '/dev/null' || named === '')
    return { read: async () => null, write: async () => leave('no global configuration') };
  const path = named ?? `${environment.HOME ?? ''}/.gitconfig`;
  if (!/^\/(workspace|artifacts)\//.test(path)) return ofCaller ?? null;
  return {
    read: async () => ((await tree.stat(path))?.kind === 'file' ? tree.read(path) : null),
    write: (bytes) => tree.write(path, bytes),
  };
}

export async function readGlobalConfig(file: GlobalConfigFile | null): Promise<ConfigEntry[]> {
  const bytes = await file?.read();
  return bytes ? parseConfig(binaryOfBytes(bytes), 'global', '.gitconfig') : [];
}
