-- People, and whose a conversation is. A token of a person has the role and the reach of that person. A token without one
-- speaks for the organization itself, as every token did before, and what such a token made belongs to nobody.

create table users (
  id text primary key,
  -- Order of creation: what a page cursor names.
  ordinal bigint generated always as identity unique,
  name text not null,
  role text not null check (role in ('client', 'client_admin', 'expert', 'account_manager', 'superadmin')),
  created_at timestamptz not null,
  disabled_at timestamptz
);

-- The specialists that an expert works for: what else there is does not exist for that person.
create table user_specialists (
  user_id text not null references users (id),
  specialist text not null references specialists (id),
  primary key (user_id, specialist)
);

alter table tokens add column user_id text references users (id);

alter table conversations add column owner text references users (id);

create index conversations_owner on conversations (owner, ordinal);
create index conversations_specialist on conversations (specialist, ordinal);
