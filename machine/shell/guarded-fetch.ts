/**
 * The one way by which the machine asks other hosts for something on a conversation's behalf. It resolves names itself and
 * connects to the address that it has checked, so that no name can lead to the host's own services, to what is on its link,
 * or to a cloud's metadata, and no redirect either.
 */
import { lookup } from 'node:dns/promises';
import { BlockList, isIP, isIPv4 } from 'node:net';
import { networkInterfaces } from 'node:os';

export interface GuardOptions {
  /** Whether this host itself may be asked. Off, except in tests and by setting. */
  readonly allowLoopback?: boolean;
  /** Certificates of authorities, PEM; the runtime's own otherwise. */
  readonly certificates?: string;
  readonly signal?: AbortSignal;
  /** Bytes that an answer may have. */
  readonly largestAnswer?: number;
  /** Milliseconds that a request and its answer may take. */
  readonly longestMs?: number;
  /** Replaced in tests alone. */
  readonly resolve?: (host: string) => Promise<readonly string[]>;
}

/** A request that may not be made, or whose answer is beyond the limits. The message names no credential. */
export class RefusedRequest extends Error {
  constructor(reason: string) {
    super(reason);
    this.name = 'RefusedRequest';
  }
}

export type GuardedFetch = (input: string | URL | Request, init?: RequestInit) => Promise<Response>;

const mostRedirects = 5;
const defaultLargestAnswer = 1024 ** 3;
const defaultLongestMs = 10 * 60_000;

const never = new BlockList();
for (const [network, bits] of [
  ['0.0.0.0', 8],
  ['169.254.0.0', 16],
  ['100.100.100.200', 32],
  ['168.63.129.16', 32],
  ['192.0.0.192', 32],
  ['224.0.0.0', 4],
  ['240.0.0.0', 4],
] as const) {
  never.addSubnet(network, bits, 'ipv4');
}
for (const [network, bits] of [
  ['::', 128],
  ['fe80::', 10],
  ['fec0::', 10],
  ['ff00::', 8],
  ['fd00:ec2::254', 128],
  ['fd20:ce::254', 128],
] as const) {
  never.addSubnet(network, bits, 'ipv6');
}
const loopback = new BlockList();
loopback.addSubnet('127.0.0.0', 8, 'ipv4');
loopback.addSubnet('::1', 128, 'ipv6');

/** The refusal that is about who asks: a process of a holder may ask its own host, as far as the network guard lets it. */
export const ownHost = 'this host itself';

/** Why an address may not be asked, or null. */
export function refusalOf(address: string, allowLoopback: boolean): string | null {
  const inner = embeddedIPv4(address);
  if (inner !== null) return refusalOf(inner, allowLoopback);
  const family = isIPv4(address) ? 'ipv4' : 'ipv6';
  if (isIP(address) === 0) return 'an address that is none';
  if (never.check(address, family)) return 'an address of the link, of a cloud or of nobody';
  return !allowLoopback && (loopback.check(address, family) || isOfThisHost(address)) ? ownHost : null;
}

/** Whether one of this host's interfaces has the address: what listens there listens to this host too. */
function isOfThisHost(address: string): boolean {
  const plain = address.replace(/%.*$/, '').toLowerCase();
  return Object.values(networkInterfaces()).some((all) => all?.some((one) => one.address.toLowerCase() === plain));
}

/** The IPv4 address that an IPv6 one stands for: mapped, compatible, NAT64, 6to4. */
function embeddedIPv4(address: string): string | null {
  if (isIP(address) !== 6) return null;
  const groups = groupsOf(address);
  const dotted = (high: number, low: number) => [high >> 8, high & 255, low >> 8, low & 255].join('.');
  const isZero = (from: number, to: number) => groups.slice(from, to).every((group) => group === 0);
  const last = dotted(groups[6]!, groups[7]!);
  if (isZero(0, 5) && groups[5] === 0xffff) return last;
  if (isZero(0, 6) && (groups[6] !== 0 || groups[7]! > 1)) return last;
  if (groups[0] === 0x64 && groups[1] === 0xff9b) return last;
  return groups[0] === 0x2002 ? dotted(groups[1]!, groups[2]!) : null;
}

function groupsOf(address: string): number[] {
  const plain = address.replace(/%.*$/, '').replace(/(\d+)\.(\d+)\.(\d+)\.(\d+)$/, (_, a, b, c, d) => {
    return `${((Number(a) << 8) | Number(b)).toString(16)}:${((Number(c) << 8) | Number(d)).toString(16)}`;
  });
  const [head, tail] = plain.split('::');
  const numbers = (text: string | undefined) =>
    text ? text.split(':').map((group) => Number.parseInt(group, 16)) : [];
  const [first, rest] = [numbers(head), numbers(tail)];
  if (tail === undefined) return first;
  return [...first, ...Array.from({ length: 8 - first.length - rest.length }, () => 0), ...rest];
}

export function createGuardedFetch(options: GuardOptions): GuardedFetch {
  return async (input, init) => {
    const request = input instanceof Request ? new Request(input, init) : new Request(String(input), init);
    const timeout = AbortSignal.timeout(options.longestMs ?? defaultLongestMs);
    const signals = [timeout, request.signal, options.signal].filter((signal) => signal !== undefined);
    const body = request.body === null ? null : new Uint8Array(await request.arrayBuffer());
    const headers = new Headers(request.headers);
    let url = new URL(request.url);
    for (let redirects = 0; ; redirects++) {
      const answer = await ask(url, { method: request.method, headers, body }, options, AbortSignal.any(signals));
      const target = answer.headers.get('location');
      if (answer.status < 300 || answer.status > 399 || target === null) return limited(answer, options);
      await answer.body?.cancel();
      if (body !== null || redirects >= mostRedirects) throw new RefusedRequest(`${url.host} redirects`);
      const next = new URL(target, url);
      if (url.protocol === 'https:' && next.protocol !== 'https:')
        throw new RefusedRequest(`${url.host} redirects to http`);
      if (next.origin !== url.origin) headers.delete('authorization');
      url = next;
    }
  };
}

interface Asked {
  readonly method: string;
  readonly headers: Headers;
  readonly body: Uint8Array<ArrayBuffer> | null;
}

async function ask(url: URL, asked: Asked, options: GuardOptions, signal: AbortSignal): Promise<Response> {
  if (url.protocol !== 'https:' && url.protocol !== 'http:') throw new RefusedRequest(`${url.protocol} is not asked`);
  if (url.username !== '' || url.password !== '') throw new RefusedRequest('an address with a password');
  const host = url.hostname.replace(/^\[|\]$/g, '');
  const address = await checkedAddress(host, options);
  const pinned = new URL(url);
  pinned.hostname = isIPv4(address) ? address : `[${address}]`;
  const headers = new Headers(asked.headers);
  headers.set('host', url.host);
  const init = {
    method: asked.method,
    headers,
    ...(asked.body === null ? {} : { body: asked.body }),
    redirect: 'manual' as const,
    signal,
    tls: {
      ...(isIP(host) ? {} : { serverName: host }),
      ...(options.certificates === undefined ? {} : { ca: options.certificates }),
    },
    // A proxy of the environment would connect to where nobody has looked.
    proxy: '',
  };
  return fetch(pinned, init as RequestInit);
}

async function checkedAddress(host: string, options: GuardOptions): Promise<string> {
  const addresses = isIP(host) ? [host] : await (options.resolve ?? resolveHost)(host);
  for (const address of addresses) {
    const reason = refusalOf(address, options.allowLoopback === true);
    if (reason !== null) throw new RefusedRequest(`${host} is ${reason}`);
  }
  return addresses[0] ?? Promise.reject(new RefusedRequest(`Could not resolve host: ${host}`));
}

async function resolveHost(host: string): Promise<readonly string[]> {
  try {
    return (await lookup(host, { all: true })).map(({ address }) => address);
  } catch {
    // Whatever the resolver says of it: there is no such host for us.
    throw new RefusedRequest(`Could not resolve host: ${host}`);
  }
}

/** The answer, which fails when it is longer than allowed. */
function limited(answer: Response, options: GuardOptions): Response {
  if (answer.body === null) return answer;
  const largest = options.largestAnswer ?? defaultLargestAnswer;
  let size = 0;
  const counted = answer.body.pipeThrough(
    new TransformStream<Uint8Array, Uint8Array>({
      transform(chunk, controller) {
        size += chunk.length;
        if (size > largest) controller.error(new RefusedRequest(`an answer of more than ${largest} bytes`));
        else controller.enqueue(chunk);
      },
    }),
  );
  return new Response(counted, { status: answer.status, statusText: answer.statusText, headers: answer.headers });
}
