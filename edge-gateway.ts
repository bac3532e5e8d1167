/**
 * The executable's entry: finds the command and imports the one part that runs it. Exit codes: 0 orderly, 1 failure,
 * 2 usage.
 */

interface Command {
  readonly summary: string;
  /** Started by this program itself, not by people. */
  readonly internal?: true;
  /** Answers with the exit code. Throws a `TypeError` of `parseArgs` for a wrong option. */
  readonly run: (argv: readonly string[]) => Promise<number>;
}

const commands: Readonly<Record<string, Command>> = {
  serve: {
    summary: 'run the gateway of one organization  [--config FILE]',
    run: async (argv) => {
      (await import('./gateway/runtime-settings.ts')).beginWithRuntimeSettings();
      return (await import('./gateway/serve.ts')).runServe(argv);
    },
  },
  demo: {
    summary: 'serve with demo data and a scripted model  [--port N] [--data DIR]',
    run: async (argv) => {
      (await import('./gateway/runtime-settings.ts')).beginWithRuntimeSettings();
      return (await import('./gateway/demo/demo.ts')).runDemo(argv);
    },
  },
  config: {
    summary: 'list every setting with its meaning, default and value  [--config FILE]',
    run: async (argv) => (await import('./gateway/config/command.ts')).runConfig(argv),
  },
  doctor: {
    summary: 'check kernel, runtime and databases, and say how to fix them  [--config FILE]',
    run: async (argv) => (await import('./gateway/doctor/command.ts')).runDoctor(argv),
  },
  token: {
    summary: 'make a token: token create --role ROLE [--name NAME] [--config FILE]',
    run: async (argv) => (await import('./gateway/token-command.ts')).runToken(argv),
  },
  version: {
    summary: 'print the version',
    run: async (argv) => (await import('./gateway/version.ts')).runVersion(argv),
  },
  help: {
    summary: 'print this',
    run: async () => {
      console.log(usage());
      return 0;
    },
  },
  postgres: {
    summary: 'the embedded Postgres',
    internal: true,
    run: async (argv) => (await import('./gateway/governance/postgres-process.ts')).runPostgres(argv),
  },
  authority: {
    summary: 'the cloud databases as a service of their own, and their online backup',
    run: async (argv) => (await import('./gateway/authority/main.ts')).runAuthority(argv),
  },
  machine: {
    summary: 'the resident machine',
    internal: true,
    run: async (argv) => (await import('./machine/main.ts')).runMachine(argv),
  },
};

function usage(): string {
  const lines = Object.entries(commands)
    .filter(([, command]) => command.internal !== true)
    .map(([name, command]) => `  ${name.padEnd(9)} ${command.summary}`);
  return ['usage: edge-gateway <command> [options]', '', ...lines, '', 'Settings: edge-gateway config'].join('\n');
}

/** `parseArgs` says so for an unknown option, a missing value or a stray word. */
function isUsageError(error: unknown): error is Error {
  const code = error instanceof Error ? (error as { code?: unknown }).code : undefined;
  return typeof code === 'string' && (code.startsWith('ERR_PARSE_ARGS_') || code === 'EDGE_USAGE');
}

async function main(argv: readonly string[]): Promise<number> {
  const [first, ...rest] = argv;
  const name = first === '--help' || first === '-h' ? 'help' : first === '--version' ? 'version' : first;
  const command = name !== undefined && Object.hasOwn(commands, name) ? commands[name] : undefined;
  if (command === undefined) {
    console.error(name === undefined ? usage() : `edge-gateway: unknown command ${name}\n\n${usage()}`);
    return 2;
  }
  if (rest.includes('--help') || rest.includes('-h')) {
    console.log(`usage: edge-gateway ${name} — ${command.summary}`);
    return 0;
  }
  try {
    return await command.run(rest);
  } catch (error) {
    if (isUsageError(error)) {
      console.error(`edge-gateway ${name}: ${error.message}\nusage: edge-gateway ${name} — ${command.summary}`);
      return 2;
    }
    console.error(`edge-gateway ${name}: ${error instanceof Error ? error.message : String(error)}`);
    return 1;
  }
}

// With it the file is a module, which `await` at its top level needs.
export {};

process.exit(await main(process.argv.slice(2)));
