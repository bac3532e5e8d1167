/** A message with files, as a form of a browser or `curl -F` sends it. */
import type { Answer, Api } from './http.ts';

export type FormField = string | { readonly name: string; readonly bytes: Uint8Array | string; readonly type?: string };

export function formOf(fields: readonly FormField[]): FormData {
  const form = new FormData();
  for (const field of fields) {
    if (typeof field === 'string') form.append('text', field);
    else form.append('file', new Blob([field.bytes], field.type === undefined ? {} : { type: field.type }), field.name);
  }
  return form;
}

export function sendForm(
  api: Api,
  conversation: string,
  fields: readonly FormField[],
  headers: Readonly<Record<string, string>> = { prefer: 'wait=120' },
): Promise<Answer> {
  return api.request('POST', `/v1/conversations/${conversation}/messages`, { body: formOf(fields), headers });
}
