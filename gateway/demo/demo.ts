/** The command `edge-gateway demo`: `serve` with everything embedded, demo data, and the scripted model unless a real one is set. */
import { parseArgs } from 'node:util';
import { randomToken } from '../authorities.ts';
import { type Configuration, defaultDirectory, type Environment, readConfiguration } from '../config/configuration.ts';
import { customModel } from '../config/model.ts';
import { createLog, type Log } from '../log.ts';
import { serve } from '../serve.ts';
import { UsageError } from '../usage-error.ts';
import { recall, remember } from './memory.ts';
import { type DemoModel, startDemoModel } from './model.ts';
import { demoConversation, demoTokens } from './seed.ts';

/** A demo never touches anybody's real databases, whatever the environment names. */
const neverRemote = ['DATABASE_URL', 'AGENTFS_URL', 'AGENTFS_TOKEN', 'SESSIONDB_URL', 'SESSIONDB_TOKEN'] as const;

/** Prints one JSON line `{"url","dataDir","conversation","tokens"}` when it can be used. Answers with the exit code. */
export async function runDemo(argv: readonly string[]): Promise<number> {
  const { values } = parseArgs({
    args: [...argv],
    options: { port: { type: 'string' }, data: { type: 'string' } },
    strict: true,
  });
  const log = createLog('gateway');
  const wanted = demoConfiguration(process.env, values.port, values.data);
  let model: DemoModel | null = null;
  try {
    let configuration = wanted;
    if (wanted.model === null) {
      model = startScriptedModel(wanted.dataDirectory, log);
      configuration = { ...wanted, model: customModel(model.url, model.model, model.key) };
      log.info('no model is configured: the scripted demo model answers', { model: model.model });
    } else {
      log.info('a model is configured: it answers, and its provider may charge for it', {
        model: wanted.model.description,
      });
    }
    const identity = modelIdentity(configuration);
    return await serve(configuration, log, async (gateway) => {
      const memory = recall(gateway.dataDirectory);
      const known = memory.conversation?.model === identity ? memory.conversation.id : null;
      const conversation = await demoConversation(gateway, known);
      const tokens = await demoTokens(gateway.governance);
      remember(gateway.dataDirectory, {
        modelPort: model?.port ?? memory.modelPort,
        conversation: { id: conversation.id, model: identity },
      });
      return { url: gateway.url, dataDir: gateway.dataDirectory, conversation: conversation.id, tokens };
    });
  } finally {
    await model?.stop();
  }
}

/** Exported for tests. Throws `UsageError`. */
export function demoConfiguration(
  environment: Environment,
  port: string | undefined,
  data: string | undefined,
): Configuration {
  const local = Object.fromEntries(
    Object.entries(environment).filter(([name]) => !neverRemote.some((n) => n === name)),
  );
  if (data === '') throw new UsageError('--data must name a directory');
  if (port !== undefined && !/^[0-9]{1,5}$/.test(port)) throw new UsageError('--port must be a number up to 65535');
  return readConfiguration(
    {
      ...local,
      EDGE_DATA_DIR: data ?? (environment.EDGE_DATA_DIR || defaultDirectory(environment, 'demo')),
      ...(port === undefined ? {} : { EDGE_PORT: port }),
      EDGE_ORGANIZATION: environment.EDGE_ORGANIZATION || 'Demo',
    },
    null,
  );
}

function startScriptedModel(dataDirectory: string, log: Log): DemoModel {
  const { modelPort } = recall(dataDirectory);
  const key = randomToken();
  if (modelPort === null) return startDemoModel(key);
  try {
    return startDemoModel(key, modelPort);
  } catch (error) {
    log.warn('the port of the scripted model is taken: earlier conversations cannot go on', { port: modelPort, error });
    return startDemoModel(key);
  }
}

/** Hermes keeps these in a session: with others a conversation cannot go on. */
function modelIdentity(configuration: Configuration): string {
  const { EDGE_MODEL_PROVIDER, EDGE_MODEL_URL, EDGE_MODEL } = configuration.model?.hermesEnvironment ?? {};
  return [EDGE_MODEL_PROVIDER, EDGE_MODEL_URL, EDGE_MODEL].join(' ');
}
