/**
 * Whose conversations a caller can reach, as a pure decision (ADR-046: access is to an organization, a conversation and a
 * Specialist). What is beyond it is answered exactly as what does not exist.
 */
import type { Conversation, Role } from './domain.ts';
import type { SpecialistId, UserId } from './ids.ts';

export type Reach =
  | { readonly kind: 'everything' }
  /** Of that person; of nobody when null. */
  | { readonly kind: 'owner'; readonly owner: UserId | null }
  | { readonly kind: 'specialists'; readonly specialists: readonly SpecialistId[] };

/**
 * A client has its own conversations, an expert those of the specialists it works for, everybody else the organization's. A
 * token without a user speaks for the organization: as a client it reaches what belongs to nobody, as an expert every
 * specialist.
 */
export function reachOf(role: Role, user: UserId | null, specialists: readonly SpecialistId[]): Reach {
  if (role === 'client') return { kind: 'owner', owner: user };
  if (role === 'expert' && user !== null) return { kind: 'specialists', specialists };
  return { kind: 'everything' };
}

export function reachesConversation(reach: Reach, { owner, specialist }: Conversation): boolean {
  switch (reach.kind) {
    case 'everything':
      return true;
    case 'owner':
      return owner === reach.owner;
    case 'specialists':
      return reach.specialists.includes(specialist);
  }
}

/** Whether a specialist is there for the caller: to talk to, or to work for. */
export function reachesSpecialist(reach: Reach, specialist: SpecialistId): boolean {
  return reach.kind !== 'specialists' || reach.specialists.includes(specialist);
}
