/**
 * Problem documents (RFC 9457). Every refusal and failure that a client can see is one of these, with a stable `type`.
 */

/** One problem as a client sees it. `type` is `urn:edge-gateway:problem:<name>`, stable for ever. */
export interface ProblemDocument {
  readonly type: string;
  readonly title: string;
  readonly status: number;
  readonly detail: string;
  /** Further members, such as `errors` of a validation or `current` of a lost edit. */
  readonly [member: string]: unknown;
}

/** All problem names with their HTTP status and title. Add a line here for a new kind; never rename one. */
export const problems = {
  'invalid-request': [400, 'The request is malformed'],
  unauthenticated: [401, 'A valid token is needed'],
  forbidden: [403, 'This token may not do that'],
  'not-found': [404, 'No such thing here'],
  'method-not-allowed': [405, 'The method is not allowed here'],
  conflict: [409, 'The request conflicts with the current state'],
  'precondition-failed': [412, 'The resource has changed'],
  'body-too-large': [413, 'The body is too large'],
  'quota-exceeded': [413, 'There is no room for these files'],
  'unsupported-media-type': [415, 'The media type is not supported'],
  'range-not-satisfiable': [416, 'The file has no such range'],
  'unprocessable-message': [422, 'The message cannot be sent as it is'],
  'agent-command': [422, 'The message would be taken as an agent command'],
  'idempotency-key-reused': [422, 'The idempotency key belongs to another request'],
  'precondition-required': [428, 'The request needs a precondition'],
  'too-many-requests': [429, 'Too many requests'],
  internal: [500, 'The gateway failed'],
  // Not 503: whoever sends it again blindly may do it twice.
  'outcome-unknown': [500, 'Whether it was done is not known'],
  'not-ready': [503, 'The gateway is not ready'],
  // Failures of a turn: stored with the message and returned where its reply would stand.
  'turn-interrupted': [502, 'The turn was interrupted'],
  'turn-no-reply': [502, 'The agent ended the turn without a reply'],
  'turn-refused': [502, 'The agent refused the turn'],
  'session-lost': [502, 'The transcript of the conversation is gone'],
  'turn-output-limit': [502, 'The reply reached the output limit of the model'],
  'model-unreachable': [502, 'The model could not be reached'],
  'model-refused': [502, 'The model provider refused the request'],
  'model-overloaded': [503, 'The model provider takes no more requests now'],
  'model-failed': [502, 'The model provider failed'],
  'turn-cancelled': [409, 'The turn was cancelled'],
  'turn-deadline': [504, 'The turn took too long'],
  'agent-failed': [502, 'The agent failed'],
  'agent-out-of-memory': [502, 'The agent ran out of memory'],
  'agent-unavailable': [503, 'The agent could not be started'],
  'sessiondb-unavailable': [503, 'The transcript authority is unreachable'],
  'agentfs-unavailable': [503, 'The file authority is unreachable'],
} as const satisfies Record<string, readonly [number, string]>;

export type ProblemName = keyof typeof problems;

/** An error that is meant to reach a client as a problem document. `detail` says what to do and holds no secret. */
export class Problem extends Error {
  readonly problem: ProblemName;
  readonly document: ProblemDocument;

  constructor(problem: ProblemName, detail: string, members: Record<string, unknown> = {}) {
    super(detail);
    this.name = 'Problem';
    this.problem = problem;
    const [status, title] = problems[problem];
    this.document = { ...members, type: `urn:edge-gateway:problem:${problem}`, title, status, detail };
  }
}
