/** The organization that this gateway serves. */
import * as v from 'valibot';
import type { App, HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';

export function addOrganization(app: App, { governance }: HttpContext): void {
  app.get(
    '/v1/organization',
    async () => {
      const { id, name } = await governance.organization();
      return jsonResponse(200, { id, name });
    },
    {
      detail: operation('Organization', 'Read the organization', {
        200: { description: 'Its id and name.', schema: v.object({ id: v.string(), name: v.string() }) },
      }),
    },
  );
}
