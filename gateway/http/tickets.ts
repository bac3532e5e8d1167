/** Tickets for the event stream: a browser's WebSocket cannot send a header, and a token does not belong into a URL. */
import type { Caller } from '../domain.ts';
import type { TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';

const ticketSeconds = 30;

interface Issued {
  readonly caller: Caller;
  readonly expiresAt: number;
}

export interface Tickets {
  /** Throws `too-many-requests` when a token has too many unused ones. */
  issue(caller: Caller): { readonly ticket: string; readonly expiresAt: Date };
  /** Uses a ticket up. Throws `unauthenticated`. */
  redeem(ticket: string): Caller;
  /** Forgets the tickets of a revoked token. */
  revoke(token: TokenId): void;
}

/** `now` in milliseconds. Nothing is cleaned up by a timer: what has expired goes when the next one is issued. */
export function createTickets(maxPerToken: number, now: () => number = Date.now): Tickets {
  const issued = new Map<string, Issued>();

  const dropExpired = (): void => {
    // Issued in order, so the first one that is still good ends it.
    for (const [ticket, { expiresAt }] of issued) {
      if (expiresAt > now()) return;
      issued.delete(ticket);
    }
  };

  return {
    issue(caller) {
      dropExpired();
      let unused = 0;
      for (const other of issued.values()) if (other.caller.token === caller.token) unused += 1;
      if (unused >= maxPerToken) {
        throw new Problem('too-many-requests', `A token may have ${maxPerToken} unused tickets; use or await them`);
      }
      const ticket = `tick_${Buffer.from(crypto.getRandomValues(new Uint8Array(32))).toString('base64url')}`;
      const expiresAt = now() + ticketSeconds * 1_000;
      issued.set(ticket, { caller, expiresAt });
      return { ticket, expiresAt: new Date(expiresAt) };
    },
    redeem(ticket) {
      const found = issued.get(ticket);
      issued.delete(ticket);
      if (found === undefined || found.expiresAt <= now()) {
        throw new Problem('unauthenticated', 'The ticket is unknown, used or older than 30 seconds; ask for a new one');
      }
      return found.caller;
    },
    revoke(token) {
      for (const [ticket, { caller }] of issued) if (caller.token === token) issued.delete(ticket);
    },
  };
}
