import assert from 'node:assert/strict';
import { isDeepStrictEqual } from 'node:util';
import type { DeliveryOutcome } from '../queue/webhook-delivery.js';
import type { DeliveryCountFilter, EnqueuedDelivery } from '../queue/webhook-queue.js';
import {
  type Bench,
  DELIVERED,
  gate,
  HOUR,
  LONG_STEP,
  type QueueRules,
  retry,
  STEP,
} from './webhook-queue.bench.js';

const DEAD = { type: 'dead', reason: 'http_500', attempts: 1 } as const;
const BLOCKED: DeliveryOutcome = { ...DEAD, blocksKey: true };

export const ORDER_RULES: QueueRules = {
  'runs one delivery of a key at a time, in the order they were recorded': async (bench) => {
    let running = 0;
    let most = 0;
    await bench.consume(async () => {
      most = Math.max(most, ++running);
      await bench.advance(1);
      running--;
      return DELIVERED;
    });
    await enqueueKeyed(bench, 'sku-1', 'a-1', 'a-2', 'a-3');
    await enqueueKeyed(bench, 'sku-1', 'a-4', 'a-5');

    await bench.untilRuns(5);
    await bench.untilState('a-5', 'delivered 1');
    assert.deepEqual(bench.ran(), ['a-1', 'a-2', 'a-3', 'a-4', 'a-5']);
    assert.equal(most, 1);
  },

  'does not hold up other keys, endpoints and deliveries without a key': async (bench) => {
    const open = await bench.consumeGated((id) => id === 'slow');
    const orderingKey = 'sku-1';
    await bench.queue.enqueue([
      bench.due('slow', { orderingKey }),
      bench.due('next', { orderingKey }),
      bench.due('other-key', { orderingKey: 'sku-2' }),
      bench.due('other-endpoint', { orderingKey, endpointId: 'erp' }),
      bench.due('other-tenant', { orderingKey, tenant: 'acme' }),
      bench.due('without-key'),
    ]);

    await bench.until(() => bench.runs.length === 5, LONG_STEP / 10);
    assert.ok(!bench.ran().includes('next'));
    assert.equal((await bench.find('next'))!.keyState, 'waiting');
    assert.equal((await bench.find('slow'))!.keyState, undefined);
    open();
    await bench.untilState('next', 'delivered 1');
  },

  'keeps the order of received events too, for each receiver': async (bench) => {
    const open = await bench.consumeGated((id) => id === 'first');
    const received = (id: string, receiver: string): EnqueuedDelivery => ({
      delivery: { ...bench.receivedDelivery(id, receiver), orderingKey: 'sku-1' },
      notBefore: bench.now(),
    });
    await bench.queue.enqueue([
      received('first', 'shop'),
      received('second', 'shop'),
      received('other', 'partner'),
    ]);

    await bench.untilState('other', 'delivered 1');
    assert.ok(!bench.ran().includes('second'));
    assert.equal((await bench.find('second'))!.keyState, 'waiting');
    open();
    await bench.untilState('second', 'delivered 1');
  },

  'holds a key while a delivery waits for its retry': async (bench) => {
    let at = Infinity;
    await bench.consume(({ id }, attempt) => {
      if (id !== 'first' || attempt > 1) return DELIVERED;
      at = bench.now() + 1_000;
      return retry(at);
    });
    await enqueueKeyed(bench, 'sku-1', 'first', 'second');
    await bench.untilState('first', 'pending 1');
    assert.equal((await bench.find('second'))!.keyState, 'waiting');

    await bench.advance(at - bench.now());
    await bench.untilState('second', 'delivered 1');
    assert.deepEqual(bench.ran(), ['first', 'first', 'second']);
  },

  'keeps the order of deliveries that are due at other times': async (bench) => {
    await bench.consume();
    const orderingKey = 'sku-1';
    await bench.queue.enqueue([
      { ...bench.due('later', { orderingKey }), notBefore: bench.now() + 1_000 },
    ]);
    await enqueueKeyed(bench, orderingKey, 'now');
    await bench.advance(STEP * 5);
    assert.deepEqual(bench.ran(), []);

    await bench.advance(1_000);
    await bench.untilState('now', 'delivered 1');
    assert.deepEqual(bench.ran(), ['later', 'now']);
  },

  'continues a key after a dead delivery': async (bench) => {
    await bench.consume(({ id }) => (id === 'lost' ? DEAD : DELIVERED));
    await enqueueKeyed(bench, 'sku-1', 'lost', 'next');

    await bench.untilState('next', 'delivered 1');
    assert.equal((await bench.find('lost'))!.keyState, undefined);
  },

  'blocks a key with a dead delivery until it is redelivered': async (bench) => {
    let isBroken = true;
    await bench.consume(({ id }) => (id === 'lost' && isBroken ? BLOCKED : DELIVERED));
    await enqueueKeyed(bench, 'sku-1', 'lost', 'next');
    await bench.untilState('lost', 'dead 1');
    await bench.advance(STEP * 5);
    assert.deepEqual(bench.ran(), ['lost']);
    const states = (await bench.list()).map(({ delivery, keyState }) => [delivery.id, keyState]);
    assert.deepEqual(states, [
      ['next', 'waiting'],
      ['lost', 'blocking'],
    ]);
    assert.deepEqual(await bench.ids({ keyState: 'waiting' }), ['next']);
    assert.deepEqual(await bench.ids({ keyState: 'blocking' }), ['lost']);

    isBroken = false;
    assert.deepEqual(await bench.queue.redeliver(['lost']), ['lost']);
    await bench.untilState('next', 'delivered 1');
    assert.deepEqual(bench.ran(), ['lost', 'lost', 'next']);
    assert.equal((await bench.find('lost'))!.status, 'delivered');
  },

  'continues a key after its first delivery was erased': async (bench) => {
    const at = bench.now() + HOUR;
    await bench.consume(({ id }) => (id === 'lost' ? retry(at) : DELIVERED));
    await bench.queue.enqueue([
      bench.due('lost', { orderingKey: 'sku-1', eventId: 'lost-event' }),
      bench.due('next', { orderingKey: 'sku-1' }),
    ]);
    await bench.untilState('lost', 'pending 1');

    assert.equal(await bench.queue.erase({ eventId: 'lost-event' }), 1);
    await bench.untilState('next', 'delivered 1');
    assert.deepEqual(bench.ran(), ['lost', 'next']);
  },

  'continues a blocked key once the dead delivery is skipped': async (bench) => {
    await bench.consume(({ id }) => (id === 'lost' ? BLOCKED : DELIVERED));
    await enqueueKeyed(bench, 'sku-1', 'lost', 'next');
    await bench.untilState('lost', 'dead 1');

    assert.deepEqual(await bench.queue.skip(['unknown', 'next', 'lost', 'lost']), ['lost']);
    assert.deepEqual(await bench.queue.skip(['lost']), []);
    await bench.untilState('next', 'delivered 1');
    const lost = (await bench.find('lost'))!;
    assert.deepEqual([lost.status, lost.keyState], ['dead', undefined]);
  },

  'sends a skipped delivery again at once, with its old number': async (bench) => {
    const { opened, open } = gate();
    let isBroken = true;
    await bench.consume(async ({ id }) => {
      if (id === 'lost' && isBroken) return DEAD;
      if (id === 'next') await opened;
      return DELIVERED;
    });
    await enqueueKeyed(bench, 'sku-1', 'lost', 'next');
    await bench.untilRuns(2);
    isBroken = false;

    assert.deepEqual(await bench.queue.redeliver(['lost']), ['lost']);
    await bench.untilState('lost', 'delivered 1');
    open();
    await bench.untilState('next', 'delivered 1');
    assert.deepEqual(await numbers(bench, 'lost', 'next'), [0, 1]);
  },

  'counts the deliveries that wait for their key, and never as late': async (bench) => {
    const count = async (filter: DeliveryCountFilter = {}) => {
      const [counts] = await bench.queue.counts(filter);
      return [counts?.pending, counts?.held, counts?.oldestDue];
    };
    const untilCounted = (...expected: unknown[]) =>
      bench.until(async () => isDeepStrictEqual(await count(), expected));
    const orderingKey = 'sku-1';
    const [first, second, third] = ['first', 'second', 'third'].map((id) =>
      bench.due(id, { orderingKey }),
    ) as [EnqueuedDelivery, EnqueuedDelivery, EnqueuedDelivery];
    const earlier = bench.now() - 1_000;
    await bench.queue.enqueue([first, { ...second, notBefore: earlier }, third]);
    const waiting = [3, 2, first.notBefore];
    assert.deepEqual(await count(), waiting);
    assert.deepEqual(await count({ unfinished: true }), waiting);
    assert.deepEqual(await count({ since: bench.createdAt, until: bench.createdAt + 1 }), waiting);
    assert.deepEqual(await count({ since: bench.createdAt + 1 }), [
      undefined,
      undefined,
      undefined,
    ]);

    const at = bench.now() + HOUR;
    await bench.consume(({ id }) => (id === 'first' ? BLOCKED : retry(at)));
    await untilCounted(2, 2, undefined);

    // A queue may count the outcome of a run a moment before the run ends.
    await bench.until(async () => (await bench.queue.skip(['first'])).length === 1);
    await untilCounted(2, 1, at);

    const eventId = 'event-second';
    await bench.until(async () => (await bench.queue.erase({ eventId })) === 1);
    await untilCounted(1, undefined, at);
  },

  'numbers the deliveries of each key without gaps': async (bench) => {
    await enqueueKeyed(bench, 'sku-1', 'a-1', 'a-2');
    const [known] = await enqueueKeyed(bench, 'sku-1', 'a-2');
    assert.equal(known?.delivery.id, 'a-2');
    await enqueueKeyed(bench, 'sku-2', 'b-1');
    await enqueueKeyed(bench, 'sku-1', 'a-2', 'a-3', 'a-1', 'a-4');
    await bench.enqueue('without');

    assert.deepEqual(await numbers(bench, 'a-1', 'a-2', 'a-3', 'a-4'), [0, 1, 2, 3]);
    const [first] = await bench.queue.find(['a-1']);
    assert.equal(first!.delivery.received ?? first!.delivery.orderingKey, 'sku-1');
    const [without] = await bench.queue.find(['without']);
    assert.ok(without!.delivery.received === undefined);
    assert.equal(without!.delivery.sequence, undefined);
    await bench.consume();
    await bench.untilState('a-4', 'delivered 1');
    const sequences = bench.received
      .filter(({ id }) => id.startsWith('a-'))
      .map((delivery) => delivery.received === undefined && delivery.sequence);
    const inOrder = sequences.toSorted((a, b) => Number(a) - Number(b));
    assert.deepEqual(sequences, inOrder);
    assert.equal(new Set(sequences).size, 4);
  },

  'numbers concurrent calls in the order in which they run': async (bench) => {
    const ids = Array.from({ length: 20 }, (_, index) => `c-${index}`);
    await Promise.all(ids.map(async (id) => enqueueKeyed(bench, 'sku-1', id)));
    await bench.consume();

    await bench.untilCount(20, 'delivered');
    assert.deepEqual(await numbers(bench, ...bench.ran()), [...ids.keys()]);
  },

  'does not order a delivery that is recorded with its number': async (bench) => {
    await bench.consume();
    const orderingKey = 'sku-1';
    await bench.queue.enqueue([
      { ...bench.due('later', { orderingKey }), notBefore: bench.now() + HOUR },
      bench.due('again', { orderingKey, sequence: 7 }),
    ]);

    await bench.untilState('again', 'delivered 1');
    const [again] = await bench.queue.find(['again']);
    assert.equal(again!.delivery.received ?? again!.delivery.sequence, 7);
  },
};

function enqueueKeyed(
  bench: Bench,
  orderingKey: string,
  ...ids: string[]
): ReturnType<Bench['queue']['enqueue']> {
  return bench.queue.enqueue(ids.map((id) => bench.due(id, { orderingKey })));
}

/** The numbers of deliveries, counted from that of the first one. */
async function numbers(bench: Bench, ...ids: string[]): Promise<number[]> {
  const found = await bench.queue.find(ids);
  const sequences = found.map((record) =>
    record!.delivery.received === undefined ? record!.delivery.sequence! : NaN,
  );
  return sequences.map((sequence) => sequence - sequences[0]!);
}
