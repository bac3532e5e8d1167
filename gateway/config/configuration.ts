/** Reads the configuration: environment first, then the file, then the defaults. All mistakes are told at once. */
import { readFileSync, statSync } from 'node:fs';
import { homedir } from 'node:os';
import { join, resolve } from 'node:path';
import * as v from 'valibot';
import type { FileLimits } from '../../machine/launch.ts';
import { UsageError } from '../usage-error.ts';
import { chooseModel, type ModelChoice } from './model.ts';
import { nearest } from './nearest.ts';
import { isSettingName, type SettingName, type SettingValues, settingNames, settings } from './settings.ts';

export interface CloudDatabase {
  readonly url: string;
  readonly token: string;
}

export interface Configuration {
  readonly host: string;
  readonly port: number;
  /** Absolute. */
  readonly dataDirectory: string;
  readonly organizationName: string;
  /** Null: embedded. */
  readonly databaseUrl: string | null;
  readonly agentfs: CloudDatabase | null;
  readonly sessiondb: CloudDatabase | null;
  /** Absolute; null: beside the executable. */
  readonly hermesRuntime: string | null;
  /** Absolute; null: the embedded certificate authorities. */
  readonly caBundle: string | null;
  /** Whether what HyperSH Git leaves undone goes to the host's git. */
  readonly nativeGit: boolean;
  readonly maxHolders: number;
  readonly holderMemoryBytes: number;
  readonly holderProcesses: number;
  readonly networkGuard: 'require' | 'when-possible';
  /** Of this host, beside the gateway's own. */
  readonly deniedPorts: readonly number[];
  readonly maxMessageBytes: number;
  readonly fileLimits: FileLimits;
  readonly turnDeadlineS: number;
  readonly failedProseDays: number;
  /** Null: none configured. */
  readonly model: ModelChoice | null;
}

export type Environment = Readonly<Record<string, string | undefined>>;

const maxFileBytes = 1024 * 1024;
const fileSchema = v.record(v.string(), v.union([v.string(), v.number(), v.boolean(), v.null()]));

/** The given texts by name. Throws {@link UsageError} for a bad file and for names that do not exist. */
export function readSettings(environment: Environment, file: string | null): ReadonlyMap<SettingName, string> {
  const texts = new Map<SettingName, string>();
  const mistakes: string[] = [];
  const take = (name: string, value: string, where: string) => {
    if (!isSettingName(name))
      mistakes.push(`${name}${where} is not a setting; did you mean ${nearest(name, settingNames)}?`);
    else texts.set(name, value);
  };
  if (file !== null) {
    for (const [name, value] of Object.entries(readFile(file))) {
      if (value !== null) take(name, String(value), ` in ${file}`);
    }
  }
  for (const [name, value] of Object.entries(environment)) {
    // Variables of others are none of our business; an empty one is unset, as in a shell's NAME= command.
    if (value === undefined || value === '' || !(isSettingName(name) || name.startsWith('EDGE_'))) continue;
    take(name, value, '');
  }
  if (mistakes.length > 0) throw new UsageError(mistakes.join('\n'));
  return texts;
}

/** The whole configuration. Throws {@link UsageError} with every mistake, a line each; no secret is quoted. */
export function readConfiguration(environment: Environment, file: string | null): Configuration {
  const texts = readSettings(environment, file);
  const mistakes: string[] = [];
  const values = Object.fromEntries(
    settingNames.map((name) => {
      const given = texts.get(name) ?? settings[name].default;
      if (given === null) return [name, null];
      const parsed = v.safeParse(settings[name].schema as v.GenericSchema<string, unknown>, given);
      if (parsed.success) return [name, parsed.output];
      mistakes.push(`${name} ${parsed.issues[0].message}`);
      return [name, null];
    }),
  ) as SettingValues;
  const pair = (url: 'AGENTFS_URL' | 'SESSIONDB_URL', token: 'AGENTFS_TOKEN' | 'SESSIONDB_TOKEN') => {
    const [address, secret] = [values[url], values[token]];
    if (address !== null && secret !== null) return { url: address, token: secret };
    // One that was given but is malformed has its own line already.
    if (texts.has(url) !== texts.has(token)) mistakes.push(`${url} and ${token} belong together: give both or neither`);
    return null;
  };
  const agentfs = pair('AGENTFS_URL', 'AGENTFS_TOKEN');
  const sessiondb = pair('SESSIONDB_URL', 'SESSIONDB_TOKEN');
  const model = mistakes.length > 0 ? null : chooseModel(values);
  if (typeof model === 'string') mistakes.push(model);
  if (mistakes.length > 0 || typeof model === 'string') throw new UsageError(mistakes.join('\n'));
  return {
    host: values.EDGE_HOST,
    port: values.EDGE_PORT,
    dataDirectory:
      values.EDGE_DATA_DIR === null ? defaultDirectory(environment, 'data') : resolve(values.EDGE_DATA_DIR),
    organizationName: values.EDGE_ORGANIZATION,
    databaseUrl: values.DATABASE_URL,
    agentfs,
    sessiondb,
    hermesRuntime: values.EDGE_HERMES_RUNTIME === null ? null : resolve(values.EDGE_HERMES_RUNTIME),
    caBundle: values.EDGE_CA_BUNDLE === null ? null : resolve(values.EDGE_CA_BUNDLE),
    nativeGit: values.EDGE_NATIVE_GIT === 'auto',
    maxHolders: values.EDGE_MAX_HOLDERS,
    holderMemoryBytes: values.EDGE_HOLDER_MEMORY_MIB * 1024 * 1024,
    holderProcesses: values.EDGE_HOLDER_PROCESSES,
    networkGuard: values.EDGE_NETWORK_GUARD,
    deniedPorts: values.EDGE_DENIED_PORTS ?? [],
    maxMessageBytes: values.EDGE_MAX_MESSAGE_BYTES,
    fileLimits: {
      largestFile: values.EDGE_MAX_FILE_BYTES,
      conversation: { bytes: values.EDGE_CONVERSATION_BYTES, inodes: values.EDGE_CONVERSATION_FILES },
      organization: { bytes: values.EDGE_ORGANIZATION_BYTES, inodes: values.EDGE_ORGANIZATION_FILES },
    },
    turnDeadlineS: values.EDGE_TURN_DEADLINE_S,
    failedProseDays: values.EDGE_FAILED_PROSE_DAYS,
    model,
  };
}

/** Where this program's data is when nobody says otherwise: the user's data directory, from wherever it is started. */
export function defaultDirectory(environment: Environment, name: string): string {
  const { XDG_DATA_HOME: data, HOME: home } = environment;
  return resolve(data || join(home || homedir(), '.local', 'share'), 'edge-gateway', name);
}

function readFile(file: string): v.InferOutput<typeof fileSchema> {
  let text: string;
  try {
    if (statSync(file).size > maxFileBytes) throw new Error(`larger than ${maxFileBytes} bytes`);
    text = readFileSync(file, 'utf8');
  } catch (error) {
    throw new UsageError(`The configuration file ${file} cannot be read: ${(error as Error).message}`);
  }
  let json: unknown;
  try {
    json = JSON.parse(text);
  } catch {
    // The parser's message may quote the file, and so a secret.
    throw new UsageError(`The configuration file ${file} is not JSON`);
  }
  const parsed = v.safeParse(fileSchema, json);
  if (Array.isArray(json) || !parsed.success)
    throw new UsageError(`The configuration file ${file} must be one JSON object of names and values`);
  return parsed.output;
}
