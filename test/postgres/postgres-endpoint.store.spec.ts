import { inspect } from 'node:util';
import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { endpointStoreContract } from 'nestjs-webhook-token/testing';
import { PostgresEndpointStore } from '../../lib/postgres/index.js';
import { newPglite } from './embedded-database.js';
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

  for (const { name, run } of endpointStoreContract({ create })) it(name, run);
});

describe('PostgresEndpointStore on PGlite', () => {
  let database: PGlite;
  let store: PostgresEndpointStore;
  beforeAll(async () => {
    database = await newPglite();
    store = new PostgresEndpointStore(async () => database, { timeout: '30s' });
    await store.migrate();
  });
  afterAll(async () => database.close());

  async function create(): Promise<PostgresEndpointStore> {
    await database.exec('TRUNCATE webhooks.endpoint, webhooks.activity');
    return store;
  }

  for (const { name, run } of endpointStoreContract({ create })) it(name, run);

  it('hides the values of headers from inspect', async () => {
    await create();
    const headers = { 'X-Api-Key': 'a credential' };
    const endpoint = {
      id: 'crm',
      url: 'https://crm.example',
      events: ['**'],
      keys: [],
      version: 1,
    };
    await store.insert({ ...endpoint, settings: { headers }, createdAt: 0, updatedAt: 0 });
    const found = await store.find('crm');

    expect(found?.settings.headers).toEqual(headers);
    expect(inspect(found, { depth: 9, showHidden: true })).not.toContain('a credential');
  });

  it('keeps the last 1,000 entries of each action of the partners of a tenant, and what others did', async () => {
    const { activity } = await create();
    const entry = { action: 'payload.view', details: {}, version: 1 };
    await database.exec(`INSERT INTO webhooks.activity
      SELECT n || tenant, to_timestamp(n), origin, 'payload.view', tenant, NULL, '{}', 1 FROM generate_series(1, 1005) AS n,
        (VALUES ('a', 'partner'), ('b', 'partner'), ('c', 'operator')) AS who(tenant, origin)`);
    const first = { ...entry, action: 'endpoint.delete', at: 0, tenant: 'a' };
    await activity.record({ ...first, id: 'first', by: 'partner' });
    await activity.record({ ...entry, id: 'new', at: 2_000_000, by: 'partner', tenant: 'a' });
    const countOf = async (tenant: string): Promise<number> =>
      (await activity.list({ tenant }, { limit: 2_000 })).length;

    expect([await countOf('a'), await countOf('b'), await countOf('c')]).toEqual([
      1_001, 1_005, 1_005,
    ]);
    const ofOne = await activity.list({ tenant: 'a' }, { limit: 2_000 });
    expect([ofOne[0]?.id, ofOne.at(-1)?.id]).toEqual(['new', 'first']);
  });

  it('finds nothing by an id that contains NUL', async () => {
    await create();

    expect(await store.find('a\0')).toBeUndefined();
    expect(await store.remove('\0')).toBe(false);
    expect(await store.list({ tenant: '\0', limit: 1 })).toEqual([]);
  });
});
