import { randomBytes } from 'node:crypto';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { Pool } from 'pg';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import { InProcessQueue } from 'nestjs-webhook-token';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due, large } from './deliveries.js';

const TEN_MEGABYTES = 10 * 1024 * 1024;

/** Records a delivery, and returns what its attempt receives. */
async function passThrough(queue: WebhookQueue): Promise<Buffer> {
  const item = large('large', TEN_MEGABYTES);
  await queue.enqueue([item]);
  const received = await new Promise<Uint8Array>((resolve, reject) => {
    Promise.resolve(
      queue.consume(async ({ payload }) => {
        resolve(payload.bytes!);
        return { outcome: { type: 'delivered' } };
      }),
    ).catch(reject);
  });
  await queue.stop(Date.now() + 1_000);
  return Buffer.from(received);
}

function timersLeft(): number {
  return process.getActiveResourcesInfo().filter((resource) => resource === 'Timeout').length;
}

describe('an event of 10 MB', () => {
  it('leaves the in-process queue byte for byte', async () => {
    const received = await passThrough(new InProcessQueue());

    expect(received.equals(large('large', TEN_MEGABYTES).delivery.payload.bytes!)).toBe(true);
  });
});

(await describeWith('PostgreSQL'))('a PostgreSQL with a problem', () => {
  const database = new TestDatabase();
  const role = `reader_${randomBytes(6).toString('hex')}`;
  beforeAll(async () => {
    await database.pool.query(`CREATE ROLE ${role} LOGIN SUPERUSER`);
    await database.pool.query(`ALTER ROLE ${role} SET default_transaction_read_only = on`);
  });
  afterAll(async () => {
    await database.pool.query(`DROP ROLE ${role}`);
    await database.close();
  });

  it('returns an event of 10 MB byte for byte', async () => {
    const queue = new PostgresQueue({ pool: database.pool, schema: database.newSchema() });

    expect(
      (await passThrough(queue)).equals(large('large', TEN_MEGABYTES).delivery.payload.bytes!),
    ).toBe(true);
  });

  it('is reported as read-only, and records nothing', async () => {
    const schema = database.newSchema();
    const first = new PostgresQueue({ pool: database.pool, schema });
    await first.enqueue([due('kept')]);
    await first.stop(0);
    // A connection that becomes idle starts a timer.
    await until(() => database.pool.idleCount === database.pool.totalCount);
    const timers = timersLeft();
    const url = new URL(urlOf('PostgreSQL'));
    url.username = role;
    const readers = new Pool({ connectionString: url.href, max: 2 });
    const queue = new PostgresQueue({ pool: readers, schema });

    await expect(queue.enqueue([due('lost?')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message:
        'The delivery queue cannot use PostgreSQL at 127.0.0.1:5432: ' +
        'the transaction or the server is read-only; connect to the primary server.',
    });
    await queue.stop(0);
    await readers.end();

    // An open connection would keep the process alive.
    expect(timersLeft()).toBeLessThanOrEqual(timers);
    const later = new PostgresQueue({ pool: database.pool, schema });
    const known = await later.find(['kept', 'lost?']);
    await later.stop(0);
    expect(known.map((one) => one?.status)).toEqual(['pending', undefined]);
  });

  it('is reported to have no free connection, and is used again when it has one', async () => {
    const pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: 1 });
    const queue = new PostgresQueue({ pool, schema: database.newSchema() });
    await queue.enqueue([due('before')]);
    const greedy = await pool.connect();
    // Only now: to open the queue takes longer.
    pool.options.connectionTimeoutMillis = 500;
    const failure: unknown = await queue.enqueue([due('between')]).catch((error: unknown) => error);
    pool.options.connectionTimeoutMillis = 0;
    greedy.release();
    await queue.enqueue([due('after')]);
    const known = await queue.find(['before', 'between', 'after']);
    await queue.stop(0);
    await pool.end();

    expect(failure).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(
        /no connection of the pool became free in time; enlarge the pool/,
      ),
    });
    expect(known.map((one) => one?.status)).toEqual(['pending', undefined, 'pending']);
  });
});
