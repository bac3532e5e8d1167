/** The open event streams, so that they can be counted, and ended with their token or with the gateway. */
import type { Caller } from '../domain.ts';
import type { TokenId } from '../ids.ts';
import { Problem } from '../problem.ts';

export interface OpenStream {
  close(code: number, reason: string): void;
}

export interface Connections {
  readonly size: number;
  /** Takes a place. Throws `too-many-requests`. */
  reserve(caller: Caller): Place;
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

export function createConnections(maxPerToken: number): Connections {
  const taken = new Set<Taken>();
  const perToken = new Map<TokenId, number>();

  return {
    get size() {
      return taken.size;
    },
    reserve(caller) {
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
      for (const place of [...taken]) if (place.token === token) place.stream?.close(code, reason);
    },
    closeAll(code, reason) {
      for (const place of [...taken]) place.stream?.close(code, reason);
    },
  };
}
