/** A message as a multipart form: its `text` parts and `file` parts become content blocks, in their order. */
import type { ContentBlock, Conversation, Message } from '../domain.ts';
import type { Comparison } from '../files/comparison.ts';
import type { Delivery } from '../files/inbox.ts';
import type { TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';
import type { HttpContext } from './app.ts';
import { declaredBytes, streamBody } from './limits.ts';
import { type Part, partsOf } from './multipart.ts';

/** A body that is read by its handler, while it arrives. */
export class MultipartForm {
  readonly request: Request;
  readonly boundary: string;

  constructor(request: Request, boundary: string) {
    this.request = request;
    this.boundary = boundary;
  }
}

interface MessageOrder {
  readonly conversation: Conversation;
  readonly idempotencyKey: string | null;
  readonly receivedAt: number;
}

/** What lies between parts, in bytes: a preamble, boundaries and headers. */
const overheadBytes = 4 * 1024 * 1024;

/**
 * Stores the files and submits the message, all or nothing: whatever fails, the connection included, is the failure of the whole
 * message, and nothing of it stays (file API, "Inbound" 3).
 */
export async function submitForm(
  context: HttpContext,
  form: MultipartForm,
  order: MessageOrder,
  token: TokenId,
): Promise<Message> {
  const leave = context.uploading.enter(token);
  try {
    return await receiveAndSubmit(context, form, order);
  } finally {
    leave();
  }
}

async function receiveAndSubmit(context: HttpContext, form: MultipartForm, order: MessageOrder): Promise<Message> {
  const { inbox, turns } = context;
  const { conversation, idempotencyKey } = order;
  // Before any limit that only new files have to meet.
  if (idempotencyKey !== null && (await turns.isKeyUsed(conversation.id, idempotencyKey))) {
    const blocks = await readForm(context, form, order, inbox.compare());
    const message = await turns.repeated({ ...order, content: { blocks } });
    // Its conversation was erased meanwhile.
    if (message === null) throw new Problem('not-found', 'There is no such conversation any more');
    return message;
  }
  const delivery = await inbox.begin(conversation.id, declaredBytes(form.request) ?? 0);
  try {
    const content = { blocks: await readForm(context, form, order, delivery) };
    const refusal = turns.refusal(content);
    if (refusal !== null) throw refusal;
    return await delivery.deliver(() => turns.submit({ ...order, content }));
  } finally {
    await delivery.discard();
  }
}

type Receiver = Pick<Delivery | Comparison, 'roomBytes' | 'receive'>;

/** The blocks of a form, whose files go to `receiver` as they come. */
async function readForm(
  { limits, requests, server }: HttpContext,
  { request, boundary }: MultipartForm,
  { conversation }: MessageOrder,
  receiver: Receiver,
): Promise<readonly ContentBlock[]> {
  // Bun ends a request that is silent for long; this one is silent while the cloud is slow, and has limits of its own.
  server()?.timeout(request, 0);
  const givenUp = requests.givenUp(conversation.id);
  const body = streamBody(request, receiver.roomBytes + overheadBytes, limits.bodySeconds, givenUp);
  const blocks: ContentBlock[] = [];
  let textBytes = 0;
  for await (const part of partsOf(body, boundary, limits.messageParts)) {
    const block = isFile(part)
      ? await receive(receiver, part)
      : await textBlock(part, limits.messageBytes - textBytes, limits.messageBytes);
    if (block.type === 'text') textBytes += Buffer.byteLength(block.text as string);
    blocks.push(block);
  }
  if (blocks.length === 0) throw new Problem('unprocessable-message', 'A message needs at least one part');
  return blocks;
}

/** Throws `invalid-request` for a part that is neither. */
function isFile({ name, fileName }: Part): boolean {
  if (name === 'file') return true;
  if (name === 'text' && fileName === null) return false;
  const hint =
    name === 'text'
      ? 'a text part has no file name; send it as a file part'
      : `one is named ${JSON.stringify(name.slice(0, 60))}`;
  throw new Problem('invalid-request', `A message consists of "text" parts and "file" parts: ${hint}`);
}

async function receive(receiver: Receiver, { content, fileName, contentType }: Part): Promise<ContentBlock> {
  return (await receiver.receive(content, { fileName: fileName ?? '', mediaType: contentType })).block;
}

const utf8 = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true });

async function textBlock({ content, contentType }: Part, left: number, most: number): Promise<ContentBlock> {
  if (contentType !== null && !/^text\/plain\s*(?:;\s*charset\s*=\s*"?utf-8"?\s*)?$/i.test(contentType.trim())) {
    throw new Problem('unsupported-media-type', 'A text part is text/plain in UTF-8');
  }
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of content) {
    size += piece.length;
    if (size > left)
      throw new Problem('body-too-large', `The texts may have ${most} bytes at most`, { maxBytes: most });
    pieces.push(piece);
  }
  try {
    return { type: 'text', text: utf8.decode(Buffer.concat(pieces)) };
  } catch {
    throw new Problem('invalid-request', 'A text part is not valid UTF-8');
  }
}
