/** A file as a response: streamed in bounded pieces to whoever takes them in time, as something that no browser runs. */
import type { ByteRange } from '../../machine/agentfs/cloud-contents.ts';
import type { OpenedFile } from '../files/conversation-files.ts';
import { Problem } from '../problem.ts';
import { select } from './ranges.ts';

/** Types that are shown or saved, and never run. Everything else is bytes. */
const types: Readonly<Record<string, string>> = {
  bmp: 'image/bmp',
  csv: 'text/csv; charset=utf-8',
  gif: 'image/gif',
  gz: 'application/gzip',
  jpeg: 'image/jpeg',
  jpg: 'image/jpeg',
  json: 'application/json',
  md: 'text/markdown; charset=utf-8',
  mp3: 'audio/mpeg',
  mp4: 'video/mp4',
  pdf: 'application/pdf',
  png: 'image/png',
  tar: 'application/x-tar',
  txt: 'text/plain; charset=utf-8',
  wav: 'audio/wav',
  webp: 'image/webp',
  zip: 'application/zip',
};

export function safeType(name: string): string {
  const suffix = /\.([A-Za-z0-9]+)$/.exec(name)?.[1]?.toLowerCase() ?? '';
  return (Object.hasOwn(types, suffix) ? types[suffix] : undefined) ?? 'application/octet-stream';
}

/** RFC 6266 with RFC 8187: an ASCII name for old clients, and the whole name for all others. */
export function attachmentDisposition(name: string): string {
  const plain = name.replace(/[^\x20-\x7e]|["\\%]/g, '_');
  const exact = encodeURIComponent(name.toWellFormed()).replace(
    /['()*]/g,
    (character) => `%${character.charCodeAt(0).toString(16).toUpperCase()}`,
  );
  return `attachment; filename="${plain}"; filename*=UTF-8''${exact}`;
}

export interface DownloadOptions {
  /** Answers with the headers alone. */
  readonly isHead: boolean;
  /** A piece that is not taken within this many seconds ends the download. */
  readonly pieceSeconds: number;
  /** Called once the response needs nothing more of us. */
  readonly leave: () => void;
  /** The file changed or the cloud went away in the middle; the client sees a broken connection. */
  readonly failed: (error: unknown) => void;
}

/** The response to a GET of the file with these request headers. */
export function fileResponse(file: OpenedFile, wanted: Headers, options: DownloadOptions): Response {
  const etag = `"${file.version}"`;
  const selection = select(wanted, etag, file.size);
  const headers: Record<string, string> = {
    'accept-ranges': 'bytes',
    'cache-control': 'private, no-cache',
    'content-disposition': attachmentDisposition(file.name),
    'content-security-policy': "default-src 'none'; sandbox",
    'content-type': safeType(file.name),
    'cross-origin-resource-policy': 'same-origin',
    etag,
    'last-modified': file.modifiedAt.toUTCString(),
    'x-content-type-options': 'nosniff',
  };
  const answer = (status: number, range: ByteRange, more: Readonly<Record<string, string>> = {}): Response => {
    const length = range.end - range.start;
    if (options.isHead || length === 0) {
      options.leave();
      return new Response(null, { status, headers: { ...headers, ...more, 'content-length': String(length) } });
    }
    return new Response(streamOf(file.read(range), options), { status, headers: { ...headers, ...more } });
  };
  switch (selection.kind) {
    case 'unmodified': {
      options.leave();
      const { 'content-type': _, ...kept } = headers;
      return new Response(null, { status: 304, headers: kept });
    }
    case 'unsatisfiable':
      options.leave();
      throw new Problem('range-not-satisfiable', `The file has ${file.size} bytes`, { size: file.size });
    case 'part':
      return answer(206, selection, {
        'content-range': `bytes ${selection.start}-${selection.end - 1}/${file.size}`,
      });
    case 'whole':
      return answer(200, { start: 0, end: file.size });
  }
}

/** Nothing is read ahead: the next piece is asked for when the last one was taken. */
function streamOf(pieces: AsyncGenerator<Uint8Array>, options: DownloadOptions): ReadableStream<Uint8Array> {
  let timer: ReturnType<typeof setTimeout> | undefined;
  let isOver = false;
  const end = () => {
    isOver = true;
    clearTimeout(timer);
    options.leave();
  };
  return new ReadableStream<Uint8Array>(
    {
      async pull(controller) {
        clearTimeout(timer);
        try {
          const { done, value } = await pieces.next();
          // The client has gone meanwhile: nobody takes the piece, and nothing has failed.
          if (isOver) return;
          if (done) {
            end();
            controller.close();
            return;
          }
          controller.enqueue(value);
          timer = setTimeout(() => {
            end();
            controller.error(new Error('the client took too long'));
          }, options.pieceSeconds * 1_000);
        } catch (error) {
          if (isOver) return;
          end();
          options.failed(error);
          controller.error(error);
        }
      },
      async cancel() {
        end();
        await pieces.return(undefined);
      },
    },
    { highWaterMark: 0 },
  );
}
