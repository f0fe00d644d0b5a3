import { afterAll, expect, it } from '@jest/globals';
import { PostgresQueue } from '../../lib/postgres/postgres.queue.js';
import { describeWith } from '../fixtures/services.js';
import { storeIn, TestDatabase, until } from './database.js';
import { due } from './deliveries.js';

(await describeWith('PostgreSQL'))('a transaction that has changed the limits of a lane', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('delays no outcome and no other call while it is open', async () => {
    const queue = new PostgresQueue({
      ...storeIn(database.newSchema()),
      pool: database.pool,
      lease: '1h',
    });
    let end: () => void = () => {};
    const ended = new Promise<void>((resolve) => (end = resolve));
    const started: string[] = [];
    const limited = (id: string, concurrency: number) => ({
      ...due(id, 'limited'),
      limits: { concurrency },
    });
    await queue.enqueue([limited('running', 1)]);
    await queue.consume(async ({ id }) => {
      started.push(id);
      if (id === 'running') await ended;
      return { outcome: { type: 'delivered' } };
    });
    await until(() => started.includes('running'));

    const client = await database.pool.connect();
    await client.query('BEGIN');
    await queue.enqueue([limited('in-transaction', 2)], { tx: client });
    await queue.enqueue([limited('beside', 2)]);
    end();
    await until(async () => (await queue.find(['running']))[0]?.status === 'delivered');
    await queue.enqueue([due('other')]);
    await until(async () => (await queue.find(['other']))[0]?.status === 'delivered');
    await client.query('COMMIT');
    client.release();

    await until(() => started.includes('in-transaction'));
    expect(started.toSorted()).toEqual(['beside', 'in-transaction', 'other', 'running']);
    expect(started.at(-1)).toBe('in-transaction');
    await queue.stop(Date.now() + 5_000);
  });
});
