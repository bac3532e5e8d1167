/** What a benchmark and its machine say to each other. */
import * as v from 'valibot';

export const startSchema = v.object({
  /** Of the machine: sockets and replica. Short enough for a unix socket. */
  directory: v.string(),
  agentfs: v.object({ url: v.string(), token: v.string(), socket: v.nullable(v.string()) }),
});
export type MachineStart = v.InferOutput<typeof startSchema>;

export const orderSchema = v.variant('kind', [
  v.object({
    id: v.number(),
    kind: v.literal('work'),
    conversation: v.string(),
    work: v.string(),
    arguments: v.array(v.unknown()),
  }),
  v.object({ id: v.number(), kind: v.picklist(['begin', 'end']), conversation: v.string() }),
  v.object({ id: v.number(), kind: v.literal('memory') }),
]);
export type MachineOrder = v.InferOutput<typeof orderSchema>;

export const answerSchema = v.union([
  v.object({ ready: v.literal(true) }),
  v.object({ id: v.number(), answer: v.optional(v.unknown()) }),
  v.object({ id: v.number(), failure: v.string() }),
]);

export const memorySchema = v.object({ rssMb: v.number(), peakMb: v.number(), cpuMs: v.number(), relayMs: v.number() });
