/**
 * Attachments on their way into a conversation (file API, "Inbound"): each is stored once, in the organization's cloud AgentFS,
 * under a name that its contents decide; the files of a message get their names together, or none of them does.
 */
import type { CloudFiles, CloudSql } from '../../machine/agentfs/cloud.ts';
import { FileError } from '../../machine/agentfs/errors.ts';
import { HranaError } from '../../machine/agentfs/hrana.ts';
import { IncomingFiles, type Nameless } from '../../machine/agentfs/incoming.ts';
import type { FileLimits } from '../../machine/launch.ts';
import type { ContentBlock } from '../domain.ts';
import type { ConversationId } from '../ids.ts';
import type { Log } from '../log.ts';
import { Problem } from '../problem.ts';
import { Comparison } from './comparison.ts';
import { inboundLink, inboundName, mediaTypeOf } from './names.ts';
import { type Room, requireRoom, roomFor, Unnamed } from './room.ts';

/** A file that has come whole and has no name in the conversation yet. */
export interface ReceivedFile {
  readonly name: string;
  readonly stored: Nameless;
  /** What the agent gets. */
  readonly block: ContentBlock;
}

/** What a client says of a file. */
export interface FileHeading {
  readonly fileName: string;
  readonly mediaType: string | null;
}

/** One message's files. Ends with `deliver` or `discard`, whichever comes first. */
export interface Delivery {
  /** How much more may come: what was left when this began, without what has come since, here and elsewhere. */
  readonly roomBytes: number;
  /** Takes one more file in. Problems: too large, no room, wrong heading, cloud unreachable; and what `contents` throws. */
  receive(contents: AsyncIterable<Uint8Array>, heading: FileHeading): Promise<ReceivedFile>;
  /**
   * Gives all files their names and then does `accept`; when that fails, the names are taken back. What was there before, from an
   * earlier message or an earlier try of this one, stays.
   */
  deliver<Result>(accept: () => Promise<Result>): Promise<Result>;
  /** The file is no longer this one's: it stays, nameless, until somebody adopts it. */
  release(file: ReceivedFile): void;
  /** Names this file too, and leaves it nameless when that fails. */
  adopt(file: ReceivedFile): void;
  /** Removes what was received and got no name. Never rejects: what cannot be removed now is at the next start. */
  discard(): Promise<void>;
}

export interface Inbox {
  /**
   * `declaredBytes`: what is announced to come. Throws `not-found`,
   * `quota-exceeded`, `too-many-requests`, `agentfs-unavailable`.
   */
  begin(conversation: ConversationId, declaredBytes: number): Promise<Delivery>;
  /** Files of a message that is known already: read to be compared, and stored nowhere. */
  compare(): Comparison;
  /** Removes a file that was released in that conversation. Never rejects. */
  drop(conversation: ConversationId, file: ReceivedFile): Promise<void>;
  /** Removes what the last process left. Never rejects; resolves when it is known what that is. */
  removeLeftOvers(): Promise<void>;
}

export interface InboxParts {
  readonly sql: CloudSql;
  readonly files: CloudFiles;
  readonly limits: FileLimits;
  readonly log: Pick<Log, 'info' | 'warn'>;
  /** Messages whose files may come in at the same time. */
  readonly deliveries?: number;
}

const usualDeliveries = 32;

export function createInbox({ sql, files, limits, log, deliveries = usualDeliveries }: InboxParts): Inbox {
  const incoming = new IncomingFiles(sql, files);
  const lines = new Lines();
  const unnamed = new Unnamed();
  let open = 0;

  const room = async (conversation: ConversationId): Promise<Room> => {
    const found = await roomFor(sql, limits, conversation);
    if (found === null) throw new Problem('not-found', 'There is no such conversation');
    return found;
  };

  return {
    async begin(conversation, declaredBytes) {
      if (open >= deliveries) {
        throw new Problem('too-many-requests', `At most ${deliveries} messages with files come in at once`, {
          retryAfter: 5,
        });
      }
      open += 1;
      try {
        const atFirst = await translated(room(conversation));
        const left = { bytes: unnamed.left(conversation, atFirst), files: atFirst.files };
        requireRoom(left, { bytes: declaredBytes, files: 1 });
        return new OpenDelivery({ incoming, limits, lines, log, room, unnamed }, conversation, atFirst, () => {
          open -= 1;
        });
      } catch (error) {
        open -= 1;
        throw error;
      }
    },

    compare: () => new Comparison(limits),

    async drop(conversation, { stored }) {
      unnamed.add(conversation, -stored.size);
      try {
        await incoming.discard(stored.ino);
      } catch (error) {
        log.warn('a file without a message was not removed; the next start does it', { error });
      }
    },

    async removeLeftOvers() {
      try {
        const { count, remove } = await incoming.leftOvers();
        if (count === 0) return;
        log.info(`removing what ${count} unfinished uploads left`);
        remove().catch((error: unknown) => log.warn('unfinished uploads were not removed', { error }));
      } catch (error) {
        log.warn('unfinished uploads were not looked for', { error });
      }
    },
  };
}

interface Shared {
  readonly incoming: IncomingFiles;
  readonly limits: FileLimits;
  readonly lines: Lines;
  readonly log: Pick<Log, 'warn'>;
  readonly room: (conversation: ConversationId) => Promise<Room>;
  readonly unnamed: Unnamed;
}

class OpenDelivery implements Delivery {
  readonly #shared: Shared;
  readonly #conversation: ConversationId;
  readonly #room: Room;
  #files: ReceivedFile[] = [];
  readonly #adopted = new Set<ReceivedFile>();
  /** Numbers of the files that the message named. */
  readonly #kept = new Set<number>();
  #isDelivered = false;
  #leave: (() => void) | null;

  constructor(shared: Shared, conversation: ConversationId, room: Room, leave: () => void) {
    this.#shared = shared;
    this.#conversation = conversation;
    this.#room = room;
    this.#leave = leave;
  }

  get roomBytes(): number {
    return this.#shared.unnamed.left(this.#conversation, this.#room);
  }

  async receive(contents: AsyncIterable<Uint8Array>, heading: FileHeading): Promise<ReceivedFile> {
    const mediaType = mediaTypeOf(heading.mediaType);
    const { largestFile } = this.#shared.limits;
    const stored = await translated(this.#counted(contents, largestFile), (error) =>
      error.errno === 'EFBIG'
        ? new Problem('body-too-large', `A file may have ${largestFile} bytes at most`, { maxBytes: largestFile })
        : null,
    );
    const name = inboundName(stored.sha256, heading.fileName);
    const file = { name, stored, block: inboundLink(stored, { fileName: heading.fileName, mediaType }) };
    this.#files.push(file);
    return file;
  }

  /** Counts what comes, and ends it when there is no room left for all that comes. */
  async #counted(contents: AsyncIterable<Uint8Array>, largestFile: number): Promise<Nameless> {
    const { incoming, unnamed } = this.#shared;
    const conversation = this.#conversation;
    let bytes = 0;
    const counting = async function* (isFull: () => boolean) {
      for await (const piece of contents) {
        bytes += piece.length;
        unnamed.add(conversation, piece.length);
        if (bytes <= largestFile && isFull()) throw noRoom();
        yield piece;
      }
    };
    try {
      return await incoming.receive(
        counting(() => this.roomBytes < 0),
        largestFile,
      );
    } catch (error) {
      unnamed.add(conversation, -bytes);
      throw error;
    }
  }

  release(file: ReceivedFile): void {
    this.#files = this.#files.filter((one) => one !== file);
  }

  adopt(file: ReceivedFile): void {
    this.#adopted.add(file);
    this.#files.push(file);
  }

  async deliver<Result>(accept: () => Promise<Result>): Promise<Result> {
    const { incoming, lines, room } = this.#shared;
    if (this.#files.length === 0) return accept();
    // One after the other: nobody adopts a name that another one may take back.
    return lines.run(this.#conversation, async () => {
      const { own, all, files } = await translated(room(this.#conversation));
      requireRoom({ bytes: Math.min(own, all), files }, { bytes: this.#bytes, files: this.#files.length });
      const namings = this.#files.map(({ name, stored }) => ({ name, file: stored }));
      const named = await translated(incoming.name(`/conversations/${this.#conversation}/artifacts/inbound`, namings));
      let result: Result;
      try {
        result = await accept();
      } catch (error) {
        // It may have been accepted, and then it needs them.
        if (error instanceof Problem && error.problem === 'outcome-unknown') this.#keep(named.names);
        if (this.#isDelivered) throw error;
        // The message's own failure counts. What cannot be taken back stays unused, and is there for the next try.
        await incoming.unname(named).catch((cause: unknown) => {
          this.#shared.log.warn('the files of a refused message were not removed', { error: cause });
        });
        throw error;
      }
      this.#keep(named.names);
      return result;
    });
  }

  #keep(names: readonly { readonly ino: number }[]): void {
    for (const { ino } of names) this.#kept.add(ino);
    this.#isDelivered = true;
  }

  async discard(): Promise<void> {
    const leave = this.#leave;
    this.#leave = null;
    try {
      const isTaken = this.#isDelivered;
      // One that was adopted is its owner's again, unless a message has its contents under another's name already.
      const over = this.#files.splice(0).filter((file) => isTaken || !this.#adopted.has(file));
      for (const { stored } of over) this.#shared.unnamed.add(this.#conversation, -stored.size);
      for (const file of over) {
        if (!this.#kept.has(file.stored.ino)) await this.#shared.incoming.discard(file.stored.ino);
      }
    } catch (error) {
      this.#shared.log.warn('files without a message were not removed; the next start does it', { error });
    } finally {
      leave?.();
    }
  }

  get #bytes(): number {
    return this.#files.reduce((sum, { stored }) => sum + stored.size, 0);
  }
}

/** Work of one conversation after the other; bounded by the deliveries that are open. */
class Lines {
  readonly #tails = new Map<ConversationId, Promise<unknown>>();

  run<Result>(conversation: ConversationId, work: () => Promise<Result>): Promise<Result> {
    const result = (this.#tails.get(conversation) ?? Promise.resolve()).then(work);
    const tail = result
      .catch(() => undefined)
      .finally(() => {
        if (this.#tails.get(conversation) === tail) this.#tails.delete(conversation);
      });
    this.#tails.set(conversation, tail);
    return result;
  }
}

/** Failures of the cloud as what a client is told; everything else goes on as it is. */
async function translated<T>(work: Promise<T>, own: (error: FileError) => Problem | null = () => null): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof FileError || error instanceof HranaError)) throw error;
    const problem = (error instanceof FileError ? own(error) : null) ?? usualProblem(error);
    problem.cause = error;
    throw problem;
  }
}

const noRoom = (): Problem =>
  new Problem('quota-exceeded', "The conversation's files, or those of all, may not get so many bytes more.");

function usualProblem(error: FileError | HranaError): Problem {
  if (!(error instanceof FileError)) {
    return new Problem('agentfs-unavailable', 'The files cannot be stored now. Send the message again later.');
  }
  switch (error.errno) {
    case 'EFBIG':
      return noRoom();
    case 'EEXIST':
      return new Problem('conflict', 'Another file has the place of one of these already. Send it under another name.');
    default:
      return new Problem('agentfs-unavailable', 'A file was not stored as it came. Send the message again.');
  }
}
