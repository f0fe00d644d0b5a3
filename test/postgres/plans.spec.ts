import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { DeliveryFilter } from 'nestjs-webhook-token/ports';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { Query } from '../../lib/postgres/connection.js';
import { DeliveryTable } from '../../lib/postgres/delivery-table.js';
import { PostgresEndpointStore } from '../../lib/postgres/index.js';
import { DeliveryLists } from '../../lib/postgres/delivery-lists.js';
import type { QueueConnection } from '../../lib/postgres/queue-connection.js';
import { QueueUpkeep } from '../../lib/postgres/queue-upkeep.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from './database.js';

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
  const QUEUE = 'webhook-deliveries';
  const ask = async ([statement, values]: Query) => client.query(statement, [...values]);
  const query = async (...asking: Query) => {
    await ask(asking);
    return [{ gone: 0 }];
  };
  const connection = {
    schema,
    name: QUEUE,
    now: null,
    clock: new TestClock(AT),
    query,
    queryInIndexOrder: query,
    async search(...asking: Query) {
      await ask(asking);
      return [];
    },
  } as unknown as QueueConnection;
  const upkeep = new QueueUpkeep(connection);
  const deliveries = new DeliveryTable(connection);
  const lists = new DeliveryLists(connection);
  const list =
    (...how: [DeliveryFilter, { createdAt: number; id: string }?]) =>
    async () =>
      lists.list(how[0], { limit: 50, after: how[1] });

  beforeAll(async () => {
    const { pool } = database;
    await new PostgresEndpointStore(pool, { schema }).migrate();
    await pool.query(
      `INSERT INTO ${schema}.endpoint (id, code_units, tenant, url, events, subscription_keys, details, keys, version, created_at, updated_at)
       SELECT 'e' || n, convert_to('e' || n, 'UTF8'), 't' || n % 500, 'https://crm.example/', '["**"]', ARRAY['**/t' || n % 500], '{}', '[]', 1,
         now(), now()
       FROM generate_series(1, 10000) AS n`,
    );
    await pool.query(
      `INSERT INTO ${schema}.delivery (queue, id, event_id, event, endpoint_id, tenant, lane, details, payload, status, attempts,
         due_at, created_at, updated_at)
       SELECT 'webhook-deliveries', 'd' || n, 'v' || n / 3, 'order.created', 'e' || n % 10000, 't' || n % 500, 'l' || n % 10000, '{"payload":{}}', '{}',
         CASE WHEN n % 100 = 0 THEN 'dead' WHEN n % 101 = 0 THEN 'pending' ELSE 'delivered' END, 1,
         now(), to_timestamp($1::float8 / 1000 + n), now()
       FROM generate_series(1, 100000) AS n`,
      [AT],
    );
    await pool.query(
      `INSERT INTO ${schema}.attempt (delivery_seq, claim, started_at, attempt, method, duration_ms)
       SELECT seq, 1, created_at, 1, 'POST', 20 FROM ${schema}.delivery`,
    );
    await pool.query(`ANALYZE ${schema}.endpoint, ${schema}.delivery, ${schema}.attempt`);
  });
  afterAll(async () => database.close());

  it.each<[string, () => Promise<unknown>]>([
    ['the endpoints of an event', () => store.subscribed('order.created', 't7')],
    ['the number of endpoints of a tenant', () => store.count('t7')],
    ['an endpoint', () => store.find('e7')],
    ['a page of endpoints', () => store.list({ limit: 50, after: 'e500' })],
    ['a page of the endpoints of a tenant', () => store.list({ limit: 50, tenant: 't7' })],
    [
      'a delivery',
      async () =>
        deliveries.find(['d7'], async (...find) => {
          await ask(find);
          return [];
        }),
    ],
    ['its attempts', async () => lists.attempts('d7')],
    ['the latest deliveries', list({})],
    ['the deliveries before a cursor', list({}, { createdAt: AT + 5e7, id: 'd1' })],
    ['the deliveries of a tenant', list({ tenant: 't7' })],
    ['the deliveries of an endpoint', list({ endpointId: 'e7' })],
    ['the deliveries of an event', list({ eventId: 'v7' })],
    ['dead deliveries', list({ status: 'dead' })],
    ['the deliveries of an hour', list({ since: AT, until: AT + 3_600_000 })],
    ['the counts of an endpoint', async () => lists.counts({ endpointId: 'e7' })],
    ['the counts of a tenant', async () => lists.counts({ tenant: 't7' })],
    ['the counts of what is unfinished', async () => lists.counts({ unfinished: true })],
    ['old deliveries', async () => upkeep.prune(AT + 3_600_000, undefined)],
    ['old deliveries of a tenant', async () => upkeep.prune(AT + 3_600_000, 't7')],
  ])('reads an index, not the table: %s', async (_, run) => {
    asked.length = 0;
    await run();

    expect(asked.length).toBeGreaterThan(0);
    for (const { statement, plan } of asked) {
      if (!statement.startsWith('INSERT')) expect(plan).toMatch(/Index/);
      expect(plan).not.toMatch(/Seq Scan on (?!delivery_change)/);
    }
  });

  it('reads what is delivered only to count by odd times', async () => {
    asked.length = 0;
    await lists.counts({});
    await lists.counts({ until: 300_001 });

    const read = asked.map(({ plan }) => /Seq Scan on delivery |delivery_created/.test(plan));
    expect(read).toEqual([false, true]);
  });
});
