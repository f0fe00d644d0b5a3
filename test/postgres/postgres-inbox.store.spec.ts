import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { inboxStoreContract } from 'nestjs-webhook-token/testing';
import type { InboxBounds } from 'nestjs-webhook-token/ports';
import { PostgresInboxStore } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { storeIn, TestDatabase } from './database.js';
import { newPglite } from './embedded-database.js';

(await describeWith('PostgreSQL'))('PostgresInboxStore', () => {
  const database = new TestDatabase();
  let schema: string;
  const storeWith = (bounds: InboxBounds): PostgresInboxStore =>
    new PostgresInboxStore(database.pool, { ...storeIn(schema), ...bounds });
  beforeAll(async () => {
    schema = database.newSchema();
    await storeWith({}).migrate();
  });
  afterAll(async () => database.close());

  async function create(bounds: InboxBounds): Promise<PostgresInboxStore> {
    await database.pool.query(`TRUNCATE ${schema}.inbox`);
    return storeWith(bounds);
  }

  for (const { name, run } of inboxStoreContract({ create })) it(name, run);

  it('reports a schema without its table', async () => {
    const store = new PostgresInboxStore(database.pool, storeIn('no_such_schema'));

    await expect(store.check()).rejects.toMatchObject({ code: 'schema_behind' });
  });
});

describe('PostgresInboxStore on PGlite', () => {
  let database: PGlite;
  beforeAll(async () => {
    database = await newPglite();
    await new PostgresInboxStore(database, { timeout: '30s' }).migrate();
  });
  afterAll(async () => database.close());

  async function create(bounds: InboxBounds): Promise<PostgresInboxStore> {
    await database.exec('TRUNCATE webhooks.inbox');
    return new PostgresInboxStore(async () => database, { timeout: '30s', ...bounds });
  }

  for (const { name, run } of inboxStoreContract({ create })) it(name, run);
});
