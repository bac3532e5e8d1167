/** Attaches conversations to their Hermes children through hermes-run, and carries cut-off lines from one attachment to the next. */
import { type Attachment, attach } from '../../hermes-run/client.ts';
import type { ChildEnd } from '../../machine/launch.ts';
import type { ConversationId } from '../ids.ts';

/** An attachment whose detach is bounded and remembered. */
export interface HeldAttachment extends Omit<Attachment, 'detach'> {
  /**
   * Orderly end; the child stays warm. Ends disorderly when it takes longer than the limit. Resolves when the conversation
   * can be attached again; never rejects.
   */
  detach(): Promise<void>;
  /** How the child ended, to be asked once its stream has; null when nobody says it. Never rejects. */
  childEnd(): Promise<ChildEnd | null>;
}

export interface Attachments {
  /**
   * `session` is the conversation's native session, null before it has one. `fresh`: a child that is warm is replaced
   * first. Rejects with hermes-run's AttachRefused or AttachFailed, or with the signal's reason.
   */
  attach(
    conversation: ConversationId,
    session: string | null,
    fresh: boolean,
    signal: AbortSignal,
  ): Promise<HeldAttachment>;
}

/** One conversation's bytes that belong in front of its next attachment: rarely any. */
interface Carried {
  readonly generation: number;
  readonly bytes: Uint8Array;
}

export function createAttachments(options: {
  readonly socketPath: string;
  readonly token: string;
  /** Longest orderly detach, in milliseconds. */
  readonly detachMs: number;
  /** What the machine says about the end of one of its children. */
  readonly childEnd?: (generation: number) => Promise<ChildEnd | null>;
}): Attachments {
  // Bounded by the conversations whose child stopped within a line, and each by the longest line that the client takes.
  const carried = new Map<ConversationId, Carried>();

  return {
    async attach(conversation, session, fresh, signal) {
      const { socketPath, token } = options;
      const before = carried.get(conversation);
      const attachment = await attach({ socketPath, token, conversation, session, fresh, signal, carried: before });
      carried.delete(conversation);
      return {
        ...attachment,
        async detach() {
          const limit = setTimeout(() => attachment.abandon(), options.detachMs);
          try {
            const bytes = await attachment.detach();
            if (bytes.length > 0) carried.set(conversation, { generation: attachment.generation, bytes });
          } catch {
            // A detach that fails leaves a stream in an unknown place: the child is replaced.
            attachment.abandon();
          } finally {
            clearTimeout(limit);
          }
        },
        childEnd: async () => (await options.childEnd?.(attachment.generation)) ?? null,
        abandon() {
          carried.delete(conversation);
          attachment.abandon();
        },
      };
    },
  };
}
