/** What a smart HTTP server says that it has (git's `info/refs`). */
import type { Credential } from '../credentials.ts';
import { leave } from '../endings.ts';
import type { GuardedFetch } from '../guarded-fetch.ts';
import type { Ref } from '../repository/refs.ts';

const largestAdvertisement = 64 * 1024 ** 2;

export async function advertisedRefs(
  address: string,
  ask: GuardedFetch,
  credential: (url: string) => Pick<Credential, 'username' | 'password'> | null,
): Promise<Ref[]> {
  const url = new URL(address);
  const given =
    url.username === ''
      ? null
      : { username: decodeURIComponent(url.username), password: decodeURIComponent(url.password) };
  url.username = '';
  url.password = '';
  const used = given ?? credential(url.href);
  const headers: Record<string, string> = { 'User-Agent': 'git/2.39.5' };
  if (used) headers.Authorization = `Basic ${Buffer.from(`${used.username}:${used.password}`).toString('base64')}`;
  const answer = await ask(`${url.href.replace(/\/+$/, '')}/info/refs?service=git-upload-pack`, { headers });
  if (!answer.ok) throw new Error(`HTTP ${answer.status}`);
  if (!answer.headers.get('content-type')?.startsWith('application/x-git-upload-pack-advertisement'))
    leave('a server of another kind');
  const bytes = Buffer.from(await answer.arrayBuffer());
  if (bytes.length > largestAdvertisement) leave('a very long list of references');
  return parseAdvertisement(bytes);
}

function parseAdvertisement(bytes: Buffer): Ref[] {
  const refs: Ref[] = [];
  for (let at = 0; at + 4 <= bytes.length; ) {
    const length = Number.parseInt(bytes.toString('latin1', at, at + 4), 16);
    if (Number.isNaN(length)) leave('a server that speaks otherwise');
    const line = length === 0 ? '' : bytes.toString('latin1', at + 4, at + length);
    at += Math.max(4, length);
    const match = /^([0-9a-f]{40}) ([^\0\n]+)/.exec(line);
    if (match && match[2] !== 'capabilities^{}') refs.push({ hash: match[1]!, name: match[2]! });
  }
  return refs;
}
