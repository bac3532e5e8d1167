/** Problem documents as responses (RFC 9457): whatever goes wrong, a client gets one of these and nothing else. */
import { Unanswered } from '../governance/connection.ts';
import { Problem, type ProblemDocument } from '../problem.ts';
import { commonHeaders } from './responses.ts';

/** Where the problem itself names no time after which to try again. */
const usualRetrySeconds = 1;

export function problemResponse(document: ProblemDocument, headers: Readonly<Record<string, string>> = {}): Response {
  const response = new Response(JSON.stringify(document), { status: document.status, headers: commonHeaders });
  response.headers.set('content-type', 'application/problem+json');
  if (document.status === 401) response.headers.set('www-authenticate', 'Bearer realm="edge-gateway"');
  const { status, retryAfter } = document;
  if (status === 429 || status === 503) response.headers.set('retry-after', String(retryAfter ?? usualRetrySeconds));
  if (status === 416) response.headers.set('content-range', `bytes */${document.size}`);
  for (const [name, value] of Object.entries(headers)) response.headers.set(name, value);
  return response;
}

/**
 * The problem in whatever was thrown; null when it is a fault of ours that a client must not see. `changes`: something was
 * asked for that may have been done.
 */
export function problemOf(error: unknown, changes: boolean): Problem | null {
  if (error instanceof Problem) return error;
  if (error instanceof Unanswered) {
    return changes
      ? new Problem('outcome-unknown', 'The database did not answer. Look whether it was done before you ask again.')
      : new Problem('not-ready', 'The database does not answer. Try again in a moment.');
  }
  // Elysia wraps what a body parser throws.
  if (error instanceof Error && error.cause instanceof Problem) return error.cause;
  return null;
}

export const internalProblem = (request: string): Problem =>
  new Problem('internal', 'The gateway failed to answer this request; its log says why', { request });
