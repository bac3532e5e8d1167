/**
 * The gateway as an ACP client of one Hermes child (ADR-046 §1, §3). It opens sessions and sends prompts with exactly the
 * blocks it is given; what the agent streams is handed on as it came. It never sends `session/load` or `session/resume`:
 * those rewrite the transcript's row ids (hermes-agent 0.19.0), while a bare prompt restores a known session by itself.
 */
import {
  type AnyMessage,
  client,
  methods,
  ndJsonStream,
  PROTOCOL_VERSION,
  RequestError,
} from '@agentclientprotocol/sdk';
import * as v from 'valibot';
import type { ContentBlock } from '../domain.ts';
import { wholeLines } from './whole-lines.ts';

/** The byte streams of a child, such as an attachment of hermes-run. */
export interface AgentStreams {
  readonly readable: ReadableStream<Uint8Array>;
  readonly writable: WritableStream<Uint8Array>;
}

export interface AgentClientOptions {
  /** Longest line taken from the agent, in bytes. Must be well above the largest message that is accepted. */
  readonly maxLineBytes: number;
  /** The `update` member of each `session/update`, as it came on the wire and in that order. Must not throw. */
  readonly onUpdate: (update: Readonly<Record<string, unknown>>) => void;
}

/** How a prompt ended, as far as ACP tells. Whether there is a reply, only SessionDB knows. */
export type PromptEnd =
  | { readonly kind: 'stopped'; readonly stopReason: string }
  | { readonly kind: 'error'; readonly code: number; readonly message: string }
  /** The stream ended or broke before an answer came. */
  | { readonly kind: 'gone' };

export interface AgentClient {
  /** Once per child, before anything else. Rejects when the agent speaks another protocol version or goes away. */
  initialize(): Promise<void>;
  /** Makes a native session and gives its id. */
  newSession(): Promise<string>;
  /** Sends the blocks as they are. Never rejects. */
  prompt(session: string, blocks: readonly ContentBlock[]): Promise<PromptEnd>;
  /** Asks the agent to stop the running prompt; the prompt itself still ends. */
  cancel(session: string): Promise<void>;
  /** Stops listening; outstanding requests end as `gone`. The streams' owner closes the streams. */
  close(): void;
}

/** Where every conversation's files are, seen from its holder. */
export const workspace = '/workspace';

const initializedSchema = v.looseObject({ protocolVersion: v.literal(PROTOCOL_VERSION) });
const sessionSchema = v.looseObject({ sessionId: v.pipe(v.string(), v.minLength(1), v.maxLength(200)) });
const stoppedSchema = v.looseObject({ stopReason: v.string() });
const updateSchema = v.looseObject({ update: v.record(v.string(), v.unknown()) });
const permissionSchema = v.looseObject({
  options: v.array(v.looseObject({ optionId: v.string(), kind: v.string() })),
});

type PermissionAnswer = {
  readonly outcome: { readonly outcome: 'selected'; readonly optionId: string } | { readonly outcome: 'cancelled' };
};

/**
 * The answer to `session/request_permission`: the offered option of kind `allow_once`, for this invocation alone and kept
 * nowhere (ADR-046 §3). Where none is offered nothing is chosen.
 */
export function permissionAnswer(params: unknown): PermissionAnswer {
  const request = v.safeParse(permissionSchema, params);
  const once = request.success ? request.output.options.find((option) => option.kind === 'allow_once') : undefined;
  return { outcome: once ? { outcome: 'selected', optionId: once.optionId } : { outcome: 'cancelled' } };
}

/** Speaks ACP over `streams` until they end or {@link AgentClient.close} is called. */
export function connectAgent(streams: AgentStreams, options: AgentClientOptions): AgentClient {
  const lines = streams.readable.pipeThrough(wholeLines(options.maxLineBytes));
  const wire = ndJsonStream(streams.writable, lines, { maxMessageBytes: options.maxLineBytes });
  const connection = client({ name: 'edge-gateway' })
    .onRequest(
      methods.client.session.requestPermission as string,
      (params) => params,
      ({ params }) => permissionAnswer(params),
    )
    .connect({ writable: wire.writable, readable: wire.readable.pipeThrough(updatesApart(options.onUpdate)) });
  // The generic form of request(): params go out untouched, answers are checked here.
  const request = (method: string, params: object) => connection.agent.request<unknown, object>(method, params);

  return {
    async initialize() {
      const params = {
        protocolVersion: PROTOCOL_VERSION,
        clientCapabilities: {},
        clientInfo: { name: 'edge-gateway', version: '1' },
      };
      v.parse(initializedSchema, await request(methods.agent.initialize, params));
    },
    async newSession() {
      const params = { cwd: workspace, mcpServers: [] };
      return v.parse(sessionSchema, await request(methods.agent.session.new, params)).sessionId;
    },
    async prompt(session, blocks) {
      try {
        const answer = await request(methods.agent.session.prompt, { sessionId: session, prompt: blocks });
        return { kind: 'stopped', stopReason: v.parse(stoppedSchema, answer).stopReason };
      } catch (error) {
        // Every way to fail is a value: the caller decides by SessionDB, not by the error.
        if (error instanceof RequestError) return { kind: 'error', code: error.code, message: error.message };
        if (connection.signal.aborted) return { kind: 'gone' };
        return { kind: 'error', code: -32700, message: 'the agent answered a prompt with something else' };
      }
    },
    cancel: (session) => connection.agent.notify(methods.agent.session.cancel, { sessionId: session }),
    close: () => connection.close(),
  };
}

/**
 * Takes `session/update` notifications out of the stream before the SDK: it would hand on validated copies without the
 * fields it does not know, and after other messages that came later.
 */
function updatesApart(onUpdate: AgentClientOptions['onUpdate']): TransformStream<AnyMessage, AnyMessage> {
  return new TransformStream<AnyMessage, AnyMessage>({
    transform(message, controller) {
      if (!('method' in message) || message.method !== methods.client.session.update || 'id' in message) {
        controller.enqueue(message);
        return;
      }
      const params = v.safeParse(updateSchema, message.params);
      if (params.success) onUpdate(params.output.update);
    },
  });
}
