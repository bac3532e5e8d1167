-- Routing, governance, audit and locators of one organization (ADR-046 §5). No column here can hold a reply: a reply is a
-- row of SessionDB, and this database knows its locator only (ADR-046 §4, §6).

create table organization (
  only_row boolean primary key default true check (only_row),
  id text not null,
  name text not null,
  created_at timestamptz not null
);

create table tokens (
  id text primary key,
  role text not null check (role in ('client', 'client_admin', 'expert', 'account_manager', 'superadmin')),
  name text not null,
  -- SHA-256 of the secret, hex. The secret itself is nowhere.
  digest text not null unique check (digest ~ '^[0-9a-f]{64}$'),
  created_at timestamptz not null,
  revoked_at timestamptz
);

create table specialists (
  id text primary key,
  name text not null unique,
  persona text not null,
  created_at timestamptz not null,
  offboarded_at timestamptz
);

create table conversations (
  id text primary key,
  -- Order of creation: what a page cursor names.
  ordinal bigint generated always as identity unique,
  specialist text not null references specialists (id),
  -- The native Hermes session; null until the first turn made one.
  session text unique,
  created_at timestamptz not null
);

create table messages (
  id text primary key,
  conversation text not null references conversations (id),
  -- seq of its message.accepted event: the order of acceptance.
  accepted_seq bigint not null unique,
  idempotency_key text,
  -- SHA-256 of the request body, hex; kept only to recognise a repeated key.
  digest text check (digest ~ '^[0-9a-f]{64}$'),
  -- The ACP content blocks as JSON text. Not jsonb: that drops key order and refuses \u0000, and these must go out unchanged.
  blocks text,
  state text not null check (state in ('accepted', 'dispatched', 'delivered', 'failed', 'cancelled')),
  -- messages.id of SessionDB before the prompt.
  watermark bigint,
  admission text check (admission in ('warm', 'cold')),
  locator text unique,
  -- Problem document as JSON text.
  problem text,
  attach_ms double precision,
  admission_ms double precision,
  first_update_ms double precision,
  loop_ms double precision,
  settle_ms double precision,
  accepted_at timestamptz not null,
  dispatched_at timestamptz,
  settled_at timestamptz,
  unique (conversation, idempotency_key),
  check ((idempotency_key is null) = (digest is null)),
  check ((state = 'delivered') = (locator is not null)),
  check ((state = 'failed') = (problem is not null)),
  check ((state in ('accepted', 'dispatched')) = (settled_at is null)),
  -- Prose stays only where it may still be needed: while a turn is ahead, and after a failure until it is erased by age.
  check (state not in ('accepted', 'dispatched') or blocks is not null),
  check (state not in ('delivered', 'cancelled') or blocks is null)
);

create index messages_unsettled on messages (accepted_seq) where settled_at is null;
create index messages_failed_prose on messages (settled_at) where state = 'failed' and blocks is not null;

-- Locators and states, never prose. A failure's problem document is joined from its message. No foreign keys: an event is
-- written by the statement that writes its message, and two look-ups more for each would stand in every turn's way.
create table events (
  seq bigint primary key,
  conversation text not null,
  at timestamptz not null,
  type text not null check (type in (
    'message.accepted', 'turn.started', 'reply.delivered', 'turn.failed', 'turn.cancelled',
    'transcript.edited', 'transcript.appended', 'conversation.updated')),
  message text,
  locator text,
  admission text check (admission in ('warm', 'cold'))
);
