import { describe, expect, it } from '@jest/globals';
import type { DynamicModule } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { WebhookConsoleModule } from 'nestjs-webhook-token/console';
import { createTokenSigner, createTokenVerifier } from 'nestjs-webhook-token/token';
import {
  deliverWebhook,
  expectIdempotent,
  flushDeliveries,
  overrideWebhooks,
  signWebhook,
} from 'nestjs-webhook-token/testing';
import { RedisReplayStore } from 'nestjs-webhook-token/redis';
import {
  PgliteQueue,
  PostgresEndpointStore,
  PostgresInboxStore,
  PostgresReplayStore,
  PostgresQueue,
} from 'nestjs-webhook-token/postgres';
import { BullMqQueue } from 'nestjs-webhook-token/bullmq';
import { WebhookTelemetryModule } from 'nestjs-webhook-token/opentelemetry';
import {
  defineEvents,
  MemoryInboxStore,
  InProcessQueue,
  WebhookRoute,
  MemoryReplayStore,
  WebhookModule,
} from 'nestjs-webhook-token';

const client = { eval: () => undefined, evalsha: () => undefined };
const database = { query: () => undefined } as never;
const bullmq = { addBulk: () => undefined, opts: { connection: {} } } as never;
const app = undefined as never;
const builder = undefined as never;
const event = 'order.created';

/** What takes options, and one of its options. */
const TAKERS: Record<string, [take: (options: never) => unknown, option: string]> = {
  MemoryReplayStore: [(options) => new MemoryReplayStore(options), 'maxEntries'],
  RedisReplayStore: [(options) => new RedisReplayStore(client as never, options), 'prefix'],
  PostgresReplayStore: [(options) => new PostgresReplayStore(database, options), 'timeout'],
  PostgresEndpointStore: [
    (options) => new PostgresEndpointStore(database, options),
    'transactional',
  ],
  PostgresInboxStore: [(options) => new PostgresInboxStore(database, options), 'maxAccepted'],
  InProcessQueue: [(options) => new InProcessQueue(options), 'maxPending'],
  PostgresQueue: [(options) => new PostgresQueue(options), 'connectionString'],
  PgliteQueue: [(options) => new PgliteQueue(options), 'directory'],
  BullMqQueue: [(options) => new BullMqQueue(bullmq, options), 'keepDelivered'],
  MemoryInboxStore: [(options) => new MemoryInboxStore(options), 'maxRefused'],
  WebhookTelemetryModule: [(options) => WebhookTelemetryModule.forRoot(options), 'joinTraceFor'],
  'events["order.created"]': [(options) => defineEvents({ [event]: options }), 'description'],
  createTokenSigner: [(options) => createTokenSigner(options), 'lifetime'],
  createTokenVerifier: [(options) => createTokenVerifier(options), 'clockTolerance'],
  '@WebhookRoute()': [(options) => WebhookRoute('hooks', options), 'receiver'],
  overrideWebhooks: [(options) => overrideWebhooks(builder, options), 'transport'],
  signWebhook: [(options) => signWebhook(event, {}, options), 'issuer'],
  deliverWebhook: [(options) => deliverWebhook(app, event, {}, options), 'receiver'],
  expectIdempotent: [(options) => expectIdempotent(app, event, {}, options), 'observe'],
  flushDeliveries: [(options) => flushDeliveries(app, options), 'retries'],
};

/** The problems of options as `path: message`. */
async function problemsOf(take: () => unknown): Promise<string> {
  try {
    await take();
    return '';
  } catch (error) {
    const { code, problems } = error as { code: string; problems: Record<string, string>[] };
    expect(code).toBe('invalid_configuration');
    return problems.map(({ path, message }) => `${path}: ${message}`).join('\n');
  }
}

describe.each(Object.entries(TAKERS))('the options of %s', (name, [take, option]) => {
  it('must not be misspelt', async () => {
    const misspelt = { issuer: 'us', observe: () => 0, [`${option}s`]: 1 };

    expect(await problemsOf(() => take(misspelt as never))).toContain(
      `${name}.${option}s: unknown option; did you mean "${option}"?`,
    );
  });

  it.each([null, 'text', 7, [], new Map()])('must be an object, not %p', async (options) => {
    expect(await problemsOf(() => take(options as never))).toContain(`${name}: must be an object`);
  });
});

it.each([
  [PostgresQueue, 'PostgresQueue: set either connectionString or pool'],
  [PgliteQueue, 'PgliteQueue.directory: must be a path'],
] as const)('%p without options says which are required', async (Queue, problem) => {
  const create = Queue as new () => unknown;

  expect(await problemsOf(() => new create())).toContain(problem);
});

const POOL = { query: async () => ({ rows: [] }), connect: async () => {} };

it.each([
  [
    { pool: { ...POOL, options: { binary: true } } },
    'PostgresQueue.pool: must not have the option binary',
  ],
  [
    { pool: POOL, schema: 'pg_webhooks' },
    'PostgresQueue.schema: must be 1 to 49 of a-z, 0-9 and "_", and start neither',
  ],
])('PostgresQueue refuses what PostgreSQL cannot use: %j', async (options, problem) => {
  expect(await problemsOf(() => new PostgresQueue(options as never))).toContain(problem);
});

/** What registers modules with options. */
const REGISTRATIONS: Record<string, (options: never) => unknown> = {
  'WebhookModule.forRoot': (options) => WebhookModule.forRoot(options),
  'WebhookModule.forRootAsync': (options) => WebhookModule.forRootAsync(options),
  'the factory of WebhookModule': (options) =>
    start(WebhookModule.forRootAsync({ useFactory: () => options })),
  'WebhookConsoleModule.forRoot': (options) => WebhookConsoleModule.forRoot(options),
  'WebhookConsoleModule.forRootAsync': (options) => WebhookConsoleModule.forRootAsync(options),
  'the factory of WebhookConsoleModule': (options) =>
    start(
      WebhookModule.forRoot({}),
      WebhookConsoleModule.forRootAsync({ useFactory: () => options }),
    ),
};

async function start(...imports: DynamicModule[]): Promise<unknown> {
  class Root {}
  const silent = { logger: false, abortOnError: false } as const;
  return NestFactory.createApplicationContext({ module: Root, imports }, silent);
}

it.each(
  Object.keys(REGISTRATIONS).flatMap((name) =>
    [null, 'text', [], ...(name === 'WebhookConsoleModule.forRoot' ? [] : [undefined])].map(
      (options) => [name, options] as const,
    ),
  ),
)('%s refuses %p as options', async (name, options) => {
  expect(await problemsOf(() => REGISTRATIONS[name]!(options as never))).toMatch(
    /^Webhook(?:Console)?Module: has no options; pass an object to forRoot/,
  );
});

it.each([
  [{ guards: class Guard {} }, 'WebhookConsoleModule.guards: must be a list'],
  [{ imports: null }, 'WebhookConsoleModule.imports: must be a list'],
])('WebhookConsoleModule refuses %p beside its options', async (extras, problem) => {
  const useFactory = () => ({});
  expect(await problemsOf(() => WebhookConsoleModule.forRoot(extras as never))).toContain(problem);
  const create = () => WebhookConsoleModule.forRootAsync({ useFactory, ...extras } as never);
  expect(await problemsOf(create)).toContain(problem);
});

it.each([
  [{}, 'WebhookConsoleModule.useFactory: must be a function'],
  [
    { useFactory: () => ({}), guard: [] },
    'WebhookConsoleModule.guard: unknown option; did you mean "guards"?',
  ],
])('WebhookConsoleModule.forRootAsync refuses %p', async (options, problem) => {
  const create = () => WebhookConsoleModule.forRootAsync(options as never);
  expect(await problemsOf(create)).toContain(problem);
});
