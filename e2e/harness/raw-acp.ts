/** ACP as bytes: newline-delimited JSON-RPC to a child, with nothing of an ACP library between. */
import * as v from 'valibot';
import { linesOf } from './lines.ts';
import { Arrivals } from './waiting.ts';

const lineSchema = v.looseObject({
  id: v.optional(v.union([v.number(), v.string()])),
  method: v.optional(v.string()),
  params: v.optional(v.unknown()),
  result: v.optional(v.unknown()),
  error: v.optional(v.unknown()),
});
const permissionSchema = v.object({ options: v.array(v.looseObject({ optionId: v.string(), kind: v.string() })) });
const newSessionSchema = v.looseObject({ sessionId: v.string() });
const promptResultSchema = v.looseObject({ stopReason: v.string() });

export interface AcpLine {
  /** Milliseconds since the epoch, with fractions. */
  readonly atMs: number;
  /** Exactly what came. */
  readonly raw: string;
  readonly message: v.InferOutput<typeof lineSchema>;
}

export class RawAcp {
  readonly lines = new Arrivals<AcpLine>();
  readonly #write: (line: string) => void;
  #lastId = 0;

  constructor(output: ReadableStream<Uint8Array>, write: (line: string) => void) {
    this.#write = write;
    void this.#read(output);
  }

  async #read(output: ReadableStream<Uint8Array>): Promise<void> {
    try {
      for await (const raw of linesOf(output)) {
        const message = v.parse(lineSchema, JSON.parse(raw));
        this.lines.add({ atMs: performance.timeOrigin + performance.now(), raw, message });
        if (message.method === 'session/request_permission' && message.id !== undefined) this.#allowOnce(message);
      }
      this.lines.end(new Error('the agent closed its output'));
    } catch (error) {
      this.lines.end(new Error(`the agent's output is no ACP: ${String(error)}`));
    }
  }

  /** As the gateway does (ADR-046 §3). */
  #allowOnce({ id, params }: AcpLine['message']): void {
    const { options } = v.parse(permissionSchema, params);
    const option = options.find(({ kind }) => kind === 'allow_once');
    const outcome = option ? { outcome: 'selected', optionId: option.optionId } : { outcome: 'cancelled' };
    this.send({ jsonrpc: '2.0', id, result: { outcome } });
  }

  send(message: unknown): void {
    this.#write(`${JSON.stringify(message)}\n`);
  }

  notify(method: string, params: unknown): void {
    this.send({ jsonrpc: '2.0', method, params });
  }

  /** @throws Error with the JSON-RPC error */
  async request(method: string, params: unknown, timeoutMs = 120_000): Promise<unknown> {
    this.#lastId += 1;
    const id = this.#lastId;
    const from = this.lines.all.length;
    this.send({ jsonrpc: '2.0', id, method, params });
    const isAnswer = ({ message }: AcpLine) => message.method === undefined && message.id === id;
    const { message } = await this.lines.wait(`the answer to ${method}`, isAnswer, timeoutMs, from);
    if (message.error !== undefined) throw new Error(`${method}: ${JSON.stringify(message.error)}`);
    return message.result;
  }

  initialize(): Promise<unknown> {
    const clientInfo = { name: 'edge-gateway-e2e', version: '0' };
    return this.request('initialize', { protocolVersion: 1, clientCapabilities: {}, clientInfo });
  }

  /** @returns the session id that the agent chose */
  async newSession(cwd: string, mcpServers: readonly unknown[] = []): Promise<string> {
    return v.parse(newSessionSchema, await this.request('session/new', { cwd, mcpServers })).sessionId;
  }

  /** @returns the stop reason */
  async prompt(sessionId: string, prompt: readonly unknown[], timeoutMs?: number): Promise<string> {
    return v.parse(promptResultSchema, await this.request('session/prompt', { sessionId, prompt }, timeoutMs))
      .stopReason;
  }

  /** The native updates so far, in order. */
  get updates(): unknown[] {
    return this.lines.all
      .filter(({ message }) => message.method === 'session/update')
      .map(({ message }) => message.params);
  }
}
