/**
 * The agent profile: everything at intake that depends on the pinned Hermes, 0.19.0 (`acp_adapter/server.py`). Pure
 * functions; they look at blocks and change none. `agent-profile.test.ts` compares them with Hermes' own Python where it
 * can be imported, so that a new Hermes that behaves otherwise is noticed.
 */
import * as v from 'valibot';
import type { ContentBlock } from '../domain.ts';
import { Problem } from '../problem.ts';
import { isImageLink, linkFlaw } from './resource-link.ts';

/** Words that Hermes' ACP adapter answers itself, without the model and without a row (`_handle_slash_command`). */
export const commandWords: ReadonlySet<string> = new Set([
  'help',
  'model',
  'tools',
  'context',
  'reset',
  'compact',
  'steer',
  'queue',
  'version',
]);

/** Exactly the characters of Python's `str.isspace`, which `str.strip` and `str.split` go by; `\\s` differs in six. */
// biome-ignore lint/suspicious/noControlCharactersInRegex: four of them are control characters
const pythonSpace = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000]/;

/** Python's `str.strip()`. */
export function pythonStrip(text: string): string {
  let start = 0;
  let end = text.length;
  while (start < end && pythonSpace.test(text.charAt(start))) start += 1;
  while (end > start && pythonSpace.test(text.charAt(end - 1))) end -= 1;
  return text.slice(start, end);
}

/**
 * Whether Hermes would take a prompt of these text blocks alone as a command instead of handing it to the model. The
 * joined, stripped text counts; `/steer` counts as a prefix as soon as anything follows it.
 */
export function isAgentCommand(texts: readonly string[]): boolean {
  const text = pythonStrip(texts.join('\n'));
  if (!text.startsWith('/')) return false;
  const end = text.search(pythonSpace);
  const first = end === -1 ? text : text.slice(0, end);
  if (text.startsWith('/steer') && end !== -1) return true;
  return commandWords.has(first.replace(/^\/+/, '').toLowerCase());
}

/** What one message may hold. */
export interface ProfileLimits {
  /** Content blocks of one message. */
  readonly maxBlocks: number;
  /** Bytes of the blocks as JSON; Hermes' own reader stops at 50 MiB a line. */
  readonly maxBytes: number;
}

// What Hermes' ACP library accepts around the fields that are looked at; a violation would be a failure later.
const envelope = {
  _meta: v.nullish(v.record(v.string(), v.unknown())),
  annotations: v.nullish(
    v.looseObject({
      audience: v.nullish(v.array(v.picklist(['assistant', 'user']))),
      lastModified: v.nullish(v.string()),
      priority: v.nullish(v.number()),
    }),
  ),
};
const optionalText = v.nullish(v.string());
const blockSchema = v.variant('type', [
  v.looseObject({ ...envelope, type: v.literal('text'), text: v.string() }),
  v.looseObject({
    ...envelope,
    type: v.literal('resource_link'),
    uri: v.string(),
    name: v.pipe(v.string(), v.minLength(1), v.maxLength(1024)),
    title: optionalText,
    description: optionalText,
    mimeType: optionalText,
    size: v.nullish(v.pipe(v.number(), v.safeInteger())),
  }),
  v.looseObject({
    ...envelope,
    type: v.literal('image'),
    data: v.string(),
    mimeType: v.string(),
    uri: optionalText,
  }),
]);
type KnownBlock = v.InferOutput<typeof blockSchema>;

/** Kinds of ACP blocks that the pinned Hermes does not advertise, and what a client does instead. */
const unadvertised: Readonly<Record<string, string>> = {
  audio: 'The agent takes no audio blocks. Send a resource_link to a file of the conversation.',
  resource: 'The agent takes no embedded resources. Send a resource_link to a file of the conversation.',
};

const refuse = (detail: string, members?: Record<string, unknown>): Problem =>
  new Problem('unprocessable-message', detail, members);

/**
 * Why these blocks cannot be sent to the agent as they are, or null when they can. The blocks are never changed: a message
 * that Hermes would drop, shorten or take as a command is refused instead (ADR-046 §1, file API "Inbound").
 */
export function blocksProblem(blocks: readonly ContentBlock[], limits: ProfileLimits): Problem | null {
  if (blocks.length === 0) return refuse('The message holds no content block.');
  if (blocks.length > limits.maxBlocks) return refuse(`A message holds at most ${limits.maxBlocks} content blocks.`);
  const known: KnownBlock[] = [];
  for (const [index, block] of blocks.entries()) {
    const result = knownBlock(block, index);
    if (result instanceof Problem) return result;
    known.push(result);
  }
  const bytes = Buffer.byteLength(JSON.stringify(blocks));
  if (bytes > limits.maxBytes) {
    return new Problem(
      'body-too-large',
      `The message is ${bytes} bytes as JSON; at most ${limits.maxBytes} can be sent.`,
    );
  }
  return wholeProblem(known);
}

function knownBlock(block: ContentBlock, index: number): KnownBlock | Problem {
  const where = `Content block ${index}`;
  const instead = Object.hasOwn(unadvertised, block.type) ? unadvertised[block.type] : undefined;
  if (instead !== undefined) return refuse(instead, { block: index });
  const parsed = v.safeParse(blockSchema, block);
  if (!parsed.success) {
    const issue = parsed.issues[0];
    const path = v.getDotPath(issue);
    return refuse(`${where} is not valid: ${path === null ? '' : `${path}: `}${issue.message}`, { block: index });
  }
  const flaw = stringFlaw(block, 0) ?? blockFlaw(parsed.output);
  return flaw === null ? parsed.output : refuse(`${where}: ${flaw}`, { block: index });
}

function blockFlaw(block: KnownBlock): string | null {
  if (block.type === 'text') return null;
  if (block.type === 'resource_link') return linkFlaw(block.uri);
  if (block.data !== '')
    return 'an image is not sent inline. Send a resource_link to a file of the conversation, or an http address.';
  if (!block.uri) return 'an image without data needs an http or https uri.';
  return /^https?:/i.test(block.uri)
    ? linkFlaw(block.uri)
    : 'an image uri must be http or https; send a file of the conversation as a resource_link.';
}

/** Hermes keeps neither: a NUL marks its own encoded rows, and a lone surrogate is replaced before the row is written. */
function stringFlaw(value: unknown, depth: number): string | null {
  if (depth > 16) return 'it is nested too deeply.';
  if (typeof value === 'string') {
    if (!value.isWellFormed()) return 'it holds a lone surrogate, which is no Unicode text.';
    return value.includes('\0') ? 'it holds the character U+0000, which the agent cannot keep.' : null;
  }
  if (typeof value !== 'object' || value === null) return null;
  for (const [key, member] of Object.entries(value)) {
    const flaw = stringFlaw(key, depth + 1) ?? stringFlaw(member, depth + 1);
    if (flaw !== null) return flaw;
  }
  return null;
}

function wholeProblem(blocks: readonly KnownBlock[]): Problem | null {
  const texts = blocks.flatMap((block) => (block.type === 'text' ? [block.text] : []));
  if (texts.length === blocks.length && isAgentCommand(texts)) {
    return new Problem(
      'agent-command',
      'The agent would take this text as one of its own commands and the model would never see it. Put a word before the slash.',
    );
  }
  if (texts.some((text) => pythonStrip(text) !== '')) return null;
  if (texts.length === blocks.length) return refuse('The message is blank.');
  const hasImage = blocks.some(
    (block) => block.type === 'image' || (block.type === 'resource_link' && isImageLink(block)),
  );
  if (hasImage) return null;
  return refuse(
    'The agent drops attachments that come without a text, unless one is an image. Add a text to the message.',
  );
}

/** A failure that Hermes itself told in place of a reply: of its model, or its own. */
export interface StatedFailure {
  readonly of: 'model' | 'agent';
  /** What the provider answered with; null when it did not answer, or Hermes does not say. */
  readonly httpStatus: number | null;
  /** Hermes' own words: one line of at most 200 characters, without addresses. */
  readonly words: string;
}

/** After its retries; at once, which is the whole text then; or when it failed by itself. */
const statedForms = [
  { of: 'model', form: /API call failed after \d+ retries:[^\n]*/ },
  { of: 'model', form: /^HTTP \d{3}: [^\n]*/ },
  { of: 'agent', form: /Error:[^\n]*/ },
] as const;

/**
 * The failure that Hermes stated in the last message chunks of a turn without a reply, or null when the text is not one of
 * the forms it uses for that. Of a turn with a reply nothing may be asked: a model may write such words too.
 */
export function statedFailure(streamed: string): StatedFailure | null {
  for (const { of, form } of statedForms) {
    const found = form.exec(streamed)?.[0];
    if (found === undefined) continue;
    const status = /HTTP (\d{3})\b/.exec(found)?.[1];
    const words = found.replace(/\b[a-z][a-z0-9+.-]*:\/\/\S+/gi, '(address)');
    return { of, httpStatus: status === undefined ? null : Number(status), words: words.slice(0, 200).trim() };
  }
  return null;
}

const modelUpdates = new Set(['agent_message_chunk', 'agent_thought_chunk', 'tool_call', 'tool_call_update', 'plan']);

/** Whether the model caused this update; Hermes sends others by itself, also late ones of an earlier turn. */
export function isModelUpdate(update: Readonly<Record<string, unknown>>): boolean {
  return typeof update.sessionUpdate === 'string' && modelUpdates.has(update.sessionUpdate);
}

const chunkSchema = v.looseObject({
  sessionUpdate: v.literal('agent_message_chunk'),
  content: v.looseObject({ type: v.literal('text'), text: v.string() }),
});

/** The text of a message chunk; empty for every other update. */
export function chunkText(update: Readonly<Record<string, unknown>>): string {
  const chunk = v.safeParse(chunkSchema, update);
  return chunk.success ? chunk.output.content.text : '';
}
