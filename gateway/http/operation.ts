/** For who operates the gateway: health, metrics, and the description of the interface. */
import * as v from 'valibot';
import { healthGauges } from '../health.ts';
import { Problem } from '../problem.ts';
import type { App, HttpContext } from './app.ts';
import { docsPage } from './docs-page.ts';
import { buildDocument, type OpenApiDocument, operation } from './openapi.ts';
import { commonHeaders, jsonResponse } from './responses.ts';

export function addOperation(app: App, context: HttpContext): void {
  const { health, version, metrics, connections, bus } = context;
  let made: { readonly document: OpenApiDocument; readonly page: string } | null = null;
  /** Once, when it is first asked for: all routes are declared by then. */
  const description = () => {
    if (made === null) {
      const document = buildDocument(app, version);
      made = { document, page: docsPage(document) };
    }
    return made;
  };

  app.get('/healthz', () => jsonResponse(200, { status: 'ok', version }), {
    detail: operation('Operation', 'Whether the process answers', {
      200: { description: 'It does.', schema: v.object({ status: v.literal('ok'), version: v.string() }) },
    }),
  });

  app.get(
    '/readyz',
    async () => {
      const { ready, status, agentfs, pendingChanges, checks } = await health();
      if (!ready || context.stopping.aborted) {
        throw new Problem(
          'not-ready',
          context.stopping.aborted ? 'The gateway is stopping' : 'Not all parts are ready',
          { agentfs, pendingChanges, checks },
        );
      }
      return jsonResponse(200, { status, agentfs, pendingChanges, checks });
    },
    {
      detail: operation('Operation', 'Whether messages can be served', {
        200: {
          description: 'They can; `degraded` without AgentFS, when changed files wait for it.',
          schema: v.object({
            status: v.picklist(['ready', 'degraded']),
            agentfs: v.picklist(['reachable', 'failing', 'unreachable']),
            pendingChanges: v.boolean(),
            checks: v.record(v.string(), v.object({ ok: v.boolean(), detail: v.optional(v.string()) })),
          }),
        },
      }),
    },
  );

  app.get(
    '/metrics',
    async () => {
      const now = await health();
      const text = metrics.text({
        edge_event_streams: ['Open event streams.', connections.size],
        edge_event_position: ['Newest event handed to listeners.', bus.position],
        process_resident_memory_bytes: ['Resident memory of the gateway process.', process.memoryUsage.rss()],
        process_uptime_seconds: ['Age of the gateway process.', Math.floor(process.uptime())],
        ...healthGauges(now),
        ...context.gauges?.(),
      });
      return new Response(text, { headers: { ...commonHeaders, 'content-type': 'text/plain; version=0.0.4' } });
    },
    {
      detail: operation('Operation', 'Counts, in the text format of Prometheus', {
        200: { description: 'The counts.', media: 'text/plain' },
      }),
    },
  );

  app.get('/openapi.json', () => jsonResponse(200, description().document), {
    detail: operation('Operation', 'This description, as OpenAPI 3.1', {
      200: { description: 'The document.', media: 'application/json' },
    }),
  });

  app.get(
    '/docs',
    () =>
      new Response(description().page, {
        headers: {
          ...commonHeaders,
          'content-type': 'text/html; charset=utf-8',
          'content-security-policy': "default-src 'none'; style-src 'unsafe-inline'; frame-ancestors 'none'",
          'referrer-policy': 'no-referrer',
        },
      }),
    {
      detail: operation('Operation', 'This description, for people', {
        200: { description: 'One page that loads nothing.', media: 'text/html' },
      }),
    },
  );
}
