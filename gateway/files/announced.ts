/**
 * Files that are announced over the WebSocket, sent by HTTP PUT, and named by a `message.send`. Until then they are in the cloud
 * without a name: a message gives it to all of its files, or to none. What no message names in time is removed.
 */
import type { ContentBlock } from '../domain.ts';
import type { ConversationId, TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';
import type { Delivery, FileHeading, Inbox, ReceivedFile } from './inbox.ts';
import { mediaTypeOf } from './names.ts';

/** A part of a message: a text, or an upload by its id. */
export type MessagePart = { readonly text: string } | { readonly upload: string };

/** What is done with the blocks of a message. */
export interface Sending<Result> {
  readonly refusal: (blocks: readonly ContentBlock[]) => Problem | null;
  /** The answer to a message that is known already, for which its files need not get names; null for a new one. */
  readonly repeated: (blocks: readonly ContentBlock[]) => Promise<Result | null>;
  readonly accept: (blocks: readonly ContentBlock[]) => Promise<Result>;
}

export interface AnnouncedUploads {
  /** Answers with the id to send the bytes to. Throws `too-many-requests`, `invalid-request`. */
  announce(owner: TokenId, conversation: ConversationId, heading: FileHeading): string;
  /** Problems: `not-found`, `conflict`, those of `Delivery.receive`, and what `contents` throws; then it may be sent again. */
  receive(
    at: { readonly owner: TokenId; readonly conversation: ConversationId; readonly upload: string },
    declaredBytes: number,
    contents: (most: number) => AsyncIterable<Uint8Array>,
  ): Promise<ReceivedFile>;
  /**
   * Makes the blocks of a message and does `accept` with them when its files have their names. When that fails the uploads are as
   * before. An upload that a message has named already stands for the same block, so that a message can be sent again.
   */
  send<Result>(
    owner: TokenId,
    conversation: ConversationId,
    parts: readonly MessagePart[],
    sending: Sending<Result>,
  ): Promise<Result>;
  /**
   * The conversation is being erased and no request of it is at work any more: takes nothing for it from now on, and removes what
   * no message has named. Never rejects.
   */
  retire(conversation: ConversationId): Promise<void>;
}

type State =
  | { readonly state: 'announced' | 'arriving' }
  | { readonly state: 'arrived'; readonly file: ReceivedFile }
  | { readonly state: 'sent'; readonly block: ContentBlock };

interface Upload {
  readonly id: string;
  readonly owner: TokenId;
  readonly conversation: ConversationId;
  readonly heading: FileHeading;
  now: State;
  timer: ReturnType<typeof setTimeout>;
}

export interface AnnouncedLimits {
  readonly perToken: number;
  readonly total: number;
  /** How long an upload is kept after it was last touched. */
  readonly keptMs: number;
}

const usualLimits: AnnouncedLimits = { perToken: 512, total: 8_192, keptMs: 15 * 60_000 };

export function createAnnouncedUploads(inbox: Inbox, limits: AnnouncedLimits = usualLimits): AnnouncedUploads {
  const uploads = new Map<string, Upload>();
  /** Messages of one conversation after the other: two that name an upload at once are one that is sent again. */
  const sending = new Map<ConversationId, Promise<unknown>>();
  /** Conversations that are being erased; as many as were erased in the life of this process. */
  const retired = new Set<ConversationId>();

  const forget = async (upload: Upload): Promise<void> => {
    clearTimeout(upload.timer);
    uploads.delete(upload.id);
    if (upload.now.state === 'arrived') await inbox.drop(upload.conversation, upload.now.file);
  };
  const touch = (upload: Upload): void => {
    clearTimeout(upload.timer);
    upload.timer = setTimeout(() => expire(upload), limits.keptMs);
    upload.timer.unref();
  };
  // One that is arriving ends by its own limits.
  const expire = (upload: Upload): void => (upload.now.state === 'arriving' ? touch(upload) : void forget(upload));

  const find = (owner: TokenId, conversation: ConversationId, id: string): Upload => {
    const upload = uploads.get(id);
    if (upload?.owner !== owner || upload.conversation !== conversation) {
      throw new Problem('not-found', 'There is no such upload, or not any more; announce it again');
    }
    touch(upload);
    return upload;
  };

  const settle = async (upload: Upload): Promise<void> => {
    const { now, conversation } = upload;
    upload.now = { state: 'sent', block: blockOf(upload) };
    if (now.state === 'arrived') await inbox.drop(conversation, now.file);
  };

  const deliver = async <Result>(
    conversation: ConversationId,
    parts: readonly (string | Upload)[],
    { refusal, repeated, accept }: Sending<Result>,
  ): Promise<Result> => {
    const blocks = parts.map((part) => (typeof part === 'string' ? { type: 'text', text: part } : blockOf(part)));
    const refused = refusal(blocks);
    if (refused !== null) throw refused;
    const arrived = new Set(
      parts.filter((part) => typeof part !== 'string' && part.now.state === 'arrived') as Upload[],
    );
    if (arrived.size === 0) return accept(blocks);
    const known = await repeated(blocks);
    if (known !== null) {
      // Its files have their names already; these are not needed.
      for (const upload of arrived) await settle(upload);
      return known;
    }
    const delivery = await inbox.begin(conversation, 0);
    try {
      for (const { now } of arrived) if (now.state === 'arrived') delivery.adopt(now.file);
      const result = await delivery.deliver(() => accept(blocks));
      for (const upload of arrived) upload.now = { state: 'sent', block: blockOf(upload) };
      return result;
    } finally {
      await delivery.discard();
    }
  };

  return {
    announce(owner, conversation, heading) {
      mediaTypeOf(heading.mediaType);
      if (retired.has(conversation)) throw new Problem('not-found', 'There is no such conversation any more');
      const own = [...uploads.values()].filter((upload) => upload.owner === owner);
      if (own.length >= limits.perToken || uploads.size >= limits.total) {
        // What was sent is kept only for a message that is sent again.
        const oldest = own.find(({ now }) => now.state === 'sent');
        if (oldest === undefined) {
          throw new Problem('too-many-requests', `At most ${limits.perToken} uploads of a token may be announced`, {
            retryAfter: 30,
          });
        }
        void forget(oldest);
      }
      const id = `upl_${Buffer.from(crypto.getRandomValues(new Uint8Array(20))).toString('hex')}`;
      const timer = setTimeout(() => undefined, 0);
      const upload: Upload = { id, owner, conversation, heading, now: { state: 'announced' }, timer };
      uploads.set(id, upload);
      touch(upload);
      return id;
    },

    async receive({ owner, conversation, upload: id }, declaredBytes, contents) {
      const upload = find(owner, conversation, id);
      if (upload.now.state !== 'announced') throw new Problem('conflict', `The upload is ${upload.now.state} already`);
      upload.now = { state: 'arriving' };
      let delivery: Delivery | null = null;
      try {
        delivery = await inbox.begin(conversation, declaredBytes);
        const file = await delivery.receive(contents(delivery.roomBytes), upload.heading);
        delivery.release(file);
        upload.now = { state: 'arrived', file };
        touch(upload);
        return file;
      } finally {
        if (upload.now.state === 'arriving') upload.now = { state: 'announced' };
        await delivery?.discard();
      }
    },

    send(owner, conversation, parts, how) {
      const work = async () => {
        const found = parts.map((part) => ('text' in part ? part.text : find(owner, conversation, part.upload)));
        return deliver(conversation, found, how);
      };
      const result = (sending.get(conversation) ?? Promise.resolve()).then(work);
      const tail = result
        // The sender is told; the next one begins anew.
        .catch(() => undefined)
        .finally(() => {
          if (sending.get(conversation) === tail) sending.delete(conversation);
        });
      sending.set(conversation, tail);
      return result;
    },

    async retire(conversation) {
      retired.add(conversation);
      await sending.get(conversation);
      for (const upload of [...uploads.values()]) if (upload.conversation === conversation) await forget(upload);
    },
  };
}

function blockOf({ now }: Upload): ContentBlock {
  switch (now.state) {
    case 'arrived':
      return now.file.block;
    case 'sent':
      return now.block;
    default:
      throw new Problem('conflict', 'An upload of this message has not arrived yet; send its bytes first');
  }
}
