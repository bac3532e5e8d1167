/** For tests: git's own smart HTTP server (`git http-backend`) on loopback, with a password. */
import { requireProgram } from '../../e2e/harness/programs.ts';

export const password = 's3cret';
/** Each of the two gits has repositories of its own, by whom it says it is: commits name the address. */
export const sides = ['native', 'engine'] as const;

export interface RemoteServer {
  /** `http://127.0.0.1:port` */
  readonly url: string;
  /** `Authorization` headers that came, with the path that they came for. */
  readonly seen: { readonly path: string; readonly authorization: string | null }[];
  stop(): void;
}

/** Serves the repositories below `native` and `engine` of a directory. */
export function serveRepositories(root: string): RemoteServer {
  const seen: RemoteServer['seen'] = [];
  const wanted = new Map<string, string>(
    sides.map((side) => [`Basic ${Buffer.from(`${side}:${password}`).toString('base64')}`, side] as const),
  );
  const server = Bun.serve({
    hostname: '127.0.0.1',
    port: 0,
    async fetch(request) {
      const url = new URL(request.url);
      const authorization = request.headers.get('authorization');
      seen.push({ path: url.pathname, authorization });
      if (url.pathname.startsWith('/moved/')) {
        return Response.redirect(url.searchParams.get('to') ?? 'http://169.254.169.254/latest', 302);
      }
      const side = wanted.get(authorization ?? '');
      if (side === undefined) {
        return new Response('no', { status: 401, headers: { 'WWW-Authenticate': 'Basic realm="git"' } });
      }
      return backend(`${root}/${side}`, request, url);
    },
  });
  return { url: `http://127.0.0.1:${server.port}`, seen, stop: () => void server.stop(true) };
}

async function backend(root: string, request: Request, url: URL): Promise<Response> {
  const child = Bun.spawn([requireProgram('git'), 'http-backend'], {
    stdin: new Uint8Array(await request.arrayBuffer()),
    stdout: 'pipe',
    stderr: 'ignore',
    env: {
      PATH: process.env.PATH ?? '',
      HOME: '/nonexistent',
      GIT_PROJECT_ROOT: root,
      GIT_HTTP_EXPORT_ALL: '1',
      GIT_CONFIG_NOSYSTEM: '1',
      GIT_CONFIG_COUNT: '1',
      GIT_CONFIG_KEY_0: 'safe.directory',
      GIT_CONFIG_VALUE_0: '*',
      REMOTE_USER: 'ada',
      PATH_INFO: url.pathname,
      QUERY_STRING: url.search.slice(1),
      REQUEST_METHOD: request.method,
      CONTENT_TYPE: request.headers.get('content-type') ?? '',
      HTTP_CONTENT_ENCODING: request.headers.get('content-encoding') ?? '',
      GIT_PROTOCOL: request.headers.get('git-protocol') ?? '',
    },
  });
  const bytes = Buffer.from(await new Response(child.stdout).arrayBuffer());
  const end = bytes.indexOf('\r\n\r\n');
  const headers = new Headers();
  let status = 200;
  for (const line of bytes.toString('latin1', 0, Math.max(0, end)).split('\r\n')) {
    const colon = line.indexOf(':');
    if (/^status:/i.test(line))
      status = Number(
        line
          .slice(colon + 1)
          .trim()
          .split(' ')[0],
      );
    else if (colon > 0) headers.set(line.slice(0, colon), line.slice(colon + 1).trim());
  }
  return new Response(bytes.subarray(end + 4), { status, headers });
}
