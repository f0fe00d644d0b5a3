import { afterAll, beforeAll, expect, it } from '@jest/globals';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, untilLocked } from './database.js';
import { due } from './deliveries.js';

(await describeWith('PostgreSQL'))('concurrent calls of a PostgresQueue', () => {
  const database = new TestDatabase();
  let schema: string;
  let queue: PostgresQueue;
  beforeAll(async () => {
    schema = database.newSchema();
    queue = new PostgresQueue({ pool: database.pool, schema });
    await queue.enqueue([due('first')]);
  });
  afterAll(async () => {
    await queue.stop(0);
    await database.close();
  });

  it('fail without affecting others if PostgreSQL cannot store their delivery', async () => {
    const calls = [
      queue.enqueue([due('before')]),
      queue.enqueue([due('beside'), due('no \0 in text')]),
      queue.enqueue([due('after')]),
    ];

    expect(await Promise.allSettled(calls)).toMatchObject([
      { status: 'fulfilled', value: [undefined] },
      { status: 'rejected', reason: { code: 'store_unavailable' } },
      { status: 'fulfilled', value: [undefined] },
    ]);
    expect(await queue.find(['beside'])).toEqual([undefined]);
  });

  it('wait without delaying others for an open transaction that has recorded the same delivery', async () => {
    const client = await database.pool.connect();
    await client.query('BEGIN');
    await queue.enqueue([due('held')], { tx: client });
    const held = queue.enqueue([due('held')]);
    // In the same group as the waiting call, and in later groups.
    for (let number = 0; number < 3; number++) await queue.enqueue([due(`free-${number}`)]);
    await untilLocked(database.pool, 'WITH moment%');
    await client.query('COMMIT');
    client.release();

    expect(await held).toMatchObject([{ delivery: { id: 'held' }, status: 'pending' }]);
  });

  it('are answered before the queue closes its database', async () => {
    const stopping = new PostgresQueue({ pool: database.pool, schema });
    const calls = Array.from({ length: 1_200 }, async (_, n) => stopping.enqueue([due(`n-${n}`)]));
    const stopped = stopping.stop(Date.now() + 30_000);

    const known = (await Promise.all(calls)).flat();
    expect(known.every((record) => record === undefined)).toBe(true);
    await stopped;
    await expect(stopping.enqueue([due('late')])).rejects.toMatchObject({ code: 'shutting_down' });
  });

  it('are refused, and not recorded, if the deadline of the shutdown has passed', async () => {
    const stopping = new PostgresQueue({ pool: database.pool, schema });
    await stopping.enqueue([due('open')]);
    const ids = Array.from({ length: 1_200 }, (_, n) => `hurried-${n}`);
    const calls = Promise.allSettled(ids.map(async (id) => stopping.enqueue([due(id)])));
    await stopping.stop(0);

    const recorded = (await calls).map(({ status }) => status === 'fulfilled');
    expect(recorded).toContain(false);
    expect((await queue.find(ids)).map((known) => known !== undefined)).toEqual(recorded);
  });
});
