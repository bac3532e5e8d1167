/**
 * Git's data are bytes, and its orders are orders of bytes. In the engine they are strings in which each character is one
 * byte ("binary"); arguments and paths of the tree are ordinary text. These turn the one into the other.
 */

const beyondAscii = /[^\0-\x7f]/;

/** Text as the bytes of its UTF-8. */
export function binaryOf(text: string): string {
  return beyondAscii.test(text) ? Buffer.from(text, 'utf8').toString('latin1') : text;
}

/** Bytes as text; what is not UTF-8 becomes U+FFFD. */
export function textOf(binary: string): string {
  return beyondAscii.test(binary) ? Buffer.from(binary, 'latin1').toString('utf8') : binary;
}

export function bytesOf(binary: string): Uint8Array {
  return Buffer.from(binary, 'latin1');
}

export function binaryOfBytes(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('latin1');
}

/** Compares byte by byte. */
export function compareBinary(left: string, right: string): number {
  return left < right ? -1 : left > right ? 1 : 0;
}

const named = new Map([
  [7, 'a'],
  [8, 'b'],
  [9, 't'],
  [10, 'n'],
  [11, 'v'],
  [12, 'f'],
  [13, 'r'],
  [34, '"'],
  [92, '\\'],
]);

/** A path as git prints it: in C quotes where it holds what `core.quotePath` quotes. */
export function quotedPath(path: string, quoteBeyondAscii = true): string {
  let escaped = '';
  for (const character of path) {
    const code = character.charCodeAt(0);
    const name = named.get(code);
    if (name !== undefined) escaped += `\\${name}`;
    else if (code < 32 || code === 127 || (code > 127 && quoteBeyondAscii)) {
      escaped += `\\${code.toString(8).padStart(3, '0')}`;
    } else escaped += character;
  }
  return escaped.length === path.length ? path : `"${escaped}"`;
}
