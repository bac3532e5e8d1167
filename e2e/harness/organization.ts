/** An organization whose databases are all outside and counted: a real Postgres, both cloud databases, a scripted model. */
import { join } from 'node:path';
import { realDatabase, type TestDatabase } from '../../gateway/governance/databases.fixture.ts';
import { Cloud } from './cloud.ts';
import { firstToken } from './first-token.ts';
import { Gateway } from './gateway.ts';
import { Api } from './http.ts';
import { ScriptedModel } from './model.ts';
import { removeScratch, scratchDirectory } from './scratch.ts';

export class Organization {
  readonly cloud: Cloud;
  readonly model: ScriptedModel;
  readonly directory: string;
  readonly environment: Readonly<Record<string, string>>;
  readonly token: string;
  readonly #database: TestDatabase;
  readonly #statements: () => readonly string[];
  #gateway: Gateway | null = null;

  private constructor(
    parts: Pick<Organization, 'cloud' | 'model' | 'directory' | 'environment' | 'token'>,
    database: TestDatabase,
    statements: () => readonly string[],
  ) {
    this.cloud = parts.cloud;
    this.model = parts.model;
    this.directory = parts.directory;
    this.environment = parts.environment;
    this.token = parts.token;
    this.#database = database;
    this.#statements = statements;
  }

  /** @param bin of `installedPostgres()` */
  static async start(bin: string): Promise<Organization> {
    const directory = scratchDirectory('organization');
    let log = '';
    const database = await realDatabase(bin, {
      settings: ['log_statement=all', 'log_line_prefix=%x>', 'log_min_messages=log'],
      onLog: (text) => {
        log += text;
      },
    });
    const cloud = await Cloud.start(directory);
    const model = ScriptedModel.start();
    const environment = {
      ...cloud.environment,
      DATABASE_URL: database.address.kind === 'url' ? database.address.url : '',
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL: 'scripted',
    };
    const token = firstToken({ ...environment, EDGE_DATA_DIR: join(directory, 'none') });
    const statements = () =>
      [...log.matchAll(/LOG: {2}(?:statement|execute [^:]*): (.*?)(?=\n\S*>|\n?$)/gs)].map(([, sql]) => sql!.trim());
    return new Organization({ cloud, model, directory, environment, token }, database, statements);
  }

  /** Every statement that Postgres has run so far, in order. */
  get statements(): readonly string[] {
    return this.#statements();
  }

  get gateway(): Gateway {
    if (!this.#gateway) throw new Error('the gateway was not started');
    return this.#gateway;
  }

  get api(): Api {
    return new Api(this.gateway.url, this.token);
  }

  /** Starts the gateway on a data directory of that name. */
  async serve(name = 'data', environment: Readonly<Record<string, string>> = {}): Promise<Gateway> {
    this.#gateway = await Gateway.start({
      command: 'serve',
      environment: { ...this.environment, ...environment },
      dataDirectory: join(this.directory, name),
    });
    return this.#gateway;
  }

  async stop(): Promise<void> {
    await this.#gateway?.[Symbol.asyncDispose]();
    await this.model.stop();
    await this.cloud.stop();
    await this.#database.stop();
    removeScratch(this.directory);
  }

  [Symbol.asyncDispose](): Promise<void> {
    return this.stop();
  }
}
