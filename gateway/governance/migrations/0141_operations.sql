-- What was done to the organization as a whole, by whom, and what came of it. No value of a variable and no prose is ever
-- here: `subject` and `result` are JSON texts with names, ids and counts.

create table operations (
  id text primary key,
  -- Order of begin: what a page cursor names.
  ordinal bigint generated always as identity unique,
  kind text not null check (kind in ('environment.set', 'environment.reissue', 'retention.purge')),
  token text not null,
  user_id text,
  subject text not null,
  begun_at timestamptz not null,
  finished_at timestamptz,
  result text,
  check ((finished_at is null) = (result is null))
);
