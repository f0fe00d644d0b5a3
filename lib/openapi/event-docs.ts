import { isDeepStrictEqual } from 'node:util';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import type { DtoClass } from '../events/data-checks.js';
import type { JsonSchema, WebhookEventCatalog } from '../events/event-catalog.js';
import { Problems } from '../options/problems.js';
import type { ResolvedEndpointSettings } from '../sending/endpoint.js';
import { isStandardWebhooks, tokenProfile } from '../sending/sent-profile.js';
import { matchesEvent } from '../token/event-name.js';
import { DEFAULT_PROFILE } from '../token/webhook-token.constants.js';

/** Optional. It is loaded before the application, without which it makes no document. */
let swagger: typeof import('@nestjs/swagger') | undefined;
void loadSwagger();

async function loadSwagger(): Promise<void> {
  swagger = await import('@nestjs/swagger').catch(() => undefined);
}

/** A member of an OpenAPI document. */
export type DocumentPart = Record<string, unknown>;

/** The members of an OpenAPI document that are read or written here. */
export interface OpenApiDocument {
  openapi: string;
  info?: unknown;
  paths?: Record<string, DocumentPart>;
  webhooks?: Record<string, DocumentPart>;
  components?: Record<string, DocumentPart>;
}

export interface EventDocsOptions {
  /** Default `'Webhooks'`. */
  readonly title?: string | undefined;
  /** Version of the document; default `'1.0.0'`. */
  readonly version?: string | undefined;
  readonly description?: string | undefined;
  /** Names or patterns of the events to document; default: all. */
  readonly include?: readonly string[] | undefined;
}

/**
 * Documents defined events as the `webhooks` of an OpenAPI 3.1 document, without an application: for a build or for CI.
 *
 * ```ts
 * await writeFile('webhooks.json', JSON.stringify(generateEventDocs(events, { title: 'Shop' }), undefined, 2));
 * ```
 *
 * @throws {@link WebhookConfigurationError} for an event whose data has no JSON Schema, and for an included name or pattern that
 *   matches no event
 */
export function generateEventDocs(
  events: WebhookEventCatalog,
  { title = 'Webhooks', version = '1.0.0', description, include }: EventDocsOptions = {},
): OpenApiDocument {
  const info = { title, version, ...(description !== undefined && { description }) };
  checkIncluded(include, [events]);
  return addEvents({ openapi: '3.1.0', info, components: {} }, events, include);
}

/**
 * Checks that each name or pattern matches an event of one of the catalogs, if there are any.
 *
 * @throws {@link WebhookConfigurationError}
 */
export function checkIncluded(
  include: readonly string[] = [],
  catalogs: readonly WebhookEventCatalog[],
): void {
  const problems = new Problems();
  include.forEach((pattern, index) => {
    const found = catalogs.map((events) => events.subscriptionProblem(pattern));
    const [first] = found;
    if (first !== undefined && !found.includes(undefined)) problems.add(`include[${index}]`, first);
  });
  problems.throwIfAny();
}

const SCHEMAS = '#/components/schemas/';

/** The name of the security scheme in documents. */
const SCHEME = 'webhookToken';

/** The security requirement of receivers and events. */
export const TOKEN_REQUIRED = [{ [SCHEME]: [] }];

/** Adds members to a section of `components`; those that are there win. */
export function addComponents(
  document: OpenApiDocument,
  section: string,
  members: DocumentPart,
): void {
  document.components ??= {};
  document.components[section] = { ...members, ...document.components[section] };
}

/** Adds the scheme that {@link TOKEN_REQUIRED} names. */
export function addScheme(document: OpenApiDocument): void {
  const description =
    'A JWT that is valid for one request and a few minutes. It names the event and holds its data, or a digest of the body.';
  const scheme = { type: 'http', scheme: 'bearer', bearerFormat: 'JWT', description };
  addComponents(document, 'securitySchemes', { [SCHEME]: scheme });
}

/** How a publisher sends events, unless an endpoint has settings of its own. */
type SentForm = Pick<ResolvedEndpointSettings, 'profile' | 'envelope'>;

/**
 * Adds defined events as `webhooks`.
 *
 * @throws {@link WebhookConfigurationError} for an event whose data has no JSON Schema
 */
export function addEvents(
  document: OpenApiDocument,
  events: WebhookEventCatalog,
  include: readonly string[] = ['**'],
  form: SentForm = { profile: DEFAULT_PROFILE, envelope: true },
): OpenApiDocument {
  addScheme(document);
  const names = events.names.filter((name) =>
    include.some((pattern) => matchesEvent(pattern, name)),
  );
  const webhooks = names.map((name) => [
    name,
    { post: eventOperation(document, events, name, form) },
  ]);
  document.webhooks = { ...document.webhooks, ...Object.fromEntries(webhooks) };
  return document;
}

const INLINE =
  'Small data may arrive in the token of a `HEAD` request instead of the body of a `POST`.';

function eventOperation(
  document: OpenApiDocument,
  events: WebhookEventCatalog,
  name: string,
  { profile, envelope }: SentForm,
): DocumentPart {
  const { description, version, deprecated, examples = [] } = events.find(name)!;
  const isStandard = isStandardWebhooks(profile);
  const hasEnvelope = isStandard && envelope;
  const data = schemaReference(document, events, name);
  const schema = hasEnvelope ? envelopeOf(name, data, events.checks(name)) : data;
  const numbered = examples.map((example, index) => [
    `example${index + 1}`,
    { value: hasEnvelope ? { type: name, timestamp: EXAMPLE_TIME, data: example } : example },
  ]);
  const paragraphs = [
    description,
    typeof deprecated === 'string' ? `Deprecated: ${deprecated}` : undefined,
    version === undefined ? undefined : `Version: ${version}`,
    isStandard ? undefined : INLINE,
  ];
  return {
    operationId: name,
    summary: name,
    description: paragraphs.filter((one) => one !== undefined).join('\n\n'),
    ...(deprecated !== undefined && deprecated !== false && { deprecated: true }),
    ...(tokenProfile(profile) !== undefined && { security: TOKEN_REQUIRED }),
    requestBody: {
      content: {
        'application/json': {
          schema,
          ...(numbered.length > 0 && { examples: Object.fromEntries(numbered) }),
        },
      },
    },
    responses: {
      '2XX': {
        description: `The event is acknowledged.${isStandard ? '' : ' A `HEAD` needs 202 or 204.'}`,
      },
      default: { description: 'The delivery has failed, and may be repeated.' },
    },
  };
}

const EXAMPLE_TIME = '2026-01-01T00:00:00.000Z';

/** The schema of the body that Standard Webhooks have. */
function envelopeOf(name: string, data: JsonSchema, isRequired: boolean): JsonSchema {
  return {
    type: 'object',
    required: ['type', 'timestamp', ...(isRequired ? ['data'] : [])],
    properties: {
      type: { const: name },
      timestamp: { type: 'string', format: 'date-time' },
      data,
    },
  };
}

/** Adds the schema of an event's data to the components; returns the reference to it. */
function schemaReference(
  document: OpenApiDocument,
  events: WebhookEventCatalog,
  name: string,
): JsonSchema {
  const { dto, jsonSchema } = events.find(name)!;
  if (dto !== undefined && jsonSchema === undefined) return dtoReference(document, dto, name);
  const schema = events.jsonSchema(name);
  if (schema === undefined) return {};
  // References would depend on its own id.
  const { $id, ...part } = schema;
  for (let number = 1; ; number++) {
    const component = number === 1 ? name : `${name}_${number}`;
    const place = `${SCHEMAS}${component}`;
    const own = relocated(part, { $id, place });
    addComponents(document, 'schemas', { [component]: own });
    // A class of the application may have this name.
    if (isDeepStrictEqual(document.components?.['schemas']?.[component], own)) {
      return { $ref: place };
    }
  }
}

/** The schema that @nestjs/swagger has made of a DTO. */
function dtoReference(document: OpenApiDocument, dto: DtoClass, name: string): JsonSchema {
  // Only @nestjs/swagger knows the name that `@ApiSchema()` sets.
  const component = swagger?.getSchemaPath(dto).slice(SCHEMAS.length) ?? dto.name;
  if (document.components?.['schemas']?.[component] !== undefined) {
    return { $ref: `${SCHEMAS}${component}` };
  }
  throw new WebhookConfigurationError([
    {
      path: `events["${name}"].dto`,
      message: `${component} is not in the document; pass { extraModels: events.dtos } to SwaggerModule.createDocument, or set jsonSchema beside it`,
    },
  ]);
}

/** Keywords whose values are data, not schemas. */
const DATA_KEYWORDS: ReadonlySet<string> = new Set([
  'const',
  'default',
  'enum',
  'example',
  'examples',
]);

/** Keywords whose values have names as keys, which may be those of keywords: a property or a response `default`. */
const MAP_KEYWORDS: ReadonlySet<string> = new Set([
  '$defs',
  'callbacks',
  'definitions',
  'dependentSchemas',
  'headers',
  'parameters',
  'pathItems',
  'paths',
  'patternProperties',
  'properties',
  'requestBodies',
  'responses',
  'schemas',
  'webhooks',
]);

/**
 * The members of a part of a document that may contain schemas.
 *
 * @param key - the key of the part itself; `undefined` for one that is named by the application
 */
export function schemaMembers(
  part: object,
  key: string | undefined,
): readonly { readonly name: string; readonly value: unknown; readonly key: string | undefined }[] {
  const isMap = key !== undefined && MAP_KEYWORDS.has(key) && !Array.isArray(part);
  return Object.entries(part)
    .filter(([name]) => isMap || !DATA_KEYWORDS.has(name))
    .map(([name, value]: [string, unknown]) => ({ name, value, key: isMap ? undefined : name }));
}

/** Where a schema is moved to, and the id that it had. */
interface Relocation {
  readonly $id: unknown;
  readonly place: string;
}

/** A copy of a schema whose references into itself point to its place in the document. */
function relocated<Part>(part: Part, to: Relocation, key?: string): Part {
  if (Array.isArray(part)) return part.map((one: unknown) => relocated(one, to)) as Part;
  if (typeof part !== 'object' || part === null) return part;
  const copy: DocumentPart = { ...(part as DocumentPart) };
  for (const member of schemaMembers(part, key)) {
    const { name, value } = member;
    const isReference = member.key === '$ref' && typeof value === 'string';
    copy[name] = isReference ? moved(value, to) : relocated(value, to, member.key);
  }
  return copy as Part;
}

/** A reference to an `$anchor`, such as `#price`, stays valid in another place. */
function moved(reference: string, { $id, place }: Relocation): string {
  const [base, fragment = ''] = reference.split('#', 2);
  const own = base === $id ? `#${fragment}` : reference;
  const isOwn = /^#(?:\/(?!components\/)|$)/.test(own);
  return isOwn ? `${place}${own.slice(1)}` : own;
}
