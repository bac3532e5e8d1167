-- The question card of a reply (ADR-046 §4, amendment), keyed by the reply's locator: the one thing of a reply that is
-- structured enough to be governed. It is written with the delivery and never asked whether a reply may go out; what
-- readers see is parsed from the row of SessionDB. It goes with its message.
create table cards (
  locator text primary key references messages (locator) on delete cascade,
  -- {question, options: [{id, label}], allowText} as JSON text.
  card text not null,
  opened_at timestamptz not null
);

alter table events drop constraint events_type_check;
alter table events add constraint events_type_check check (type in (
  'message.accepted', 'turn.started', 'reply.delivered', 'turn.failed', 'turn.cancelled',
  'transcript.edited', 'transcript.appended', 'card.opened', 'conversation.updated'));
