/** What must hold after a storm, whoever died when (acceptance 7 and 8; architecture, "Crash rules"). */
import * as v from 'valibot';
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

const endOf: Readonly<Record<string, string>> = {
  delivered: 'reply.delivered',
  failed: 'turn.failed',
  cancelled: 'turn.cancelled',
};

/** Everything that is wrong in one conversation, in words; empty when all is well. */
export async function complaintsOf(api: Api, reader: Reader, sent: readonly Sent[]): Promise<string[]> {
  const complaints = [...reader.complaints];
  const turns = await transcriptOf(api, reader.conversation);
  const count = (role: string, text: string) =>
    turns.filter((turn) => turn.role === role && turn.text.includes(text)).length;
  const delivered: { planned: PlannedMessage; locator: string }[] = [];
  for (const { planned, id } of sent) {
    const say = (what: string) => complaints.push(`${planned.id} (${id}): ${what}`);
    const answer = await api.get(`/v1/conversations/${reader.conversation}/messages/${id}`);
    const message = v.parse(messageSchema, answer.json());
    const ends = reader.endsOf(id);
    if (ends.length !== 1) say(`${ends.length} ends: ${JSON.stringify(ends)}`);
    if (ends[0]?.type !== endOf[message.state]) say(`is ${message.state}, and the stream said ${ends[0]?.type}`);
    const asked = count('user', textOf(planned.id));
    const replied = turns.filter(({ role, text }) => role === 'assistant' && text === replyTo(planned.id));
    if (asked > 1) say(`stands ${asked} times in the transcript`);
    if (replied.length > 1) say(`was answered ${replied.length} times`);
    if (message.state === 'delivered') {
      const [end] = ends;
      if (end?.text !== replyTo(planned.id)) say(`the client got ${JSON.stringify(end?.text)}`);
      if (asked !== 1 || replied.length !== 1) say(`delivered, with ${asked} questions and ${replied.length} answers`);
      if (replied[0] && end?.locator !== replied[0].locator) say('the locator leads elsewhere');
      delivered.push({ planned, locator: String(end?.locator) });
    } else if (replied.length > 0) say(`is ${message.state}, and its answer stands in the transcript`);
  }
  if (new Set(delivered.map(({ locator }) => locator)).size !== delivered.length)
    complaints.push('one row, two deliveries');
  return complaints;
}
