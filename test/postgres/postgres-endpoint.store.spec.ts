import { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { PostgresEndpointStore } from '../../lib/postgres/index.js';
import { endpointStoreContract } from '../../lib/testing/endpoint-store.contract.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

(await describeWith('PostgreSQL'))('PostgresEndpointStore', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  async function create(): Promise<PostgresEndpointStore> {
    const schema = database.newSchema();
    const store = new PostgresEndpointStore(database.pool, { schema, timeout: '30s' });
    await store.migrate();
    return store;
  }

  for (const { name, run } of endpointStoreContract({ create })) it(name, run, 60_000);
});

describe('PostgresEndpointStore on PGlite', () => {
  let database: PGlite;
  let store: PostgresEndpointStore;
  beforeAll(async () => {
    database = await PGlite.create();
    store = new PostgresEndpointStore(async () => database, { timeout: '30s' });
    await store.migrate();
  }, 60_000);
  afterAll(async () => database.close());

  async function create(): Promise<PostgresEndpointStore> {
    await database.exec('TRUNCATE webhooks.endpoint');
    return store;
  }

  for (const { name, run } of endpointStoreContract({ create })) it(name, run, 60_000);

  it('finds nothing by an id that contains NUL', async () => {
    await create();

    expect(await store.find('a\0')).toBeUndefined();
    expect(await store.remove('\0')).toBe(false);
    expect(await store.list({ tenant: '\0', limit: 1 })).toEqual([]);
  });
});
