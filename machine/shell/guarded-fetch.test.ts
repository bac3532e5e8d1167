import { afterAll, expect, test } from 'bun:test';
import { networkInterfaces } from 'node:os';
import { createGuardedFetch, refusalOf } from './guarded-fetch.ts';

const server = Bun.serve({
  hostname: '127.0.0.1',
  port: 0,
  fetch(request) {
    const url = new URL(request.url);
    if (url.pathname === '/to') return Response.redirect(url.searchParams.get('url')!, 302);
    if (url.pathname === '/much') return new Response('x'.repeat(100_000));
    if (url.pathname === '/never') return new Promise<Response>(() => undefined);
    return Response.json({ host: request.headers.get('host'), authorization: request.headers.get('authorization') });
  },
});
afterAll(() => server.stop(true));
const own = `http://127.0.0.1:${server.port}`;

test('addresses of the link, of clouds, of nobody and of this host are refused, in every spelling', () => {
  const refused = [
    '169.254.169.254',
    '100.100.100.200',
    '168.63.129.16',
    '0.0.0.0',
    '0.1.2.3',
    '224.0.0.1',
    '255.255.255.255',
    '127.0.0.1',
    '127.9.9.9',
    '::',
    '::1',
    'fe80::1',
    'ff02::1',
    'fd00:ec2::254',
    '::ffff:169.254.169.254',
    '::ffff:a9fe:a9fe',
    '::ffff:127.0.0.1',
    '::127.0.0.1',
    '64:ff9b::a9fe:a9fe',
    '2002:a9fe:a9fe::1',
    'no address',
  ];
  for (const address of refused) expect([address, refusalOf(address, false)]).not.toEqual([address, null]);
  for (const address of ['10.0.0.1', '192.168.1.1', '140.82.121.4', '2606:50c0:8000::153']) {
    expect([address, refusalOf(address, false)]).toEqual([address, null]);
  }
  expect(refusalOf('127.0.0.1', true)).toBeNull();
  expect(refusalOf('::ffff:169.254.169.254', true)).not.toBeNull();
});

test('a name is asked at the address that was checked, whatever it is called', async () => {
  const ask = createGuardedFetch({ allowLoopback: true, resolve: async () => ['127.0.0.1'] });
  const answer = await ask(`http://git.example:${server.port}/x`, { headers: { Authorization: 'Basic x' } });
  expect(await answer.json()).toEqual({ host: `git.example:${server.port}`, authorization: 'Basic x' });
});

test('a name that leads to a refused address is not asked, even beside a good one', async () => {
  for (const addresses of [['169.254.169.254'], ['10.0.0.1', '127.0.0.1'], []]) {
    const ask = createGuardedFetch({ resolve: async () => addresses });
    expect(ask('http://git.example/')).rejects.toThrow('git.example');
  }
});

test('redirects are checked in the same way, and take no credentials elsewhere', async () => {
  const ask = createGuardedFetch({ allowLoopback: true, resolve: async () => ['127.0.0.1'] });
  const to = (url: string) => `${own}/to?url=${encodeURIComponent(url)}`;
  expect(ask(to('http://169.254.169.254/latest'))).rejects.toThrow('169.254.169.254');
  expect(ask(to('file:///etc/passwd'))).rejects.toThrow('file:');
  expect(ask(to(`${own}/x`), { method: 'POST', body: 'x' })).rejects.toThrow('redirects');
  const answer = await ask(to(`http://other.example:${server.port}/x`), { headers: { Authorization: 'Basic x' } });
  expect(await answer.json()).toEqual({ host: `other.example:${server.port}`, authorization: null });
});

test('other schemes and passwords in addresses are refused, and every address of this host', async () => {
  const addresses = Object.values(networkInterfaces()).flatMap((all) => (all ?? []).map(({ address }) => address));
  expect(addresses.length).toBeGreaterThan(0);
  for (const address of addresses) {
    const ask = createGuardedFetch({ resolve: async () => [address] });
    // Those of the link are refused as such.
    await expect(ask(`http://gateway.example:${server.port}/`)).rejects.toThrow(/this host itself|of the link/);
  }
  const plain = createGuardedFetch({ allowLoopback: true });
  expect(plain('ftp://example.org/')).rejects.toThrow('ftp:');
  expect(plain(own.replace('//', '//a:b@'))).rejects.toThrow();
  expect(createGuardedFetch({})(own)).rejects.toThrow('this host itself');
});

test('an answer has a limit of bytes and of time', async () => {
  const short = createGuardedFetch({ allowLoopback: true, largestAnswer: 10_000 });
  const answer = await short(`${own}/much`);
  expect(answer.arrayBuffer()).rejects.toThrow('more than 10000 bytes');
  const hasty = createGuardedFetch({ allowLoopback: true, longestMs: 50 });
  expect(hasty(`${own}/never`)).rejects.toThrow();
});
