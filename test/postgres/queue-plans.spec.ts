import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { SystemClock } from 'nestjs-webhook-token/ports';
import { Database } from '../../lib/postgres/database.js';
import type { Query } from '../../lib/postgres/connection.js';
import { type ClaimRequest, DeliveryTable } from '../../lib/postgres/delivery-table.js';
import { KeyTurns } from '../../lib/postgres/key-turns.js';
import type { ClaimedDelivery, OutcomeRow } from '../../lib/postgres/delivery-row.js';
import { DeliveryLimitTable } from '../../lib/postgres/delivery-limit-table.js';
import type { QueueConnection } from '../../lib/postgres/queue-connection.js';
import { QueueUpkeep } from '../../lib/postgres/queue-upkeep.js';
import { PostgresQueue, type PostgresPool } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from './database.js';
import { due } from './deliveries.js';

const QUEUE = 'webhook-deliveries';
const PENDING = 100_000;
const LEASE = 30_000;
/** The ids of 50 dead deliveries. */
const DEAD = Array.from({ length: 50 }, (_, index) => `dead--60-${index + 1}`);

interface PlanNode {
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly PlanNode[];
}

/** The highest number of rows that a step of a plan has read. */
function mostRowsRead(node: PlanNode): number {
  const own = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'];
  return Math.max(own, ...(node.Plans ?? []).map(mostRowsRead));
}

const describeOnServer = await describeWith('PostgreSQL');

describeOnServer.each(['never analysed', 'analysed when nothing was pending'])(
  'a queue of 100,000 pending deliveries that was %s',
  (statistics) => {
    const database = new TestDatabase();
    const schema = database.newSchema();
    /** Runs the statement of a queue under EXPLAIN ANALYZE, with the settings of the queue, and reverts its changes. */
    let rowsRead = 0;
    const explaining: PostgresPool = {
      query: async (text, values) => database.pool.query(text, values),
      async connect() {
        const client = await database.pool.connect();
        return Object.assign(Object.create(client) as typeof client, {
          query: async (text: string, values?: unknown[]) => {
            if (text.startsWith('BEGIN')) return client.query(text);
            if (text === 'COMMIT') return client.query('ROLLBACK');
            const { rows } = await client.query<{ 'QUERY PLAN': { Plan: PlanNode }[] }>(
              `EXPLAIN (ANALYZE, FORMAT JSON) ${text}`,
              values,
            );
            rowsRead = Math.max(rowsRead, mostRowsRead(rows[0]!['QUERY PLAN'][0]!.Plan));
            return { rows: [] };
          },
        });
      },
    };
    const explain = new Database(explaining, new SystemClock(), 60_000);
    const inOrder = async ([statement, values]: Query) =>
      explain.queryInIndexOrder(statement, values);
    const parts = {
      schema,
      name: QUEUE,
      now: null,
      clock: new SystemClock(),
      timeout: 1_000,
      options: { lease: LEASE, pollInterval: 1_000 },
      query: async (...query: Query) => explain.query(...query),
      queryInIndexOrder: async (...query: Query) => [
        ...(await inOrder(query)),
        { lanes: null, seq: null, gone: 0, seen: 0 },
      ],
    };
    const connection = parts as unknown as QueueConnection;
    const upkeep = new QueueUpkeep(connection);
    const table = new DeliveryTable(connection);
    const claim = (
      change: Partial<ClaimRequest> & { readonly limit: number },
      now: number | null = null,
    ) =>
      new DeliveryTable({ ...parts, now } as unknown as QueueConnection).claimDeliveries({
        lookAhead: 1_000,
        perLane: 13,
        lanes: {},
        checksLimits: true,
        ...change,
      });
    let leased: { seq: string; id: string; claim: number }[];

    beforeAll(async () => {
      const { pool } = database;
      const queue = new PostgresQueue({ pool, schema });
      await queue.enqueue([due('first')]);
      await pool.query(`ALTER TABLE ${schema}.delivery SET (autovacuum_enabled = off)`);
      await fill('delivered', PENDING / 10, -60);
      if (statistics !== 'never analysed') {
        await pool.query(`DELETE FROM ${schema}.delivery WHERE status = 'pending'`);
        await pool.query(`VACUUM ANALYZE ${schema}.delivery`);
        await queue.enqueue([due('first')]);
      }
      await fill('pending', PENDING, -60);
      await fill('pending', 50, 60);
      await fill('dead', 1_000, -60);
      await pool.query(`UPDATE ${schema}.delivery SET holds_key = true WHERE status = 'dead'`);
      await pool.query(
        `UPDATE ${schema}.delivery SET lane = 'lane-last' WHERE id IN (
         SELECT id FROM ${schema}.delivery WHERE status = 'pending' AND leased_until < now() ORDER BY seq DESC LIMIT 4)`,
      );
      await pool.query(
        `UPDATE ${schema}.delivery SET subject = 'customer-1' WHERE id IN (
         SELECT id FROM ${schema}.delivery WHERE status = 'delivered' ORDER BY seq LIMIT 100)`,
      );
      await pool.query(
        `INSERT INTO ${schema}.delivery_retention VALUES ('${QUEUE}', now() - interval '65 seconds')`,
      );
      await pool.query(
        `INSERT INTO ${schema}.delivery_key (queue, lane, ordering_key, sequence, used_at)
         SELECT '${QUEUE}', 'lane', 'key-' || n, 1, now() - n % 2 * interval '31 days' FROM generate_series(1, 10000) AS n`,
      );
      await pool.query(
        `INSERT INTO ${schema}.delivery_limit (queue, lane, used_at)
         SELECT '${QUEUE}', 'lane-' || n, now() - interval '31 days' FROM generate_series(1, 10000) AS n`,
      );
      await queue.stop(0);
      await pool.query(`ANALYZE ${schema}.delivery_limit`);
      leased = (
        await pool.query<{ seq: string; id: string; claim: number }>(
          `SELECT seq, id, claim FROM ${schema}.delivery WHERE leased_until > now()`,
        )
      ).rows;
      const running = Object.fromEntries(leased.map(({ seq, claim }) => [`${seq}:${claim}`, 0]));
      await pool.query(
        `UPDATE ${schema}.delivery_limit SET concurrency = 60, running = $1 WHERE lane = 'lane-1'`,
        [running],
      );
    });
    afterAll(async () => database.close());

    async function fill(status: string, count: number, leaseSeconds: number): Promise<void> {
      await database.pool.query(
        `INSERT INTO ${schema}.delivery (queue, id, event_id, event, lane, details, status, due_at, created_at, updated_at, leased_until)
       SELECT '${QUEUE}', '${status}-${leaseSeconds}-' || n, 'v' || n, 'order.created', 'lane-' || n % 100, '{}', '${status}',
         now() - interval '1 minute', now(), now() - interval '1 minute' - n * interval '1 ms', now() + interval '${leaseSeconds} seconds'
       FROM generate_series(1, ${count}) AS n`,
      );
    }

    it.each<[string, number, () => Promise<unknown>]>([
      [
        'records 1,000 deliveries, each with its own ordering key',
        1_000,
        async () => {
          const deliveries = Array.from({ length: 1_000 }, (_, index) => {
            const { delivery, notBefore } = due(`keyed-${index}`);
            return { delivery: { ...delivery, orderingKey: `key-${index}` }, notBefore };
          });
          const recorded = deliveries.map(({ delivery: { id } }) => ({
            given_id: id,
            fresh: true,
            id: null,
          }));
          const run = async (...query: Query) => {
            await explain.query(...query);
            return recorded;
          };
          return table.record(deliveries, { notifies: true, waits: true }, run);
        },
      ],
      ['claims 50 due deliveries', 50, async () => claim({ limit: 50, lanes: { 'lane-1': 2 } })],
      [
        'claims 2 due deliveries of a lane behind those of others',
        2,
        async () => claim({ limit: 2, lane: 'lane-last' }),
      ],
      [
        'claims what became due in the last seconds, behind full lanes',
        2,
        async () => {
          const full = Array.from({ length: 100 }, (_, index) => [`lane-${index}`, 0]);
          return claim({
            limit: 50,
            lanes: Object.fromEntries(full) as Record<string, number>,
            maxAge: 5_000,
          });
        },
      ],
      [
        'finds which of 50 lanes have due deliveries',
        50,
        async () => {
          const lanes = Array.from({ length: 50 }, (_, index) => `lane-${index}`);
          return table.findDueLanes(lanes);
        },
      ],
      [
        'looks for the delivery that is due next if none is due',
        1,
        async () => claim({ limit: 50 }, Date.now() - 7_200_000),
      ],
      [
        'settles 50 deliveries',
        50,
        async () => {
          const rows = leased.map((one) => ({
            ...one,
            status: 'delivered',
            attempts: 1,
            throws: 0,
            attempt: 1,
            started: 1,
            duration: 1,
          }));
          return table.recordOutcomes(rows as unknown as OutcomeRow[]);
        },
      ],
      ['renews 50 leases', 50, async () => table.extend(leased as unknown as ClaimedDelivery[])],
      [
        'finds 50 deliveries by id',
        50,
        async () => {
          const ids = Array.from({ length: 50 }, (_, index) => `pending--60-${index}`);
          return table.find(ids, async (...query) => explain.query(...query));
        },
      ],
      ['redelivers 50 deliveries', 50, async () => table.redeliver(DEAD, false)],
      ['skips 50 deliveries', 50, async () => new KeyTurns(connection).skip(DEAD)],
      [
        'starts a delivery in a lane whose 50 others are running',
        50,
        async () => {
          return new DeliveryLimitTable(connection).claimWithinLimits([
            { lane: 'lane-1', slots: 1 },
          ]);
        },
      ],
      [
        'deletes 1,000 deliveries past their retention',
        1_000,
        async () => upkeep.deleteDelivered(1_000),
      ],
      [
        'drops 1,000 payloads behind those that are dropped',
        1_000,
        async () => upkeep.dropPayloads(1_000),
      ],
      [
        'erases 100 deliveries of a subject',
        100,
        async () => upkeep.erase({ subject: 'customer-1' }),
      ],
      [
        'looks for unused ones among 1,000 keys',
        1_000,
        async () => upkeep.deleteUnusedKeys(['lane', 'key-5']),
      ],
      [
        'looks for unused ones among 1,000 limits',
        1_000,
        async () => upkeep.deleteUnusedLimits(['lane-5']),
      ],
    ])('%s by reading at most the rows it needs', async (_, rows, ask) => {
      rowsRead = 0;
      await ask();

      expect(rowsRead).toBeGreaterThan(0);
      // Finds, locks and changes each row, and skips rows that are leased.
      expect(rowsRead).toBeLessThanOrEqual(4 * rows + 50);
    });
  },
);
