import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, afterEach, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import type { PoolClient } from 'pg';
import { PgBossDeliveryQueue } from '../../lib/postgres/index.js';
import { joinTransaction } from '../../lib/postgres/transactions/join-transaction.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from './database.js';
import { due, dueAtUrl } from './deliveries.js';
import { ORMS, type RunStatement } from './orm-twins.js';

(await describeWith('PostgreSQL'))('A transaction of the caller', () => {
  const database = new TestDatabase();
  let queue: PgBossDeliveryQueue;
  let client: PoolClient;
  const delivered: string[] = [];
  beforeAll(async () => {
    const { pool } = database;
    queue = new PgBossDeliveryQueue({
      pool,
      schema: database.newSchema(),
      pollInterval: '100ms',
    });
    await queue.consume(async ({ id }) => {
      delivered.push(id);
      return { type: 'delivered' };
    });
  });
  beforeEach(async () => {
    client = await database.pool.connect();
    await client.query('BEGIN');
  });
  afterEach(async () => {
    await client.query('ROLLBACK');
    client.release();
  });
  afterAll(async () => {
    await queue.stop(0);
    await database.close();
  });

  /** The libraries' twins, on a real transaction: what differs is how a statement and its values reach it. */
  const run: RunStatement = async (text, values) => client.query(text, values as unknown[]);
  const transactions: [string, () => unknown][] = [
    ['node-postgres', () => client],
    ...ORMS.map(({ name, open }): [string, () => unknown] => [name, () => open(run)]),
  ];

  it.each(transactions)('of %s: sends what was committed, whole', async (name, open) => {
    const first = dueAtUrl(`${name}-url`);
    const receipts = await queue.enqueue([first, due(`${name}-endpoint`)], { tx: open() });
    await sleep(250);
    expect(delivered).not.toContain(first.delivery.id);
    await client.query('COMMIT');

    expect(receipts.map(({ status }) => status)).toEqual(['recorded', 'recorded']);
    while (!delivered.includes(`${name}-url`)) await sleep(10);
    while (!delivered.includes(`${name}-endpoint`)) await sleep(10);
  });

  it.each(transactions)('of %s: sends nothing of what was rolled back', async (name, open) => {
    await queue.enqueue([due(`${name}-undone`)], { tx: open() });
    await client.query('ROLLBACK');
    await sleep(250);

    expect(await queue.find([`${name}-undone`])).toEqual([undefined]);
    expect(delivered).not.toContain(`${name}-undone`);
  });

  it.each(transactions)('of %s: says what is known already', async (name, open) => {
    const later = { ...due(`${name}-known`), notBefore: Date.now() + 60_000 };
    await queue.enqueue([later]);
    const receipts = await queue.enqueue([later, due(`${name}-new`), due(`${name}-new`)], {
      tx: open(),
    });

    expect(receipts).toEqual([
      { id: `${name}-known`, status: 'pending', attempts: 0, nextAttemptAt: later.notBefore },
      { id: `${name}-new`, status: 'recorded' },
      expect.objectContaining({ id: `${name}-new`, status: 'pending', attempts: 0 }),
    ]);
  });

  it.each<[string, () => unknown]>([
    ['a pool', () => database.pool],
    ...ORMS.map(({ name, closed }): [string, () => unknown] => [`${name} itself`, closed]),
  ])('is not %s', async (_, open) => {
    const refusal = queue.enqueue([due('outside')], { tx: open() });

    await expect(refusal).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/no transaction is open on it: /),
    });
    expect(await queue.find(['outside'])).toEqual([undefined]);
  });

  it('is not a client on which none was begun', async () => {
    await client.query('ROLLBACK');

    await expect(queue.enqueue([due('outside')], { tx: client })).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/no transaction is open on it: .*BEGIN/),
    });
  });

  it.each([
    ['a text', 'tx'],
    ['null', null],
    ['any object', { query: async () => ({}) }],
  ])('is not %s', async (_, tx) => {
    await expect(queue.enqueue([due('unknown')], { tx })).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/node-postgres.*/),
    });
  });

  it('of Knex keeps a question mark that is an operator', async () => {
    const knex = ORMS.find(({ name }) => name === 'Knex')!.open(run);
    const statement = `SELECT '{"a":1}'::jsonb ? $1 AS has`;

    expect(await joinTransaction(knex).executeSql(statement, ['a'])).toEqual({
      rows: [{ has: true }],
    });
  });

  it('that has failed takes nothing, and says so', async () => {
    await client.query('SELECT 1 / 0').catch(() => {});

    await expect(queue.enqueue([due('failed')], { tx: client })).rejects.toMatchObject({
      code: 'store_unavailable',
    });
  });
});

describe('A statement with its values written into it', () => {
  it('has only texts and numbers', async () => {
    const { sqlLiterals } = await import('../../lib/postgres/transactions/sql-literals.js');

    expect(sqlLiterals("a = $2 AND b = '$' AND c = $1", ["it's \\ $2", 7])).toBe(
      "a = '7' AND b = '$' AND c =  E'it''s \\\\ $2'",
    );
    expect(() => sqlLiterals('$1', [['a']])).toThrow(TypeError);
  });
});
