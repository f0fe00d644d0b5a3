import { afterAll, beforeAll, expect, it } from '@jest/globals';
import type { DeliveryRecord, EnqueuedDelivery } from 'nestjs-webhook-token/ports';
import { WebhookDeliveryError } from 'nestjs-webhook-token';
import { TestClock } from 'nestjs-webhook-token/testing';
import { PostgresQueue } from '../../lib/postgres/index.js';
import { describeWith } from '../fixtures/services.js';
import { outgoing } from '../fixtures/outgoing.js';
import { TestDatabase, until, untilLocked } from './database.js';
import { due } from './deliveries.js';

function keyed(id: string, orderingKey = id.split('-')[0]!): EnqueuedDelivery {
  const { delivery, notBefore } = due(id);
  return { delivery: { ...delivery, orderingKey }, notBefore };
}

function sequenceOf(record: DeliveryRecord | undefined): number | undefined {
  return outgoing(record!.delivery).sequence;
}

(await describeWith('PostgreSQL'))('concurrent calls of a PostgresQueue', () => {
  const database = new TestDatabase();
  let schema: string;
  let queue: PostgresQueue;
  beforeAll(async () => {
    schema = database.newSchema();
    queue = new PostgresQueue({ pool: database.pool, schema });
    await queue.enqueue([due('first')]);
  });
  afterAll(async () => {
    await queue.stop(0);
    await database.close();
  });

  /** Records deliveries in a transaction, and commits it once a call waits for it. */
  async function inOpenTransaction<T>(
    deliveries: readonly EnqueuedDelivery[],
    call: () => Promise<T>,
  ): Promise<T> {
    const client = await database.pool.connect();
    await client.query('BEGIN');
    await queue.enqueue(deliveries, { tx: client });
    const calling = call();
    await untilLocked(database.pool, 'WITH moment%');
    await client.query('COMMIT');
    client.release();
    return calling;
  }

  it('fail without affecting others if PostgreSQL cannot store their delivery', async () => {
    const calls = [
      queue.enqueue([due('before')]),
      queue.enqueue([due('beside'), due('no \0 in text')]),
      queue.enqueue([due('after')]),
    ];

    expect(await Promise.allSettled(calls)).toMatchObject([
      { status: 'fulfilled', value: [undefined] },
      { status: 'rejected', reason: { code: 'store_unavailable' } },
      { status: 'fulfilled', value: [undefined] },
    ]);
    expect(await queue.find(['beside'])).toEqual([undefined]);
  });

  it('wait without delaying others for an open transaction that has recorded the same delivery', async () => {
    const client = await database.pool.connect();
    await client.query('BEGIN');
    await queue.enqueue([due('held')], { tx: client });
    const held = queue.enqueue([due('held')]);
    // In the same group as the waiting call, and in later groups.
    for (let number = 0; number < 3; number++) await queue.enqueue([due(`free-${number}`)]);
    await untilLocked(database.pool, 'WITH moment%');
    await client.query('COMMIT');
    client.release();

    expect(await held).toMatchObject([{ delivery: { id: 'held' }, status: 'pending' }]);
  });

  it('record nothing if their check refuses what an open transaction has recorded', async () => {
    const check = (records: readonly (DeliveryRecord | undefined)[]): void => {
      if (records.some(Boolean)) throw new WebhookDeliveryError('id_conflict', 'refused');
    };
    const refused = inOpenTransaction([due('taken')], async () =>
      queue.enqueue([due('innocent'), due('taken')], { check }),
    );
    // In the same group.
    const other = queue.enqueue([due('accepted')], { check });

    await expect(refused).rejects.toThrow('refused');
    await expect(other).resolves.toEqual([undefined]);
    const found = await queue.find(['innocent', 'taken', 'accepted']);
    expect(found.map((record) => record?.delivery.id)).toEqual([undefined, 'taken', 'accepted']);
  });

  it('report the transaction that holds their key for too long', async () => {
    const impatient = new PostgresQueue({
      pool: database.pool,
      schema,
      timeout: '2s',
      // Only the server gives up.
      clock: new TestClock(Date.now()),
    });
    const client = await database.pool.connect();
    await client.query('BEGIN');
    await queue.enqueue([keyed('locked-1')], { tx: client });

    await expect(impatient.enqueue([keyed('locked-2')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining('has held the id of an event, an ordering key'),
    });
    await client.query('ROLLBACK');
    client.release();
    await impatient.stop(0);
  });

  it('number a delivery after the one that an open transaction has recorded, and hold it', async () => {
    await inOpenTransaction([keyed('order-1')], async () => queue.enqueue([keyed('order-2')]));

    const [first, second] = await queue.find(['order-1', 'order-2']);
    expect(sequenceOf(second)).toBe(sequenceOf(first)! + 1);
    expect([first, second].map((record) => record!.keyState)).toEqual([undefined, 'waiting']);
  });

  it('use up no number for a delivery that another transaction records meanwhile', async () => {
    await queue.enqueue([keyed('twin-1')]);
    const beside = [keyed('twin-2'), due('twin-without-key')];
    const known = await inOpenTransaction(beside, async () =>
      queue.enqueue([...beside, keyed('twin-3')]),
    );
    await queue.enqueue([keyed('twin-4')]);

    expect(known).toMatchObject([
      { delivery: { id: 'twin-2' } },
      { delivery: { id: 'twin-without-key' } },
      undefined,
    ]);
    const found = await queue.find(['twin-1', 'twin-2', 'twin-3', 'twin-4']);
    const [start] = found.map(sequenceOf);
    expect(found.map((record) => sequenceOf(record)! - start!)).toEqual([0, 1, 2, 3]);
  });

  it('release each delivery that waits for its key, without the timers that make up for it', async () => {
    const clock = new TestClock(Date.now());
    const ordered = new PostgresQueue({
      pool: database.pool,
      schema: database.newSchema(),
      clock,
    });
    const runs: (readonly [key: string, sequence: number])[] = [];
    await ordered.consume(async (delivery) => {
      const { orderingKey, sequence } = outgoing(delivery);
      runs.push([orderingKey!, sequence!]);
      const attempt = { attempt: 1, at: clock.now(), durationMs: 1 };
      return { outcome: { type: 'delivered' }, attempt };
    });
    const ids = Array.from({ length: 200 }, (_, index) => `released-${index}`);
    const publish = async (start: number): Promise<void> => {
      for (let at = start; at < ids.length; at += 20) {
        const item = keyed(ids[at]!, `key-${at % 3}`);
        await ordered.enqueue([{ ...item, notBefore: clock.now() }]);
      }
    };
    await Promise.all(Array.from({ length: 20 }, async (_, start) => publish(start)));
    await until(() => runs.length >= ids.length);
    await ordered.stop(Date.now() + 10_000);

    for (const key of ['key-0', 'key-1', 'key-2']) {
      const sequences = runs.filter(([one]) => one === key).map(([, sequence]) => sequence);
      const first = sequences[0]!;
      expect(sequences).toEqual(sequences.map((_, index) => first + index));
    }
  });

  it('are answered before the queue closes its database', async () => {
    const stopping = new PostgresQueue({ pool: database.pool, schema });
    const calls = Array.from({ length: 1_200 }, async (_, n) => stopping.enqueue([due(`n-${n}`)]));
    const stopped = stopping.stop(Date.now() + 30_000);

    const known = (await Promise.all(calls)).flat();
    expect(known.every((record) => record === undefined)).toBe(true);
    await stopped;
    await expect(stopping.enqueue([due('late')])).rejects.toMatchObject({ code: 'shutting_down' });
  });

  it('are refused, and not recorded, if the deadline of the shutdown has passed', async () => {
    const stopping = new PostgresQueue({ pool: database.pool, schema });
    await stopping.enqueue([due('open')]);
    const ids = Array.from({ length: 1_200 }, (_, n) => `hurried-${n}`);
    const calls = Promise.allSettled(ids.map(async (id) => stopping.enqueue([due(id)])));
    await stopping.stop(0);

    const recorded = (await calls).map(({ status }) => status === 'fulfilled');
    expect(recorded).toContain(false);
    expect((await queue.find(ids)).map((known) => known !== undefined)).toEqual(recorded);
  });
});
