import { afterAll, describe, expect, it, jest } from '@jest/globals';
import { Pool } from 'pg';
import { TestClock } from 'nestjs-webhook-token/testing';
import { PostgresQueue, type PostgresQueueOptions } from '../../lib/postgres/postgres.queue.js';
import { QueueNotifications } from '../../lib/postgres/queue-notifications.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due } from './deliveries.js';

(await describeWith('PostgreSQL'))('a process that waits for deliveries of others', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  const listeners = async (schema: string): Promise<number[]> => {
    const { rows } = await database.pool.query<{ pid: number }>(
      `SELECT pid FROM pg_stat_activity WHERE query IN ('LISTEN ${schema}_deliveries', 'LISTEN "${schema}_deliveries"')`,
    );
    return rows.map(({ pid }) => pid);
  };

  async function withProcesses(
    change: Partial<PostgresQueueOptions>,
    test: (processes: {
      readonly publishing: PostgresQueue;
      readonly handled: readonly string[];
      readonly schema: string;
    }) => Promise<void>,
  ): Promise<void> {
    const schema = database.newSchema();
    const publishing = new PostgresQueue({ pool: database.pool, schema });
    await publishing.enqueue([due('first')]);
    const handled: string[] = [];
    // No poll happens during the test.
    const waiting = new PostgresQueue({ schema, pollInterval: '1h', ...change });
    try {
      await waiting.consume(async ({ id }) => {
        handled.push(id);
        return { outcome: { type: 'delivered' } };
      });
      await until(() => handled.includes('first'));
      await test({ publishing, handled, schema });
    } finally {
      await Promise.all([publishing.stop(0), waiting.stop(Date.now() + 5_000)]);
    }
  }

  it.each<[string, Partial<PostgresQueueOptions>]>([
    ['a connection string', { connectionString: urlOf('PostgreSQL') }],
    ['a pool', { pool: database.pool }],
  ])('with %s attempts them when they are committed', async (_, source) => {
    await withProcesses(source, async ({ publishing, handled, schema }) => {
      await until(async () => (await listeners(schema)).length === 1);
      await publishing.enqueue([due('recorded')]);
      await until(() => handled.includes('recorded'));

      const client = await database.pool.connect();
      await client.query('BEGIN');
      await publishing.enqueue([due('in-transaction')], { tx: client });
      await client.query('COMMIT');
      client.release();
      await until(() => handled.includes('in-transaction'));
      expect(handled).toEqual(['first', 'recorded', 'in-transaction']);
    });
  });

  it('attempts them when they are redelivered', async () => {
    await withProcesses({ pool: database.pool }, async ({ publishing, handled, schema }) => {
      await until(async () => (await listeners(schema)).length === 1);
      const notBefore = Date.now() + 7_200_000;
      await publishing.enqueue([{ ...due('later'), notBefore }]);
      expect(await publishing.redeliver(['later'])).toEqual(['later']);

      await until(() => handled.includes('later'));
    });
  });

  it('listens again after its connection was lost', async () => {
    const source = { connectionString: urlOf('PostgreSQL') };
    await withProcesses(source, async ({ publishing, handled, schema }) => {
      await until(async () => (await listeners(schema)).length === 1);
      const [lost] = await listeners(schema);
      await database.pool.query('SELECT pg_terminate_backend($1)', [lost]);
      await publishing.enqueue([due('missed')]);

      await until(() => handled.includes('missed'));
      expect(handled).toEqual(['first', 'missed']);
    });
  });

  it('polls if its pool has only one connection, and warns once', async () => {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const pool = new Pool({ connectionString: urlOf('PostgreSQL'), max: 1 });
    try {
      const source = { pool, pollInterval: '100ms' };
      await withProcesses(source, async ({ publishing, handled, schema }) => {
        await publishing.enqueue([due('polled')]);
        await until(() => handled.includes('polled'));
        expect(await listeners(schema)).toEqual([]);
      });
      const code = 'WEBHOOK_QUEUE_NOTIFY_UNSUPPORTED';
      const warnings = warn.mock.calls.filter(
        ([, options]) => (options as unknown as { code: string }).code === code,
      );
      expect(warnings).toEqual([
        [expect.stringMatching(/only one connection; it polls instead\. Raise max /), { code }],
      ]);
    } finally {
      warn.mockRestore();
      await pool.end();
    }
  });

  it('does not listen if notify is off', async () => {
    const isOff = { pool: database.pool, notify: false };
    await withProcesses(isOff, async ({ schema }) => {
      expect(await listeners(schema)).toEqual([]);
    });
  });
});

describe('notifications of a database', () => {
  /** A database whose connections can forward notifications or drop them, and be lost. */
  class ScriptedDatabase {
    passesOn = true;
    lose: () => void = () => {};
    open = 0;
    subscriptions = 0;
    woken = 0;
    unsupported = 0;
    readonly clock = new TestClock();
    readonly notifications = new QueueNotifications({
      notify: async (id) => {
        await this.frozen;
        if (this.passesOn) this.receive(id);
      },
      listen: async (receive, onLost) => {
        await this.connecting;
        this.receive = receive;
        this.lose = onLost;
        this.open++;
        this.subscriptions++;
        return async () => void this.open--;
      },
      name: 'webhook-deliveries',
      onUnsupported: () => this.unsupported++,
      onNotification: () => this.woken++,
      clock: this.clock,
    });
    private receive: (payload: string) => void = () => {};
    private frozen: Promise<void> | undefined;
    private connecting: Promise<void> | undefined;

    /** Answers nothing until statements fail and new connections succeed. */
    freeze(): { readonly fail: () => void; readonly connect: () => void } {
      let fail!: () => void;
      let connect!: () => void;
      this.frozen = new Promise((_, reject) => {
        fail = () => reject(new Error('timeout expired'));
      });
      this.connecting = new Promise((resolve) => (connect = resolve));
      return {
        fail: () => {
          fail();
          this.frozen = undefined;
        },
        connect,
      };
    }
  }

  it('are given up on a connection that never forwards them, and reported once', async () => {
    const database = new ScriptedDatabase();
    const { clock, notifications } = database;
    database.passesOn = false;
    notifications.start();
    await clock.advance(4_999);
    expect(database).toMatchObject({ open: 1, unsupported: 0 });
    await clock.advance(3_600_000);
    await notifications.stop();

    // Each LISTEN would stay on a connection that the pooler gives to others.
    expect(database).toMatchObject({ open: 0, subscriptions: 1, unsupported: 1 });
  });

  it('are subscribed to again after the connection was lost during the first test', async () => {
    const database = new ScriptedDatabase();
    const { clock, notifications } = database;
    database.passesOn = false;
    notifications.start();
    await clock.advance(1_000);
    database.lose();
    database.passesOn = true;
    await clock.advance(3_600_000);

    expect(database).toMatchObject({ open: 1, subscriptions: 2, unsupported: 0 });
    await notifications.stop();
    expect(database.open).toBe(0);
  });

  it('use one connection if it is lost while a test of it waits for the server', async () => {
    const database = new ScriptedDatabase();
    const { clock, notifications } = database;
    notifications.start();
    await clock.advance(0);
    const { fail, connect } = database.freeze();
    await clock.advance(30_000);
    database.lose();
    await clock.advance(1_000);
    fail();
    await clock.advance(1_000);
    connect();
    await clock.advance(3_600_000);

    expect(database.open).toBe(1);
    await notifications.stop();
    expect(database.open).toBe(0);
  });

  it('are subscribed to again when they no longer arrive', async () => {
    const database = new ScriptedDatabase();
    const { clock, notifications } = database;
    notifications.start();
    await clock.advance(3_600_000);
    expect(database).toMatchObject({ open: 1, subscriptions: 1, woken: 1 });
    database.passesOn = false;
    await clock.advance(35_000);
    database.passesOn = true;
    await clock.advance(1_000);

    // It also claims the deliveries whose notifications it missed.
    expect(database).toMatchObject({ open: 1, subscriptions: 2, woken: 2 });
    await notifications.stop();
    expect(database.open).toBe(0);
  });
});
