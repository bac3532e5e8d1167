/** A certificate authority that nobody knows, and servers on loopback whose certificates it signed. */
import { readFileSync, writeFileSync } from 'node:fs';
import { join } from 'node:path';
import { requireProgram } from './programs.ts';

export interface PrivateCa {
  /** PEM file with the authority's own certificate. */
  readonly certificate: string;
  readonly tls: { readonly cert: string; readonly key: string };
}

/** Makes the authority and one certificate for 127.0.0.1 and localhost, in `directory`. */
export function makePrivateCa(directory: string): PrivateCa {
  const at = (name: string) => join(directory, name);
  const openssl = (...words: string[]) => {
    const { exitCode, stderr } = Bun.spawnSync([requireProgram('openssl'), ...words]);
    if (exitCode !== 0) throw new Error(`openssl ${words[0]}: ${stderr.toString()}`);
  };
  const newKey = ['-newkey', 'ec', '-pkeyopt', 'ec_paramgen_curve:prime256v1', '-nodes'];
  const ca = ['-addext', 'basicConstraints=critical,CA:TRUE', '-addext', 'keyUsage=critical,keyCertSign,cRLSign'];
  openssl(
    ...['req', '-x509', ...newKey, '-keyout', at('ca.key'), '-out', at('ca.pem'), '-days', '2'],
    ...['-subj', '/CN=A private authority', ...ca],
  );
  openssl('req', ...newKey, '-keyout', at('server.key'), '-out', at('server.csr'), '-subj', '/CN=localhost');
  writeFileSync(
    at('server.ext'),
    [
      'subjectAltName=IP:127.0.0.1,DNS:localhost',
      'basicConstraints=critical,CA:FALSE',
      'keyUsage=critical,digitalSignature',
      'extendedKeyUsage=serverAuth',
      'subjectKeyIdentifier=hash',
      'authorityKeyIdentifier=keyid',
    ].join('\n'),
  );
  openssl(
    ...['x509', '-req', '-in', at('server.csr'), '-CA', at('ca.pem'), '-CAkey', at('ca.key'), '-CAcreateserial'],
    ...['-out', at('server.pem'), '-days', '2', '-extfile', at('server.ext')],
  );
  const text = (name: string) => readFileSync(at(name), 'utf8');
  return { certificate: at('ca.pem'), tls: { cert: text('server.pem'), key: text('server.key') } };
}

/** An HTTPS server in front of an HTTP one; `/plain` it answers itself. */
export function serveTls({ tls }: PrivateCa, behind: string): Bun.Server<undefined> {
  return Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    tls,
    idleTimeout: 0,
    async fetch(request) {
      const { pathname, search } = new URL(request.url);
      if (pathname === '/plain') return new Response('reached over TLS');
      const { method, headers } = request;
      const body = method === 'GET' ? null : await request.bytes();
      return fetch(new URL(pathname + search, behind), { method, headers, body });
    },
  });
}
