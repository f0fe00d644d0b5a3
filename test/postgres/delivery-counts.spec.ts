import { afterAll, expect, it, jest } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { QueueConnection } from '../../lib/postgres/queue-connection.js';
import { QueueUpkeep } from '../../lib/postgres/queue-upkeep.js';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due } from './deliveries.js';

const DELIVERIES = 60;
const HOUR = 3_600_000;

(await describeWith('PostgreSQL'))('the counts of finished deliveries', () => {
  const database = new TestDatabase();
  const { pool } = database;
  afterAll(async () => database.close());

  it.each([
    ['are merged', '', 0],
    ['are not merged without a replica identity, which is reported once', 'NOTHING', 1],
  ])('%s in a database that publishes its tables', async (_, identity, warnings) => {
    const schema = database.newSchema();
    const clock = new TestClock(Date.now() + 60_000);
    const queue = new PostgresQueue({
      pool,
      schema,
      clock,
      notify: false,
      lease: '10m',
      timeout: '3m',
    });
    await queue.enqueue([due('one')]);
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    try {
      await pool.query(`CREATE PUBLICATION ${schema} FOR TABLE ${schema}.delivery_change`);
      if (identity !== '') {
        await pool.query(`ALTER TABLE ${schema}.delivery_change REPLICA IDENTITY ${identity}`);
      }
      await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      await until(async () => (await queue.find(['one']))[0]?.status === 'delivered');
      for (let rounds = 0; rounds < 3; rounds++) {
        await clock.advance(5_000);
        const ask = `SELECT FROM ${schema}.delivery_change`;
        if (identity === '') await until(async () => (await pool.query(ask)).rowCount === 0);
        else await until(() => warn.mock.calls.length > 0);
      }

      expect(warn.mock.calls).toEqual(
        Array.from({ length: warnings }, () => [
          expect.stringContaining('the query failed with code 55000'),
          { code: 'WEBHOOK_QUEUE_ERROR' },
        ]),
      );
    } finally {
      await queue.stop(0);
      await pool.query(`DROP PUBLICATION IF EXISTS ${schema}`);
      warn.mockRestore();
    }
  });

  it('leave no row of an endpoint whose deliveries were erased', async () => {
    const schema = database.newSchema();
    const clock = new TestClock(Date.now() + 60_000);
    const queue = new PostgresQueue({ pool, schema, clock, notify: false });
    const rowsIn = async (table: string): Promise<number> =>
      (await pool.query(`SELECT FROM ${schema}.${table}`)).rowCount!;
    const merged = async (): Promise<void> => {
      await clock.advance(5_000);
      await until(async () => (await rowsIn('delivery_change')) === 0);
    };
    await queue.enqueue([due('one')]);
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    await until(async () => (await queue.find(['one']))[0]?.status === 'delivered');
    await merged();
    const before = await rowsIn('delivery_count');
    await queue.erase({ endpointId: 'crm' });
    await merged();
    await until(async () => (await rowsIn('delivery_count')) === 0);
    await queue.stop(clock.now() + 5_000);

    expect(before).toBe(1);
  });

  it('stay right while several processes merge, and after redeliveries and deletions', async () => {
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool, schema });
    const upkeep = new QueueUpkeep({
      schema,
      name: 'webhook-deliveries',
      query: async (text: string, values: unknown[]) => (await pool.query(text, values)).rows,
    } as unknown as QueueConnection);
    const rowsIn = async (table: string): Promise<number> =>
      (await pool.query(`SELECT FROM ${schema}.${table}`)).rowCount!;
    const mergeAll = async (): Promise<void> => {
      await Promise.all([1, 2, 3].map(async () => upkeep.mergeCounts()));
      // The queue may be merging too.
      await until(async () => (await rowsIn('delivery_change')) === 0);
    };
    const counted = async (): Promise<number[][]> => {
      const counts = await queue.counts({});
      return counts
        .toSorted((a, b) => (a.endpointId! < b.endpointId! ? -1 : 1))
        .map(({ pending, delivered, dead }) => [pending, delivered, dead]);
    };
    let dies = true;
    await queue.consume(async ({ id }, attempt) => ({
      outcome:
        dies && id.endsWith('0')
          ? { type: 'dead', reason: 'dns', attempts: attempt }
          : { type: 'delivered' },
      attempt: { attempt, at: Date.now(), method: 'POST', durationMs: 1 },
    }));
    const ids = Array.from({ length: DELIVERIES }, (_, n) => `d${n}`);
    await queue.enqueue(
      ids.map((id, n) => {
        return due(id, `e${n % 2}`);
      }),
    );
    const first = [
      [0, 24, 6],
      [0, 30, 0],
    ];
    await until(async () => JSON.stringify(await counted()) === JSON.stringify(first));
    await mergeAll();
    const merged = await counted();
    dies = false;
    await queue.redeliver(ids);
    const second = [
      [0, 30, 0],
      [0, 30, 0],
    ];
    await until(async () => JSON.stringify(await counted()) === JSON.stringify(second));
    await queue.prune(Date.now() + 60_000);
    const pruned = await counted();
    await mergeAll();
    await until(async () => (await rowsIn('delivery_count')) === 0);
    await queue.stop(Date.now() + 5_000);

    expect(merged).toEqual(first);
    expect(pruned).toEqual([]);
    expect([await rowsIn('delivery_count'), await rowsIn('delivery_change')]).toEqual([0, 0]);
  });
});

(await describeWith('PostgreSQL'))('the counts of a limited endpoint', () => {
  const database = new TestDatabase();
  const { pool } = database;
  afterAll(async () => database.close());

  it('report what waits for its rate as late only if nothing consumes the queue', async () => {
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool, schema });
    const begin = Date.now();
    const notBefore = begin - HOUR;
    const limits = { perSecond: 0.001, burst: 1 };
    await queue.enqueue(['a', 'b', 'c'].map((id) => ({ ...due(id), notBefore, limits })));
    await pool.query(`UPDATE ${schema}.delivery_limit SET used_at = now() - interval '1 hour'`);
    const [idle] = await queue.counts({});
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    await until(async () => (await queue.counts({}))[0]!.delivered === 1);
    const [waiting] = await queue.counts({});
    const [inStep] = await queue.counts({ since: 0, until: 2 * begin, step: 2 * begin });
    await queue.stop(Date.now() + 5_000);

    expect(idle!.oldestDue).toBeLessThan(begin - HOUR / 2);
    expect(waiting!.oldestDue).toBeGreaterThan(begin);
    expect(inStep!.oldestDue).toBe(waiting!.oldestDue);
  });
});
