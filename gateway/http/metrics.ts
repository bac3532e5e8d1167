/** Counts for `/metrics`, in Prometheus' text format. Labels are routes, methods and statuses: nothing of a client. */

const secondsBuckets = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 60, 600] as const;

interface Series {
  readonly route: string;
  readonly statuses: Map<number, number>;
  readonly buckets: number[];
  seconds: number;
  count: number;
}

export interface Metrics {
  /** `route` is a route of the table, or `unmatched`; never a path, so that the number of series is bounded. */
  request(route: string, status: number, seconds: number): void;
  droppedClient(): void;
  /** `gauges` are read when the text is made. */
  text(gauges: Readonly<Record<string, readonly [help: string, value: number]>>): string;
}

export function createMetrics(): Metrics {
  const series = new Map<string, Series>();
  let dropped = 0;
  return {
    request(route, status, seconds) {
      let of = series.get(route);
      if (of === undefined) {
        of = { route, statuses: new Map(), buckets: secondsBuckets.map(() => 0), seconds: 0, count: 0 };
        series.set(route, of);
      }
      of.statuses.set(status, (of.statuses.get(status) ?? 0) + 1);
      of.count += 1;
      of.seconds += seconds;
      const bucket = secondsBuckets.findIndex((limit) => seconds <= limit);
      if (bucket !== -1) of.buckets[bucket] = (of.buckets[bucket] ?? 0) + 1;
    },
    droppedClient() {
      dropped += 1;
    },
    text(gauges) {
      const lines: string[] = [];
      const family = (name: string, kind: string, help: string) =>
        lines.push(`# HELP ${name} ${help}`, `# TYPE ${name} ${kind}`);
      family('edge_http_requests_total', 'counter', 'Requests answered.');
      for (const { route, statuses } of series.values()) {
        for (const [status, count] of statuses) {
          lines.push(`edge_http_requests_total{route="${route}",status="${status}"} ${count}`);
        }
      }
      family('edge_http_request_seconds', 'histogram', 'Time to the response, waits asked for included.');
      for (const { route, buckets, count, seconds } of series.values()) {
        let below = 0;
        for (const [at, limit] of secondsBuckets.entries()) {
          below += buckets[at] ?? 0;
          lines.push(`edge_http_request_seconds_bucket{route="${route}",le="${limit}"} ${below}`);
        }
        lines.push(`edge_http_request_seconds_bucket{route="${route}",le="+Inf"} ${count}`);
        lines.push(`edge_http_request_seconds_sum{route="${route}"} ${seconds}`);
        lines.push(`edge_http_request_seconds_count{route="${route}"} ${count}`);
      }
      family('edge_event_clients_dropped_total', 'counter', 'Event streams ended because their client did not read.');
      lines.push(`edge_event_clients_dropped_total ${dropped}`);
      for (const [name, [help, value]] of Object.entries(gauges)) {
        family(name, 'gauge', help);
        lines.push(`${name} ${value}`);
      }
      return `${lines.join('\n')}\n`;
    },
  };
}
