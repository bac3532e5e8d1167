/** The OpenAPI document: generated from the routes and their schemas, completed with what holds for all of them. */
import { toOpenAPISchema } from '@elysiajs/openapi/openapi';
import { toJsonSchema } from '@valibot/to-json-schema';
import type { AnyElysia } from 'elysia';
import * as v from 'valibot';
import { access, type Route } from './access.ts';

const toJson = (schema: v.GenericSchema, typeMode: 'input' | 'output') => {
  // Ids are branded by a transformation that changes nothing: JSON Schema has no word for it.
  const { $schema: _, ...json } = toJsonSchema(schema, { typeMode, errorMode: 'ignore' });
  return json;
};

interface Answer {
  readonly description: string;
  readonly schema?: v.GenericSchema;
  /** Media type, when it is not JSON. */
  readonly media?: string;
}

export interface Parameter {
  readonly name: string;
  readonly in: 'header' | 'query';
  /** Without it the request is refused. */
  readonly required?: true;
  /** What is refused otherwise; any text when it is not said. */
  readonly pattern?: RegExp;
  readonly description: string;
}

/** A body as a multipart form: its fields as JSON Schema, and what they carry. */
export interface Form {
  readonly schema: Readonly<Record<string, unknown>>;
}

export interface Operation {
  readonly summary: string;
  readonly description?: string;
  readonly tags: string[];
  readonly responses: Record<string, Record<string, unknown> & { description: string }>;
  readonly 'x-parameters'?: readonly Parameter[];
  readonly 'x-form'?: Form;
}

/** The OpenAPI side of one route, given to Elysia as its `detail`. */
export function operation(
  tag: string,
  summary: string,
  answers: Readonly<Record<number, Answer>>,
  more: { readonly description?: string; readonly parameters?: readonly Parameter[]; readonly form?: Form } = {},
): Operation {
  const responses: Operation['responses'] = {};
  for (const [status, { description, schema, media }] of Object.entries(answers)) {
    const content =
      schema === undefined && media === undefined
        ? {}
        : { content: { [media ?? 'application/json']: schema ? { schema: toJson(schema, 'output') } : {} } };
    responses[status] = { description, ...content };
  }
  return {
    summary,
    tags: [tag],
    responses,
    ...(more.description === undefined ? {} : { description: more.description }),
    ...(more.parameters === undefined ? {} : { 'x-parameters': more.parameters }),
    ...(more.form === undefined ? {} : { 'x-form': more.form }),
  };
}

const problemSchema = v.looseObject({
  type: v.string(),
  title: v.string(),
  status: v.number(),
  detail: v.string(),
});

export interface OpenApiOperation {
  operationId: string;
  summary: string;
  description?: string;
  tags: string[];
  parameters?: { name: string; in: string; required?: boolean; description?: string; schema: unknown }[];
  requestBody?: { required: boolean; content: Record<string, { schema: unknown }> };
  responses: Record<string, unknown>;
  security?: unknown[];
}

export interface OpenApiDocument {
  openapi: string;
  info: { title: string; version: string; description: string };
  servers: { url: string }[];
  paths: Record<string, Record<string, OpenApiOperation>>;
  components: Record<string, Record<string, unknown>>;
  security: unknown[];
}

/** Builds the document of an application whose routes are all declared. */
export function buildDocument(app: AnyElysia, version: string): OpenApiDocument {
  const generated = toOpenAPISchema(app, { staticFile: false }, undefined, {
    valibot: (schema: v.GenericSchema) => toJson(schema, 'input'),
  });
  const bodies = new Map(app.routes.map((route) => [`${route.method} ${route.path}`, route.hooks?.body]));
  const paths: OpenApiDocument['paths'] = {};
  for (const route of Object.keys(access) as Route[]) {
    const [method = '', path = ''] = route.split(' ');
    const shown = path.replace(/:(\w+)/g, '{$1}');
    const made = (generated.paths as Record<string, Record<string, unknown>>)[shown]?.[method.toLowerCase()];
    if (made === undefined) throw new Error(`${route} has no OpenAPI operation`);
    const {
      'x-parameters': parameters,
      'x-form': form,
      ...rest
    } = made as OpenApiOperation & Pick<Operation, 'x-parameters' | 'x-form'>;
    const body = bodies.get(route) as v.GenericSchema | undefined;
    paths[shown] = {
      ...paths[shown],
      [method.toLowerCase()]: {
        ...rest,
        ...(parameters === undefined
          ? {}
          : {
              parameters: [
                ...(rest.parameters ?? []),
                ...parameters.map(({ pattern, ...one }) => ({
                  ...one,
                  schema: { type: 'string', ...(pattern === undefined ? {} : { pattern: pattern.source }) },
                })),
              ],
            }),
        // The plugin leaves the content out of a body with a parser of its own; ours take JSON, and forms where they say so.
        ...(body === undefined
          ? {}
          : {
              requestBody: {
                required: true,
                content: {
                  'application/json': { schema: toJson(body, 'input') },
                  ...(form === undefined ? {} : { 'multipart/form-data': { schema: form.schema } }),
                },
              },
            }),
        responses: { ...rest.responses, default: { $ref: '#/components/responses/Problem' } },
        ...(access[route] === 'public' ? { security: [] } : {}),
      },
    };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'edge-gateway',
      version,
      description:
        'The gateway of one organization and its managed Hermes agent. Errors are problem documents (RFC 9457).',
    },
    servers: [{ url: '/' }],
    paths,
    components: {
      schemas: { Problem: toJson(problemSchema, 'output') },
      responses: {
        Problem: {
          description: 'What went wrong, and what to do.',
          content: { 'application/problem+json': { schema: { $ref: '#/components/schemas/Problem' } } },
        },
      },
      securitySchemes: { bearer: { type: 'http', scheme: 'bearer' } },
    },
    security: [{ bearer: [] }],
  };
}
