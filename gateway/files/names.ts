/** What an attachment is called: in the conversation's tree, in its link, and to the agent. Pure. */
import type { ContentBlock } from '../domain.ts';
import { Problem } from '../problem.ts';

/** Of `<sha256>-<safe name>` in bytes; a name of a file system has 255 at most. */
const maxSafeNameBytes = 200;
const maxTitleLength = 255;

/**
 * A file's name in `artifacts/inbound`: the beginning of its digest and what is safe of its own name. The same file gets the
 * same name again (file API, "Inbound" 2).
 */
export function inboundName(sha256: string, fileName: string): string {
  return `${sha256.slice(0, 16)}-${safeName(fileName)}`;
}

/** The link that the agent gets to a file in `artifacts/inbound`. */
export function inboundUri(name: string): string {
  return `file:///artifacts/inbound/${encodeURIComponent(name)}`;
}

/** What the agent gets for a file in `artifacts/inbound`. */
export function inboundLink(
  { sha256, size }: { readonly sha256: string; readonly size: number },
  { fileName, mediaType }: { readonly fileName: string; readonly mediaType: string | null },
): ContentBlock {
  return {
    type: 'resource_link',
    uri: inboundUri(inboundName(sha256, fileName)),
    name: titleOf(fileName),
    ...(mediaType === null ? {} : { mimeType: mediaType }),
    size,
  };
}

/**
 * The last part of a file name that a client gave, in letters, digits and `. _ - +` of any script. Everything else is `_`; it
 * begins with neither a dot nor a dash, and keeps its suffix where it has to be cut.
 */
export function safeName(fileName: string): string {
  const kept = lastPart(fileName)
    .toWellFormed()
    .normalize('NFC')
    .replace(/[^\p{L}\p{M}\p{N}._+-]/gu, '_')
    .replace(/^[.\p{M}-]+/u, '_');
  if (kept === '' || kept === '_') return 'file';
  if (Buffer.byteLength(kept) <= maxSafeNameBytes) return kept;
  const suffix = /\.[A-Za-z0-9]{1,16}$/.exec(kept)?.[0] ?? '';
  return cutTo(kept.slice(0, kept.length - suffix.length), maxSafeNameBytes - suffix.length) + suffix;
}

/** The name that the agent is shown: the client's own where it can be shown. */
export function titleOf(fileName: string): string {
  const name = lastPart(fileName);
  const isPlain = name !== '' && name !== '.' && name !== '..' && name.isWellFormed() && !/\p{Cc}/u.test(name);
  return isPlain && name.length <= maxTitleLength ? name : safeName(fileName);
}

/** A media type as a client declared it; null for none. Throws `invalid-request` for what is no such thing. */
export function mediaTypeOf(declared: string | null): string | null {
  if (declared === null || declared.trim() === '') return null;
  if (declared.length > 255 || !/^[\w!#$&^.+-]+\/[\w!#$&^.+-]+\s*(?:;[\x20-\x7e]*)?$/.test(declared)) {
    throw new Problem('invalid-request', 'The Content-Type of a file is not a media type such as image/png');
  }
  return declared.trim();
}

/** Programs of one system send names with folders, as that system writes them. */
function lastPart(fileName: string): string {
  return fileName.split(/[/\\]/).at(-1)!;
}

function cutTo(text: string, bytes: number): string {
  let cut = text.slice(0, bytes);
  while (Buffer.byteLength(cut) > bytes) cut = cut.slice(0, -1);
  return cut.toWellFormed() === cut ? cut : cut.slice(0, -1);
}
