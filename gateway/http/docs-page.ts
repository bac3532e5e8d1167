/** The interface as one HTML page that loads nothing, from this host or another. */
import type { OpenApiDocument, OpenApiOperation } from './openapi.ts';

const escapes: Readonly<Record<string, string>> = { '&': '&amp;', '<': '&lt;', '>': '&gt;', '"': '&quot;' };
const inHtml = (text: string): string => text.replace(/[&<>"]/g, (character) => escapes[character] ?? '');

const style = `
body { font: 16px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem; padding: 0 1rem; color: #1b1b1b; background: #fff }
h2 { margin-top: 2.5rem } h3 { font: 600 1rem ui-monospace, monospace; margin: 1.5rem 0 .25rem }
p { margin: .25rem 0 } pre { background: #f4f4f4; padding: .75rem; overflow: auto; font-size: .85rem }
code { font-family: ui-monospace, monospace } .muted { color: #595959 }
@media (prefers-color-scheme: dark) { body { color: #eee; background: #161616 } pre { background: #242424 } .muted { color: #aaa } }`;

export function docsPage(document: OpenApiDocument): string {
  const byTag = new Map<string, string[]>();
  for (const [path, methods] of Object.entries(document.paths)) {
    for (const [method, operation] of Object.entries(methods)) {
      const tag = operation.tags[0] ?? '';
      byTag.set(tag, [...(byTag.get(tag) ?? []), section(method, path, operation)]);
    }
  }
  const sections = [...byTag].map(([tag, parts]) => `<h2>${inHtml(tag)}</h2>\n${parts.join('\n')}`);
  return `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>${inHtml(document.info.title)}</title><style>${style}</style></head>
<body><h1>${inHtml(document.info.title)} ${inHtml(document.info.version)}</h1>
<p>${inHtml(document.info.description)} Send <code>Authorization: Bearer &lt;token&gt;</code>.
The same as OpenAPI: <a href="/openapi.json">/openapi.json</a>.</p>
${sections.join('\n')}
</body></html>
`;
}

function section(method: string, path: string, operation: OpenApiOperation): string {
  const parts = [
    `<h3>${method.toUpperCase()} ${inHtml(path)}</h3>`,
    `<p>${inHtml(operation.summary)}${operation.security?.length === 0 ? ' <span class="muted">(public)</span>' : ''}</p>`,
  ];
  if (operation.description !== undefined) parts.push(`<p>${inHtml(operation.description)}</p>`);
  for (const parameter of operation.parameters ?? []) {
    if (parameter.in === 'path') continue;
    const must = parameter.required === true ? ' (required)' : '';
    const about = parameter.description === undefined ? '' : `: ${inHtml(parameter.description)}`;
    parts.push(`<p class="muted">${inHtml(parameter.in)} <code>${inHtml(parameter.name)}</code>${must}${about}</p>`);
  }
  const body = operation.requestBody?.content['application/json'];
  if (body !== undefined) parts.push(details('Body', body.schema));
  for (const [status, answer] of Object.entries(operation.responses)) {
    if (status === 'default') continue;
    const { description = '', content } = answer as {
      description?: string;
      content?: Record<string, { schema?: unknown }>;
    };
    parts.push(`<p>${inHtml(status)}: ${inHtml(description)}</p>`);
    const schema = content?.['application/json']?.schema;
    if (schema !== undefined) parts.push(details(`Answer ${status}`, schema));
  }
  return parts.join('\n');
}

function details(title: string, schema: unknown): string {
  return `<details><summary>${inHtml(title)}</summary><pre>${inHtml(JSON.stringify(schema, null, 2))}</pre></details>`;
}
