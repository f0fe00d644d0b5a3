import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import type { PGlite } from '@electric-sql/pglite';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  replayStoreContract,
  type ContractTransaction,
  TestClock,
} from 'nestjs-webhook-token/testing';
import type { ReplayClaim, ReplayReservation } from 'nestjs-webhook-token/ports';
import { PostgresReplayStore } from '../../lib/postgres/index.js';
import { describeContract } from '../fixtures/contract.js';
import { newPglite } from './embedded-database.js';
import { newClaim, race } from '../fixtures/racing-replicas.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, untilLocked } from './database.js';

async function reserve(
  store: PostgresReplayStore,
  one: ReplayClaim = newClaim(),
): Promise<ReplayReservation> {
  const verdict = await store.reserve(one);
  if (verdict.status !== 'reserved') throw new Error(`expected it reserved: ${verdict.status}`);
  return verdict.reservation;
}

(await describeWith('PostgreSQL'))('PostgresReplayStore', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  const store = new PostgresReplayStore(database.pool, { schema, timeout: '30s' });
  beforeAll(async () => store.migrate());
  afterAll(async () => database.close());

  const contract = replayStoreContract({
    create: () => store,
    advance: (ms) => sleep(ms),
    begin: async () => {
      const client = await database.pool.connect();
      const end = async (how: string): Promise<void> => {
        await client.query(how);
        client.release();
      };
      await client.query('BEGIN');
      return { tx: client, commit: () => end('COMMIT'), rollback: () => end('ROLLBACK') };
    },
  });
  describeContract(contract, 10);

  it('lets four replicas that race on 300 events handle each once', async () => {
    const stores = Array.from(
      { length: 4 },
      () => new PostgresReplayStore(database.pool, { schema, timeout: '30s' }),
    );
    const claims = Array.from({ length: 300 }, () =>
      newClaim({ tokenKey: randomBytes(32).toString('base64url') }),
    );
    const handled = await race(stores, claims);

    expect(new Set(handled).size).toBe(claims.length);
    expect(handled).toHaveLength(claims.length);
  });

  it('makes the server give up a statement, once one has taken too long', async () => {
    const clock = new TestClock();
    const impatient = new PostgresReplayStore(database.pool, { schema, timeout: '300ms', clock });
    const locker = await database.pool.connect();
    try {
      await locker.query(`BEGIN; LOCK TABLE ${schema}.replay`);
      const [first] = await Promise.all([
        impatient.reserve(newClaim()).catch((error: unknown) => error),
        untilLocked(database.pool, `%${schema}.replay%`).then(() => clock.advance(300)),
      ]);
      // The clock of this process stands still: only the server can end this one.
      const second = await impatient.reserve(newClaim()).catch((error: unknown) => error);

      expect([first, second].map((error) => (error as Error).message)).toEqual([
        expect.stringContaining('it did not answer in time'),
        expect.stringContaining('it has cancelled the statement'),
      ]);
    } finally {
      await locker.query('ROLLBACK');
      locker.release();
    }
  });

  it('removes expired entries only', async () => {
    const now = Date.now();
    const keys = Array.from({ length: 6 }, () =>
      newClaim({ replayUntil: now, keepUntil: now + 1 }),
    );
    for (const one of keys) await store.commit(await reserve(store, one));
    const kept = await reserve(store);
    for (let round = 0; round < 20; round++) await reserve(store);
    const { rows } = await database.pool.query<{ id: string }>(
      `SELECT id FROM ${schema}.replay WHERE id = ANY ($1)`,
      [[...keys, kept.claim].map(({ key }) => key)],
    );

    expect(rows).toEqual([{ id: kept.claim.key }]);
  });

  it('reserves a token for as long as its event, even if a copy of the event brought it', async () => {
    const token = randomBytes(32).toString('base64url');
    const first = await reserve(store);
    const copy = { ...first.claim, tokenKey: token, lease: 500 };
    expect(await store.reserve(copy)).toMatchObject({ status: 'in-progress' });
    await store.release(first);
    const again = await reserve(store, { ...copy, lease: 30_000 });
    await database.pool.query(
      `UPDATE ${schema}.replay SET expires_at = expires_at - interval '600 ms'`,
    );

    expect(await store.reserve(newClaim({ tokenKey: token }))).toEqual({ status: 'conflict' });
    expect(await store.commit(again)).toBe(true);
    expect(await store.reserve(newClaim({ tokenKey: token }))).toEqual({ status: 'conflict' });
  });

  it('stores digests, not the issuer', async () => {
    const one = newClaim({ issuer: 'https://secret-customer.example' });
    await reserve(store, one);
    const { rows } = await database.pool.query(`SELECT * FROM ${schema}.replay WHERE id = $1`, [
      one.key,
    ]);

    expect(JSON.stringify(rows)).not.toContain('secret-customer');
  });

  describe('commitWith', () => {
    it.each(['COMMIT', 'ROLLBACK'])(
      'records the event only if the transaction commits: %s',
      async (end) => {
        const reservation = await reserve(store);
        const client = await database.pool.connect();
        await client.query('BEGIN');
        expect(await store.commitWith(client, reservation)).toBe(true);
        await client.query(end);
        client.release();

        expect(await store.reserve(reservation.claim)).toMatchObject({
          status: end === 'COMMIT' ? 'done' : 'in-progress',
        });
      },
    );

    it('reports a lost lease', async () => {
      const { claim: one } = await reserve(store);
      const client = await database.pool.connect();
      await client.query('BEGIN');
      const committed = await store.commitWith(client, { claim: one, owner: 'a stranger' });
      await client.query('ROLLBACK');
      client.release();

      expect(committed).toBe(false);
    });

    it('refuses a client without an open transaction', async () => {
      const reservation = await reserve(store);

      await expect(store.commitWith(database.pool, reservation)).rejects.toMatchObject({
        code: 'unsupported_option',
      });
    });
  });

  it('records an event although a copy with the same token locks its rows in the other order', async () => {
    const claim = newClaim({ tokenKey: randomBytes(32).toString('base64url') });
    const patient = new PostgresReplayStore(database.pool, { schema, timeout: '30s' });
    const reservation = await reserve(patient, claim);
    const copy = await database.pool.connect();
    try {
      const lock = `SELECT 1 FROM ${schema}.replay WHERE id = $1 FOR UPDATE`;
      // The copy waits for a long time, so PostgreSQL aborts the commit.
      await copy.query(`BEGIN; SET LOCAL deadlock_timeout = '20s'`);
      await copy.query(lock, [claim.tokenKey]);
      const committed = patient.commit(reservation);
      await untilLocked(database.pool, `%${schema}.replay SET done%`);
      await copy.query(lock, [claim.key]);
      await copy.query('ROLLBACK');

      expect(await committed).toBe(true);
      expect(await patient.reserve(claim)).toEqual({ status: 'done' });
    } finally {
      copy.release();
    }
  });

  it('reserves a copy although a change of its event locks the rows in the other order', async () => {
    const claim = newClaim({ tokenKey: randomBytes(32).toString('base64url') });
    await reserve(store, claim);
    const change = await database.pool.connect();
    try {
      const lock = `SELECT 1 FROM ${schema}.replay WHERE id = $1 FOR UPDATE`;
      // The change waits for a long time, so PostgreSQL aborts the reservation.
      await change.query(`BEGIN; SET LOCAL deadlock_timeout = '20s'`);
      await change.query(lock, [claim.key]);
      const reserved = store.reserve(claim);
      await untilLocked(database.pool, `%INSERT INTO ${schema}.replay%`);
      await change.query(lock, [claim.tokenKey]);
      await change.query('ROLLBACK');

      expect(await reserved).toMatchObject({ status: 'in-progress' });
    } finally {
      change.release();
    }
  });

  it('can create its tables again, and reports that they are missing', async () => {
    await store.migrate();
    const elsewhere = new PostgresReplayStore(database.pool, {
      schema: database.newSchema(),
      timeout: '30s',
    });

    await expect(elsewhere.reserve(newClaim())).rejects.toMatchObject({
      code: 'schema_behind',
      message: expect.stringMatching(/npx nestjs-webhook-token migrate/),
    });
  });
});

describe('PostgresReplayStore on PGlite', () => {
  let database: PGlite;
  let store: PostgresReplayStore;
  beforeAll(async () => {
    database = await newPglite();
    store = new PostgresReplayStore(database, { timeout: '30s' });
    await store.migrate();
  });
  afterAll(async () => database.close());

  const contract = replayStoreContract({
    create: () => store,
    advance: (ms) => sleep(ms),
    begin: async () => beginOn(database),
  });
  for (const { name, run } of contract) it(name, run);

  it('names an open transaction as the reason if it gets no answer', async () => {
    const clock = new TestClock();
    const waiting = new PostgresReplayStore(database, { timeout: '1s', clock });
    const { rollback } = await beginOn(database);
    const verdict = waiting.reserve(newClaim());
    const rejects = expect(verdict).rejects.toThrow(
      'cannot use the embedded database: it did not answer in time; await the end of a transaction',
    );
    await clock.advance(1_000);
    await rejects;
    await rollback();
  });
});

/** A transaction of PGlite is a callback: this one ends when the test decides. */
async function beginOn(database: PGlite): Promise<ContractTransaction> {
  return new Promise((resolve) => {
    const over = database.transaction(
      async (tx) =>
        new Promise<void>((commit, rollback) => {
          const end = async (how: () => void): Promise<void> => {
            how();
            await over.catch(() => {});
          };
          resolve({
            tx,
            commit: () => end(commit),
            rollback: () => end(() => rollback(new Error('rolled back'))),
          });
        }),
    );
    over.catch(() => {});
  });
}

describe('PostgresReplayStore without its server', () => {
  it('reports in time that the server does not answer', async () => {
    const clock = new TestClock();
    const client = { query: async () => new Promise(() => {}) };
    const answer = new PostgresReplayStore(client, { clock, timeout: '2s' }).reserve(newClaim());
    const refusal = expect(answer).rejects.toMatchObject({ code: 'store_unavailable' });
    await clock.advance(2_000);

    await refusal;
  });

  it('begins no transaction on a client that may not be one connection', async () => {
    const clock = new TestClock();
    const statements: string[] = [];
    let isSilent = true;
    const client = {
      query: async (text: string) => {
        statements.push(text);
        return isSilent ? new Promise(() => {}) : { rows: [] };
      },
    };
    const store = new PostgresReplayStore(client, { clock, timeout: '2s' });
    const refusal = expect(store.reserve(newClaim())).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    await clock.advance(2_000);
    await refusal;
    isSilent = false;
    await store.reserve(newClaim()).catch(() => {});

    expect(statements.length).toBeGreaterThan(1);
    expect(statements.filter((text) => text.startsWith('BEGIN'))).toEqual([]);
  });
});

describe('new PostgresReplayStore', () => {
  const client = { query: async () => ({ rows: [] }) };

  it('reports the conflict that has ended a transaction of its client', async () => {
    let code: string | undefined;
    const inTransaction = {
      query: async (text: string) => {
        if (code === undefined && !text.includes('INSERT')) return { rows: [] };
        code = code === undefined ? '40P01' : '25P02';
        throw Object.assign(new Error('refused'), { code });
      },
    };
    const store = new PostgresReplayStore(inTransaction);

    await expect(store.reserve(newClaim())).rejects.toMatchObject({ cause: { code: '40P01' } });
    expect(code).toBe('25P02');
  });

  it.each<[string, unknown, object, string]>([
    ['a missing client', {}, {}, 'client'],
    ['a schema that would have to be quoted', client, { schema: 'a"b' }, 'schema'],
    ['an invalid timeout', client, { timeout: '0s' }, 'timeout'],
  ])('refuses %s', (_, given, options, path) => {
    expect(() => new PostgresReplayStore(given as never, options)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [expect.objectContaining({ path: `PostgresReplayStore.${path}` })],
      }),
    );
  });
});
