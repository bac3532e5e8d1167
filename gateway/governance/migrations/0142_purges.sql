-- Erasure of exact conversations (ADR-046 §5: its own audited operation). From its confirmation on a conversation does not
-- exist for anybody, however far its erasure has come; a row here says how far.

alter table conversations add column purge text references operations (id);

create table purge_targets (
  operation text not null references operations (id),
  conversation text not null,
  -- The native Hermes session while its rows are still to be erased.
  session text,
  -- What was done last.
  step text not null check (step in ('confirmed', 'stopped', 'sessions', 'files', 'erased')),
  -- What was found there when it was confirmed, as JSON text of counts.
  found text not null,
  primary key (operation, conversation)
);

-- Sequence numbers are given out once, also when the events that had the newest ones are erased.
alter table organization add column last_erased_seq bigint not null default 0;
