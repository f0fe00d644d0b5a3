import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { Db } from 'pg-boss';
import { PgBossQueue } from '../../lib/postgres/index.js';
import { jobId } from '../../lib/postgres/job-record.js';
import { JobStatements } from '../../lib/postgres/job-statements.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from './database.js';
import { due } from './deliveries.js';

const NAME = 'webhook-deliveries';
const JOBS = 100_000;
/** When the jobs became due, in epoch milliseconds: a busy machine needs a minute to insert them. */
const DUE_AT = Date.now() - 60_000;

interface PlanNode {
  readonly 'Actual Rows': number;
  readonly 'Actual Loops': number;
  readonly 'Rows Removed by Filter'?: number;
  readonly Plans?: readonly PlanNode[];
}

/** A claim of a process whose slots are free. */
function spare(limit: number, now = Date.now()) {
  return { now, limit, lookAhead: now + 1_000, perLane: 13 };
}

/** The highest number of rows that a step of a plan has read. */
function mostRowsRead(node: PlanNode): number {
  const own = (node['Actual Rows'] + (node['Rows Removed by Filter'] ?? 0)) * node['Actual Loops'];
  return Math.max(own, ...(node.Plans ?? []).map(mostRowsRead));
}

(await describeWith('PostgreSQL'))('a queue of 100,000 jobs that was never analysed', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  const statements = new JobStatements(schema, NAME);
  let rowsRead = 0;
  /** Runs the last statement under EXPLAIN ANALYZE, and reverts its changes. */
  const db: Db = {
    async executeSql(text, values) {
      const client = await database.pool.connect();
      try {
        await client.query('BEGIN');
        const last = text.lastIndexOf(';\n') + 1;
        const explained = `${text.slice(0, last)} EXPLAIN (ANALYZE, FORMAT JSON) ${text.slice(last)}`;
        const results: unknown = await client.query(explained, values);
        const { rows } = (Array.isArray(results) ? results.at(-1) : results) as {
          rows: { 'QUERY PLAN': { Plan: PlanNode }[] }[];
        };
        rowsRead = mostRowsRead(rows[0]!['QUERY PLAN'][0]!.Plan);
      } finally {
        await client.query('ROLLBACK');
        client.release();
      }
      return { rows: [{}] };
    },
  };
  const active: string[] = [];

  beforeAll(async () => {
    const { pool } = database;
    const queue = new PgBossQueue({ pool, schema });
    await queue.enqueue([due('first')]);
    await queue.stop(0);
    await pool.query(`ALTER TABLE ${schema}.job_common SET (autovacuum_enabled = off)`);
    for (const [state, count] of [
      ['created', JOBS],
      ['completed', JOBS / 10],
      ['active', 50],
    ] as const) {
      await fill(state, count);
    }
    await pool.query(
      `UPDATE ${schema}.job SET group_id = 'lane-last' WHERE name = '${NAME}' AND id IN (
         SELECT id FROM ${schema}.job WHERE state = 'created' ORDER BY created_on DESC LIMIT 4)`,
    );
    const { rows } = await pool.query<{ id: string }>(
      `SELECT id FROM ${schema}.job WHERE state = 'active'`,
    );
    active.push(...rows.map(({ id }) => id));
  });
  afterAll(async () => database.close());

  async function fill(state: string, count: number): Promise<void> {
    const dueAt = `to_timestamp(${DUE_AT / 1_000})`;
    await database.pool.query(
      `INSERT INTO ${schema}.job
         (id, name, data, state, priority, group_id, start_after, heartbeat_on, heartbeat_seconds, completed_on,
          singleton_on, singleton_key)
       SELECT gen_random_uuid(), '${NAME}', '{"delivery":{"id":"x"},"attempts":0,"dueAt":0,"throws":0}',
         '${state}', 2000000000 - floor(extract(epoch FROM ${dueAt}))::int, 'lane-' || n % 100, ${dueAt},
         ${dueAt}, 30, ${dueAt},
         CASE WHEN '${state}' = 'completed' THEN ${dueAt} AT TIME ZONE 'UTC' END, n
       FROM generate_series(1, ${count}) AS n`,
    );
  }

  it.each<[string, number, () => Promise<unknown>]>([
    [
      'claims 50 due jobs',
      50,
      async () => statements.claim(db, { ...spare(50), lanes: { 'lane-1': 2 } }),
    ],
    [
      'claims 2 due jobs of a lane behind those of others',
      2,
      async () =>
        statements.claim(db, {
          ...spare(2),
          lanes: {},
          lane: 'lane-last',
        }),
    ],
    [
      'claims what became due in the last seconds, behind jobs of full lanes',
      2,
      async () =>
        statements.claim(db, {
          ...spare(50),
          lanes: Object.fromEntries(
            Array.from({ length: 100 }, (_, index) => [`lane-${index}`, 0]),
          ),
          dueSince: DUE_AT + 30_000,
        }),
    ],
    [
      'finds which of 50 lanes have due jobs',
      50,
      async () =>
        statements.findDueLanes(
          db,
          Array.from({ length: 50 }, (_, index) => `lane-${index}`),
          Date.now(),
        ),
    ],
    [
      'looks for the job that is due next if none is due',
      1,
      async () => statements.claim(db, { ...spare(50, DUE_AT - 60_000), lanes: {} }),
    ],
    [
      'settles 50 jobs',
      50,
      async () =>
        statements.writeOutcomes(
          db,
          active.map((id) => ({ id, claim: 0, state: 'completed', output: { attempts: 1 } })),
        ),
    ],
    [
      'finds 50 jobs by id',
      50,
      async () =>
        statements.find(
          db,
          Array.from({ length: 50 }, (_, index) => jobId(`delivery-${index}`)),
        ),
    ],
    ['lists dead deliveries', 1, async () => statements.listFailed(db)],
    [
      'redelivers a delivery',
      1,
      async () => statements.redeliver(db, ['first'], Date.now(), 60, true),
    ],
    ['takes back expired leases', 50, async () => statements.releaseExpired(db)],
    [
      'removes 100 deliveries past their retention',
      100,
      async () => statements.removeDelivered(db, 100),
    ],
  ])('%s by reading at most the rows it needs', async (_, rows, ask) => {
    rowsRead = 0;
    await ask();

    // Finds, locks and changes each row, and skips rows that earlier tests rolled back.
    expect(rowsRead).toBeLessThanOrEqual(4 * rows);
  });
});
