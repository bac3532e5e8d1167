/** Every setting of the gateway: one line each, read by `configuration.ts` and listed by `edge-gateway config`. */
import * as v from 'valibot';

/** A setting's text, as it stands in the environment or the file, to its value. */
interface Setting<Schema extends v.GenericSchema<string, unknown>, Default extends string | null> {
  readonly meaning: string;
  /** As one would write it; null when the setting is off unless given. */
  readonly default: Default;
  /** Never printed. */
  readonly secret?: true;
  readonly schema: Schema;
}

const setting = <Schema extends v.GenericSchema<string, unknown>, const Default extends string | null>(
  entry: Setting<Schema, Default>,
): Setting<Schema, Default> => entry;

const text = v.pipe(
  v.string(),
  v.maxLength(4096, 'is longer than 4096 characters'),
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what is refused.
  v.regex(/^[^\u0000-\u001f\u007f]*$/, 'has a control character in it'),
);

function integer(min: number, max: number) {
  const range = `must be a whole number from ${min} to ${max}`;
  return v.pipe(
    text,
    v.regex(/^[0-9]{1,15}$/, range),
    v.transform(Number),
    v.number(range),
    v.minValue(min, range),
    v.maxValue(max, range),
  );
}

function url(schemes: readonly string[]) {
  const shape = `must be a URL that starts with ${schemes.map((scheme) => `${scheme}://`).join(' or ')}`;
  return v.pipe(
    text,
    v.check((value) => schemes.includes(URL.parse(value)?.protocol.slice(0, -1) ?? ''), shape),
  );
}

const noCredentials = 'must not hold a user or a password; the token or key has a setting of its own';

/** An origin with an optional path, without the `/` at its end, to which paths are appended. */
const baseUrl = (schemes: readonly string[]) =>
  v.pipe(
    url(schemes),
    v.check((value) => !/[?#]/.test(value), 'must not have a query or a fragment'),
    // It is printed and logged as it stands.
    v.check((value) => URL.parse(value)?.username === '' && URL.parse(value)?.password === '', noCredentials),
    v.transform((value) => value.replace(/^libsql:/, 'https:').replace(/\/+$/, '')),
  );

const ports = 'must be at most 48 ports from 1 to 65535 with commas between them';
const path = v.pipe(text, v.minLength(1));
const name = v.pipe(text, v.minLength(1), v.maxLength(200, 'is longer than 200 characters'));
const credential = v.pipe(text, v.regex(/^\S+$/, 'has white space in it'));

const gibibyte = 1024 ** 3;

export const settings = {
  EDGE_HOST: setting({
    meaning: 'address to listen on; the gateway speaks plain HTTP, so put TLS in front of any other than loopback',
    default: '127.0.0.1',
    schema: name,
  }),
  EDGE_PORT: setting({
    meaning: 'port to listen on; 0 lets the kernel choose',
    default: '8787',
    schema: integer(0, 65_535),
  }),
  EDGE_DATA_DIR: setting({
    meaning: 'directory of everything durable, made when missing; ~/.local/share/edge-gateway/data when unset',
    default: null,
    schema: path,
  }),
  EDGE_ORGANIZATION: setting({
    meaning: "the organization's name, used at the first start",
    default: 'Organization',
    schema: name,
  }),
  DATABASE_URL: setting({
    meaning: 'Postgres (14 or newer) for governance: postgres://user:password@host:5432/database; embedded when unset',
    default: null,
    secret: true,
    schema: url(['postgres', 'postgresql']),
  }),
  AGENTFS_URL: setting({
    meaning: "the organization's cloud AgentFS database; embedded when unset",
    default: null,
    schema: baseUrl(['https', 'http', 'libsql']),
  }),
  AGENTFS_TOKEN: setting({ meaning: 'token for AGENTFS_URL', default: null, secret: true, schema: credential }),
  SESSIONDB_URL: setting({
    meaning: "the organization's SessionDB database; embedded when unset",
    default: null,
    schema: baseUrl(['https', 'http', 'libsql']),
  }),
  SESSIONDB_TOKEN: setting({ meaning: 'token for SESSIONDB_URL', default: null, secret: true, schema: credential }),
  EDGE_HERMES_RUNTIME: setting({
    meaning: 'directory of the Hermes runtime; the one in runtime/ beside the executable when unset',
    default: null,
    schema: path,
  }),
  EDGE_CA_BUNDLE: setting({
    meaning:
      "PEM file of the certificate authorities that agents and their tools trust, in place of Mozilla's, which are built in",
    default: null,
    schema: path,
  }),
  EDGE_NATIVE_GIT: setting({
    meaning: "auto: what the agents' git does not do itself goes to the host's git, where there is one; off: never",
    default: 'auto',
    schema: v.picklist(['auto', 'off'], 'must be auto or off'),
  }),
  EDGE_MAX_HOLDERS: setting({
    meaning: 'conversations whose agent may run at the same time (about 110 MB each)',
    default: '16',
    schema: integer(1, 1_000),
  }),
  EDGE_HOLDER_MEMORY_MIB: setting({
    meaning: 'memory in MiB of one agent and all that it runs; needs root and a memory cgroup',
    default: '3072',
    schema: integer(256, 4 * 1024 * 1024),
  }),
  EDGE_HOLDER_PROCESSES: setting({
    meaning: 'processes and threads of one agent and all that it runs',
    default: '2048',
    schema: integer(64, 2048),
  }),
  EDGE_NETWORK_GUARD: setting({
    meaning:
      'require: start only where agents can be kept from the gateway, cloud metadata and EDGE_DENIED_PORTS, which needs root and cgroup version 2; when-possible: start in any case',
    default: 'when-possible',
    schema: v.pipe(text, v.picklist(['require', 'when-possible'], 'must be require or when-possible')),
  }),
  EDGE_DENIED_PORTS: setting({
    meaning: 'further ports of this host that agents may not reach, with commas between them',
    default: null,
    schema: v.pipe(
      text,
      v.regex(/^[0-9]{1,5}(, *[0-9]{1,5}){0,47}$/, ports),
      v.transform((value) => value.split(',').map(Number)),
      v.array(v.pipe(v.number(), v.minValue(1, ports), v.maxValue(65_535, ports))),
    ),
  }),
  EDGE_MAX_MESSAGE_BYTES: setting({
    meaning: 'size of one message in bytes, attachments not counted',
    default: String(4 * 1024 * 1024),
    schema: integer(1_024, 16 * 1024 * 1024),
  }),
  EDGE_MAX_FILE_BYTES: setting({
    meaning: 'size of one file in bytes; a larger one is refused as "File too large"',
    default: String(4 * gibibyte),
    schema: integer(1024 * 1024, 1024 * gibibyte),
  }),
  EDGE_CONVERSATION_BYTES: setting({
    meaning: 'bytes that one conversation\'s files may have; beyond them its agent gets "Disk quota exceeded"',
    default: String(16 * gibibyte),
    schema: integer(16 * 1024 * 1024, 100 * 1024 * gibibyte),
  }),
  EDGE_CONVERSATION_FILES: setting({
    meaning: 'files and directories that one conversation may have',
    default: '1000000',
    schema: integer(100, 100_000_000),
  }),
  EDGE_ORGANIZATION_BYTES: setting({
    meaning: 'bytes that all files of the organization may have; beyond them an agent gets "No space left on device"',
    default: String(64 * gibibyte),
    schema: integer(16 * 1024 * 1024, 100 * 1024 * gibibyte),
  }),
  EDGE_ORGANIZATION_FILES: setting({
    meaning: 'files and directories that the organization may have in all',
    default: '10000000',
    schema: integer(1_000, 1_000_000_000),
  }),
  EDGE_TURN_DEADLINE_S: setting({
    meaning: 'seconds that a turn may take before it fails',
    default: '1800',
    schema: integer(1, 86_400),
  }),
  EDGE_FAILED_PROSE_DAYS: setting({
    meaning: 'days for which the text of a failed message is kept; a delivered one is erased at once',
    default: '7',
    schema: integer(0, 3_650),
  }),
  EDGE_MODEL_URL: setting({
    meaning: 'base URL of an OpenAI-compatible model provider, such as http://127.0.0.1:11434/v1; needs EDGE_MODEL',
    default: null,
    schema: baseUrl(['https', 'http']),
  }),
  EDGE_MODEL: setting({
    meaning: "the model's name; each provider below has a default",
    default: null,
    schema: name,
  }),
  EDGE_MODEL_KEY: setting({ meaning: 'key for EDGE_MODEL_URL', default: null, secret: true, schema: credential }),
  EDGE_MODEL_PROVIDER: setting({
    meaning: 'which provider to use when several keys are set: openrouter, anthropic, openai or gemini',
    default: null,
    schema: v.pipe(
      text,
      v.picklist(['openrouter', 'anthropic', 'openai', 'gemini'], 'must be openrouter, anthropic, openai or gemini'),
    ),
  }),
  OPENROUTER_API_KEY: setting({ meaning: 'use OpenRouter', default: null, secret: true, schema: credential }),
  ANTHROPIC_API_KEY: setting({ meaning: 'use Anthropic', default: null, secret: true, schema: credential }),
  OPENAI_API_KEY: setting({ meaning: 'use OpenAI', default: null, secret: true, schema: credential }),
  GEMINI_API_KEY: setting({ meaning: 'use Google Gemini', default: null, secret: true, schema: credential }),
} as const satisfies Record<string, Setting<v.GenericSchema<string, unknown>, string | null>>;

export type SettingName = keyof typeof settings;
/** What each setting amounts to; null when it is unset and has no default. */
export type SettingValues = {
  readonly [Name in SettingName]: (typeof settings)[Name]['default'] extends string
    ? v.InferOutput<(typeof settings)[Name]['schema']>
    : v.InferOutput<(typeof settings)[Name]['schema']> | null;
};

export function isSettingName(candidate: string): candidate is SettingName {
  return Object.hasOwn(settings, candidate);
}

export const settingNames = Object.keys(settings) as readonly SettingName[];
