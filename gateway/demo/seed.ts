/** The demo's organization: one specialist, one conversation, and a token each for three roles. */

import * as v from 'valibot';
import type { Conversation } from '../domain.ts';
import type { RunningGateway } from '../gateway.ts';
import type { Governance } from '../governance/governance.ts';
import { type ConversationId, conversationIdSchema } from '../ids.ts';

export type DemoTokens = Readonly<Record<'client' | 'expert' | 'superadmin', string>>;

const specialistName = 'Eleanora';
const persona = 'Your name is Eleanora. You are a patient, practical generalist.';
const tokenName = (role: keyof DemoTokens) => `demo ${role}`;

/** The conversation of an earlier start when it is still there, otherwise a new one with the demo's specialist. */
export async function demoConversation(gateway: RunningGateway, known: string | null): Promise<Conversation> {
  const id = v.safeParse(conversationIdSchema, known);
  const found = id.success ? await gateway.governance.findConversation(id.output as ConversationId) : null;
  if (found !== null) return found;
  const specialist =
    (await gateway.governance.findSpecialist(specialistName)) ??
    (await gateway.governance.createSpecialist(specialistName, persona));
  return gateway.createConversation(specialist);
}

/** New ones at each start: a secret is shown once and stored hashed, so those of earlier starts are revoked. */
export async function demoTokens(governance: Governance): Promise<DemoTokens> {
  const roles = ['client', 'expert', 'superadmin'] as const;
  const names = new Set(roles.map(tokenName));
  for (const { token, name } of await governance.listTokens()) if (names.has(name)) await governance.revokeToken(token);
  const secrets: [string, string][] = [];
  for (const role of roles) secrets.push([role, (await governance.createToken(role, tokenName(role))).secret]);
  return Object.fromEntries(secrets) as unknown as DemoTokens;
}
