/**
 * Which `resource_link` uris may go to the agent. Hermes opens a file link inside its own process, which can read its
 * private home: only `/workspace` and `/artifacts` may be named, in a form that leaves nothing to interpretation. Anything
 * without a scheme would be opened as a path, so a scheme is required.
 */

const maxUriLength = 4096;

const imageSuffixes = new Set(['.png', '.jpg', '.jpeg', '.gif', '.webp', '.bmp', '.svg']);

/** Why this uri may not be sent, as the end of a sentence; null when it may. */
export function linkFlaw(uri: string): string | null {
  if (uri.length > maxUriLength) return `the uri is longer than ${maxUriLength} characters.`;
  // Python's urllib removes some of these before it looks at the scheme, so that they would change what is named.
  if (/[\p{Cc}\p{Z}\\]/u.test(uri))
    return 'the uri holds a space, a control character or a backslash; percent-encode it.';
  const scheme = /^([a-z][a-z0-9+.-]*):\/\//i.exec(uri)?.[1]?.toLowerCase();
  switch (scheme) {
    case 'file':
      return fileFlaw(uri.slice('file://'.length));
    case 'http':
    case 'https':
      return webFlaw(uri);
    default:
      return 'the uri must begin with file:///workspace/, file:///artifacts/, http:// or https://.';
  }
}

function webFlaw(uri: string): string | null {
  // biome-ignore lint/suspicious/noControlCharactersInRegex: the whole of ASCII is meant
  if (!/^[\x00-\x7f]*$/.test(uri) || !URL.canParse(uri))
    return 'the uri is not a valid http address; percent-encode it.';
  const authority = uri.split('/', 3)[2] ?? '';
  return authority.includes('@') ? 'the uri holds credentials.' : null;
}

function fileFlaw(rest: string): string | null {
  if (!rest.startsWith('/')) return 'a file uri must not name a host.';
  if (/[?#]/.test(rest)) return 'a file uri has no query and no fragment; percent-encode ? and #.';
  if (/%(?:2f|5c)/i.test(rest)) return 'a file uri must not hold an encoded slash.';
  const path = decodePath(rest);
  if (path === null) return 'the percent-encoding of the uri is not valid UTF-8.';
  if (/\p{Cc}/u.test(path)) return 'the path holds a control character.';
  const [, root, ...below] = path.split('/');
  if (below.some((segment) => segment === '' || segment === '.' || segment === '..')) {
    return 'the path must be in its normal form: no empty, "." or ".." segment.';
  }
  if ((root !== 'workspace' && root !== 'artifacts') || below.length === 0) {
    return 'a file uri must name a file below file:///workspace/ or file:///artifacts/.';
  }
  return null;
}

function decodePath(path: string): string | null {
  try {
    return decodeURIComponent(path);
  } catch (error) {
    if (error instanceof URIError) return null;
    throw error;
  }
}

/** Whether Hermes will try to show this link to the model as an image: by media type, else by the file's suffix. */
export function isImageLink(link: { readonly uri: string; readonly mimeType?: string | null | undefined }): boolean {
  if (!/^file:\/\//i.test(link.uri)) return false;
  const mime = (link.mimeType ?? '').split(';', 1)[0]?.trim().toLowerCase() ?? '';
  if (mime.startsWith('image/')) return true;
  const name = (decodePath(link.uri) ?? '').split('/').at(-1) ?? '';
  const dot = name.lastIndexOf('.');
  // As pathlib: a leading or a trailing dot begins no suffix.
  return dot > 0 && dot < name.length - 1 && imageSuffixes.has(name.slice(dot).toLowerCase());
}
