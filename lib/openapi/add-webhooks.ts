import type { INestApplicationContext } from '@nestjs/common';
import { ApplicationConfig, MetadataScanner, ModulesContainer } from '@nestjs/core';
import { WebhookConfigurationError } from '../errors/webhook.error.js';
import { webhookPartsOf } from '../health/webhook-parts.js';
import { methodsOf } from '../options/decorated-methods.js';
import { readRoute } from '../receiver/handlers/handler-metadata.js';
import { mountPaths } from '../receiver/mount/mounted-paths.js';
import { receiverNamed, type ResolvedReceiver } from '../receiver/receiver-options.resolver.js';
import { receiversOfRoute } from '../receiver/webhook.guard.js';
import {
  addEvents,
  checkIncluded,
  schemaMembers,
  type DocumentPart,
  type OpenApiDocument,
} from './event-docs.js';
import { addReceiverComponents, documented, receiverOperations } from './receiver-docs.js';

/** Options of {@link addWebhooks}. */
export interface AddWebhooksOptions {
  /** Names or patterns of the events that the application publishes; default: all that are defined. */
  readonly include?: readonly string[] | undefined;
}

/**
 * Adds webhooks to a document of `@nestjs/swagger`, which becomes OpenAPI 3.1: the receivers with their answers, and the events that
 * the application publishes.
 *
 * ```ts
 * const document = SwaggerModule.createDocument(app, config);
 * SwaggerModule.setup('docs', app, addWebhooks(document, app));
 * ```
 *
 * Call it after the global prefix and versioning are set. A `@WebhookRoute()` is found by the id of its operation, so leave
 * `operationIdFactory`, and an `operationId` of the route, out. Pass `{ extraModels: events.dtos }` to `createDocument` if DTOs define
 * events.
 *
 * @returns the same document
 * @throws {@link WebhookConfigurationError} for an event whose data has no JSON Schema, for an included name or pattern that matches
 *   no event, and if the application was created with `preview: true`
 */
export function addWebhooks<Document extends { openapi: string }>(
  document: Document,
  app: INestApplicationContext,
  { include }: AddWebhooksOptions = {},
): Document {
  const target = document as OpenApiDocument;
  if (target.openapi.startsWith('3.0')) {
    convertSchemas(target);
    target.openapi = '3.1.0';
  }
  const config = app.get(ApplicationConfig, { strict: false });
  const modules = app.get(ModulesContainer, { strict: false });
  const parts = webhookPartsOf(modules);
  // In preview mode, Nest creates no providers.
  if (parts.some((part) => !(part.receivers as unknown))) {
    throw new WebhookConfigurationError([
      {
        path: 'addWebhooks',
        message:
          'is not available in an application with preview: true, which has no receivers and events; use generateEventDocs(events), or create the application without preview',
      },
    ]);
  }
  const receivers = parts.flatMap((part) => [...part.receivers.values()]);
  if (receivers.length > 0) {
    documentRoutes(target, routesOf(modules));
    addReceivers(target, receivers, config);
  }
  checkIncluded(
    include,
    parts.flatMap(({ publisher }) => publisher?.events ?? []),
  );
  for (const { publisher } of parts) {
    if (publisher?.events !== undefined) {
      addEvents(target, publisher.events, include, publisher.defaults);
    }
  }
  return document;
}

function addReceivers(
  document: OpenApiDocument,
  receivers: readonly ResolvedReceiver[],
  config: ApplicationConfig,
): void {
  addReceiverComponents(document);
  const paths: Record<string, DocumentPart> = { ...document.paths };
  /** Paths by the name of their receiver, which a receiver of another module may have too. */
  const counts = new Map<string, number>();
  for (const { name, path, queued, takesTokens } of receivers) {
    if (path === undefined) continue;
    for (const mounted of mountPaths(path, config)) {
      const number = (counts.get(name) ?? 0) + 1;
      counts.set(name, number);
      const id = number === 1 ? `webhooks_${name}` : `webhooks_${name}_${number}`;
      // Requests with other methods reach the application.
      const operations = receiverOperations(id, queued !== undefined, takesTokens);
      paths[mounted] = { ...paths[mounted], ...operations };
    }
  }
  document.paths = paths;
}

/** `@WebhookRoute()` methods: the id that the default `operationIdFactory` of @nestjs/swagger makes, and whether tokens are taken. */
function routesOf(modules: ModulesContainer): ReadonlyMap<string, boolean> {
  const controllers = [...modules.values()].flatMap((module) => [...module.controllers.values()]);
  return new Map(
    methodsOf(controllers, new MetadataScanner()).flatMap(
      ({ host, key, method }): [string, boolean][] => {
        const route = readRoute(method);
        if (route === undefined) return [];
        const receivers = receiversOfRoute(host);
        const receiver = receivers && receiverNamed(receivers, route.receiver);
        return [[`${String(host.name)}_${key}`, receiver?.takesTokens ?? true]];
      },
    ),
  );
}

/** Completes the operations of `@WebhookRoute()`, which @nestjs/swagger has found. */
function documentRoutes(document: OpenApiDocument, routes: ReadonlyMap<string, boolean>): void {
  for (const path of Object.values(document.paths ?? {})) {
    for (const [method, operation] of Object.entries(path)) {
      const { operationId } = (operation ?? {}) as DocumentPart;
      const suffix = `_${method}`;
      if (typeof operationId !== 'string' || !operationId.endsWith(suffix)) continue;
      const takesTokens = routes.get(operationId.slice(0, -suffix.length));
      if (takesTokens === undefined) continue;
      // The route is one for all methods; it refuses the others.
      if (method === 'post' || (method === 'head' && takesTokens)) {
        const described = { summary: 'Receives an event', ...(operation as DocumentPart) };
        path[method] = documented(described, method, { takesTokens });
      } else {
        delete path[method];
      }
    }
  }
}

const COMBINED = ['$ref', 'allOf', 'anyOf', 'oneOf'];

/** Replaces the keywords of schemas that OpenAPI 3.1 no longer has in the form of 3.0. */
function convertSchemas(part: unknown, key?: string): void {
  if (typeof part !== 'object' || part === null) return;
  for (const member of schemaMembers(part, key)) convertSchemas(member.value, member.key);
  const schema = part as DocumentPart;
  convertLimit(schema, 'minimum', 'exclusiveMinimum');
  convertLimit(schema, 'maximum', 'exclusiveMaximum');
  convertNullable(schema);
}

/** Makes a limit that a boolean marks as exclusive the value of the keyword. */
function convertLimit(schema: DocumentPart, inclusive: string, exclusive: string): void {
  const { [exclusive]: isExclusive, [inclusive]: limit } = schema;
  if (typeof isExclusive !== 'boolean') return;
  delete schema[exclusive];
  if (!isExclusive || limit === undefined) return;
  delete schema[inclusive];
  schema[exclusive] = limit;
}

function convertNullable(schema: DocumentPart): void {
  const { nullable, ...rest } = schema;
  if (typeof nullable !== 'boolean') return;
  delete schema['nullable'];
  if (!nullable) return;
  if (COMBINED.some((keyword) => keyword in rest)) {
    for (const keyword of Object.keys(rest)) delete schema[keyword];
    schema['anyOf'] = [rest, { type: 'null' }];
    return;
  }
  if (typeof rest['type'] === 'string') schema['type'] = [rest['type'], 'null'];
  if (Array.isArray(rest['enum'])) schema['enum'] = [...new Set([...rest['enum'], null])];
}
