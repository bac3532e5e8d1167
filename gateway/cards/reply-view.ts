/** A reply as a reader gets it. The row of SessionDB is the only source, read anew each time: an edited card is the new one. */
import type { UpdateView } from '../domain.ts';
import type { Card } from './card.ts';
import { liftCard } from './scanner.ts';

export interface ShownReply {
  readonly text: string;
  /** Left out when the text has no card. */
  readonly card?: Card;
}

/** The text of an assistant's row: as it is, or without its card; the card itself is shown to both. */
export function showReply(text: string, view: UpdateView): ShownReply {
  const lifted = liftCard(text);
  if (lifted.card === null) return { text };
  return { text: view === 'verbatim' ? text : lifted.text, card: lifted.card };
}
