/** The open event streams, so that they can be counted, and ended with their token or with the gateway. */
import type { Caller } from '../domain.ts';
import type { TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';

export interface OpenStream {
  close(code: number, reason: string): void;
}

export interface Connections {
  readonly size: number;
  /** Takes a place. Throws `too-many-requests`, and as `requireCurrent`. */
  reserve(caller: Caller, since: number): Place;
  /**
   * Throws `unauthenticated` when the token was closed after `since`, the `performance.now()` at which the request arrived that
   * the caller is of: it may have been looked up just before it was revoked, or reached other conversations then.
   */
  requireCurrent(caller: Caller, since: number): void;
  closeToken(token: TokenId, code: number, reason: string): void;
  closeAll(code: number, reason: string): void;
}

/** One place among a token's streams. */
export interface Place {
  opened(stream: OpenStream): void;
  /** Gives the place back; a second call does nothing. */
  leave(): void;
}

interface Taken {
  readonly token: TokenId;
  stream: OpenStream | null;
}

/** No request is that old when it takes its place: what it asks before has shorter limits. */
const rememberedMs = 10 * 60_000;

export function createConnections(maxPerToken: number): Connections {
  const taken = new Set<Taken>();
  const perToken = new Map<TokenId, number>();
  /** When the streams of a token were closed last, the oldest first. */
  const closed = new Map<TokenId, number>();

  const rememberClosed = (token: TokenId): void => {
    const now = performance.now();
    for (const [old, at] of closed) {
      if (at > now - rememberedMs) break;
      closed.delete(old);
    }
    closed.delete(token);
    closed.set(token, now);
  };
  const requireCurrent = ({ token }: Caller, since: number): void => {
    if ((closed.get(token) ?? Number.NEGATIVE_INFINITY) < since) return;
    throw new Problem('unauthenticated', 'The token was revoked or changed while this request came in; try it again');
  };

  return {
    get size() {
      return taken.size;
    },
    requireCurrent,
    reserve(caller, since) {
      requireCurrent(caller, since);
      const count = perToken.get(caller.token) ?? 0;
      if (count >= maxPerToken) {
        throw new Problem('too-many-requests', `A token may have ${maxPerToken} event streams open; close one first`);
      }
      const place: Taken = { token: caller.token, stream: null };
      taken.add(place);
      perToken.set(caller.token, count + 1);
      return {
        opened(stream) {
          place.stream = stream;
        },
        leave() {
          if (!taken.delete(place)) return;
          const left = (perToken.get(caller.token) ?? 1) - 1;
          if (left === 0) perToken.delete(caller.token);
          else perToken.set(caller.token, left);
        },
      };
    },
    closeToken(token, code, reason) {
      rememberClosed(token);
      for (const place of [...taken]) if (place.token === token) place.stream?.close(code, reason);
    },
    closeAll(code, reason) {
      for (const place of [...taken]) place.stream?.close(code, reason);
    },
  };
}
