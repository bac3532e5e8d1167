/**
 * Takes debug information out of a shared object. A loader reads program headers only; section headers, symbol tables and
 * `.debug_*` stand after the last byte that one of them names, so cutting there is a full strip without any tool.
 */

const magic = 0x7f454c46;
const header = { bytes: 64, phoff: 32, shoff: 40, phentsize: 54, phnum: 56, shnum: 60, shstrndx: 62 };
const programHeader = { bytes: 56, offset: 8, fileSize: 32 };

/** @throws Error when the input is not a 64-bit little-endian ELF file with whole program headers */
export function withoutDebugSections(file: Uint8Array): Uint8Array {
  const view = new DataView(file.buffer, file.byteOffset, file.byteLength);
  if (file.length < header.bytes || view.getUint32(0) !== magic) throw new Error('not an ELF file');
  if (file[4] !== 2 || file[5] !== 1) throw new Error('not a 64-bit little-endian ELF file');
  const start = Number(view.getBigUint64(header.phoff, true));
  const count = view.getUint16(header.phnum, true);
  if (view.getUint16(header.phentsize, true) !== programHeader.bytes) throw new Error('unknown program header size');
  let end = start + count * programHeader.bytes;
  if (count === 0 || end > file.length) throw new Error('program headers are not in the file');
  for (let at = start; at < start + count * programHeader.bytes; at += programHeader.bytes) {
    const offset = Number(view.getBigUint64(at + programHeader.offset, true));
    const size = Number(view.getBigUint64(at + programHeader.fileSize, true));
    end = Math.max(end, offset + size);
  }
  if (end > file.length) throw new Error('a segment ends behind the end of the file');
  const stripped = file.slice(0, end);
  const out = new DataView(stripped.buffer);
  out.setBigUint64(header.shoff, 0n, true);
  out.setUint16(header.shnum, 0, true);
  out.setUint16(header.shstrndx, 0, true);
  return stripped;
}
