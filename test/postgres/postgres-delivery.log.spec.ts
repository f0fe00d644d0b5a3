import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import { PostgresDeliveryLog } from '../../lib/postgres/index.js';
import type { LoggedAttempt } from '../../lib/deliveries/delivery-log.js';
import { deliveryLogContract } from '../../lib/testing/delivery-log.contract.js';
import { newPglite } from '../fixtures/embedded-database.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, untilLocked } from './database.js';
import { due, dueAtUrl } from './deliveries.js';
import { LIBRARY_NAMES, openLibraries } from './transaction-libraries.js';
import type { TransactionLibrary } from './transaction-library.interface.js';

const MADE: LoggedAttempt = { attempt: 1, at: 1_000, method: 'POST', durationMs: 12.5 };

(await describeWith('PostgreSQL'))('PostgresDeliveryLog', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  const log = new PostgresDeliveryLog(database.pool, { schema, timeout: '30s' });
  beforeAll(async () => log.migrate());
  afterAll(async () => database.close());

  async function create(): Promise<PostgresDeliveryLog> {
    await database.pool.query(`TRUNCATE ${schema}.delivery CASCADE`);
    return log;
  }

  for (const { name, run } of deliveryLogContract(create)) it(name, run);

  describe('record in a transaction', () => {
    let libraries: TransactionLibrary[];
    beforeAll(async () => (libraries = await openLibraries()));
    afterAll(async () => Promise.all(libraries.map(async ({ close }) => close())));

    it.each(LIBRARY_NAMES)('of %s keeps committed deliveries only', async (library) => {
      await create();
      const { transaction } = libraries.find(({ name }) => name === library)!;
      await transaction(async (tx) => {
        await log.record([due('kept'), dueAtUrl('kept by URL')], { tx });
        expect(await log.list({}, { limit: 1 })).toEqual([]);
      });
      const rolledBack = transaction(async (tx) => {
        await log.record([due('gone')], { tx });
        throw new Error('roll back');
      });
      await expect(rolledBack).rejects.toThrow('roll back');

      expect(await log.list({}, { limit: 100 })).toHaveLength(2);
      const { delivery } = dueAtUrl('kept by URL');
      expect((await log.find(delivery.id))?.delivery.url).toBe(delivery.url);
    });

    it('refuses a client without an open transaction', async () => {
      await expect(log.record([due('x')], { tx: database.pool })).rejects.toMatchObject({
        code: 'unsupported_option',
      });
    });
  });

  it('keeps an answer with characters that PostgreSQL refuses, and replaces those', async () => {
    await create();
    const { delivery } = due('odd');
    const made = { ...MADE, answer: 'a\0b\uD800c' };
    await log.change([{ delivery, status: 'dead', attempts: 1, at: 1, made }]);

    expect(await log.attempts('odd')).toEqual([{ ...made, answer: 'a\uFFFDb\uFFFDc' }]);
  });

  it('finds nothing by an id that contains NUL', async () => {
    expect(await log.find('\0')).toBeUndefined();
    expect(await log.list({ tenant: 'a\0' }, { limit: 1 })).toEqual([]);
  });

  it('splits deliveries that are too large for one statement', async () => {
    await create();
    const large = Buffer.alloc(3 * 1024 * 1024, 'x');
    const items = Array.from({ length: 5 }, (_, index) => {
      const { delivery, notBefore } = due(`large-${index}`);
      return {
        delivery: { ...delivery, payload: { ...delivery.payload, bytes: large } },
        notBefore,
      };
    });
    await log.record(items);

    const kept = await log.list({}, { limit: 10 });
    expect(kept.map(({ delivery }) => delivery.payload.bytes?.byteLength)).toEqual(
      Array.from({ length: 5 }, () => large.byteLength),
    );
  });

  it('prunes around deliveries that are being changed, with which it could deadlock', async () => {
    await create();
    // The newest id is the oldest delivery: a change locks them in the other order than their age.
    const dead = ['a', 'b', 'c'].map((id, index) => {
      const delivery = { ...due(id).delivery, createdAt: 3_000 - index };
      return { delivery, status: 'dead', attempts: 1, at: 4_000 } as const;
    });
    await log.change(dead);
    const other = await database.pool.connect();
    await other.query('BEGIN');
    await other.query(`SELECT FROM ${schema}.delivery WHERE id = 'b' FOR UPDATE`);
    const changed = log.change(dead.map((one) => ({ ...one, attempts: 2, at: 5_000 })));
    await untilLocked(database.pool, `%UPDATE ${schema}.delivery%`);
    const pruned = await log.prune(10_000);
    await other.query('COMMIT');
    other.release();
    await changed;

    expect(pruned).toBe(1);
    expect((await log.find('a'))?.attempts).toBe(2);
    expect((await log.find('b'))?.attempts).toBe(2);
  });

  it('prunes more deliveries than one statement removes', async () => {
    await create();
    await database.pool.query(
      `INSERT INTO ${schema}.delivery (id, event_id, event, details, status, attempts, created_at, updated_at)
       SELECT 'old-' || n, 'e', 'order.created', '{"payload":{}}', 'delivered', 1, to_timestamp(n), now()
       FROM generate_series(1, 2500) AS n`,
    );

    expect(await log.prune(2_400_500)).toBe(2_400);
    expect(await log.list({ status: 'delivered' }, { limit: 200 })).toHaveLength(100);
  });
});

describe('PostgresDeliveryLog on PGlite', () => {
  let database: PGlite;
  let log: PostgresDeliveryLog;
  beforeAll(async () => {
    database = await newPglite();
    log = new PostgresDeliveryLog(async () => database, { timeout: '30s' });
    await log.migrate();
  });
  afterAll(async () => database.close());

  async function create(): Promise<PostgresDeliveryLog> {
    await database.exec('TRUNCATE webhooks.delivery CASCADE');
    return log;
  }

  for (const { name, run } of deliveryLogContract(create)) it(name, run);

  it('joins a transaction of the embedded database, and keeps nothing if it is rolled back', async () => {
    await create();
    await database.transaction(async (tx) => log.record([due('kept')], { tx }));
    await expect(
      database.transaction(async (tx) => {
        await log.record([due('undone')], { tx });
        throw new Error('the order is impossible');
      }),
    ).rejects.toThrow('impossible');

    expect(await log.find('undone')).toBeUndefined();
    expect(await log.find('kept')).toMatchObject({ status: 'pending' });
  });

  it('refuses the embedded database itself as a transaction', async () => {
    const tx: unknown = database;

    await expect(log.record([due('x')], { tx })).rejects.toMatchObject({
      code: 'unsupported_option',
    });
  });
});
