-- Who changed the canonical transcript, when and which row of it (ADR-046 §6). Never prose: the words are in SessionDB alone.

create table amendments (
  id bigint generated always as identity primary key,
  conversation text not null references conversations (id),
  kind text not null check (kind in ('edit', 'reply', 'removal')),
  token text not null,
  -- Null: the token speaks for the organization itself.
  by_user text,
  -- A reply's is known once it was appended.
  locator text,
  -- Entity tags of the words before and after: digests.
  was text,
  becomes text,
  -- The mark of a reply's row: digests of its idempotency key and of its words.
  mark text,
  intended_at timestamptz not null,
  -- When it was known to be done. Null: intended, and not known to be done.
  recorded_at timestamptz,
  -- When a child began a turn that had read it.
  taken_at timestamptz,
  unique (conversation, mark),
  check ((kind = 'reply') = (mark is not null)),
  check (kind = 'reply' or locator is not null),
  check (recorded_at is null or locator is not null)
);

create index amendments_open on amendments (id) where taken_at is null;
