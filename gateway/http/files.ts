/** The files of a conversation: sent one by one for a message over the WebSocket, listed, and downloaded one by one (file API, "Outbound"). */
import * as v from 'valibot';
import type { FileEntry } from '../files/conversation-files.ts';
import { Problem } from '../problem.ts';
import { type App, callerOf, type HttpContext, requireNoEncoding } from './app.ts';
import { AtOnce } from './at-once.ts';
import { fileResponse } from './downloads.ts';
import { declaredBytes, streamBody } from './limits.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { conversationPath, fileContentQuery, filesPage, uploadPath } from './schemas.ts';

const entryShown = v.object({
  name: v.string(),
  path: v.string(),
  kind: v.picklist(['file', 'directory', 'symlink', 'special']),
  size: v.number(),
  modifiedAt: v.string(),
  uri: v.optional(v.string()),
});
const uploadShown = v.object({ upload: v.string(), size: v.number(), sha256: v.string() });
const filesShown = v.object({ entries: v.array(entryShown), next: v.optional(v.string()) });

const show = ({ uri, modifiedAt, ...entry }: FileEntry) => ({
  ...entry,
  modifiedAt: modifiedAt.toISOString(),
  ...(uri === null ? {} : { uri }),
});

/** Seconds for which a download or a list may be silent: while the machine settles, or the client reads nothing. */
const silentSeconds = 120;

/** The bytes are kept as they come, so they have to be the file: all of it, and not packed. */
function requireWholeBody(request: Request): void {
  requireNoEncoding(request);
  if (request.headers.has('content-range')) {
    throw new Problem('invalid-request', 'An upload is sent whole, in one request: leave Content-Range out');
  }
}

export function addFiles(app: App, context: HttpContext): void {
  const { files, limits, logger } = context;
  const downloads = new AtOnce('downloads', limits.downloadsPerToken, limits.downloads);

  app.put(
    '/v1/conversations/:conversation/uploads/:upload',
    async ({ params, request, call }) => {
      requireWholeBody(request);
      // Silent while the cloud is slow; the body's pauses are limited where it is read.
      context.server()?.timeout(request, 0);
      const { conversation, upload } = params;
      const { token } = callerOf(call);
      const leave = context.uploading.enter(token);
      try {
        const { stored } = await context.uploads.receive(
          { owner: token, conversation, upload },
          declaredBytes(request) ?? 0,
          (most) => streamBody(request, most + 1, limits.bodySeconds, context.requests.givenUp(conversation)),
        );
        return jsonResponse(200, { upload, size: stored.size, sha256: stored.sha256 });
      } finally {
        leave();
      }
    },
    {
      parse: 'none',
      params: uploadPath,
      detail: operation(
        'Files',
        'Send the bytes of an upload that was announced over the WebSocket',
        { 200: { description: 'It has come whole and can be named by `message.send`.', schema: uploadShown } },
        {
          description:
            'The body is the file itself, whatever its `Content-Type` says. Good once; after a failure again.',
        },
      ),
    },
  );

  app.get(
    '/v1/conversations/:conversation/files',
    async ({ params, query, request }) => {
      context.server()?.timeout(request, silentSeconds);
      const page = { cursor: query.cursor ?? null, limit: query.limit };
      const { entries, next } = await files.list(params.conversation, query.path, page);
      return jsonResponse(200, { entries: entries.map(show), ...(next === null ? {} : { next }) });
    },
    {
      params: conversationPath,
      query: filesPage,
      detail: operation(
        'Files',
        "List a directory of a conversation's files",
        { 200: { description: 'One page by name; `next` is the cursor of the next one.', schema: filesShown } },
        { description: 'Waits for what the agent wrote before. `uri` is what a regular file is downloaded by.' },
      ),
    },
  );

  app.get(
    '/v1/conversations/:conversation/files/content',
    async ({ params, query, request, call }) => {
      context.server()?.timeout(request, silentSeconds);
      const leave = downloads.enter(callerOf(call).token);
      try {
        const file = await files.open(params.conversation, query.uri);
        return fileResponse(file, request.headers, {
          isHead: call.isHead,
          pieceSeconds: limits.downloadPieceSeconds,
          leave,
          failed: (error) => logger.error('a download broke off', { request: call.id, error }),
        });
      } catch (error) {
        leave();
        throw error;
      }
    },
    {
      params: conversationPath,
      query: fileContentQuery,
      detail: operation(
        'Files',
        'Download one file',
        {
          200: { description: 'The file, as an attachment; its media type is that of its name.', media: '*/*' },
          206: { description: 'The part that `Range` asked for.', media: '*/*' },
          304: { description: 'It is the version that `If-None-Match` names.' },
        },
        {
          description:
            'One regular file of the view, after what the agent wrote before has come. A download that ends without its ' +
            'last chunk is not whole: the file was changed meanwhile, or could not be read further.',
          parameters: [
            { name: 'Range', in: 'header', description: 'One range of bytes, such as `bytes=0-1023`.' },
            { name: 'If-Range', in: 'header', description: 'Gives the whole file unless it is this version.' },
            { name: 'If-None-Match', in: 'header', description: 'The version that is known already.' },
          ],
        },
      ),
    },
  );
}
