/** Which operations were tried, as the gateway itself counts what it answered. */

/** By operation of the document, such as `GET /v1/users/{user}`: its statuses and how often. */
export type Answers = ReadonlyMap<string, ReadonlyMap<number, number>>;

/** Reads `/metrics`. */
export function answersOf(metrics: string): Answers {
  const answers = new Map<string, Map<number, number>>();
  for (const [, route = '', status, count] of metrics.matchAll(
    /^edge_http_requests_total\{route="([^"]+)",status="(\d+)"\} (\d+)$/gm,
  )) {
    const operation = route.replace(/:(\w+)/g, '{$1}');
    const statuses = answers.get(operation) ?? new Map<number, number>();
    answers.set(operation, statuses.set(Number(status), Number(count)));
  }
  return answers;
}

/** What of `after` came since `before`. */
export function since(before: Answers, after: Answers): Answers {
  const entries = [...after].map(([operation, statuses]) => {
    const earlier = before.get(operation);
    const left = [...statuses].map(([status, count]) => [status, count - (earlier?.get(status) ?? 0)] as const);
    return [operation, new Map(left.filter(([, count]) => count > 0))] as const;
  });
  return new Map(entries);
}

/** Operations that never got past the caller's rights. */
export function untried(operations: readonly string[], answers: Answers): string[] {
  return operations.filter((one) => [...(answers.get(one)?.keys() ?? [])].every((status) => status === 401));
}

/** Operations that never did what they are for. */
export function unreached(operations: readonly string[], answers: Answers): string[] {
  return operations.filter((one) => ![...(answers.get(one)?.keys() ?? [])].some((status) => status < 300));
}

/** What was answered, for a message of a test. */
export function summary(operation: string, answers: Answers): string {
  return [...(answers.get(operation) ?? [])].map(([status, count]) => `${status} (${count})`).join(', ');
}

/** Each answer of a fault of ours, whoever asked. */
export function serverErrors(answers: Answers): string[] {
  return [...answers].flatMap(([operation, statuses]) =>
    [...statuses].filter(([status]) => status >= 500).map(([status, count]) => `${operation}: ${status} (${count})`),
  );
}
