import { setTimeout as sleep } from 'node:timers/promises';
import { inspect } from 'node:util';
import { afterAll, describe, expect, it, jest } from '@jest/globals';
import { Pool, types } from 'pg';
import { TestClock, webhookQueueContract } from 'nestjs-webhook-token/testing';
import { type PostgresPool, PostgresQueue } from '../../lib/postgres/index.js';
import type { PostgresQueueOptions } from '../../lib/postgres/postgres.queue.js';
import { DELETED_AT_ONCE } from '../../lib/postgres/queue-upkeep.js';
import { migrationSteps } from '../../lib/postgres/migrations/migration-steps.js';
import { stepBlock } from '../../lib/postgres/migrations/schema.migrator.js';
import type { OutgoingDelivery } from 'nestjs-webhook-token/ports';
import { outgoing } from '../fixtures/outgoing.js';
import { describeContract } from '../fixtures/contract.js';
import { freePort } from '../fixtures/free-port.js';
import { runsAfterEndedPause, runsAfterReplacedLimit } from '../fixtures/replaced-limit.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase, until, untilLocked } from './database.js';
import { due, dueAtUrl, large } from './deliveries.js';

const DAY = 24 * 3_600_000;

const connectionString = urlOf('PostgreSQL');

(await describeWith('PostgreSQL'))('PostgresQueue', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  const { pool } = database;
  let queues = 0;
  // One schema, each case with its own queue.
  const schemaOfCases = database.newSchema();
  const contract = webhookQueueContract({
    create: async () =>
      new PostgresQueue({ pool, schema: schemaOfCases, name: `case-${queues++}` }),
    createDropping: (clock, keepPayloads) =>
      new PostgresQueue({
        pool,
        schema: schemaOfCases,
        name: `case-${queues++}`,
        clock,
        keepPayloads,
      }),
    advance: (ms) => sleep(ms),
    expireLease: async (_, id) => {
      const expire = `UPDATE ${schemaOfCases}.delivery SET leased_until = now() WHERE id = $1`;
      await pool.query(expire, [id]);
    },
  });
  describeContract(contract, 6);

  async function withQueue(
    change: Partial<PostgresQueueOptions>,
    test: (queue: PostgresQueue, options: PostgresQueueOptions) => Promise<void>,
  ): Promise<void> {
    const options = { pool: database.pool, schema: database.newSchema(), ...change };
    const queue = new PostgresQueue(options);
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
      // Rows that are written again move to the end of the table.
      const rewrite = `UPDATE ${schema}.delivery SET event = event || id WHERE seq % 3 = 0`;
      await pool.query(rewrite);
      const started: string[] = [];
      await queue.consume(async ({ id }) => {
        started.push(id);
        return { outcome: { type: 'delivered' } };
      });
      await until(() => started.length === ids.length);

      expect(started).toEqual(ids);
    });
  });

  it('records deliveries although transactions are serializable by default', async () => {
    const options = '-c default_transaction_isolation=serializable';
    const serializable = new Pool({ connectionString, options, max: 2 });
    await withQueue({ pool: serializable }, async (queue, { schema }) => {
      await queue.enqueue([due('first')]);
      // As PostgreSQL does under load.
      await pool.query(
        `CREATE FUNCTION ${schema}.conflict() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
           IF current_setting('transaction_isolation') = 'serializable' THEN
             RAISE EXCEPTION 'could not serialize access' USING ERRCODE = '40001';
           END IF;
           RETURN NEW;
         END $$;
         CREATE TRIGGER conflict BEFORE INSERT ON ${schema}.delivery
           FOR EACH ROW EXECUTE FUNCTION ${schema}.conflict()`,
      );

      expect(await queue.enqueue([due('second')])).toEqual([undefined]);
    });
    await serializable.end();
  });

  it('records deliveries although backslashes in strings are escapes by default', async () => {
    const options = '-c standard_conforming_strings=off';
    const escaping = new Pool({ connectionString, options, max: 2 });
    await withQueue({ pool: escaping }, async (queue) => {
      expect(await queue.enqueue([due('escaped')])).toEqual([undefined]);
    });
    await escaping.end();
  });

  it('does not record the outcome of a delivery that a restored database no longer has', async () => {
    await withQueue({}, async (queue, options) => {
      let answer!: () => void;
      const answered = new Promise<void>((resolve) => (answer = resolve));
      let isRunning = false;
      await queue.consume(async () => {
        isRunning = true;
        await answered;
        return { outcome: { type: 'delivered' } };
      });
      await queue.enqueue([due('before')]);
      await until(() => isRunning);
      // The sequence of the table starts again, and another process has claimed the new delivery as often.
      await pool.query(`UPDATE ${options.schema}.delivery SET id = 'after'`);
      answer();
      await queue.stop(Date.now() + 60_000);

      await withQueue(options, async (other) => {
        expect(await other.find(['after'])).toMatchObject([{ status: 'pending' }]);
      });
    });
  });

  it('records the outcomes beside one that PostgreSQL refuses', async () => {
    const clock = new TestClock(Date.now() + 60_000);
    // The clock runs ahead of the statements.
    const slow = { lease: '10m', timeout: '3m' } as const;
    await withQueue({ clock, ...slow }, async (queue, { schema }) => {
      const ids = ['first', 'refused', 'beside'];
      await queue.enqueue(ids.map((id) => due(id, id)));
      const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
      await pool.query(`ALTER TABLE ${schema}.attempt ADD CHECK (answer <> 'refused')`);
      let answer!: () => void;
      const answered = new Promise<void>((resolve) => (answer = resolve));
      const runs: string[] = [];
      await queue.consume(async ({ id }, attempt) => {
        runs.push(id);
        await answered;
        return {
          outcome: { type: 'delivered' },
          attempt: { attempt, at: clock.now(), method: 'POST', durationMs: 1, answer: id },
        };
      });
      await until(() => runs.length === ids.length);
      answer();
      const statuses = async (): Promise<unknown[]> =>
        (await queue.find(ids)).map((record) => record?.status);
      const start = clock.now();
      await until(async () => {
        await clock.advance(1_000);
        return (await statuses())[2] === 'delivered';
      });
      const took = clock.now() - start;
      // It is given up after a lease, and runs again.
      await until(async () => {
        await clock.advance(5_000);
        return runs.length > ids.length;
      });
      await pool.query(`ALTER TABLE ${schema}.attempt DROP CONSTRAINT attempt_answer_check`);
      await until(async () => {
        await clock.advance(5_000);
        return (await statuses())[1] === 'delivered';
      });
      const warnings = warn.mock.calls.map(([message]) => String(message));
      warn.mockRestore();

      expect(took).toBeLessThan(300_000);
      expect(runs.slice(ids.length)).toEqual(['refused']);
      expect(warnings.filter((message) => message.includes('code 23514'))).toHaveLength(1);
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
            return { outcome: { type: 'delivered' } };
          });
        });
        expect(await given).toBe(dueAtUrl('url').delivery.url);
      });
    });
  });

  it('sends the payload of an event to the database once for all of its deliveries', async () => {
    const statements: [string, unknown[]][] = [];
    await withQueue({ pool: recordingPool(pool, statements) }, async (queue) => {
      const [first, other] = [large('a', 100_000), due('other')];
      const shared = ['b', 'c'].map((id) => {
        const delivery = { ...first.delivery, id, orderingKey: 'order' };
        return { ...first, delivery };
      });
      const empty = { ...other.delivery.payload, bytes: undefined };
      const without = { ...other, delivery: { ...other.delivery, id: 'none', payload: empty } };
      const items = [first, other, without, ...shared];
      await queue.enqueue(items);
      const found = await queue.find(items.map(({ delivery }) => delivery.id));

      expect(found.map((record) => record!.delivery.payload)).toEqual(
        items.map(({ delivery }) => delivery.payload),
      );
      expect(JSON.stringify(statements).length).toBeLessThan(200_000);
    });
  });

  it('gives each delivery of a shared schema to one process', async () => {
    await withQueue({}, async (first, options) => {
      await withQueue(options, async (second) => {
        const runs: string[] = [];
        const handler = async ({ id }: { id: string }) => {
          runs.push(id);
          return { outcome: { type: 'delivered' } } as const;
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
        return { outcome: { type: 'delivered' } };
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
        return { outcome: { type: 'delivered' } };
      });
      await queue.enqueue([due('fenced')]);
      await until(() => runs.length === 1);
      // As if the lease had expired and another process had claimed the delivery.
      await database.pool.query(
        `UPDATE ${schema}.delivery SET claim = claim + 1, leased_until = now() + interval '1 h'`,
      );
      finish();
      // Its outcome is written after that of the stale worker.
      await queue.enqueue([due('after')]);
      await until(async () => (await queue.find(['after']))[0]?.status === 'delivered');

      expect(await queue.find(['fenced'])).toMatchObject([{ status: 'pending', attempts: 0 }]);
    });
  });

  it('deletes delivered deliveries past their retention, in batches, and keeps dead ones', async () => {
    const clock = new TestClock(Date.now());
    await withQueue({ keepDelivered: '10s', clock }, async (queue, { schema }) => {
      await queue.consume(async ({ id }, attempt) => ({
        outcome:
          id === 'dead' ? { type: 'dead', reason: 'http_410', attempts: 1 } : { type: 'delivered' },
        attempt: { attempt, at: clock.now(), durationMs: 1 },
      }));
      const ids = Array.from({ length: 2 * DELETED_AT_ONCE }, (_, index) => `done-${index}`);
      const notBefore = clock.now();
      const all = ['dead', ...ids].map((id, index) => due(id, `endpoint-${index % 50}`));
      await queue.enqueue(all.map((item) => ({ ...item, notBefore })));
      const unfinished = async () =>
        (await queue.counts({ unfinished: true })).some((c) => c.pending > 0);
      while (await unfinished()) await clock.advance(10);
      clock.set(clock.now() + 10_000);
      const left = async () => (await pool.query(`SELECT FROM ${schema}.attempt`)).rowCount;
      while ((await left()) !== 1) await clock.advance(5_000);

      expect(await queue.find(['dead', ids[0]!])).toMatchObject([{ status: 'dead' }, undefined]);
      expect(await queue.list({}, { limit: 10 })).toHaveLength(1);
    });
  });

  it('deletes dead deliveries past their retention, but none that blocks its key', async () => {
    const clock = new TestClock(Date.now());
    await withQueue({ keepDead: '1h', clock }, async (queue, { schema }) => {
      await queue.consume(async ({ id }, attempt) => ({
        outcome: { type: 'dead', reason: 'http_410', attempts: 1, blocksKey: id === 'blocking' },
        attempt: { attempt, at: clock.now(), durationMs: 1 },
      }));
      const at = clock.now();
      const items = [due('old'), due('blocking'), due('young')].map((item, index) => ({
        ...item,
        notBefore: at,
        delivery: {
          ...item.delivery,
          createdAt: index === 2 ? at : at - 3_600_000,
          ...(index === 1 && { orderingKey: 'key' }),
        },
      }));
      await queue.enqueue(items);
      const pending = async () =>
        (await queue.counts({ unfinished: true })).some((c) => c.pending > 0);
      while (await pending()) await clock.advance(10);
      while ((await queue.find(['old']))[0] !== undefined) await clock.advance(5_000);

      expect(await queue.find(['blocking', 'young'])).toMatchObject([
        { status: 'dead', keyState: 'blocking' },
        { status: 'dead' },
      ]);
      expect((await pool.query(`SELECT FROM ${schema}.attempt`)).rowCount).toBe(2);
    });
  });

  it('drops payloads in batches, while no other process does', async () => {
    const clock = new TestClock(Date.now());
    const count = 2 * DELETED_AT_ONCE + 1;
    await withQueue({ keepPayloads: '1h', clock }, async (queue, { schema }) => {
      await queue.enqueue([due('young')]);
      await pool.query(
        `INSERT INTO ${schema}.delivery (queue, id, event_id, event, lane, details, status, due_at, created_at, updated_at, payload)
         SELECT 'webhook-deliveries', 'done-' || n, 'v', 'order.created', 'lane', '{}', 'delivered', $1, $1, $1, 'data'
         FROM generate_series(1, ${count}) AS n`,
        [new Date(clock.now() - 3_600_000)],
      );
      const dropped = async () => {
        const counted = `SELECT FROM ${schema}.delivery WHERE payload_dropped AND payload IS NULL`;
        return (await pool.query(counted)).rowCount;
      };
      const other = await pool.connect();
      const retention = `${schema}.delivery_retention`;
      await other.query(`INSERT INTO ${retention} (queue) VALUES ('webhook-deliveries')`);
      await other.query('BEGIN');
      await other.query(`SELECT FROM ${retention} FOR UPDATE`);
      await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      for (let upkeeps = 0; upkeeps < 5; upkeeps += 1) await clock.advance(60_000);
      const meanwhile = await dropped();
      await other.query('COMMIT');
      other.release();
      while ((await dropped()) !== count) await clock.advance(5_000);

      expect(meanwhile).toBe(0);
      expect((await queue.find(['young']))[0]!.delivery.payload.bytes).toBeDefined();
    });
  });

  it('drops payloads that were delivered after a clock that was ahead', async () => {
    const ahead = new TestClock(Date.now() + 3_600_000);
    const deliverAndDrop = async (queue: PostgresQueue, id: string, clock: TestClock) => {
      await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      await queue.enqueue([{ ...due(id), notBefore: clock.now() }]);
      let seconds = 0;
      for (; seconds < 1_200; seconds += 5) {
        if ((await queue.find([id]))[0]?.payloadDropped === true) return true;
        await clock.advance(5_000);
      }
      return false;
    };
    await withQueue({ keepPayloads: '1m', clock: ahead }, async (first, options) => {
      expect(await deliverAndDrop(first, 'ahead', ahead)).toBe(true);
      await first.stop(0);
      const clock = new TestClock(Date.now());
      const second = new PostgresQueue({ ...options, clock });
      expect(await deliverAndDrop(second, 'right', clock)).toBe(true);
      await second.stop(0);
    });
  });

  it('is consumed once', async () => {
    await withQueue({}, async (queue) => {
      const handler = async () => ({ outcome: { type: 'delivered' } }) as const;
      await queue.consume(handler);

      await expect(queue.consume(handler)).rejects.toThrow('already serves another publisher');
      await queue.stop(0);
      await expect(queue.consume(handler)).rejects.toThrow('was stopped with the application');
    });
  });

  it('forgets a key that was not used for 30 days, and never repeats one of its numbers', async () => {
    const clock = new TestClock(Date.now());
    await withQueue({ keepDelivered: '1h', clock }, async (queue, { schema }) => {
      const publish = async (id: string, orderingKey: string): Promise<number> => {
        const { delivery } = due(id);
        const item = { delivery: { ...delivery, orderingKey }, notBefore: clock.now() };
        await queue.enqueue([item]);
        const [record] = await queue.find([id]);
        return (record!.delivery as OutgoingDelivery).sequence!;
      };
      const keys = async () => {
        const { rows } = await pool.query<{ key: string }>(
          `SELECT ordering_key AS key FROM ${schema}.delivery_key ORDER BY 1`,
        );
        return rows.map(({ key }) => key);
      };
      const first = [await publish('a-1', 'used'), await publish('a-2', 'unused')];
      clock.set(clock.now() + 29 * DAY);
      const second = await publish('b-1', 'used');
      clock.set(clock.now() + DAY);
      await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      while ((await keys()).length > 1) await clock.advance(1_000);
      const kept = await keys();
      const third = [await publish('c-1', 'used'), await publish('c-2', 'unused')];

      expect(kept).toEqual(['used']);
      expect([second, third[0]]).toEqual([first[0]! + 1, first[0]! + 2]);
      expect(third[1]).toBeGreaterThan(first[1]!);
    });
  });

  it('applies a limit again that another process has replaced meanwhile', async () => {
    const schema = database.newSchema();
    const open = (options: object) => new PostgresQueue({ pool, schema, ...options });

    expect(await runsAfterReplacedLimit(open)).toBe(1);
  });

  it('delivers the next event of a key to a limited endpoint at once, however rarely it polls', async () => {
    await withQueue({ pollInterval: '1h' }, async (queue) => {
      const ids = ['first', 'second', 'third'];
      const items = ids.map((id) => {
        const { delivery, notBefore } = due(id);
        return {
          delivery: { ...delivery, orderingKey: 'key' },
          notBefore,
          limits: { concurrency: 2 },
        };
      });
      await queue.enqueue(items);
      const ran: string[] = [];
      await queue.consume(async ({ id }) => {
        ran.push(id);
        return { outcome: { type: 'delivered' } };
      });
      await until(() => ran.length === ids.length);

      expect(ran).toEqual(ids);
    });
  });

  it('delivers soon when a process that delivers nothing ends a pause', async () => {
    const schema = database.newSchema();

    const paused = `SELECT FROM ${schema}.delivery_limit WHERE paused_until > 0`;
    const isPaused = async () => (await pool.query(paused)).rowCount === 1;

    await runsAfterEndedPause(() => new PostgresQueue({ pool, schema }), isPaused);
  });

  it('forgets limits that were not used for 30 days, but none that deliveries wait for', async () => {
    const clock = new TestClock(Date.now());
    await withQueue({ keepDelivered: '1h', clock }, async (queue, { schema }) => {
      const limits = { concurrency: 1 };
      const later = clock.now() + 60 * DAY;
      await queue.enqueue([
        { ...due('done', 'idle'), notBefore: clock.now(), limits },
        { ...due('waits', 'busy'), notBefore: later, limits },
      ]);
      await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      const status = async (id: string) => (await queue.find([id]))[0]?.status;
      while ((await status('done')) !== 'delivered') await clock.advance(10);
      const lanes = async () => {
        const { rows } = await pool.query(
          `SELECT lane FROM ${schema}.delivery_limit ORDER BY lane`,
        );
        return rows.map(({ lane }: { lane: string }) => JSON.parse(lane) as unknown);
      };
      const before = await lanes();
      // The jump would end a statement that frees the slot: the timeout of a statement is measured by this clock too.
      await until(async () => {
        const used = `SELECT FROM ${schema}.delivery_limit WHERE running <> '{}'`;
        return (await pool.query(used)).rowCount === 0;
      });
      clock.set(clock.now() + 31 * DAY);
      // In steps shorter than that timeout.
      while ((await lanes()).length > 1) await clock.advance(1_000);
      const after = await lanes();
      // As a transaction records it that still sees the limits.
      await queue.enqueue([{ ...due('late', 'idle'), notBefore: later }]);
      await pool.query(
        `UPDATE ${schema}.delivery SET limited = true, due_at = $1 WHERE id = 'late'`,
        [new Date(clock.now())],
      );
      while ((await status('late')) !== 'delivered') await clock.advance(1_000);
      await queue.enqueue([{ ...due('again', 'idle'), notBefore: later, limits }]);

      expect(before).toEqual([
        ['busy', null],
        ['idle', null],
      ]);
      expect(after).toEqual([['busy', null]]);
      expect(await lanes()).toEqual(before);
    });
  });

  it('runs a delivery again whose process has stopped renewing its lease', async () => {
    await withQueue({ pollInterval: '100ms' }, async (queue, { schema }) => {
      await queue.enqueue([due('abandoned')]);
      await pool.query(
        `UPDATE ${schema}.delivery SET claim = 1, leased_until = now() + interval '300 ms'`,
      );
      const ran = new Promise<number>((resolve) => {
        void queue.consume(async (_, attempt) => {
          resolve(attempt);
          return { outcome: { type: 'delivered' } };
        });
      });

      expect(await ran).toBe(1);
    });
  });

  it('renews the leases of running attempts by its own clock', async () => {
    const clock = new TestClock(Date.now());
    await withQueue({ clock, lease: '30s' }, async (queue, { schema }) => {
      let finish!: () => void;
      const finished = new Promise<void>((resolve) => (finish = resolve));
      const runs: string[] = [];
      await queue.consume(async ({ id }) => {
        runs.push(id);
        await finished;
        return { outcome: { type: 'delivered' } };
      });
      await queue.enqueue([{ ...due('long'), notBefore: clock.now() }]);
      await until(() => runs.length === 1);
      const lease = async () => {
        const { rows } = await pool.query<{ until: Date }>(
          `SELECT leased_until AS until FROM ${schema}.delivery`,
        );
        return rows[0]!.until.getTime();
      };
      for (let round = 0; round < 10; round++) {
        await clock.advance(10_000);
        await until(async () => (await lease()) > clock.now() + 10_000);
      }
      finish();
      await until(async () => (await queue.find(['long']))[0]?.status === 'delivered');

      expect(runs).toEqual(['long']);
    });
  });

  it('records an outcome once if its write is repeated after a redelivery', async () => {
    const statements: [string, unknown[]][] = [];
    await withQueue({ pool: recordingPool(pool, statements) }, async (queue) => {
      let runs = 0;
      await queue.consume(async (_, attempt) =>
        ++runs === 1
          ? { outcome: { type: 'dead', reason: 'http_500', attempts: attempt } }
          : { outcome: { type: 'retry', at: Date.now() + 3_600_000, reason: 'dns' } },
      );
      await queue.enqueue([due('repeated')]);
      await until(async () => (await queue.find(['repeated']))[0]?.status === 'dead');
      await queue.redeliver(['repeated']);
      await until(async () => (await queue.find(['repeated']))[0]?.attempts === 1 && runs === 2);
      const settles = statements.filter(
        ([text]) => text.includes('INSERT INTO') && text.includes('.attempt'),
      );
      for (const [text, values] of settles) await pool.query(text, values);

      expect(await queue.find(['repeated'])).toMatchObject([{ status: 'pending', reason: 'dns' }]);
    });
  });

  it('stores a received event whose claims PostgreSQL cannot store as text', async () => {
    await withQueue({}, async (queue) => {
      const { delivery, notBefore } = due('strange');
      const { endpointId: _, ...rest } = delivery;
      const claims = { iss: 'a\0b', jti: '\ud800', iat: 1, exp: 2, webhook: { event: 'x\0' } };
      const received = {
        receiver: 'shop',
        claims,
        method: 'POST',
        profile: 'webhook-token',
        bodyVerified: true,
      } as const;
      const strange = { ...rest, eventId: '\ud800\0', event: 'x\0', received };
      await queue.enqueue([{ delivery: strange, notBefore }]);
      const [record] = await queue.find(['strange']);

      expect(record!.delivery).toEqual(strange);
      expect(await queue.list({ eventId: '\0' }, { limit: 1 })).toEqual([]);
    });
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
      /run npx nestjs-webhook-token migrate/,
      false,
    ],
  ])('reports the problem: %s', async (_, change, message, migrate) => {
    const url = new URL(connectionString);
    url.password = 'not-to-be-shown';
    await change(url);
    const queue = new PostgresQueue({
      connectionString: url.href,
      schema: database.newSchema(),
      migrate,
    });

    const failure: unknown = await Promise.resolve(
      queue.consume(async () => ({ outcome: { type: 'delivered' } })),
    ).catch((error: unknown) => error);
    await queue.stop(0);

    expect(failure).toMatchObject({
      code: migrate ? 'store_unavailable' : 'schema_behind',
      message: expect.stringMatching(message),
    });
    expect(JSON.stringify(failure)).not.toContain('not-to-be-shown');
  });

  it('starts while a store creates the same schema', async () => {
    const schema = database.newSchema();
    const store = await database.pool.connect();
    const queue = new PostgresQueue({ pool: database.pool, schema });
    try {
      await store.query('BEGIN');
      await store.query(stepBlock(schema, migrationSteps(schema)[0]!));
      const started = queue.consume(async () => ({ outcome: { type: 'delivered' } }));
      await untilLocked(database.pool, `%CREATE SCHEMA ${schema}%`);
      await store.query('COMMIT');

      await started;
      expect(await queue.enqueue([due('first')])).toEqual([undefined]);
    } finally {
      store.release();
      await queue.stop(0);
    }
  });

  it('records deliveries and outcomes once its server is available again', async () => {
    const schema = database.newSchema();
    const server = { isAway: true, refused: 0 };
    const whileUp = async <T>(work: () => Promise<T>): Promise<T> => {
      if (!server.isAway) return work();
      server.refused++;
      throw Object.assign(new Error('away'), { code: 'ECONNREFUSED' });
    };
    const unreliable = {
      query: async (text: string, values?: unknown[]) =>
        whileUp(async () => pool.query(text, values)),
      connect: async () => whileUp(async () => pool.connect()),
    };
    const queue = new PostgresQueue({ pool: unreliable, schema, pollInterval: '100ms' });
    await expect(queue.enqueue([due('away')])).rejects.toMatchObject({ code: 'store_unavailable' });
    server.isAway = false;
    const delivered: string[] = [];
    await queue.enqueue([due('back')]);
    await queue.consume(async ({ id }) => {
      // Unavailable again when the outcome is written.
      if (delivered.push(id) === 1) Object.assign(server, { isAway: true, refused: 0 });
      return { outcome: { type: 'delivered' } };
    });
    await until(() => server.isAway && server.refused > 0);
    server.isAway = false;
    await queue.enqueue([due('again')]);
    await until(() => delivered.length === 2);
    await until(async () => (await queue.find(['back']))[0]?.status === 'delivered');
    await queue.stop(Date.now() + 1_000);

    expect(delivered).toEqual(['back', 'again']);
  });

  it('warns of a pool without timeouts, and of a clock that differs from the server', async () => {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const now = jest.spyOn(Date, 'now').mockImplementation(() => 1_000);
    try {
      await withQueue({}, async (queue) => void (await queue.find(['x'])));
      expect(warn.mock.calls).toEqual([
        [
          expect.stringMatching(/no query_timeout and no connectionTimeoutMillis/),
          { code: 'WEBHOOK_POOL_WITHOUT_TIMEOUT' },
        ],
        [
          expect.stringMatching(/clock of this process is \d+ ms behind .*synchronise/s),
          { code: 'WEBHOOK_CLOCK_SKEW' },
        ],
      ]);
    } finally {
      now.mockRestore();
      warn.mockRestore();
    }
  });

  it.each([
    ['boolean', types.builtins.BOOL],
    ['bytea', types.builtins.BYTEA],
  ])('refuses a pool that parses %s in another way', async (name, type) => {
    const getTypeParser: typeof types.getTypeParser = (oid: typeof type, format) =>
      oid === type ? String : types.getTypeParser(oid, format);
    const changed = new Pool({ connectionString, types: { getTypeParser } });
    try {
      await withQueue({ pool: changed }, async (queue) =>
        expect(queue.enqueue([due('a')])).rejects.toMatchObject({
          code: 'unsupported_option',
          message: expect.stringContaining(`The client returns ${name} in another form`),
        }),
      );
    } finally {
      await changed.end();
    }
  });

  it('schedules by the clock of the server, whatever that of the process is', async () => {
    const real = Date.now;
    const behind = jest.spyOn(Date, 'now').mockImplementation(() => real() - 90_000);
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    try {
      await withQueue({ pollInterval: '100ms' }, async (queue, { schema }) => {
        await queue.enqueue([{ ...due('later'), notBefore: Date.now() + 60_000 }]);
        const { rows } = await pool.query<{ wait: number }>(
          `SELECT extract(epoch FROM due_at - now())::float8 AS wait FROM ${schema}.delivery`,
        );
        expect(rows[0]!.wait).toBeGreaterThan(50);
        // The lag is measured by the clock of the process.
        const [counts] = await queue.counts({});
        expect(counts!.oldestDue! - Date.now()).toBeGreaterThan(50_000);
        expect(counts!.oldestDue! - Date.now()).toBeLessThan(61_000);
        await queue.enqueue([{ ...due('now'), notBefore: Date.now() }]);
        const ran: string[] = [];
        await queue.consume(async ({ id }) => {
          ran.push(id);
          return { outcome: { type: 'delivered' } };
        });
        await until(() => ran.length > 0);

        expect(ran).toEqual(['now']);
      });
    } finally {
      behind.mockRestore();
      warn.mockRestore();
    }
  });

  it('retries a serialization failure', async () => {
    let failures = 2;
    const failing = recordingPool(pool, [], (text) => {
      if (!text.includes('ON CONFLICT (queue, id)') || failures-- <= 0) return;
      throw Object.assign(new Error('could not serialize access'), { code: '40001' });
    });
    await withQueue({ pool: failing }, async (queue) => {
      expect(await queue.enqueue([due('serialized')])).toEqual([undefined]);
    });

    expect(failures).toBeLessThan(0);
  });
});

/** A pool that records the statements of its connections. */
function recordingPool(
  pool: Pool,
  statements: [string, unknown[]][],
  before: (text: string) => void = () => {},
): PostgresPool {
  return {
    query: async (text, values) => pool.query(text, values),
    async connect() {
      const client = await pool.connect();
      return {
        async query(text: string, values: unknown[] = []) {
          before(text);
          statements.push([text, values]);
          return client.query(text, values);
        },
        release: (destroy) => client.release(destroy),
        on: (event: string, listener: (...args: never[]) => void) =>
          client.on(event as 'error', listener as never),
        off: (event: string, listener: (...args: never[]) => void) =>
          client.off(event, listener as never),
      };
    },
  };
}

describe('new PostgresQueue', () => {
  const pool = { query: async () => ({ rows: [] }), connect: () => {} } as never;

  it('prints no password', () => {
    const queue = new PostgresQueue({
      connectionString: 'postgresql://shop:hunter2@db.example/shop',
    });

    const printed = inspect(queue, { depth: Infinity, showHidden: true });
    expect(printed).toBe('[PostgresQueue "webhook-deliveries" in PostgreSQL at db.example:5432]');
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
    ['a pool that is a single client', { pool: { query: () => {} } }, 'pool'],
    ['a schema that would have to be quoted', { pool, schema: 'Web-Hooks' }, 'schema'],
    ['a concurrency of 0', { pool, concurrency: 0 }, 'concurrency'],
    ['a lease below 10 seconds', { pool, lease: '5s' }, 'lease'],
    ['a polling interval of 0', { pool, pollInterval: 1 }, 'pollInterval'],
    ['an invalid duration', { pool, keepDelivered: 'long' }, 'keepDelivered'],
    ['payloads kept for less than a minute', { pool, keepPayloads: '59s' }, 'keepPayloads'],
  ])('refuses %s', (_, options, path) => {
    expect(() => new PostgresQueue(options)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: expect.arrayContaining([
          expect.objectContaining({
            path: path === '' ? 'PostgresQueue' : `PostgresQueue.${path}`,
          }),
        ]),
      }),
    );
  });
});
