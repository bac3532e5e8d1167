/** Makes one pack of many new objects: two files instead of thousands. */
import { createHash } from 'node:crypto';
import { crc32, deflateSync } from 'node:zlib';
import type { ObjectKind } from './objects.ts';

const kindNumbers: Readonly<Record<ObjectKind, number>> = { commit: 1, tree: 2, blob: 3, tag: 4 };

export class PackWriter {
  readonly #entries: { readonly hash: string; readonly bytes: Uint8Array }[] = [];

  add(hash: string, kind: ObjectKind, bytes: Uint8Array): void {
    const head: number[] = [];
    let size = Math.floor(bytes.length / 16);
    head.push((kindNumbers[kind] << 4) | (bytes.length & 15) | (size > 0 ? 0x80 : 0));
    while (size > 0) {
      const rest = Math.floor(size / 128);
      head.push((size & 0x7f) | (rest > 0 ? 0x80 : 0));
      size = rest;
    }
    this.#entries.push({ hash, bytes: Buffer.concat([Buffer.from(head), deflateSync(bytes, { level: 1 })]) });
  }

  /** The two files, and the name that they have in common. */
  finish(): { readonly name: string; readonly pack: Uint8Array; readonly index: Uint8Array } {
    const head = Buffer.alloc(12);
    head.write('PACK');
    head.writeUInt32BE(2, 4);
    head.writeUInt32BE(this.#entries.length, 8);
    let offset = head.length;
    const placed = this.#entries.map(({ hash, bytes }) => {
      const at = offset;
      offset += bytes.length;
      return { hash, offset: at, crc: crc32(bytes) };
    });
    const body = Buffer.concat([head, ...this.#entries.map(({ bytes }) => bytes)]);
    const sum = createHash('sha1').update(body).digest();
    placed.sort((one, two) => (one.hash < two.hash ? -1 : 1));
    const names = placed.map(({ hash }) => hash).join('');
    const name = createHash('sha1').update(Buffer.from(names, 'hex')).digest('hex');
    return { name: `pack-${name}`, pack: Buffer.concat([body, sum]), index: indexOf(placed, sum) };
  }
}

function indexOf(placed: readonly { hash: string; offset: number; crc: number }[], packSum: Uint8Array): Uint8Array {
  const count = placed.length;
  const index = Buffer.alloc(1032 + count * 28 + 40);
  index.writeUInt32BE(0xff744f63, 0);
  index.writeUInt32BE(2, 4);
  let filled = 0;
  for (let first = 0; first < 256; first++) {
    while (filled < count && Number.parseInt(placed[filled]!.hash.slice(0, 2), 16) <= first) filled += 1;
    index.writeUInt32BE(filled, 8 + first * 4);
  }
  for (const [at, { hash, offset, crc }] of placed.entries()) {
    index.write(hash, 1032 + at * 20, 'hex');
    index.writeUInt32BE(crc, 1032 + count * 20 + at * 4);
    // Drafts are bounded far below 2 GiB, where offsets would need more bits.
    index.writeUInt32BE(offset, 1032 + count * 24 + at * 4);
  }
  index.set(packSum, 1032 + count * 28);
  createHash('sha1')
    .update(index.subarray(0, -20))
    .digest()
    .copy(index, index.length - 20);
  return index;
}
