import { afterAll, describe, expect, it, jest } from '@jest/globals';
import { SystemClock } from 'nestjs-webhook-token/ports';
import { TestClock } from 'nestjs-webhook-token/testing';
import { Database } from '../../lib/postgres/database.js';
import { DatabaseQueue } from '../../lib/postgres/database.queue.js';
import type { QueueHost } from '../../lib/postgres/queue-connection.js';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { resolveDatabaseQueueOptions } from '../../lib/postgres/queue-options.js';
import { Gate } from '../fixtures/gate.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase, until } from './database.js';
import { due, dueReceived } from './deliveries.js';

const HOUR = 3_600_000;

/** A database that accepts connections and fails before its queue is open. */
class FlappingHost implements QueueHost {
  readonly shared = false;
  readonly schema = 'webhooks';
  readonly migrates = false;
  readonly server = 'PostgreSQL';
  /** Number of open connections. */
  left = 0;
  opened = 0;

  async open(): Promise<Database> {
    this.opened++;
    this.left++;
    const query = async (): Promise<never> => {
      throw Object.assign(new Error('read ECONNRESET'), { code: 'ECONNRESET' });
    };
    return new Database({ query }, new SystemClock());
  }

  async close(): Promise<void> {
    this.left--;
  }
}

class FlappingQueue extends DatabaseQueue {
  constructor(host: QueueHost) {
    const options = { name: 'flapping', lease: 30_000, pollInterval: 1_000, timeout: 5_000 };
    const more = { notify: true, keepDelivered: 96 * HOUR, keepDead: undefined, concurrency: 1 };
    const none = {
      keepPayloads: undefined,
      concurrencyPerDestination: undefined,
      clock: undefined,
    };
    super(host, resolveDatabaseQueueOptions({ ...options, ...more, ...none }));
  }
}

describe('a queue whose connection is lost while it is opened', () => {
  it('leaves nothing open, however often it is tried', async () => {
    const host = new FlappingHost();
    const queue = new FlappingQueue(host);
    for (let round = 0; round < 3; round++) {
      await expect(queue.enqueue([due('one')])).rejects.toMatchObject({
        code: 'store_unavailable',
      });
    }

    expect(host.left).toBe(0);
  });
});

describe('a queue that is stopped before it was opened', () => {
  it('opens no connection, which nothing would close', async () => {
    const host = new FlappingHost();
    const queue = new FlappingQueue(host);
    await queue.stop(0);

    await expect(queue.find(['one'])).rejects.toMatchObject({ code: 'shutting_down' });
    expect(host.opened).toBe(0);
  });
});

(await describeWith('PostgreSQL'))('a queue with a damaged record', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('defers it with a warning, and attempts the rest', async () => {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool: database.pool, schema, concurrency: 1 });
    const rejections: unknown[] = [];
    const note = (reason: unknown): void => void rejections.push(reason);
    process.on('unhandledRejection', note);
    try {
      await queue.enqueue([due('damaged')]);
      await database.pool.query(`UPDATE ${schema}.delivery SET details = 'null'`);
      await queue.enqueue([due('good')]);
      const given = new Promise((resolve) => {
        void queue.consume(async ({ id }) => {
          resolve(id);
          return { outcome: { type: 'delivered' } };
        });
      });

      expect(await given).toBe('good');
      const statement = `SELECT FROM ${schema}.delivery WHERE leased_until = '-infinity' AND throws > 0`;
      await until(async () => (await database.pool.query(statement)).rowCount === 1);
      expect(rejections).toEqual([]);
      expect(warn.mock.calls).toContainEqual([
        expect.stringMatching(
          /^The delivery \S+ in PostgreSQL at \S+ cannot be read.*delete the row/s,
        ),
        { code: 'WEBHOOK_QUEUE_ERROR' },
      ]);
    } finally {
      warn.mockRestore();
      process.off('unhandledRejection', note);
      await queue.stop(0);
    }
  });
});

(await describeWith('PostgreSQL'))('a received event whose run has recorded no outcome', () => {
  const database = new TestDatabase();
  const { pool } = database;
  afterAll(async () => database.close());

  it('counts the run if its process died, unlike the attempt of a delivery', async () => {
    const clock = new TestClock(Date.now() + 60_000);
    const options = { pool, schema: database.newSchema(), clock, notify: false };
    const [dying, next] = [new PostgresQueue(options), new PostgresQueue(options)];
    const started: string[] = [];
    await dying.consume(async ({ id }) => {
      started.push(id);
      return new Promise(() => {});
    });
    await dying.enqueue([dueReceived('received'), due('sent')]);
    await until(() => started.length === 2);
    await dying.stop(0);
    await clock.advance(60_000);
    const runs = new Map<string, number>();
    await next.consume(async ({ id }, attempt) => {
      runs.set(id, attempt);
      return { outcome: { type: 'defer', at: clock.now() + HOUR } };
    });
    await until(() => runs.size === 2);

    expect(Object.fromEntries(runs)).toEqual({ received: 2, sent: 1 });
    expect(await next.find(['received', 'sent'])).toMatchObject([{ attempts: 1 }, { attempts: 0 }]);
    await next.stop(clock.now() + 5_000);
  });

  it('runs again after a shutdown that it outlived, without a warning', async () => {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const clock = new TestClock(Date.now() + 60_000);
    const options = { pool, schema: database.newSchema(), clock, notify: false };
    const [stopping, next] = [new PostgresQueue(options), new PostgresQueue(options)];
    const gate = new Gate();
    const done = { outcome: { type: 'delivered' } } as const;
    try {
      await stopping.consume(async () => gate.pass().then(() => done));
      await stopping.enqueue([due('sent')]);
      await gate.reached;
      const left = await stopping.stop(0);
      gate.open();
      await clock.advance(60_000);
      const again = new Promise((resolve) => {
        void next.consume(async ({ id }, attempt) => {
          resolve([id, attempt]);
          return done;
        });
      });

      expect([left, await again]).toEqual([1, ['sent', 1]]);
      const codes = warn.mock.calls.map(([, options]) => options);
      expect(codes).not.toContainEqual({ code: 'WEBHOOK_QUEUE_ERROR' });
    } finally {
      warn.mockRestore();
      await next.stop(clock.now() + 5_000);
    }
  });

  it('does not count the run if its process lives, and has lost its lease', async () => {
    const clock = new TestClock(Date.now() + 60_000);
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool, schema, clock, notify: false });
    const runs: number[] = [];
    const gate = new Gate();
    await queue.consume(async (_, attempt) => {
      if (runs.push(attempt) === 1) await gate.pass();
      return { outcome: { type: 'retry', at: clock.now() + HOUR, reason: 'handler_failed' } };
    });
    await queue.enqueue([dueReceived('received')]);
    await until(() => runs.length === 1);
    await pool.query(`UPDATE ${schema}.delivery SET leased_until = '2000-01-01'`);
    await queue.enqueue([dueReceived('other')]);
    await until(async () => (await queue.find(['received']))[0]!.reason !== undefined);
    await until(() => runs.length === 3);

    expect(runs).toEqual([1, 1, 1]);
    expect(await queue.find(['received'])).toMatchObject([{ attempts: 1 }]);
    gate.open();
    await queue.stop(clock.now() + 5_000);
  });
});
