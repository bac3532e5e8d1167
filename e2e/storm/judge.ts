/** What must hold after a storm, whoever died when (acceptance 7 and 8; architecture, "Crash rules"). */
import * as v from 'valibot';
import type { Frame } from '../harness/events.ts';
import type { Api } from '../harness/http.ts';
import { type PlannedMessage, replyTo, textOf } from './plan.ts';
import type { Reader } from './reader.ts';

const messageSchema = v.looseObject({ id: v.string(), state: v.string() });
const pageSchema = v.object({
  turns: v.array(v.looseObject({ locator: v.string(), role: v.string(), text: v.string() })),
  next: v.nullish(v.string()),
});

type Turn = v.InferOutput<typeof pageSchema>['turns'][number];

async function transcriptOf(api: Api, conversation: string): Promise<Turn[]> {
  const turns: Turn[] = [];
  for (let next = ''; ; ) {
    const answer = await api.get(`/v1/conversations/${conversation}/transcript?view=canonical${next}`);
    const page = v.parse(pageSchema, answer.json());
    turns.push(...page.turns);
    if (!page.next) return turns;
    next = `&cursor=${encodeURIComponent(page.next)}`;
  }
}

export interface Sent {
  readonly planned: PlannedMessage;
  readonly id: string;
}

/** One conversation after the storm. */
export interface Played {
  /** Those that followed it from the beginning, each in its own way. */
  readonly readers: readonly Reader[];
  /** In the order in which it was sent. */
  readonly sent: readonly Sent[];
  /** How often the model was asked to begin a turn, by the message's planned id. */
  readonly asked: ReadonlyMap<string, number>;
}

const endOf: Readonly<Record<string, string>> = {
  delivered: 'reply.delivered',
  failed: 'turn.failed',
  cancelled: 'turn.cancelled',
};

/** What a client may see of one message, in order. */
const lives: ReadonlySet<string> = new Set([
  'message.accepted turn.started reply.delivered',
  'message.accepted turn.started turn.failed',
  'message.accepted turn.failed',
]);

/** Everything that is wrong in one conversation, in words; empty when all is well. */
export async function complaintsOf(api: Api, { readers, sent, asked }: Played): Promise<string[]> {
  const reader = readers[0]!;
  const turns = await transcriptOf(api, reader.conversation);
  const complaints = [...streamComplaints(readers, sent), ...transcriptComplaints(turns, sent)];
  const delivered: string[] = [];
  for (const { planned, id } of sent) {
    const say = (what: string) => complaints.push(`${planned.id} (${id}): ${what}`);
    const answer = await api.get(`/v1/conversations/${reader.conversation}/messages/${id}`);
    const message = v.parse(messageSchema, answer.json());
    const [end] = reader.endsOf(id);
    if (end?.type !== endOf[message.state]) say(`is ${message.state}, and the stream said ${end?.type}`);
    const questions = turns.filter(({ role, text }) => role === 'user' && text.includes(textOf(planned.id))).length;
    const answers = turns.filter(({ role, text }) => role === 'assistant' && text === replyTo(planned.id));
    if (questions > 1) say(`stands ${questions} times in the transcript`);
    if (answers.length > 1) say(`was answered ${answers.length} times`);
    const times = asked.get(planned.id) ?? 0;
    if (times > 1) say(`was put to the model ${times} times`);
    if (message.state === 'delivered') {
      for (const text of readers.flatMap((one) => one.endsOf(id).filter(isWhole)).map((frame) => frame.text))
        if (text !== replyTo(planned.id)) say(`a client got ${JSON.stringify(text)}`);
      if (questions !== 1 || answers.length !== 1)
        say(`delivered, with ${questions} questions and ${answers.length} answers`);
      if (answers[0] && end?.locator !== answers[0].locator) say('the locator leads elsewhere');
      delivered.push(String(end?.locator));
    } else if (answers.length > 0) say(`is ${message.state}, and its answer stands in the transcript`);
  }
  if (new Set(delivered).size !== delivered.length) complaints.push('one row, two deliveries');
  return complaints.map((complaint) => `${reader.conversation}: ${complaint}`);
}

/** Every reader was told the same: the life of each message once, in order, and of no other message. */
function streamComplaints(readers: readonly Reader[], sent: readonly Sent[]): string[] {
  const complaints = readers.flatMap((reader) => reader.complaints);
  const [first = [], ...others] = readers.map(({ frames }) => frames.all.map(told));
  for (const other of others) {
    const at = first.findIndex((frame, index) => frame !== other[index]);
    if (at !== -1 || other.length !== first.length)
      complaints.push(
        `two readers, two stories: ${first.at(at)} and ${other.at(at)} (${first.length}, ${other.length})`,
      );
  }
  const frames = readers[0]!.frames.all;
  for (const { planned, id } of sent) {
    const life = frames.flatMap(({ type, message }) => (message === id ? [type] : [])).join(' ');
    if (!lives.has(life)) complaints.push(`${planned.id} (${id}): its life was: ${life}`);
  }
  const known = new Set<unknown>(sent.map(({ id }) => id));
  const strangers = frames.filter(({ message }) => message !== undefined && !known.has(message));
  if (strangers.length > 0) complaints.push(`events of messages that nobody sent: ${JSON.stringify(strangers)}`);
  return complaints;
}

const told = ({ seq, type, message, locator }: Frame) => JSON.stringify([seq, type, message, locator]);

/** A reply that is replayed while the transcript cannot be read comes without its text, and says so. */
const isWhole = ({ text, problem }: Frame) => text !== null || problem === undefined;

/** Nothing is invented, and each question stands in its place: behind the earlier ones and before its answer. */
function transcriptComplaints(turns: readonly Turn[], sent: readonly Sent[]): string[] {
  const complaints: string[] = [];
  const ids = sent.map(({ planned }) => planned.id);
  const replies = new Set(ids.map(replyTo));
  const places = new Map<string, number>();
  for (const [place, { role, text }] of turns.entries()) {
    const id = /message (\S+) of the storm/.exec(text)?.[1];
    if (role === 'user' && id !== undefined) places.set(id, place);
    const isKnown = role === 'user' ? ids.includes(id ?? '') : role !== 'assistant' || text === '' || replies.has(text);
    if (!isKnown) complaints.push(`a row that nobody wrote: ${role} ${JSON.stringify(text.slice(0, 500))}`);
  }
  let last = -1;
  for (const id of ids) {
    const place = places.get(id);
    if (place === undefined) continue;
    if (place < last) complaints.push(`${id} stands before an earlier message`);
    last = place;
    const answer = turns.findIndex(({ role, text }) => role === 'assistant' && text === replyTo(id));
    const next = turns.findIndex(({ role }, at) => role === 'user' && at > place);
    if (answer !== -1 && (answer < place || (next !== -1 && answer > next)))
      complaints.push(`the answer to ${id} does not stand behind it`);
  }
  return complaints;
}
