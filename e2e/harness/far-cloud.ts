/** A gateway whose two cloud databases are far away: as many milliseconds as one likes, and each request is counted. */
import { join } from 'node:path';
import { Cloud } from './cloud.ts';
import { firstToken } from './first-token.ts';
import { Gateway } from './gateway.ts';
import { Api } from './http.ts';
import { ScriptedModel } from './model.ts';
import { removeScratch, scratchDirectory } from './scratch.ts';

export class FarCloud {
  readonly cloud: Cloud;
  readonly model: ScriptedModel;
  readonly gateway: Gateway;
  readonly token: string;
  readonly api: Api;
  readonly #directory: string;

  private constructor(parts: Pick<FarCloud, 'cloud' | 'model' | 'gateway' | 'token'>, directory: string) {
    this.cloud = parts.cloud;
    this.model = parts.model;
    this.gateway = parts.gateway;
    this.token = parts.token;
    this.api = new Api(parts.gateway.url, parts.token);
    this.#directory = directory;
  }

  /** Starts it with the specialist `Eleanora`. */
  static async start(): Promise<FarCloud> {
    const directory = scratchDirectory('far-cloud');
    const cloud = await Cloud.start(directory);
    const model = ScriptedModel.start();
    const data = join(directory, 'data');
    const environment = {
      ...cloud.environment,
      EDGE_MODEL_URL: model.url,
      EDGE_MODEL: 'scripted',
      EDGE_MODEL_KEY: 'none',
    };
    const token = firstToken({ ...environment, EDGE_DATA_DIR: data });
    const gateway = await Gateway.start({ command: 'serve', environment, dataDirectory: data });
    const far = new FarCloud({ cloud, model, gateway, token }, directory);
    const made = await far.api.post('/v1/specialists', { name: 'Eleanora', persona: 'Be brief.' });
    if (made.status !== 201) throw new Error(`no specialist: HTTP ${made.status} ${made.text}`);
    return far;
  }

  /** A conversation that has had these messages. */
  async conversation(...texts: readonly string[]): Promise<string> {
    const conversation = await this.api.createConversation('Eleanora');
    for (const text of texts) await this.api.say(conversation, text);
    return conversation;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.gateway[Symbol.asyncDispose]();
    await this.model.stop();
    await this.cloud.stop();
    removeScratch(this.#directory);
  }
}
