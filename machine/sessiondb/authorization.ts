/** Whether a child may write what a statement writes. */
import { valueAt } from './arguments.ts';
import type { FrameStatement } from './frames.ts';
import type { Lineage, ParentLookup } from './lineage.ts';
import type { Plan } from './statements.ts';

/**
 * Why the write is refused; null when all sessions that it touches are of the child's own conversation.
 * @param settle called before anything is looked up: what precedes the statement must have run, so that the answer still
 * holds when it runs itself
 */
export async function refusalOf(
  plan: Plan,
  args: FrameStatement[1],
  lineage: Lineage,
  settle: () => Promise<void>,
  parentOf: ParentLookup,
): Promise<string | null> {
  if (plan.kind !== 'write' && plan.kind !== 'delegation') return null;
  const parents = plan.parents.map((argument) => valueAt(args, argument)).filter((parent) => parent !== null);
  const sessions = plan.kind === 'write' ? plan.sessions.map((argument) => valueAt(args, argument)) : [];
  const creates = plan.kind === 'write' && plan.creates;
  for (const session of [...parents, ...sessions]) {
    if (typeof session === 'string' && lineage.has(session)) continue;
    await settle();
    if (typeof session !== 'string') return 'a session id that is not a text';
    if (!(await lineage.admits(session, creates && sessions.includes(session), parentOf)))
      return `session ${session} belongs to another conversation`;
  }
  return null;
}
