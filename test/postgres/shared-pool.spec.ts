import { afterAll, expect, it } from '@jest/globals';
import { Pool, type PoolClient } from 'pg';
import { TestClock } from 'nestjs-webhook-token/testing';
import { PostgresQueue, PostgresReplayStore } from '../../lib/postgres/index.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from './database.js';
import { due } from './deliveries.js';

const POOL_SIZE = 10;
const TRANSACTIONS = 40;

(await describeWith('PostgreSQL'))('a pool that transactions share with queue and stores', () => {
  const database = new TestDatabase();
  const pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: POOL_SIZE });
  const schema = database.newSchema();
  afterAll(async () => {
    await pool.end();
    await database.close();
  });

  async function inTransaction<T>(work: (tx: PoolClient, index: number) => Promise<T>) {
    return Promise.all(
      Array.from({ length: TRANSACTIONS }, async (_, index) => {
        const tx = await pool.connect();
        try {
          await tx.query('BEGIN');
          const result = await work(tx, index);
          await tx.query('COMMIT');
          return result;
        } finally {
          tx.release();
        }
      }),
    );
  }

  it(`completes ${TRANSACTIONS} transactions at once on ${POOL_SIZE} connections`, async () => {
    const queue = new PostgresQueue({ pool, schema });
    const store = new PostgresReplayStore(pool, { schema, timeout: '30s' });
    await queue.find(['x']);
    const reservations = await Promise.all(
      Array.from({ length: TRANSACTIONS }, async (_, index) => {
        const [key, now] = [`event-${index}`, Date.now()];
        const verdict = await store.reserve({
          key,
          tokenKey: `token-${index}`,
          issuer: 'https://shop.example',
          fingerprint: 'f',
          lease: 30_000,
          replayUntil: now + 60_000,
          keepUntil: now + 60_000,
        });
        return verdict.status === 'reserved' ? verdict.reservation : undefined;
      }),
    );

    const done = await inTransaction(async (tx, index) => {
      const [known] = await queue.enqueue([due(`delivery-${index}`)], { tx });
      return [known, await store.commitWith(tx, reservations[index]!)];
    });
    const pending = await queue.list({ status: 'pending' }, { limit: 100 });
    await queue.stop(0);

    expect(done).toEqual(Array.from({ length: TRANSACTIONS }, () => [undefined, true]));
    expect(pending).toHaveLength(TRANSACTIONS);
  });

  it('fails within 5 s if a queue that is not open yet would need one of the connections', async () => {
    const clock = new TestClock();
    const queue = new PostgresQueue({ pool, schema: database.newSchema(), clock });
    const clients = await Promise.all(
      Array.from({ length: POOL_SIZE }, async () => pool.connect()),
    );
    const [tx] = clients;
    await tx!.query('BEGIN');
    const enqueued = queue.enqueue([due('one')], { tx }).catch((error: unknown) => error);
    await clock.advance(5_000);

    expect(await enqueued).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/is still being opened.*before the first transaction/),
    });
    for (const client of clients) client.release();
    expect(await queue.enqueue([due('two')])).toEqual([undefined]);
    await queue.stop(0);
  });
});
