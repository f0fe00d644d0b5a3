import { Controller, type INestApplication, Module, Put, VersioningType } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import {
  ApiProperty,
  ApiResponse,
  ApiSchema,
  DocumentBuilder,
  type OpenAPIObject,
  SwaggerModule,
} from '@nestjs/swagger';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Validator } from '@seriousme/openapi-schema-validator';
import { IsString } from 'class-validator';
import { z } from 'zod';
import { addWebhooks, generateEventDocs } from 'nestjs-webhook-token/openapi';
import {
  defineEvents,
  InProcessQueue,
  WebhookData,
  type WebhookEventCatalog,
  WebhookModule,
  WebhookRoute,
} from 'nestjs-webhook-token';
import { standardWebhooks } from 'nestjs-webhook-token/senders';
import { WebhookConsoleModule } from 'nestjs-webhook-token/console';
import { adapters } from '../fixtures/adapters.js';
import { ISSUER, SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';

class OrderShipped {
  @ApiProperty() @IsString() id!: string;
  @ApiProperty({ type: String, nullable: true }) carrier!: string | null;
  @ApiProperty({ type: String, nullable: true }) default!: string | null;
}

const node = z.object({
  name: z.string(),
  get children() {
    return z.array(node);
  },
});

const events = defineEvents({
  'order.created': {
    schema: z.object({ id: z.string(), total: z.number().default(0) }),
    description: 'A customer placed an order.',
    version: '2',
    examples: [{ id: 'o-1' }],
  },
  'order.shipped': { dto: OrderShipped, deprecated: 'use parcel.sent.' },
  'category.changed': { schema: node },
  'order.archived': {},
});

@Controller('hooks')
class Hooks {
  @WebhookRoute('shop/:tenant')
  @ApiResponse({ status: 422, description: 'The tenant has no shop.' })
  receive(@WebhookData() _data: unknown): void {}
}

/** A route whose receiver takes no tokens. */
@Controller('partner')
class PartnerHooks {
  @WebhookRoute('events', { receiver: 'partner' })
  receive(@WebhookData() _data: unknown): void {}
}

const WHSEC = `whsec_${Buffer.alloc(32, 1).toString('base64')}`;

/** A route of the application at the path of a receiver. */
@Controller('webhooks')
class Settings {
  @Put() change(): void {}
}

interface Operation {
  readonly operationId: string;
  readonly description: string;
  readonly deprecated?: boolean;
  readonly requestBody?: { readonly content: Record<string, Record<string, unknown>> };
  readonly responses: Record<string, { readonly description: string; readonly $ref?: string }>;
}

async function validate(document: object): Promise<unknown> {
  const validator = new Validator();
  const { valid, errors } = await validator.validate(
    JSON.parse(JSON.stringify(document)) as Record<string, unknown>,
  );
  return valid ? validator.version : errors;
}

function operation(document: object, section: 'paths' | 'webhooks', path: string, method = 'post') {
  const sections = document as Record<string, Record<string, Record<string, Operation>>>;
  return sections[section]?.[path]?.[method];
}

function documentOf(
  app: INestApplication,
  openapi = '3.0.0',
  { dtos }: Pick<WebhookEventCatalog, 'dtos'> = events,
): OpenAPIObject {
  const config = new DocumentBuilder().setTitle('Shop').setOpenAPIVersion(openapi).build();
  const options = { extraModels: dtos };
  return addWebhooks(SwaggerModule.createDocument(app, config, options), app);
}

describe.each(adapters)('addWebhooks on %s', (_, createAdapter) => {
  let started: StartedApp;
  let document: OpenAPIObject;

  afterAll(async () => started.app.close());

  beforeAll(async () => {
    started = await startApp(createAdapter(), {
      options: {
        events,
        receiver: [
          { path: 'webhooks', issuers: [{ issuer: ISSUER, secret: SECRET }] },
          {
            name: 'bulk',
            path: 'bulk',
            issuers: [{ issuer: ISSUER, secret: SECRET }],
            acknowledge: 'queued',
            queue: new InProcessQueue(),
          },
        ],
        publisher: { issuer: 'https://billing.example', secret: SECRET },
      },
      controllers: [Hooks, Settings],
      imports: [WebhookConsoleModule.forRoot({ allowUnguarded: true })],
      configure: (app) => {
        app.setGlobalPrefix('api');
        app.enableVersioning({ type: VersioningType.URI, defaultVersion: '1' });
        document = documentOf(app);
      },
    });
  });

  it('makes a valid document of OpenAPI 3.1', async () => {
    expect(document.openapi).toBe('3.1.0');
    expect(await validate(document)).toBe('3.1');
  });

  it('keeps a document of OpenAPI 3.2 valid', async () => {
    expect(await validate(documentOf(started.app, '3.2.0'))).toBe('3.2');
  });

  it('documents the paths of receivers and routes, and not those of the console', () => {
    expect(Object.keys(document.paths).sort()).toEqual([
      '/api/v1/bulk',
      '/api/v1/hooks/shop/{tenant}',
      '/api/v1/webhooks',
    ]);
    for (const path of Object.keys(document.paths)) {
      for (const method of ['post', 'head']) {
        expect(operation(document, 'paths', path, method)).toMatchObject({
          security: [{ webhookToken: [] }],
          responses: { '204': {}, '401': {}, '503': {} },
        });
      }
    }
    expect(operation(document, 'paths', '/api/v1/bulk')?.responses).toHaveProperty('202');
    expect(operation(document, 'paths', '/api/v1/webhooks')?.responses).not.toHaveProperty('202');
    expect(JSON.stringify(document)).not.toContain('x-webhook-route');
  });

  it('keeps the operations of the application at the path of a receiver', async () => {
    const path = '/api/v1/webhooks';
    expect(operation(document, 'paths', path, 'put')?.operationId).toMatch(/^Settings_change/);
    expect((await fetch(`${started.origin}${path}`, { method: 'PUT' })).status).toBe(200);
  });

  it('lists the stable codes by status', () => {
    expect(document.components?.responses?.['WebhookAnswer409']).toMatchObject({
      description: expect.stringMatching(/^- `in_progress`: .*\n- `lease_lost`: /),
      headers: { 'Webhook-Error': { schema: { enum: ['in_progress', 'lease_lost'] } } },
      content: { 'application/problem+json': {} },
    });
    expect(document.components?.responses?.['WebhookHeadAnswer409']).not.toHaveProperty('content');
  });

  it('keeps what the application says about its routes', () => {
    const { responses } = operation(document, 'paths', '/api/v1/hooks/shop/{tenant}')!;
    expect(responses['422']?.description).toBe('The tenant has no shop.');
  });

  it('documents published events, with their schemas and examples', () => {
    expect(operation(document, 'webhooks', 'order.created')).toMatchObject({
      description: expect.stringMatching(/^A customer placed an order\.\n\nVersion: 2\n/),
      requestBody: {
        content: {
          'application/json': {
            schema: { $ref: '#/components/schemas/order.created' },
            examples: { example1: { value: { id: 'o-1' } } },
          },
        },
      },
    });
    expect(operation(document, 'webhooks', 'order.shipped')).toMatchObject({
      deprecated: true,
      requestBody: {
        content: { 'application/json': { schema: { $ref: '#/components/schemas/OrderShipped' } } },
      },
    });
    expect(document.components?.schemas).toMatchObject({
      'order.created': { required: ['id'] },
      'category.changed': {
        properties: { children: { items: { $ref: '#/components/schemas/category.changed' } } },
      },
      OrderShipped: { properties: { carrier: { type: ['string', 'null'] } } },
    });
  });

  it('converts what is nullable, whatever its name, but not examples', () => {
    const type = ['string', 'null'];
    const schema = { type: 'string', nullable: true, example: { nullable: true } };
    const responses = { default: { content: { 'text/plain': { schema } } } };
    const own = { openapi: '3.0.0', paths: { '/carrier': { get: { responses } } } };

    expect(addWebhooks(own, started.app, { include: ['order.created'] })).toMatchObject({
      paths: {
        '/carrier': {
          get: {
            responses: {
              default: {
                content: { 'text/plain': { schema: { type, example: { nullable: true } } } },
              },
            },
          },
        },
      },
    });
    expect(document.components?.schemas).toMatchObject({
      OrderShipped: { properties: { default: { type } } },
    });
  });
});

describe('addWebhooks', () => {
  it('names an included pattern that matches no event of any module', async () => {
    class Feature {}
    const publisher = { issuer: ISSUER, secret: SECRET };
    const refunds = defineEvents({ 'refund.paid': {} });
    const feature = WebhookModule.forRoot({ events: refunds, publisher, isGlobal: false });
    Module({ imports: [feature] })(Feature);
    const orders = defineEvents({ 'order.created': {} });
    const { app } = await startApp(adapters[0]![1](), {
      options: { events: orders, publisher },
      imports: [Feature],
    });
    const documented = (include: string[]) => addWebhooks({ openapi: '3.1.0' }, app, { include });

    expect(documented(['refund.paid', 'order.*'])).toHaveProperty('webhooks');
    expect(() => documented(['ordr.*'])).toThrow(
      'include[0]: "ordr.*" matches no defined event; did you mean "order.*"',
    );
    await app.close();
  });

  it('documents neither token nor HEAD for receivers that take no tokens', async () => {
    const sender = standardWebhooks({ secret: WHSEC });
    const issuers = [{ issuer: ISSUER, secret: SECRET }];
    const { app } = await startApp(adapters[0]![1](), {
      options: {
        receiver: [
          { name: 'partner', path: 'partner-hooks', sender },
          { name: 'both', path: 'both', sender, issuers },
        ],
      },
      controllers: [PartnerHooks],
    });
    const document = documentOf(app);
    await app.close();

    expect(await validate(document)).toBe('3.1');
    for (const path of ['/partner-hooks', '/partner/events']) {
      expect(operation(document, 'paths', path)?.responses).toHaveProperty('204');
      expect(operation(document, 'paths', path)).not.toHaveProperty('security');
      expect(JSON.stringify(operation(document, 'paths', path))).not.toContain('token');
      expect(operation(document, 'paths', path, 'head')).toBeUndefined();
    }
    for (const method of ['head', 'post']) {
      expect(operation(document, 'paths', '/both', method)).toHaveProperty('security');
    }
  });

  it('documents receivers of the same name in two modules each as that of its own', async () => {
    class Feature {}
    const sender = standardWebhooks({ secret: WHSEC });
    const receiver = { name: 'partner', path: 'partner-hooks', sender };
    Module({
      imports: [WebhookModule.forRoot({ receiver, isGlobal: false })],
      controllers: [PartnerHooks],
    })(Feature);
    const issuers = [{ issuer: ISSUER, secret: SECRET }];
    const { app } = await startApp(adapters[0]![1](), {
      options: { receiver: { name: 'partner', path: 'own', issuers } },
      imports: [Feature],
    });
    const document = documentOf(app);
    await app.close();

    const ids = Object.values(document.paths).flatMap((path) =>
      Object.values(path as Record<string, Operation>).map(({ operationId }) => operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
    expect(operation(document, 'paths', '/partner/events')).not.toHaveProperty('security');
    expect(operation(document, 'paths', '/partner/events', 'head')).toBeUndefined();
    expect(operation(document, 'paths', '/own', 'head')).toHaveProperty('security');
  });

  it.each([
    ['standard-webhooks', true],
    ['standard-webhooks', false],
    [['webhook-token', 'standard-webhooks'], true],
  ] as const)(
    'documents the body of the profile %j, with envelope: %j',
    async (profile, envelope) => {
      const publisher = { issuer: ISSUER, secret: WHSEC, profile, envelope };
      const { app } = await startApp(adapters[0]![1](), { options: { events, publisher } });
      const document = documentOf(app);
      await app.close();

      const { description, requestBody, ...rest } = operation(
        document,
        'webhooks',
        'order.created',
      )!;
      const { schema, examples } = requestBody!.content['application/json']!;
      const data = { $ref: '#/components/schemas/order.created' };
      const enveloped = {
        type: 'object',
        required: ['type', 'timestamp', 'data'],
        properties: {
          type: { const: 'order.created' },
          timestamp: { type: 'string', format: 'date-time' },
          data,
        },
      };
      expect(await validate(document)).toBe('3.1');
      expect(schema).toEqual(envelope ? enveloped : data);
      expect(examples).toEqual({
        example1: {
          value: envelope
            ? {
                type: 'order.created',
                timestamp: expect.stringMatching(/^\d{4}-/),
                data: { id: 'o-1' },
              }
            : { id: 'o-1' },
        },
      });
      expect(description).not.toContain('HEAD');
      expect(JSON.stringify(rest)).not.toContain('HEAD');
      expect('security' in rest).toBe(profile !== 'standard-webhooks');
    },
  );

  it('converts exclusive limits and nullable enumerations', async () => {
    class Parcel {
      @ApiProperty({ minimum: 0, exclusiveMinimum: true, maximum: 9, exclusiveMaximum: true })
      weight!: number;
      @ApiProperty({ minimum: 1, exclusiveMinimum: false, nullable: true, type: Number })
      size!: number | null;
      @ApiProperty({ enum: [1, 2], nullable: true, type: Number })
      grade!: number | null;
      @ApiProperty({ enum: [1, 2, null], nullable: true, type: Number })
      level!: number | null;
    }
    const { app } = await startApp(adapters[0]![1]());
    const document = SwaggerModule.createDocument(app, new DocumentBuilder().build(), {
      extraModels: [Parcel],
    });
    addWebhooks(document, app);
    await app.close();

    expect(await validate(document)).toBe('3.1');
    expect(document.components?.schemas?.['Parcel']).toEqual({
      type: 'object',
      required: ['weight', 'size', 'grade', 'level'],
      properties: {
        weight: { type: 'number', exclusiveMinimum: 0, exclusiveMaximum: 9 },
        size: { type: ['number', 'null'], minimum: 1 },
        grade: { type: ['number', 'null'], enum: [1, 2, null] },
        level: { type: ['number', 'null'], enum: [1, 2, null] },
      },
    });
  });
});

/** The document of an application that publishes the events. */
async function publishedDocument(events: WebhookEventCatalog): Promise<OpenAPIObject> {
  const { app } = await startApp(adapters[0]![1](), {
    options: { events, publisher: { issuer: ISSUER, secret: SECRET } },
  });
  const document = documentOf(app, '3.0.0', events);
  // Again, which adds nothing.
  addWebhooks(document, app);
  await app.close();
  return document;
}

it('documents an event by its own schema if a class has its name', async () => {
  const named = defineEvents({
    OrderShipped: { schema: z.object({ at: z.string() }) },
    'order.shipped': { dto: OrderShipped },
  });
  const document = await publishedDocument(named);

  expect(await validate(document)).toBe('3.1');
  expect(operation(document, 'webhooks', 'OrderShipped')).toMatchObject({
    requestBody: {
      content: { 'application/json': { schema: { $ref: '#/components/schemas/OrderShipped_2' } } },
    },
  });
  expect(document.components?.schemas).toMatchObject({
    OrderShipped: { required: ['id', 'carrier', 'default'] },
    OrderShipped_2: { required: ['at'] },
  });
  expect(document.components?.schemas).not.toHaveProperty('OrderShipped_3');
});

/** A class with the name of another, which is renamed in the document. */
function firstOrderShipped() {
  @ApiSchema({ name: 'OrderShippedV1' })
  class OrderShipped {
    @ApiProperty() @IsString() parcel!: string;
  }
  return OrderShipped;
}

it('documents an event by its DTO if that has another name in the document', async () => {
  const renamed = defineEvents({
    'order.shipped': { dto: firstOrderShipped() },
    'order.shipped.v2': { dto: OrderShipped },
  });
  const document = await publishedDocument(renamed);

  const schemaOf = (event: string) =>
    operation(document, 'webhooks', event)?.requestBody?.content['application/json']?.['schema'];
  expect(schemaOf('order.shipped')).toEqual({ $ref: '#/components/schemas/OrderShippedV1' });
  expect(schemaOf('order.shipped.v2')).toEqual({ $ref: '#/components/schemas/OrderShipped' });
});

describe('generateEventDocs', () => {
  const described = defineEvents({
    'order.created': { schema: z.object({ id: z.string() }), examples: [{ id: 'o-1' }] },
    'order.shipped': { dto: OrderShipped, jsonSchema: { type: 'object' } },
    'refund.paid': {},
  });

  it('makes a valid document without an application', async () => {
    const document = generateEventDocs(described, { title: 'Shop', include: ['order.*'] });

    expect(await validate(document)).toBe('3.1');
    expect(Object.keys(document.webhooks ?? {})).toEqual(['order.created', 'order.shipped']);
  });

  it('names an included pattern that matches no event', () => {
    expect(() => generateEventDocs(described, { include: ['order.*', 'refnd.paid'] })).toThrow(
      'include[1]: "refnd.paid" matches no defined event; did you mean "refund.paid"',
    );
  });

  it('moves the references of a schema, also of a property that is named as a keyword', () => {
    const jsonSchema = {
      properties: { default: { $ref: '#/$defs/price' }, total: { $ref: '#/$defs/price' } },
      $defs: { price: { type: 'number', default: { $ref: '#/$defs/price' } } },
    };
    const { components } = generateEventDocs(defineEvents({ 'order.sold': { jsonSchema } }));
    const $ref = '#/components/schemas/order.sold/$defs/price';

    expect(components?.['schemas']?.['order.sold']).toEqual({
      properties: { default: { $ref }, total: { $ref } },
      $defs: jsonSchema.$defs,
    });
  });

  it('moves a schema without its id, on which its references would depend', () => {
    const $id = 'https://shop.example/sold.json';
    const jsonSchema = {
      $id,
      properties: {
        total: { $ref: '#/$defs/price' },
        tax: { $ref: `${$id}#/$defs/price` },
        part: { $ref: $id },
      },
      $defs: { price: { type: 'number' } },
    };
    const { components } = generateEventDocs(defineEvents({ 'order.sold': { jsonSchema } }));
    const $ref = '#/components/schemas/order.sold/$defs/price';

    expect(components?.['schemas']?.['order.sold']).toEqual({
      properties: {
        total: { $ref },
        tax: { $ref },
        part: { $ref: '#/components/schemas/order.sold' },
      },
      $defs: jsonSchema.$defs,
    });
  });

  it('keeps a reference to an anchor', () => {
    const jsonSchema = {
      properties: { total: { $ref: '#price' }, self: { $ref: '#' } },
      $defs: { price: { $anchor: 'price', type: 'number' } },
    };
    const { components } = generateEventDocs(defineEvents({ 'order.sold': { jsonSchema } }));

    expect(components?.['schemas']?.['order.sold']).toMatchObject({
      properties: { total: { $ref: '#price' }, self: { $ref: '#/components/schemas/order.sold' } },
    });
  });

  it('names an event without a JSON Schema, and the remedy', () => {
    const vendor = { '~standard': { version: 1, vendor: 'acme', validate: () => ({ value: 0 }) } };

    expect(() => generateEventDocs(defineEvents({ 'a.b': { schema: vendor as never } }))).toThrow(
      `events["a.b"]: acme's schema cannot be converted to JSON Schema; set jsonSchema beside it`,
    );
    expect(() => generateEventDocs(events)).toThrow(
      'events["order.shipped"].dto: OrderShipped is not in the document; pass { extraModels: events.dtos } to SwaggerModule.createDocument, or set jsonSchema beside it',
    );
    expect(() =>
      generateEventDocs(defineEvents({ 'a.b': { schema: z.object({ at: z.date() }) } })),
    ).toThrow('events["a.b"].schema: cannot be converted to JSON Schema, see the cause');
  });
});

it('cannot document an application in preview mode', async () => {
  const issuers = [{ issuer: ISSUER, secret: SECRET }];
  class App {}
  Module({ imports: [WebhookModule.forRoot({ receiver: { path: 'webhooks', issuers } })] })(App);
  const app = await NestFactory.create(App, new ExpressAdapter(), { preview: true, logger: false });
  const document = SwaggerModule.createDocument(app, new DocumentBuilder().build());

  expect(() => addWebhooks(document, app)).toThrow(/preview: true.*generateEventDocs/);
  expect(document).not.toHaveProperty('webhooks');
});
