/**
 * Who may call what: one table, route × role. A route that is not in it does not exist, and the server refuses to start
 * when its routes and this table differ.
 */
import { type Role, roles } from '../domain.ts';

const everyone: readonly Role[] = roles;
const experts: readonly Role[] = ['expert', 'account_manager', 'superadmin'];
/** Who answers for what the agent did: not the client itself. */
const auditors: readonly Role[] = ['client_admin', ...experts];
const managers: readonly Role[] = ['account_manager', 'superadmin'];
const owners: readonly Role[] = ['superadmin'];

export const access = {
  'GET /healthz': 'public',
  'GET /readyz': 'public',
  'GET /metrics': 'public',
  'GET /openapi.json': 'public',
  'GET /docs': 'public',
  'POST /v1/conversations': everyone,
  'GET /v1/conversations': everyone,
  'GET /v1/conversations/:conversation': everyone,
  'POST /v1/conversations/:conversation/messages': everyone,
  'GET /v1/conversations/:conversation/messages/:message': everyone,
  'POST /v1/conversations/:conversation/cancel': everyone,
  'GET /v1/conversations/:conversation/transcript': everyone,
  // Before the locators, which it could be one of.
  'GET /v1/conversations/:conversation/transcript/duplicates': owners,
  'DELETE /v1/conversations/:conversation/transcript/duplicates/:locator': owners,
  'GET /v1/conversations/:conversation/transcript/:locator': everyone,
  'PATCH /v1/conversations/:conversation/transcript/:locator': experts,
  'POST /v1/conversations/:conversation/replies': experts,
  'GET /v1/conversations/:conversation/events': everyone,
  'GET /v1/conversations/:conversation/audit/tool-calls': auditors,
  'GET /v1/conversations/:conversation/audit/timeline': auditors,
  'GET /v1/conversations/:conversation/audit/diff': auditors,
  'PUT /v1/conversations/:conversation/uploads/:upload': everyone,
  'GET /v1/conversations/:conversation/files': everyone,
  'GET /v1/conversations/:conversation/files/content': everyone,
  'GET /v1/events': everyone,
  'POST /v1/events/tickets': everyone,
  'GET /v1/specialists': everyone,
  'GET /v1/specialists/:specialist': everyone,
  'POST /v1/specialists': managers,
  'POST /v1/specialists/:specialist/offboard': managers,
  'GET /v1/tokens': owners,
  'POST /v1/tokens': owners,
  'DELETE /v1/tokens/:token': owners,
  'GET /v1/users': owners,
  'POST /v1/users': owners,
  'GET /v1/users/:user': owners,
  'POST /v1/users/:user/disable': owners,
  'PUT /v1/users/:user/specialists': owners,
  'GET /v1/organization': everyone,
  'GET /v1/organization/environment': owners,
  'PUT /v1/organization/environment': owners,
  'POST /v1/organization/environment/reissue': owners,
  'GET /v1/organization/operations': owners,
  'POST /v1/retention/purges': owners,
  'GET /v1/retention/purges': owners,
  'GET /v1/retention/purges/:purge': owners,
  'POST /v1/retention/purges/:purge/resume': owners,
} as const satisfies Record<string, 'public' | readonly Role[]>;

export type Route = keyof typeof access;

/** What a role may see within a route that it may call. */
const abilities = {
  'transcript.canonical': experts,
  'specialist.persona': experts,
  'audit.private-names': owners,
} as const satisfies Record<string, readonly Role[]>;

export function may(role: Role, what: Route | keyof typeof abilities): boolean {
  const allowed = what in abilities ? abilities[what as keyof typeof abilities] : access[what as Route];
  return allowed === 'public' || allowed.includes(role);
}

export type Match =
  | {
      readonly kind: 'route';
      readonly route: Route;
      /** What stands for `:conversation` in the path, as it was sent; null where the route names none. */
      readonly conversation: string | null;
    }
  /** The path exists with other methods. */
  | { readonly kind: 'method'; readonly allow: readonly string[] }
  | { readonly kind: 'none' };

interface Pattern {
  readonly segments: readonly string[];
  readonly methods: Map<string, Route>;
}

const patterns: readonly Pattern[] = (() => {
  const byPath = new Map<string, Pattern>();
  for (const route of Object.keys(access) as Route[]) {
    const [method = '', path = ''] = route.split(' ');
    const pattern = byPath.get(path) ?? { segments: path.split('/'), methods: new Map<string, Route>() };
    byPath.set(path, pattern);
    pattern.methods.set(method, route);
  }
  return [...byPath.values()];
})();

/** Finds the route of a method and a path (without its query). */
export function matchRoute(method: string, path: string): Match {
  const segments = path.split('/');
  const pattern = patterns.find(
    (candidate) =>
      candidate.segments.length === segments.length &&
      candidate.segments.every((segment, at) =>
        segment.startsWith(':') ? segments[at] !== '' : segment === segments[at],
      ),
  );
  if (pattern === undefined) return { kind: 'none' };
  const route = pattern.methods.get(method);
  if (route === undefined) return { kind: 'method', allow: [...pattern.methods.keys()] };
  const place = pattern.segments.indexOf(':conversation');
  return { kind: 'route', route, conversation: segments[place] ?? null };
}
