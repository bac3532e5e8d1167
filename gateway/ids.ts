/**
 * Branded identifiers. An id is opaque to clients; the prefix only tells a reader what it names.
 */
import * as v from 'valibot';

declare const brand: unique symbol;
type Branded<Name extends string> = string & { readonly [brand]: Name };

export type ConversationId = Branded<'conversation'>;
export type MessageId = Branded<'message'>;
export type SpecialistId = Branded<'specialist'>;
export type TokenId = Branded<'token'>;
export type UserId = Branded<'user'>;
/** Of something done to the organization as a whole. */
export type OperationId = Branded<'operation'>;
/** Opaque to clients; names session id, row id and timestamp of one SessionDB row (ADR-046 §6). */
export type Locator = Branded<'locator'>;

/** Makes a new random id: `prefix_` and 26 letters or digits (more than 128 bits). */
function makeId(prefix: string): string {
  const alphabet = '0123456789abcdefghijklmnopqrstuvwxyz';
  const bytes = crypto.getRandomValues(new Uint8Array(26));
  let id = `${prefix}_`;
  // The remainder favours four letters slightly; an id needs to be unguessable, not uniform.
  for (const byte of bytes) id += alphabet[byte % 36];
  return id;
}

export const newConversationId = (): ConversationId => makeId('conv') as ConversationId;
export const newMessageId = (): MessageId => makeId('msg') as MessageId;
export const newSpecialistId = (): SpecialistId => makeId('spec') as SpecialistId;
export const newTokenId = (): TokenId => makeId('tok') as TokenId;
export const newUserId = (): UserId => makeId('user') as UserId;
export const newOperationId = (): OperationId => makeId('op') as OperationId;
export const newOrganizationId = (): string => makeId('org');

const idOf = <T>(prefix: string) =>
  v.pipe(
    v.string(),
    v.regex(new RegExp(`^${prefix}_[0-9a-z]{26}$`), `must be an id that starts with ${prefix}_`),
    v.transform((text) => text as T),
  );

export const conversationIdSchema = idOf<ConversationId>('conv');
export const messageIdSchema = idOf<MessageId>('msg');
export const specialistIdSchema = idOf<SpecialistId>('spec');
export const userIdSchema = idOf<UserId>('user');
export const operationIdSchema = idOf<OperationId>('op');
