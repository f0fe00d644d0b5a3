import { ExpressAdapter } from '@nestjs/platform-express';
import { afterAll, afterEach, describe, expect, it } from '@jest/globals';
import knex from 'knex';
import { CamelCasePlugin, Kysely, ParseJSONResultsPlugin, PostgresDialect } from 'kysely';
import { Pool } from 'pg';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import { WebhookPublisher } from 'nestjs-webhook-token';
import { PostgresQueue, PgliteQueue, PostgresEndpointStore } from 'nestjs-webhook-token/postgres';
import type { EndpointStore } from '../../lib/endpoints/endpoint-store.js';
import { WebhookEndpoints } from '../../lib/endpoints/webhook.endpoints.js';
import { newDatabaseDirectory, removeDirectories } from '../postgres/embedded-database.js';
import { SECRET, startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { storeIn, TestDatabase } from '../postgres/database.js';

const POOL_SIZE = 10;
const TRANSACTIONS = 40;

let started: StartedApp;

/** Starts a publisher with one endpoint, `crm` of the tenant `acme`. */
async function start(queue: WebhookQueue, endpointStore: EndpointStore): Promise<WebhookPublisher> {
  started = await startApp(new ExpressAdapter(), {
    options: {
      publisher: {
        issuer: 'https://billing.example',
        secret: SECRET,
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        queue,
        endpointStore,
        sealingKeys: [{ id: 'first', key: 'the first sealing key of this test, 32 bytes' }],
      },
    },
  });
  await started.app
    .get(WebhookEndpoints)
    .create({ id: 'crm', tenant: 'acme', url: 'http://127.0.0.1:8/hooks' });
  return started.app.get(WebhookPublisher);
}

afterEach(async () => started.app.close());

/** A row with its names in camel case, as mappers of applications return it. */
function camelCased(row: Readonly<Record<string, unknown>>): Record<string, unknown> {
  const rename = (name: string): string =>
    name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase());
  return Object.fromEntries(Object.entries(row).map(([name, value]) => [rename(name), value]));
}

function withoutNull(row: Readonly<Record<string, unknown>>): Record<string, unknown> {
  return Object.fromEntries(Object.entries(row).filter(([, value]) => value !== null));
}

/** A Kysely or a Knex that maps results, and how it opens a transaction. */
interface Mapping {
  readonly transaction: <T>(work: (tx: unknown) => Promise<T>) => Promise<T>;
  readonly close: () => Promise<void>;
}

function kyselyWith(plugin: CamelCasePlugin | ParseJSONResultsPlugin): Mapping {
  const pool = new Pool({ connectionString: urlOf('PostgreSQL') });
  const db = new Kysely<unknown>({ dialect: new PostgresDialect({ pool }), plugins: [plugin] });
  return {
    transaction: async (work) => db.transaction().execute(work),
    close: async () => db.destroy(),
  };
}

/** A result of `raw()`. */
interface KnexResult {
  readonly rows: Record<string, unknown>[];
}

function knexWith(map: (result: KnexResult) => unknown): Mapping {
  const connection = urlOf('PostgreSQL');
  const postProcessResponse = (result: any): unknown => (result?.rows ? map(result) : result);
  const db = knex({ client: 'pg', connection, postProcessResponse });
  return {
    transaction: async (work) => db.transaction(work),
    close: async () => db.destroy(),
  };
}

(await describeWith('PostgreSQL'))('publish({ tx, tenant }) on PostgreSQL', () => {
  const database = new TestDatabase();
  const pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: POOL_SIZE });
  const newQueue = (): PostgresQueue =>
    new PostgresQueue({ pool: database.pool, schema: database.newSchema(), pollInterval: '60s' });

  afterAll(async () => {
    await pool.end();
    await database.close();
  });

  it(`completes ${TRANSACTIONS} transactions at once on the ${POOL_SIZE} connections that the endpoint store shares`, async () => {
    const store = new PostgresEndpointStore(pool, storeIn(database.newSchema()));
    await store.migrate();
    const publisher = await start(newQueue(), store);

    const results = await Promise.allSettled(
      Array.from({ length: TRANSACTIONS }, async (_, index) => {
        const tx = await pool.connect();
        try {
          await tx.query('BEGIN');
          const options = { id: `event-${index}`, tenant: 'acme', tx };
          const { deliveries } = await publisher.publish('order.created', { index }, options);
          await tx.query('COMMIT');
          return deliveries.map(({ endpointId }) => endpointId);
        } finally {
          tx.release();
        }
      }),
    );

    const fulfilled = { status: 'fulfilled', value: ['crm'] };
    expect(results).toEqual(Array.from({ length: TRANSACTIONS }, () => fulfilled));
  });

  it.each<[string, () => Mapping]>([
    ['the CamelCasePlugin of Kysely', () => kyselyWith(new CamelCasePlugin())],
    ['the ParseJSONResultsPlugin of Kysely', () => kyselyWith(new ParseJSONResultsPlugin())],
    [
      'postProcessResponse of Knex',
      () => knexWith((result) => ({ ...result, rows: result.rows.map(camelCased) })),
    ],
  ])('finds endpoints and duplicates in spite of %s', async (_, open) => {
    const store = new PostgresEndpointStore(pool, storeIn(database.newSchema()));
    await store.migrate();
    const publisher = await start(newQueue(), store);
    const { transaction, close } = open();
    const publish = async () =>
      transaction(async (tx) =>
        publisher.publish('order.created', {}, { id: 'event-1', tenant: 'acme', tx }),
      );
    try {
      const first = await publish();
      expect(first.deliveries).toMatchObject([{ endpointId: 'crm' }]);
      expect(first.duplicate).toBeUndefined();
      expect(await publish()).toMatchObject({ duplicate: true });
    } finally {
      await close();
    }
  });

  it.each<[string, boolean, (result: KnexResult) => unknown]>([
    ['renames columns of the endpoint store', true, ({ rows }) => rows.map(camelCased)],
    ['renames columns of the queue', false, ({ rows }) => rows.map(camelCased)],
    [
      'removes null from its rows',
      true,
      (result) => ({ ...result, rows: result.rows.map(withoutNull) }),
    ],
  ])(
    'records nothing if a mapper %s, and the error gives the remedy',
    async (_, transactional, map) => {
      const options = { ...storeIn(database.newSchema()), transactional };
      const store = new PostgresEndpointStore(pool, options);
      await store.migrate();
      const queue = newQueue();
      const publisher = await start(queue, store);
      const { transaction, close } = knexWith(map);
      try {
        // The transaction is committed in spite of the error.
        await transaction(async (tx) => {
          const published = publisher.publish('order.created', {}, { tenant: 'acme', tx });
          await expect(published).rejects.toMatchObject({
            code: 'unsupported_option',
            message: expect.stringMatching(
              /row without the column "\w+": a mapper .* Exclude raw queries from it, or/,
            ),
          });
        });

        expect(await queue.list({}, { limit: 10 })).toEqual([]);
      } finally {
        await close();
      }
    },
  );

  it('looks endpoints up outside the transaction if the store is configured as in another database', async () => {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(pool, { ...storeIn(schema), transactional: false });
    await store.migrate();
    const publisher = await start(newQueue(), store);
    const tx = await pool.connect();
    await tx.query('BEGIN');
    await tx.query(`DELETE FROM ${schema}.endpoint`);
    const { deliveries } = await publisher.publish('order.created', {}, { tenant: 'acme', tx });
    await tx.query('ROLLBACK');
    tx.release();

    expect(deliveries).toMatchObject([{ endpointId: 'crm' }]);
  });
});

describe('publish({ tx, tenant }) on PGlite', () => {
  afterAll(removeDirectories);

  it('reads the endpoints in the one transaction that the database has', async () => {
    const directory = await newDatabaseDirectory();
    const queue = new PgliteQueue({ directory, pollInterval: '60s' });
    const store = new PostgresEndpointStore(async () => queue.database(), { timeout: '30s' });
    await store.migrate();
    const publisher = await start(queue, store);
    const database = await queue.database();

    const published = await database.transaction(async (tx) =>
      publisher.publish('order.created', {}, { tenant: 'acme', tx }),
    );

    expect(published.deliveries).toMatchObject([{ endpointId: 'crm' }]);
  });
});
