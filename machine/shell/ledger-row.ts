/** What the ledger keeps of a call of git. */
import type { LedgerCall } from '../agentfs/ledger.ts';
import type { EndedCall } from './running-call.ts';

/** The row of a call: its words without credentials, where, by which engine, and how it ended. */
export function ledgerRow(conversation: string, call: EndedCall): LedgerCall {
  const { engine, reason, end } = call;
  const how =
    end === null ? { exitCode: null } : end.kind === 'exited' ? { exitCode: end.code } : { signal: end.signal };
  return {
    name: 'git',
    conversation,
    parameters: { argv: ['git', ...call.argv.map(withoutCredentials)], cwd: call.cwd },
    result: { engine, ...how, ...(reason === null ? {} : { reason: withoutCredentials(reason) }) },
    error: errorOf(end),
    startedAt: call.startedAt,
    endedAt: call.endedAt,
  };
}

function errorOf(end: EndedCall['end']): string | null {
  if (end === null) return 'the caller was gone before the end';
  if (end.kind === 'killed') return `ended by signal ${end.signal}`;
  return end.code === 0 ? null : `exit code ${end.code}`;
}

/** The user part of a URL, and headers and values that carry a secret by their name. */
export function withoutCredentials(word: string): string {
  return withoutUrlUser(word)
    .replace(/^((?:[^=]*\.)?(?:extraheader|password|cookie|proxyauth\w*)\s*=).*/is, '$1***')
    .replace(/\b(authorization\s*:\s*(?:\w+\s+)?)\S.*/gis, '$1***');
}

/** A text whose URLs have lost their user part, password included. */
export function withoutUrlUser(text: string): string {
  return text.replace(/\b([a-z][a-z0-9+.-]*:\/\/)[^/?#\s@]*@/gi, '$1***@');
}
