/** Credentials of remotes, from the conversation's variables: each for exactly the place that it is given for. */

export interface Credential {
  /** `https://host:port`, with the port of the scheme where none is named. */
  readonly origin: string;
  /** Ends in a slash. */
  readonly path: string;
  readonly username: string;
  readonly password: string;
}

const most = 100;

/** Reads `GIT_CREDENTIALS`, `GITHUB_TOKEN`, `GH_TOKEN` and `GITLAB_TOKEN`. What is no URL with a password is passed over. */
export function credentialsFrom(variables: Readonly<Record<string, string>>): Credential[] {
  const found: Credential[] = [];
  for (const word of (variables.GIT_CREDENTIALS ?? '').split(/\s+/).slice(0, most)) {
    const credential = credentialOf(word);
    if (credential) found.push(credential);
  }
  const github = variables.GITHUB_TOKEN || variables.GH_TOKEN;
  if (github) found.push({ origin: 'https://github.com:443', path: '/', username: 'x-access-token', password: github });
  if (variables.GITLAB_TOKEN) {
    const password = variables.GITLAB_TOKEN;
    found.push({ origin: 'https://gitlab.com:443', path: '/', username: 'oauth2', password });
  }
  return found;
}

function credentialOf(text: string): Credential | null {
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  if ((url.protocol !== 'https:' && url.protocol !== 'http:') || url.password === '') return null;
  return {
    origin: originOf(url),
    path: url.pathname.endsWith('/') ? url.pathname : `${url.pathname}/`,
    username: decoded(url.username),
    password: decoded(url.password),
  };
}

/** The credential for a URL, or null; the longest path decides. */
export function credentialFor(credentials: readonly Credential[], text: string): Credential | null {
  if (!URL.canParse(text)) return null;
  const url = new URL(text);
  const path = `${url.pathname.replace(/\/$/, '')}/`;
  const matching = credentials.filter((one) => {
    return one.origin === originOf(url) && (path.startsWith(one.path) || path === one.path.replace(/\/$/, '.git/'));
  });
  return matching.sort((one, two) => two.path.length - one.path.length)[0] ?? null;
}

function originOf(url: URL): string {
  return `${url.protocol}//${url.hostname}:${url.port || (url.protocol === 'https:' ? '443' : '80')}`;
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    // A percent sign that begins no escape stands for itself.
    return text;
  }
}

/** A text without the passwords of the URLs in it. */
export function redacted(text: string): string {
  return text.replace(/(https?:\/\/)[^\s/@'"]+@/g, '$1');
}
