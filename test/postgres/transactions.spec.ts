import { EventEmitter, once } from 'node:events';
import { inspect } from 'node:util';
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { Pool } from 'pg';
import { DataSource } from 'typeorm';
import type { PostgresDriver } from 'typeorm/driver/postgres/PostgresDriver.js';
import type {
  EnqueuedDelivery,
  OutgoingDelivery,
  ReplayReservation,
} from 'nestjs-webhook-token/ports';
import { TestClock } from 'nestjs-webhook-token/testing';
import { PostgresQueue, PostgresReplayStore } from '../../lib/postgres/index.js';
import { joinTransaction } from '../../lib/postgres/transactions.js';
import { outgoing } from '../fixtures/outgoing.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { storeIn, TestDatabase, until } from './database.js';
import { due, dueAtUrl } from './deliveries.js';
import { drizzleOrm, LIBRARY_NAMES, nodePostgres, openLibraries } from './transaction-libraries.js';
import type { TransactionLibrary } from './transaction-library.interface.js';

/** Payloads that a library's parameter binding could corrupt. */
const PAYLOADS: Readonly<Record<string, Buffer>> = {
  unicode: Buffer.from('{"name":"Zoë 漢字 😀 \u2028"}'),
  quotes: Buffer.from(`{"text":"it's \\"$1\\" ? ?? :name %s \\\\' ; --"}`),
  NUL: Buffer.from('{"text":"\\u0000"}'),
  octets: Buffer.from(Array.from({ length: 256 }, (_, octet) => octet)),
  megabyte: Buffer.alloc(1 << 20, '\\\'"'),
};

/** Jest compares large strings fast, and large buffers in seconds. */
function asText({ payload, ...delivery }: OutgoingDelivery): object {
  const { bytes, ...rest } = payload;
  return { ...delivery, ...rest, octets: Buffer.from(bytes!).toString('latin1') };
}

async function reserved(store: PostgresReplayStore, id: string): Promise<ReplayReservation> {
  const verdict = await store.reserve({
    key: `key-${id}`,
    tokenKey: `token-${id}`,
    fingerprint: 'f',
    issuer: 'https://shop.example',
    lease: 30_000,
    replayUntil: Date.now() + 60_000,
    keepUntil: Date.now() + 60_000,
  });
  return (verdict as Extract<typeof verdict, { status: 'reserved' }>).reservation;
}

(await describeWith('PostgreSQL'))('a transaction of the caller', () => {
  const database = new TestDatabase();
  const schema = database.newSchema();
  const queueSchema = database.newSchema();
  const news = new EventEmitter();
  const delivered = new Map<string, OutgoingDelivery>();
  let queue: PostgresQueue;
  let store: PostgresReplayStore;
  let libraries: readonly TransactionLibrary[];

  beforeAll(async () => {
    const { pool } = database;
    queue = new PostgresQueue({ pool, schema: queueSchema, pollInterval: '100ms' });
    store = new PostgresReplayStore(pool, storeIn(schema));
    await store.migrate();
    await pool.query(`CREATE TABLE ${schema}.orders (id text)`);
    libraries = await openLibraries();
    await queue.consume(async (delivery) => {
      delivered.set(delivery.id, outgoing(delivery));
      news.emit('delivered');
      return { outcome: { type: 'delivered' } };
    });
  });
  afterAll(async () => {
    await queue.stop(0);
    for (const library of libraries) await library.close();
    await database.close();
  });

  const library = (name: string): TransactionLibrary =>
    libraries.find((known) => known.name === name)!;
  const insertOrder = (id: string): string => `INSERT INTO ${schema}.orders VALUES ('${id}')`;
  const undo = new Error('undo');

  async function orderExists(id: string): Promise<boolean> {
    const { rowCount } = await database.pool.query(
      `SELECT FROM ${schema}.orders WHERE id = '${id}'`,
    );
    return rowCount === 1;
  }

  async function deliveryOf(id: string): Promise<OutgoingDelivery> {
    while (!delivered.has(id)) await once(news, 'delivered');
    return delivered.get(id)!;
  }

  it('covers every supported library', () => {
    expect(libraries.map(({ name }) => name)).toEqual(LIBRARY_NAMES);
  });

  describe.each(LIBRARY_NAMES)('of %s', (name) => {
    it('attempts committed deliveries, and none before the commit', async () => {
      const { transaction, run } = library(name);
      await transaction(async (tx) => {
        await run(tx, insertOrder(`${name}-committed`));
        const known = await queue.enqueue(
          [due(`${name}-committed`), dueAtUrl(`${name}-committed-url`)],
          { tx },
        );
        expect(known).toEqual([undefined, undefined]);
        expect(await queue.find([`${name}-committed`])).toEqual([undefined]);
      });

      expect(await deliveryOf(`${name}-committed-url`)).toEqual(
        expect.objectContaining({ url: dueAtUrl('any').delivery.url }),
      );
      expect(await deliveryOf(`${name}-committed`)).toBeDefined();
      expect(await orderExists(`${name}-committed`)).toBe(true);
    });

    it('attempts no delivery that was rolled back', async () => {
      const { transaction, run } = library(name);
      const undone = transaction(async (tx) => {
        await run(tx, insertOrder(`${name}-undone`));
        await queue.enqueue([due(`${name}-undone`)], { tx });
        throw undo;
      });

      await expect(undone).rejects.toBe(undo);
      expect(await queue.find([`${name}-undone`])).toEqual([undefined]);
      expect(await orderExists(`${name}-undone`)).toBe(false);
    });

    it.each([{}, { orderingKey: 'customer-1' }])(
      'records nothing for a call that it does not await before it is rolled back: %j',
      async (key) => {
        const { transaction } = library(name);
        const id = `${name}-late-${JSON.stringify(key)}`;
        const { delivery, ...item } = due(id);
        const calls: Promise<unknown>[] = [];
        const undone = transaction(async (tx) => {
          calls.push(queue.enqueue([{ ...item, delivery: { ...delivery, ...key } }], { tx }));
          throw undo;
        });
        await expect(undone).rejects.toBe(undo);
        await Promise.allSettled(calls);

        expect(await queue.find([id])).toEqual([undefined]);
      },
    );

    it('that is rolled back before its handler awaits the record of the event leaves the event free', async () => {
      const { transaction } = library(name);
      const reservation = await reserved(store, `${name}-late`);
      const calls: Promise<unknown>[] = [];
      const undone = transaction(async (tx) => {
        calls.push(store.commitWith(tx, reservation));
        throw undo;
      });
      await expect(undone).rejects.toBe(undo);
      await Promise.allSettled(calls);

      expect(await store.release(reservation)).toBe(true);
    });

    it('can be rolled back while another one holds its key or id, and keeps its own lock_timeout', async () => {
      const { transaction, run } = library(name);
      const impatient = new PostgresQueue({
        pool: database.pool,
        schema: queueSchema,
        timeout: '500ms',
        // Only the server gives up.
        clock: new TestClock(Date.now()),
      });
      const keyed = (id: string) => {
        const { delivery, ...item } = due(`${name}-${id}`);
        return [{ ...item, delivery: { ...delivery, orderingKey: `${name}-key` } }];
      };
      await impatient.find(['open']);
      let setting: { readonly timeout?: unknown } | undefined;
      await transaction(async (tx) => {
        await run(tx, `SET LOCAL lock_timeout = '7s'`);
        // The planner then chooses another order of joins.
        await run(tx, 'SET LOCAL geqo_threshold = 2');
        await impatient.enqueue(keyed('holds'), { tx });
        await impatient.enqueue([due(`${name}-beside`)], { tx });
        [setting] = await joinTransaction(tx)(
          `SELECT current_setting('lock_timeout') AS timeout`,
          [],
        );
        for (const items of [keyed('waits'), [due(`${name}-holds`)]]) {
          const other = transaction(async (second) => impatient.enqueue(items, { tx: second }));
          await expect(other).rejects.toMatchObject({
            code: 'store_unavailable',
            message: expect.stringContaining('has held the id of an event'),
          });
        }
      });

      expect(setting?.timeout).toBe('7s');
      expect(await queue.find([`${name}-waits`])).toEqual([undefined]);
      await impatient.stop(0);
    });

    it('waits for no lock longer than its own lock_timeout', async () => {
      const { transaction, run } = library(name);
      const patient = new PostgresQueue({
        pool: database.pool,
        schema: queueSchema,
        timeout: '1h',
        lease: '4h',
      });
      await patient.find(['open']);
      const item = due(`${name}-short`);
      await transaction(async (tx) => {
        await patient.enqueue([item], { tx });
        const other = transaction(async (second) => {
          await run(second, `SET LOCAL lock_timeout = '50ms'`);
          await patient.enqueue([item], { tx: second });
        });
        await expect(other).rejects.toMatchObject({ cause: { code: '55P03' } });
      });
      await patient.stop(0);
    });

    it('keeps deliveries of a released savepoint, and none of one that was rolled back', async () => {
      const { transaction, nested } = library(name);
      const record = async (tx: unknown, part: string) =>
        queue.enqueue([due(`${name}-${part}`)], { tx });
      await transaction(async (tx) => {
        await record(tx, 'outer');
        const undone = nested(tx, async (inner) => {
          await record(inner, 'inner-undone');
          throw undo;
        });
        await expect(undone).rejects.toBe(undo);
        await nested(tx, async (inner) => record(inner, 'inner'));
      });

      expect(await deliveryOf(`${name}-outer`)).toBeDefined();
      expect(await deliveryOf(`${name}-inner`)).toBeDefined();
      expect(await queue.find([`${name}-inner-undone`])).toEqual([undefined]);
    });

    it('returns the records of known deliveries, with their payloads', async () => {
      const later = { ...due(`${name}-known`), notBefore: Date.now() + 60_000 };
      await queue.enqueue([later]);
      const { transaction } = library(name);
      await transaction(async (tx) => {
        const added = due(`${name}-new`);
        const known = await queue.enqueue([later, added, added], { tx });

        expect(known).toMatchObject([
          { delivery: { id: `${name}-known` }, status: 'pending', nextAttemptAt: later.notBefore },
          undefined as never,
          { delivery: { id: `${name}-new` }, status: 'pending', attempts: 0 },
        ]);
        const bytes = known[0]!.delivery.payload.bytes!;
        expect(Buffer.from(bytes)).toEqual(later.delivery.payload.bytes);
      });
    });

    it('preserves every byte', async () => {
      const items = Object.entries(PAYLOADS).map(
        ([what, bytes]): EnqueuedDelivery<OutgoingDelivery> => {
          const { delivery, notBefore } = due(`${name}-${what}`);
          const payload = { kind: 'bytes', bytes, contentType: 'text/plain; x="?\'$1"' } as const;
          return { delivery: { ...delivery, payload, subject: "Zoë's ?" }, notBefore };
        },
      );
      await library(name).transaction(async (tx) => queue.enqueue(items, { tx }));

      for (const { delivery } of items) {
        expect(asText(await deliveryOf(delivery.id))).toEqual(asText(delivery));
      }
    });

    it('that is read-only is rolled back, and the error gives the reason without the payload', async () => {
      const { transaction, run } = library(name);
      const item = due(`${name}-readonly`);
      const refused = transaction(async (tx) => {
        await run(tx, insertOrder(`${name}-readonly`));
        await run(tx, 'SET TRANSACTION READ ONLY');
        await queue.enqueue([item], { tx });
      });

      const error = await refused.catch((error: unknown) => error);
      expect(error).toMatchObject({
        code: 'store_unavailable',
        message: expect.stringMatching(/the transaction or the server is read-only/),
        cause: { code: '25006', message: expect.stringMatching(/in a read-only transaction$/) },
      });
      expect(inspect(error, { depth: 9 })).not.toContain(
        Buffer.from(item.delivery.payload.bytes!).toString('base64'),
      );
      expect(await orderExists(`${name}-readonly`)).toBe(false);
    });

    it('that has failed records nothing, and the error says so', async () => {
      const { transaction, run } = library(name);
      const failed = transaction(async (tx) => {
        await Promise.resolve(run(tx, 'SELECT 1 / 0')).catch(() => {});
        await queue.enqueue([due(`${name}-failed`)], { tx });
      });

      await expect(failed).rejects.toMatchObject({
        code: 'store_unavailable',
        message: expect.stringMatching(
          /an earlier statement of the transaction failed; roll it back/,
        ),
      });
    });

    it('records an event as handled, if it is committed', async () => {
      const { transaction } = library(name);
      const reservation = await reserved(store, name);
      const { claim } = reservation;
      const again = async (copy: string): Promise<string> =>
        (await store.reserve({ ...claim, tokenKey: `token-${name}-${copy}` })).status;

      const undone = transaction(async (tx) => {
        expect(await store.commitWith(tx, reservation)).toBe(true);
        throw undo;
      });
      await expect(undone).rejects.toBe(undo);
      expect(await again('2')).toBe('in-progress');

      await transaction(async (tx) => store.commitWith(tx, reservation));
      expect(await again('3')).toBe('done');
    });
  });

  // The double of Prisma cannot detect the end of a transaction.
  it.each(LIBRARY_NAMES.filter((name) => name !== 'Prisma'))(
    'of %s is refused once it has ended',
    async (name) => {
      let ended: unknown;
      await library(name).transaction(async (tx) => {
        ended = tx;
      });

      await expect(queue.enqueue([due(`${name}-ended`)], { tx: ended })).rejects.toMatchObject({
        message: expect.stringMatching(/has ended|no transaction is open on it/),
      });
      expect(await queue.find([`${name}-ended`])).toEqual([undefined]);
    },
  );

  it.each([
    ['node-postgres', {}, nodePostgres],
    ['node-postgres', { orderingKey: 'customer-2' }, nodePostgres],
    ['Drizzle', {}, drizzleOrm],
    ['Drizzle', { orderingKey: 'customer-2' }, drizzleOrm],
  ])(
    'of %s is not followed by another one of its connection for a call that is in flight: %j',
    async (name, key, open) => {
      const pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: 1 });
      const { transaction, run, close } = open(pool);
      const id = `${name}-in-flight-${JSON.stringify(key)}`;
      const { delivery, ...item } = due(id);
      const reservation = await reserved(store, id);
      const calls: Promise<unknown>[] = [];
      const undone = transaction(async (tx) => {
        calls.push(
          queue.enqueue([{ ...item, delivery: { ...delivery, ...key } }], { tx }),
          store.commitWith(tx, reservation),
        );
        throw undo;
      });
      const other = transaction(async (tx) => {
        await run(tx, insertOrder(id));
        await Promise.allSettled(calls);
      });
      await expect(undone).rejects.toBe(undo);
      await other;
      await close();

      const reason = { message: expect.stringContaining('the transaction has ended') };
      const refused = { status: 'rejected', reason };
      expect(await Promise.allSettled(calls)).toMatchObject([refused, refused]);
      expect(await orderExists(id)).toBe(true);
      expect(await queue.find([id])).toEqual([undefined]);
      expect(await store.release(reservation)).toBe(true);
    },
  );

  it('cannot be a client or a pool of a library', async () => {
    const handles = libraries.flatMap(({ outside }) => Object.entries(outside));
    expect(handles.map(([what]) => what)).toEqual([
      'a Pool',
      'a DataSource',
      'the manager of a DataSource',
      'a QueryRunner',
      'a PrismaClient',
      'a database of Drizzle',
      'a Kysely',
      'a Knex',
    ]);

    for (const [, tx] of handles) {
      await expect(queue.enqueue([due('outside')], { tx })).rejects.toMatchObject({
        code: 'unsupported_option',
        message: expect.stringMatching(/no transaction is open on it: (pass|await) /),
      });
    }
    expect(await queue.find(['outside'])).toEqual([undefined]);
  });

  it('is refused if it is of another database, and both are named', async () => {
    const other = `other_${database.newSchema()}`;
    await database.pool.query(`CREATE DATABASE ${other}`);
    const url = new URL(urlOf('PostgreSQL'));
    url.pathname = `/${other}`;
    const elsewhere = new Pool({ connectionString: url.href, max: 1 });
    try {
      // The same schema exists there, so that the deliveries could be recorded.
      const schemaOfQueue = database.newSchema();
      const own = new PostgresQueue({ pool: database.pool, schema: schemaOfQueue });
      await own.find(['x']);
      const twin = new PostgresQueue({ pool: elsewhere, schema: schemaOfQueue, notify: false });
      await twin.find(['x']);
      const replay = new PostgresReplayStore(database.pool, storeIn(schemaOfQueue));
      const reservation = await reserved(replay, 'elsewhere');
      const client = await elsewhere.connect();
      const asked = jest.spyOn(client, 'query');
      await client.query('BEGIN');
      const refused = await Promise.allSettled([
        own.enqueue([due('lost')], { tx: client }),
        replay.commitWith(client, reservation),
      ]);
      const before = asked.mock.calls.length;
      await expect(replay.commitWith(client, reservation)).rejects.toMatchObject({
        code: 'unsupported_option',
      });
      expect(asked.mock.calls).toHaveLength(before);
      await client.query('COMMIT');
      client.release();

      expect(refused).toMatchObject(
        ['this queue stores its deliveries', 'this replay store keeps its entries'].map((use) => ({
          reason: {
            code: 'unsupported_option',
            message: expect.stringMatching(
              new RegExp(`"${other}", and ${use} in "postgres": pass a`),
            ),
          },
        })),
      );
      expect(await twin.find(['lost'])).toEqual([undefined]);
      await Promise.all([own.stop(0), twin.stop(0)]);
    } finally {
      await elsewhere.end();
      await database.pool.query(`DROP DATABASE ${other}`);
    }
  });

  it('is joined after another copy of the database has taken its place', async () => {
    const name = `shop_${database.newSchema()}`;
    await database.pool.query(`CREATE DATABASE ${name}`);
    const url = new URL(urlOf('PostgreSQL'));
    url.pathname = `/${name}`;
    const pool = new Pool({ connectionString: url.href });
    pool.on('error', () => {});
    const own = new PostgresQueue({ pool, notify: false });
    const replay = new PostgresReplayStore(pool, storeIn('webhooks'));
    const dataSource = new DataSource({
      type: 'postgres',
      url: url.href,
      poolErrorHandler: () => {},
    });
    await dataSource.initialize();
    const ofTypeOrm = (dataSource.driver as PostgresDriver).master as Pool;
    async function joinWith(id: string): Promise<void> {
      const reservation = await reserved(replay, id);
      const client = await pool.connect();
      await client.query('BEGIN');
      try {
        await own.enqueue([due(`${id}-node-postgres`)], { tx: client });
        await replay.commitWith(client, reservation);
        await client.query('COMMIT');
      } finally {
        client.release();
      }
      await dataSource.transaction(async (tx) => {
        await own.enqueue([due(`${id}-typeorm`)], { tx });
      });
    }
    try {
      await own.find(['x']);
      await joinWith('before');
      await database.pool.query(
        `SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1`,
        [name],
      );
      await until(() => pool.totalCount + ofTypeOrm.totalCount === 0);
      await database.pool.query(`ALTER DATABASE ${name} RENAME TO ${name}_old`);
      await database.pool.query(`CREATE DATABASE ${name} TEMPLATE ${name}_old`);
      await joinWith('after');

      const found = await own.find(['before-typeorm', 'after-node-postgres', 'after-typeorm']);
      expect(found.map((record) => record?.status)).toEqual(['pending', 'pending', 'pending']);
    } finally {
      await dataSource.destroy();
      await own.stop(0);
      await pool.end();
      await database.pool.query(`DROP DATABASE IF EXISTS ${name}_old WITH (FORCE)`);
      await database.pool.query(`DROP DATABASE IF EXISTS ${name} WITH (FORCE)`);
    }
  });

  it.each([
    ['a string', 'tx'],
    ['null', null],
    ['any object', { query: async () => ({}) }],
  ])('is not %s', async (_, tx) => {
    await expect(queue.enqueue([due('unknown')], { tx })).rejects.toMatchObject({
      code: 'unsupported_option',
      message: expect.stringMatching(/node-postgres.*/),
    });
  });

  it('of Knex keeps a question mark in an operator', async () => {
    const statement = `SELECT '{"a":1}'::jsonb ? $1 AS has`;

    await library('Knex').transaction(async (trx) => {
      const [row] = await joinTransaction(trx)(statement, ['a']);
      expect(row!['has']).toBe(true);
    });
  });
});

describe('a statement with literals in place of its parameters', () => {
  it('takes strings, finite numbers, booleans and null only', async () => {
    const { sqlLiterals } = await import('../../lib/postgres/sql-text.js');

    expect(sqlLiterals("a = $2 AND b = '$' AND c = $1", ["it's \\ $2", 7])).toBe(
      "a = '7' AND b = '$' AND c =  E'it''s \\\\ $2'",
    );
    expect(sqlLiterals('$1, $2', [true, null])).toBe("'true', NULL");
    expect(() => sqlLiterals('$1', [['a']])).toThrow(TypeError);
  });
});
