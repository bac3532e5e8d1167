/**
 * The files of a message that is sent again: read to know whether it is the same message, and stored nowhere. So it needs no room,
 * and gets its answer when there is none.
 */
import type { FileLimits } from '../../machine/launch.ts';
import type { ContentBlock } from '../domain.ts';
import { Problem } from '../problem.ts';
import type { FileHeading } from './inbox.ts';
import { inboundLink, mediaTypeOf } from './names.ts';

export class Comparison {
  readonly #largestFile: number;
  #room: number;

  constructor({ largestFile, conversation }: Pick<FileLimits, 'largestFile' | 'conversation'>) {
    this.#largestFile = largestFile;
    this.#room = conversation.bytes;
  }

  /** How much more may come: what a conversation has at most has come once. */
  get roomBytes(): number {
    return this.#room;
  }

  /** Reads one more file. Problems: too large, wrong heading; and what `contents` throws. */
  async receive(contents: AsyncIterable<Uint8Array>, heading: FileHeading): Promise<{ readonly block: ContentBlock }> {
    const mediaType = mediaTypeOf(heading.mediaType);
    const hasher = new Bun.CryptoHasher('sha256');
    let size = 0;
    for await (const piece of contents) {
      size += piece.length;
      this.#room -= piece.length;
      if (size > this.#largestFile) {
        const detail = `A file may have ${this.#largestFile} bytes at most`;
        throw new Problem('body-too-large', detail, { maxBytes: this.#largestFile });
      }
      hasher.update(piece);
    }
    const block = inboundLink({ sha256: hasher.digest('hex'), size }, { fileName: heading.fileName, mediaType });
    return { block };
  }
}
