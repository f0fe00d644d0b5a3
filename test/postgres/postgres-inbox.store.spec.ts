import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { inboxStoreContract } from 'nestjs-webhook-token/testing';
import type { InboxBounds, InboxStore } from 'nestjs-webhook-token/ports';
import { PostgresInboxStore } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { storeIn, TestDatabase } from './database.js';
import { newPglite } from './embedded-database.js';

/** @returns the ids left after a clock that was an hour ahead while the store became full was corrected */
async function idsAfterCorrectedClock(store: InboxStore): Promise<readonly string[]> {
  const record = async (id: string, at: number) =>
    store.record([
      { id, at, outcome: 'handled', status: 204, method: 'POST', path: '/', authenticated: true },
    ]);
  for (const n of [1, 2, 3]) await record(`b${n}`, 3_600_000 + n);
  for (const n of [1, 2, 3, 4]) await record(`a${n}`, n);
  return (await store.list({}, { limit: 10 })).map(({ id }) => id);
}

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

  it('displaces the entries of a clock that was ahead first', async () => {
    const store = await create({ maxAccepted: 3 });
    expect(await idsAfterCorrectedClock(store)).toEqual(['a4', 'a3', 'a2']);
  });

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

  it('displaces the entries of a clock that was ahead first', async () => {
    const store = await create({ maxAccepted: 3 });
    expect(await idsAfterCorrectedClock(store)).toEqual(['a4', 'a3', 'a2']);
  });
});
