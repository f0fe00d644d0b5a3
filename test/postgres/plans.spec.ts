import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { PostgresDeliveryLog, PostgresEndpointStore } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from './database.js';
import { due } from './deliveries.js';

const AT = Date.UTC(2026, 0, 1);

(await describeWith('PostgreSQL'))('a query with 10,000 endpoints and 100,000 deliveries', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  /** Statements with their plans. */
  const asked: { statement: string; plan: string }[] = [];
  const client = {
    async query(statement: string, values: unknown[] = []): Promise<unknown> {
      const { rows } = await database.pool.query<Record<string, string>>(
        `EXPLAIN ${statement}`,
        values,
      );
      asked.push({ statement, plan: rows.map((row) => row['QUERY PLAN']).join('\n') });
      return { rows: [] };
    },
  };
  const store = new PostgresEndpointStore(client, { schema, timeout: '30s' });
  const log = new PostgresDeliveryLog(client, { schema, timeout: '30s' });

  beforeAll(async () => {
    const { pool } = database;
    await new PostgresEndpointStore(pool, { schema }).migrate();
    await pool.query(
      `INSERT INTO ${schema}.endpoint (id, code_units, tenant, url, events, details, keys, version, created_at, updated_at)
       SELECT 'e' || n, convert_to('e' || n, 'UTF8'), 't' || n % 500, 'https://crm.example/', '["**"]', '{}', '[]', 1, now(), now()
       FROM generate_series(1, 10000) AS n`,
    );
    await pool.query(
      `INSERT INTO ${schema}.delivery (id, event_id, event, endpoint_id, tenant, details, payload, status, attempts,
         created_at, updated_at)
       SELECT 'd' || n, 'v' || n / 3, 'order.created', 'e' || n % 10000, 't' || n % 500, '{"payload":{}}', '{}',
         CASE WHEN n % 100 = 0 THEN 'dead' WHEN n % 101 = 0 THEN 'pending' ELSE 'delivered' END, 1,
         to_timestamp($1::float8 / 1000 + n), now()
       FROM generate_series(1, 100000) AS n`,
      [AT],
    );
    await pool.query(
      `INSERT INTO ${schema}.attempt (delivery_id, at, attempt, method, duration_ms)
       SELECT id, created_at, 1, 'POST', 20 FROM ${schema}.delivery`,
    );
    await pool.query(`ANALYZE ${schema}.endpoint, ${schema}.delivery, ${schema}.attempt`);
  });
  afterAll(async () => database.close());

  it.each<[string, () => Promise<unknown>]>([
    ['the endpoints of an event', () => store.subscribed('t7')],
    ['an endpoint', () => store.find('e7')],
    ['a page of endpoints', () => store.list({ limit: 50, after: 'e500' })],
    ['a page of the endpoints of a tenant', () => store.list({ limit: 50, tenant: 't7' })],
    ['a delivery', () => log.find('d7')],
    ['its attempts', () => log.attempts('d7')],
    ['the latest deliveries', () => log.list({}, { limit: 50 })],
    [
      'the deliveries before a cursor',
      () => log.list({}, { limit: 50, after: { createdAt: AT + 5e7, id: 'd1' } }),
    ],
    ['the deliveries of a tenant', () => log.list({ tenant: 't7' }, { limit: 50 })],
    ['the deliveries of an endpoint', () => log.list({ endpointId: 'e7' }, { limit: 50 })],
    ['the deliveries of an event', () => log.list({ eventId: 'v7' }, { limit: 50 })],
    ['dead deliveries', () => log.list({ status: 'dead' }, { limit: 50 })],
    [
      'the deliveries of an hour',
      () => log.list({ since: AT, until: AT + 3_600_000 }, { limit: 50 }),
    ],
    ['the counts of an endpoint', () => log.counts({ endpointId: 'e7' })],
    ['the counts of a tenant', () => log.counts({ tenant: 't7' })],
    [
      'the outcome of a delivery',
      () => log.change([{ delivery: due('d7').delivery, status: 'dead', attempts: 1, at: AT }]),
    ],
    ['old deliveries', () => log.prune(AT + 3_600_000)],
  ])('reads an index, not the table: %s', async (_, ask) => {
    asked.length = 0;
    await ask();

    expect(asked.length).toBeGreaterThan(0);
    for (const { statement, plan } of asked) {
      if (!statement.startsWith('INSERT')) expect(plan).toMatch(/Index/);
      expect(plan).not.toMatch(/Seq Scan/);
    }
  });

  it('reads the whole table to count all deliveries', async () => {
    asked.length = 0;
    await log.counts({});

    expect(asked[0]!.plan).toMatch(/Seq Scan/);
  });
});
