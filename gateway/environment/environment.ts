/**
 * The organization's environment: written by an explicit operation, read by nobody but the agents. It lies in the cloud
 * AgentFS alone (ADR-046 §5). A conversation has its own copy from its creation on; a reissue replaces that.
 */

import type { CloudFiles } from '../../machine/agentfs/cloud.ts';
import { FileError } from '../../machine/agentfs/errors.ts';
import { HranaError } from '../../machine/agentfs/hrana.ts';
import type { ChildFate } from '../../machine/launch.ts';
import type { Caller } from '../domain.ts';
import type { Governance } from '../governance/governance.ts';
import type { ConversationId, OperationId } from '../ids.ts';
import { inTurn } from '../in-turn.ts';
import type { HolderControl } from '../machine/holder-calls.ts';
import { Problem } from '../problem.ts';
import { environmentLimits, type NewVariables, namesIn, withVariables } from './dotenv.ts';

/** What became of one conversation. */
export interface Reissued {
  readonly conversation: ConversationId;
  /** `missing`: it has no such file, and got none. */
  readonly environment: 'written' | 'missing';
  /** Its child was idle and has ended, ends behind the running turn, or there was none. */
  readonly child: ChildFate;
}

export interface Environment {
  /** Names only: no value ever comes out. */
  names(): Promise<readonly string[]>;
  /** Replaces all variables, for conversations to come. Answers the names. Throws `invalid-request` without a value in it. */
  set(by: Caller, variables: NewVariables): Promise<readonly string[]>;
  /**
   * Gives conversations the variables as they are now, and their next turns new children. Throws `not-found` when there is no
   * such conversation, and then has done nothing. All of them when `conversations` is null.
   */
  reissue(
    by: Caller,
    conversations: readonly ConversationId[] | null,
  ): Promise<{ readonly operation: OperationId; readonly conversations: readonly Reissued[] }>;
}

export interface EnvironmentParts {
  readonly governance: Pick<
    Governance,
    'beginOperation' | 'finishOperation' | 'findConversation' | 'listConversations'
  >;
  readonly files: Pick<CloudFiles, 'readFile' | 'overwriteFile'>;
  readonly holders: HolderControl;
}

const organizationFile = '/.env';
const maxBytes = 2 * environmentLimits.bytes;
/** Conversations that are read from the database, and whose files are written, side by side. */
const pageSize = 200;
const sideBySide = 8;

export function createEnvironment({ governance, files, holders }: EnvironmentParts): Environment {
  const oneByOne = inTurn();
  /** One after the other: a `PUT` keeps values that it has to read first, and a reissue hands out one state. */
  const alone = <T>(work: () => Promise<T>): Promise<T> => oneByOne(() => reaching(work()));

  return {
    names: () => reaching(files.readFile(organizationFile, maxBytes).then(namesIn)),

    set: (by, variables) =>
      alone(async () => {
        const file = withVariables(await files.readFile(organizationFile, maxBytes), variables);
        const names = namesIn(file);
        const kept = Object.keys(variables).filter((name) => variables[name] === null);
        const operation = await governance.beginOperation(by, 'environment.set', { names, kept });
        await files.overwriteFile(organizationFile, file);
        await governance.finishOperation(operation, { names: names.length });
        return names;
      }),

    reissue: (by, chosen) =>
      alone(async () => {
        for (const id of chosen ?? []) {
          if ((await governance.findConversation(id)) === null) {
            throw new Problem('not-found', `There is no conversation ${id}`);
          }
        }
        const subject = chosen === null ? { conversations: 'all' } : { conversations: chosen };
        const operation = await governance.beginOperation(by, 'environment.reissue', subject);
        const targets = chosen ?? (await allConversations(governance));
        const file = await files.readFile(organizationFile, maxBytes);
        const written = new Map<ConversationId, Reissued['environment']>();
        for (let at = 0; at < targets.length; at += sideBySide) {
          const some = targets.slice(at, at + sideBySide);
          const outcomes = await Promise.all(some.map((id) => writeEnvironment(files, id, file)));
          for (const [index, id] of some.entries()) written.set(id, outcomes[index]!);
        }
        // Behind the last write: a child that starts now reads the new file.
        const outcome = await holders.replace(targets);
        if (outcome.state === 'failing') {
          throw new Problem(
            'agentfs-unavailable',
            'The files are written, but the machine cannot fetch them now, and running agents keep what they had. Repeat the reissue.',
          );
        }
        const conversations = targets.map(
          (conversation, index): Reissued => ({
            conversation,
            environment: written.get(conversation)!,
            child: outcome.fates[index]!,
          }),
        );
        await governance.finishOperation(operation, countsOf(conversations));
        return { operation, conversations };
      }),
  };
}

async function writeEnvironment(
  files: EnvironmentParts['files'],
  conversation: ConversationId,
  file: Uint8Array,
): Promise<Reissued['environment']> {
  try {
    await files.overwriteFile(`/conversations/${conversation}/.env`, file);
    return 'written';
  } catch (error) {
    if (error instanceof FileError && error.errno === 'ENOENT') return 'missing';
    throw error;
  }
}

async function allConversations(governance: EnvironmentParts['governance']): Promise<ConversationId[]> {
  const ids: ConversationId[] = [];
  for (let cursor: string | null = null, isFirst = true; isFirst || cursor !== null; isFirst = false) {
    const page = await governance.listConversations({ kind: 'everything' }, cursor, pageSize);
    ids.push(...page.items.map(({ id }) => id));
    cursor = page.next;
  }
  return ids;
}

function countsOf(conversations: readonly Reissued[]): Readonly<Record<string, number>> {
  const children = (fate: ChildFate) => conversations.filter(({ child }) => child === fate).length;
  return {
    conversations: conversations.length,
    missing: conversations.filter(({ environment }) => environment === 'missing').length,
    childrenEnded: children('ended'),
    childrenAfterTurn: children('after-turn'),
  };
}

async function reaching<T>(work: Promise<T>): Promise<T> {
  try {
    return await work;
  } catch (error) {
    if (!(error instanceof HranaError)) throw error;
    const problem = new Problem('agentfs-unavailable', 'The files cannot be reached now. Try again later.');
    problem.cause = error;
    throw problem;
  }
}
