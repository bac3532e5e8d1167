/** What the HTTP side is given. */
import type { Audit } from '../audit/audit.ts';
import type { Specialist } from '../domain.ts';
import type { Environment } from '../environment/environment.ts';
import type { EventFeed } from '../events/bus.ts';
import type { SubscriberLimits } from '../events/subscriber.ts';
import type { AnnouncedUploads } from '../files/announced.ts';
import type { ConversationFiles } from '../files/conversation-files.ts';
import type { Inbox } from '../files/inbox.ts';
import type { Governance } from '../governance/governance.ts';
import type { ConversationId } from '../ids.ts';
import type { Log } from '../log.ts';
import type { Retention } from '../retention/retention.ts';
import type { Amendments } from '../transcript/amendments.ts';
import type { Transcript } from '../transcript/transcript.ts';
import type { Turns } from '../turns/turns.ts';
import type { ConversationRequests } from './conversation-requests.ts';
import type { HttpLimits } from './limits.ts';

/** Whether the gateway can serve, and what of it cannot. `detail` is shown to anyone: no secret, no path. */
export interface Health {
  readonly ready: boolean;
  /** `degraded`: messages are served, and something is wrong all the same. */
  readonly status: 'ready' | 'degraded' | 'not-ready';
  readonly agentfs: 'reachable' | 'failing' | 'unreachable';
  /** Whether changed files waited for the cloud when the last work boundary ended. */
  readonly pendingChanges: boolean;
  readonly checks: Readonly<Record<string, { readonly ok: boolean; readonly detail?: string }>>;
}

export interface ServerDeps {
  readonly governance: Governance;
  readonly turns: Turns;
  readonly transcript: Transcript;
  readonly amendments: Pick<Amendments, 'edit' | 'reply' | 'duplicates' | 'removeDuplicate'>;
  readonly audit: Audit;
  readonly environment: Environment;
  readonly inbox: Inbox;
  readonly uploads: AnnouncedUploads;
  readonly files: ConversationFiles;
  readonly retention: Retention;
  /** Counts what is at work on each conversation. */
  readonly requests: ConversationRequests;
  readonly bus: EventFeed;
  readonly logger: Pick<Log, 'info' | 'error'>;
  readonly version: string;
  /** Missing members are the defaults. */
  readonly limits?: Partial<HttpLimits>;
  readonly subscriberLimits?: Partial<SubscriberLimits>;
  /** Writes a new conversation's tree in the cloud AgentFS, once, before the conversation exists (ADR-046 §5). */
  readonly establish: (conversation: ConversationId, specialist: Specialist) => Promise<void>;
  readonly health: () => Promise<Health>;
  /** Further gauges of `/metrics`: name → help and value. */
  readonly gauges?: () => Readonly<Record<string, readonly [help: string, value: number]>>;
}
