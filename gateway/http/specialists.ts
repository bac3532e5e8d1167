/** Specialists: who conversations are held with. Offboarding is routing only (ADR-046 §5). */
import * as v from 'valibot';
import type { Role, Specialist } from '../domain.ts';
import { reachesSpecialist } from '../reach.ts';
import { may } from './access.ts';
import { type App, callerOf, type HttpContext } from './app.ts';
import { operation } from './openapi.ts';
import { jsonResponse } from './responses.ts';
import { exactBody, nameSchema, notFound, specialistPath } from './schemas.ts';

const newSpecialist = exactBody(
  v.strictObject({
    name: nameSchema,
    persona: v.optional(
      v.pipe(
        v.string(),
        v.maxLength(32 * 1024),
        v.description("Appended to the organization's SOUL.md when a conversation is established"),
      ),
    ),
  }),
);

const specialistShown = v.object({
  id: v.string(),
  name: v.string(),
  persona: v.optional(v.string()),
  createdAt: v.string(),
  offboardedAt: v.nullable(v.string()),
});

/** The persona is private (ADR-046 §5): only who works on specialists sees it. */
const show = (specialist: Specialist, role: Role) => ({
  id: specialist.id,
  name: specialist.name,
  ...(may(role, 'specialist.persona') ? { persona: specialist.persona } : {}),
  createdAt: specialist.createdAt.toISOString(),
  offboardedAt: specialist.offboardedAt?.toISOString() ?? null,
});

export function addSpecialists(app: App, { governance }: HttpContext): void {
  app.get(
    '/v1/specialists',
    async ({ call }) => {
      const { role, reach } = callerOf(call);
      const specialists = (await governance.listSpecialists()).filter(({ id }) => reachesSpecialist(reach, id));
      return jsonResponse(200, { specialists: specialists.map((one) => show(one, role)) });
    },
    {
      detail: operation('Specialists', 'List specialists', {
        200: {
          description: 'All of them; to an expert, those it works for.',
          schema: v.object({ specialists: v.array(specialistShown) }),
        },
      }),
    },
  );

  app.get(
    '/v1/specialists/:specialist',
    async ({ params, call }) => {
      const specialist = await governance.findSpecialist(params.specialist);
      const { role, reach } = callerOf(call);
      if (specialist === null || !reachesSpecialist(reach, specialist.id)) throw notFound('specialist');
      return jsonResponse(200, show(specialist, role));
    },
    {
      params: specialistPath,
      detail: operation('Specialists', 'Read one specialist', {
        200: { description: 'The specialist; its persona for experts and above.', schema: specialistShown },
      }),
    },
  );

  app.post(
    '/v1/specialists',
    async ({ body, call }) => {
      const specialist = await governance.createSpecialist(body.name, body.persona ?? '');
      return jsonResponse(201, show(specialist, callerOf(call).role), { location: `/v1/specialists/${specialist.id}` });
    },
    {
      parse: 'jsonBody',
      body: newSpecialist,
      detail: operation('Specialists', 'Add a specialist', {
        201: { description: 'Added.', schema: specialistShown },
      }),
    },
  );

  app.post(
    '/v1/specialists/:specialist/offboard',
    async ({ params, call }) => {
      const specialist = await governance.offboardSpecialist(params.specialist);
      if (specialist === null) throw notFound('specialist');
      return jsonResponse(200, show(specialist, callerOf(call).role));
    },
    {
      params: specialistPath,
      detail: operation('Specialists', 'Take a specialist out of routing', {
        200: { description: 'Offboarded, now or before. Nothing of its data changes.', schema: specialistShown },
      }),
    },
  );
}
