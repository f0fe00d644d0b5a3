import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { afterAll, describe, expect, it, jest } from '@jest/globals';
import { PgBoss } from 'pg-boss';
import { PgBossQueue, type PgBossQueueOptions } from '../../lib/postgres/index.js';
import { REMOVED_AT_ONCE } from '../../lib/postgres/job-maintenance.js';
import { migrationSteps } from '../../lib/postgres/migrations/migration-steps.js';
import { stepBlock } from '../../lib/postgres/migrations/schema.migrator.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { webhookQueueContract } from '../../lib/testing/webhook-queue.contract.js';
import { outgoing } from '../fixtures/outgoing.js';
import { describeContract } from '../fixtures/contract.js';
import { freePort } from '../fixtures/free-port.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase, until, untilLocked } from './database.js';
import { due, dueAtUrl } from './deliveries.js';

const connectionString = urlOf('PostgreSQL');

(await describeWith('PostgreSQL'))('PgBossQueue', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  const { pool } = database;
  let queues = 0;
  // One schema, each case with its own queue: creating the tables of pg-boss takes longer than a case.
  const schemaOfCases = database.newSchema();
  const contract = webhookQueueContract({
    create: async () => new PgBossQueue({ pool, schema: schemaOfCases, name: `case-${queues++}` }),
    advance: (ms) => sleep(ms),
  });
  describeContract(contract, 6);

  async function withQueue(
    change: Partial<PgBossQueueOptions>,
    test: (queue: PgBossQueue, options: PgBossQueueOptions) => Promise<void>,
  ): Promise<void> {
    const options = { pool: database.pool, schema: database.newSchema(), ...change };
    const queue = new PgBossQueue(options);
    try {
      await test(queue, options);
    } finally {
      await queue.stop(0);
    }
  }

  it('starts the deliveries of one call in their order, wherever PostgreSQL stores them', async () => {
    await withQueue({ concurrencyPerDestination: 1 }, async (queue, { schema }) => {
      const ids = Array.from({ length: 20 }, (_, index) => `in-order-${index}`);
      await queue.enqueue(ids.map((id) => due(id)));
      const jobs = `${schema}.job_common`;
      await pool.query(
        `WITH moved AS (DELETE FROM ${jobs} RETURNING *) INSERT INTO ${jobs} SELECT * FROM moved ORDER BY id`,
      );
      const started: string[] = [];
      await queue.consume(async ({ id }) => {
        started.push(id);
        return { type: 'delivered' };
      });
      await until(() => started.length === ids.length);

      expect(started).toEqual(ids);
    });
  });

  it('keeps deliveries over a restart, and recognises them', async () => {
    await withQueue({}, async (first, options) => {
      await first.enqueue([due('kept'), dueAtUrl('url')]);
      await first.stop(0);
      await withQueue(options, async (second) => {
        expect(await second.enqueue([due('kept')])).toMatchObject([{ status: 'pending' }]);
        const given = new Promise((resolve) => {
          void second.consume(async (delivery) => {
            if (delivery.id === 'url') resolve(outgoing(delivery).url);
            return { type: 'delivered' };
          });
        });
        expect(await given).toBe(dueAtUrl('url').delivery.url);
      });
    });
  });

  it('gives each delivery of a shared schema to one process', async () => {
    await withQueue({}, async (first, options) => {
      await withQueue(options, async (second) => {
        const runs: string[] = [];
        const handler = async ({ id }: { id: string }) => {
          runs.push(id);
          return { type: 'delivered' } as const;
        };
        const ids = Array.from({ length: 300 }, (_, index) => `shared-${index}`);
        await first.enqueue(ids.map((id, index) => due(id, `endpoint-${index % 30}`)));
        await Promise.all([first.consume(handler), second.consume(handler)]);
        await until(() => runs.length >= ids.length);
        await Promise.all([first, second].map(async (queue) => queue.stop(Date.now() + 10_000)));

        expect(runs.toSorted()).toEqual(ids.toSorted());
      });
    });
  });

  it('leaves slots free for other destinations while one does not answer', async () => {
    // No poll happens during the test: a free slot starts the next delivery.
    const options = { concurrency: 4, concurrencyPerDestination: 2, pollInterval: '1h' };
    await withQueue(options, async (queue) => {
      const runs: string[] = [];
      let answer!: () => void;
      const answered = new Promise<void>((resolve) => (answer = resolve));
      await queue.enqueue(['a', 'b', 'c', 'd', 'e'].map((id) => due(id, 'silent')));
      await queue.enqueue([due('quick-1', 'quick'), due('quick-2', 'quick')]);
      await queue.consume(async (delivery) => {
        runs.push(delivery.id);
        if (outgoing(delivery).endpointId === 'silent') await answered;
        return { type: 'delivered' };
      });
      await until(() => runs.includes('quick-2'));
      // Looks for due deliveries again.
      await queue.enqueue([due('quick-3', 'quick')]);
      await until(() => runs.includes('quick-3'));

      expect(runs.filter((id) => !id.startsWith('quick'))).toEqual(['a', 'b']);
      answer();
      await until(() => runs.length === 8);
      expect(runs.filter((id) => !id.startsWith('quick'))).toEqual(['a', 'b', 'c', 'd', 'e']);
    });
  });

  it('ignores the outcome of a worker whose lease another worker has taken over', async () => {
    await withQueue({}, async (queue, { schema }) => {
      const runs: string[] = [];
      let finish!: () => void;
      const stale = new Promise<void>((resolve) => (finish = resolve));
      await queue.consume(async ({ id }) => {
        runs.push(id);
        if (id === 'fenced') await stale;
        return { type: 'delivered' };
      });
      await queue.enqueue([due('fenced')]);
      await until(() => runs.length === 1);
      // As if the lease had expired and another process had claimed the job.
      await database.pool.query(
        `UPDATE ${schema}.job SET retry_count = retry_count + 1, started_on = now()`,
      );
      finish();
      // Its outcome is written after that of the stale worker.
      await queue.enqueue([due('after')]);
      await until(async () => (await queue.find(['after']))[0]?.status === 'delivered');

      expect(await queue.find(['fenced'])).toMatchObject([{ status: 'pending', attempts: 0 }]);
    });
  });

  it('removes delivered deliveries past their retention, in batches, and keeps dead ones', async () => {
    // Ahead of the system clock, so that a due delivery is due on both clocks.
    const clock = new TestClock(Date.now() + 60_000);
    await withQueue({ keepDelivered: '10s', clock }, async (queue, { schema }) => {
      const { pool } = database;
      await queue.consume(async ({ id }) =>
        id === 'dead' ? { type: 'dead', reason: 'http_410', attempts: 1 } : { type: 'delivered' },
      );
      const ids = Array.from({ length: 2 * REMOVED_AT_ONCE }, (_, index) => `done-${index}`);
      await queue.enqueue(['dead', ...ids].map((id, index) => due(id, `endpoint-${index % 50}`)));
      const finished = `SELECT FROM ${schema}.job WHERE state IN ('completed', 'failed')`;
      await until(async () => (await pool.query(finished)).rowCount === ids.length + 1);
      await pool.query(
        `UPDATE ${schema}.job SET singleton_on = singleton_on - interval '10 seconds'`,
      );
      while ((await pool.query(finished)).rowCount !== 1) await clock.advance(5_000);

      expect(await queue.find(['dead', ids[0]!])).toMatchObject([{ status: 'dead' }, undefined]);
      expect(await queue.listDead()).toHaveLength(1);
    });
  });

  it('runs a delivery again whose process has stopped renewing its lease', async () => {
    const clock = new TestClock(Date.now());
    await withQueue({ clock }, async (queue, { schema }) => {
      await queue.enqueue([due('abandoned')]);
      await database.pool.query(
        `UPDATE ${schema}.job SET state = 'active', started_on = now(), heartbeat_on = now() - interval '31 s'`,
      );
      const ran = new Promise<number>((resolve) => {
        void queue.consume(async (_, attempt) => {
          resolve(attempt);
          return { type: 'delivered' };
        });
      });
      const { pool } = database;
      const released = `SELECT FROM ${schema}.job WHERE state <> 'active'`;
      while ((await pool.query(released)).rowCount === 0) await clock.advance(1_000);
      await clock.advance(1_000);

      expect(await ran).toBe(1);
    });
  });

  it('uses a pg-boss of the application, and leaves it running', async () => {
    const schema = database.newSchema();
    const boss = await new PgBoss({ connectionString, schema }).start();
    const queue = new PgBossQueue({ boss, schema });
    await queue.enqueue([due('with-boss')]);
    await queue.stop(0);

    const names = (await boss.getQueues()).map(({ name }) => name);
    await boss.stop();

    expect(names).toContain('webhook-deliveries');
  });

  it.each<[string, (url: URL) => Promise<void> | void, RegExp, boolean]>([
    [
      'wrong credentials',
      (url) => void (url.username = 'nobody_of_that_name'),
      /PostgreSQL at 127\.0\.0\.1:5432: it refuses the credentials/,
      true,
    ],
    [
      'an unknown database',
      (url) => void (url.pathname = '/nowhere'),
      /database does not exist/,
      true,
    ],
    [
      'no server',
      async (url) => void (url.port = String(await freePort())),
      /PostgreSQL at 127\.0\.0\.1:\d+: the connection was refused/,
      true,
    ],
    [
      'a missing schema without the privilege to create it',
      () => {},
      /tables of pg-boss are missing/,
      false,
    ],
  ])('reports the problem: %s', async (_, change, message, migrate) => {
    const url = new URL(connectionString);
    url.password = 'not-to-be-shown';
    await change(url);
    const queue = new PgBossQueue({
      connectionString: url.href,
      schema: database.newSchema(),
      migrate,
    });

    const failure: unknown = await Promise.resolve(
      queue.consume(async () => ({ type: 'delivered' })),
    ).catch((error: unknown) => error);
    await queue.stop(0);

    expect(failure).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(message),
      cause: expect.anything(),
    });
    expect(JSON.stringify(failure)).not.toContain('not-to-be-shown');
  });

  it('reports that its schema is behind if it must not migrate it', async () => {
    const schema = database.newSchema();
    const boss = await new PgBoss({ connectionString, schema }).start();
    await boss.stop();
    await database.pool.query(`UPDATE ${schema}.version SET version = version - 1`);
    const queue = new PgBossQueue({ pool: database.pool, schema, migrate: false });

    await expect(queue.enqueue([due('behind')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/npx pg-boss migrate/),
    });
  });

  it('starts while a store creates the same schema', async () => {
    const schema = database.newSchema();
    const store = await database.pool.connect();
    const queue = new PgBossQueue({ pool: database.pool, schema });
    try {
      await store.query('BEGIN');
      await store.query(stepBlock(schema, migrationSteps(schema)[0]!));
      const started = queue.consume(async () => ({ type: 'delivered' }));
      await untilLocked(database.pool, `%CREATE SCHEMA IF NOT EXISTS ${schema}%`);
      await store.query('COMMIT');

      await started;
      expect(await queue.enqueue([due('first')])).toMatchObject([{ status: 'recorded' }]);
    } finally {
      store.release();
      await queue.stop(0);
    }
  });

  it('records deliveries and outcomes once its server is available again', async () => {
    const schema = database.newSchema();
    const server = { isAway: true, refused: 0 };
    const pool = {
      query: async (text: string, values?: unknown[]): Promise<unknown> => {
        if (server.isAway) {
          server.refused++;
          throw Object.assign(new Error('away'), { code: 'ECONNREFUSED' });
        }
        return database.pool.query(text, values);
      },
    };
    const queue = new PgBossQueue({ pool, schema, pollInterval: '100ms' });
    await expect(queue.enqueue([due('away')])).rejects.toMatchObject({ code: 'store_unavailable' });
    server.isAway = false;
    const delivered: string[] = [];
    await queue.enqueue([due('back')]);
    await queue.consume(async ({ id }) => {
      // Unavailable again when the outcome is written.
      if (delivered.push(id) === 1) Object.assign(server, { isAway: true, refused: 0 });
      return { type: 'delivered' };
    });
    await until(() => server.isAway && server.refused > 0);
    server.isAway = false;
    await queue.enqueue([due('again')]);
    await until(() => delivered.length === 2);
    await until(async () => (await queue.find(['back']))[0]?.status === 'delivered');
    await queue.stop(Date.now() + 1_000);

    expect(delivered).toEqual(['back', 'again']);
  });

  it('works without the index that it may not create, and warns of it', async () => {
    const pool = {
      query: async (text: string, values?: unknown[]): Promise<unknown> => {
        if (text.includes('CREATE INDEX IF NOT EXISTS job_common_lane')) {
          throw Object.assign(new Error('must be owner of table job_common'), { code: '42501' });
        }
        return database.pool.query(text, values);
      },
    };
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    try {
      await withQueue({ pool }, async (queue) => {
        expect(await queue.enqueue([due('slow')])).toMatchObject([{ status: 'recorded' }]);
      });

      expect(warn.mock.calls).toEqual([
        [expect.stringMatching(/lacks a privilege/), { code: 'WEBHOOK_QUEUE_INDEX_MISSING' }],
      ]);
      expect(warn.mock.calls[0]![0]).toContain('npx nestjs-webhook-token migrate');
    } finally {
      warn.mockRestore();
    }
  });
});

describe('new PgBossQueue', () => {
  const pool = { query: async () => ({ rows: [] }) };

  it('prints no password', () => {
    const queue = new PgBossQueue({
      connectionString: 'postgresql://shop:hunter2@db.example/shop',
    });

    const printed = inspect(queue, { depth: Infinity, showHidden: true });
    expect(printed).toBe('[PgBossQueue "webhook-deliveries" in PostgreSQL at db.example:5432]');
  });

  it.each<[string, object, string]>([
    ['no database', {}, ''],
    ['two databases', { pool, connectionString }, ''],
    [
      'a connection string of another database',
      { connectionString: 'mysql://a' },
      'connectionString',
    ],
    ['an invalid pool', { pool: {} }, 'pool'],
    ['an invalid pg-boss', { boss: {} }, 'boss'],
    ['a schema that would have to be quoted', { pool, schema: 'Web-Hooks' }, 'schema'],
    ['a concurrency of 0', { pool, concurrency: 0 }, 'concurrency'],
    ['a lease that pg-boss does not support', { pool, lease: '5s' }, 'lease'],
    ['a polling interval of 0', { pool, pollInterval: 1 }, 'pollInterval'],
    ['an invalid duration', { pool, keepDelivered: 'long' }, 'keepDelivered'],
  ])('refuses %s', (_, options, path) => {
    expect(() => new PgBossQueue(options)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: expect.arrayContaining([
          expect.objectContaining({
            path: path === '' ? 'PgBossQueue' : `PgBossQueue.${path}`,
          }),
        ]),
      }),
    );
  });
});
