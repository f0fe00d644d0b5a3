import assert from 'node:assert/strict';
import { endpointLane, type DeliveryLimits } from '../queue/webhook-delivery.js';
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

/** One start in 17 minutes: longer than any case takes. */
const RARELY: DeliveryLimits = { perSecond: 0.001, burst: 1 };
/** A wait in which a queue without limits would have started everything. */
const A_WHILE = STEP * 30;

/** That of the deliveries that the cases record. */
const LANE = endpointLane({ endpointId: 'receiver' });

export const LIMIT_RULES: QueueRules = {
  'runs no more deliveries of a lane at once than its limit': async (bench) => {
    const { opened, open } = gate();
    let running = 0;
    let most = 0;
    await bench.consume(async () => {
      most = Math.max(most, ++running);
      await opened;
      running--;
      return DELIVERED;
    });
    await enqueueLimited(bench, { concurrency: 2 }, 'a-1', 'a-2', 'a-3', 'a-4', 'a-5', 'a-6');
    await bench.untilRuns(2);
    await bench.advance(A_WHILE);
    assert.equal(bench.runs.length, 2);

    open();
    await bench.untilCount(6, 'delivered');
    assert.equal(most, 2);
  },

  'starts the deliveries of a lane at its rate': async (bench) => {
    await bench.consume();
    await enqueueLimited(bench, { perSecond: 2, burst: 1 }, 'a-1', 'a-2', 'a-3');

    await bench.untilState('a-3', 'delivered 1');
    assert.deepEqual(bench.ran(), ['a-1', 'a-2', 'a-3']);
    const [first, , last] = bench.startedAt;
    // A second apart; the first one may have started a while after it was counted.
    assert.ok(last! - first! >= 500, `three starts took ${last! - first!} ms`);
  },

  'starts a burst at once': async (bench) => {
    await bench.consume();
    await enqueueLimited(bench, { ...RARELY, burst: 2 }, 'a-1', 'a-2', 'a-3');

    await bench.untilState('a-2', 'delivered 1');
    await bench.advance(A_WHILE);
    assert.deepEqual(bench.ran(), ['a-1', 'a-2']);
  },

  'does not hold up other lanes behind a limit': async (bench) => {
    await bench.consume();
    const ids = Array.from({ length: 120 }, (_, index) => `a-${index}`);
    await enqueueLimited(bench, RARELY, ...ids);
    await bench.untilState('a-0', 'delivered 1');
    await bench.queue.enqueue([bench.due('other', { endpointId: 'erp' })]);

    await bench.untilState('other', 'delivered 1');
    assert.deepEqual(bench.ran(), ['a-0', 'other']);
    await bench.until(async () => (await bench.find('a-1'))!.isLimited === true);
    assert.equal((await bench.find('other'))!.isLimited, undefined);
  },

  'does not hold up other lanes behind a rate of almost nothing': async (bench) => {
    await bench.consume();
    const limits = { perSecond: Number.MIN_VALUE, burst: 1 };
    await enqueueLimited(bench, limits, 'a-1', 'a-2');
    await bench.untilState('a-1', 'delivered 1');
    await enqueueLimited(bench, { ...limits, since: bench.now() }, 'a-3');
    await bench.queue.enqueue([bench.due('other', { endpointId: 'erp' })]);

    await bench.untilState('other', 'delivered 1');
    await bench.advance(A_WHILE);
    assert.deepEqual(bench.ran(), ['a-1', 'other']);
  },

  'keeps the order of a limited lane': async (bench) => {
    await bench.consume();
    const ids = Array.from({ length: 8 }, (_, index) => `a-${index}`);
    await enqueueLimited(bench, { concurrency: 1 }, ...ids.slice(0, 4));
    await enqueueLimited(bench, { concurrency: 1 }, ...ids.slice(4));

    await bench.untilState('a-7', 'delivered 1');
    assert.deepEqual(bench.ran(), ids);
  },

  'keeps the order by key in a limited lane': async (bench) => {
    const running = new Set<unknown>();
    await bench.consume(async (delivery) => {
      const key = delivery.received ?? delivery.orderingKey;
      assert.ok(!running.has(key));
      running.add(key);
      await bench.advance(1);
      running.delete(key);
      return DELIVERED;
    });
    const items = Array.from({ length: 9 }, (_, index) =>
      bench.due(`a-${index}`, { orderingKey: `key-${index % 3}` }, { concurrency: 2 }),
    );
    await bench.queue.enqueue(items);

    await bench.untilCount(9, 'delivered');
    for (const key of ['0', '1', '2']) {
      const ofKey = bench.ran().filter((id) => Number(id.slice(2)) % 3 === Number(key));
      assert.deepEqual(ofKey, ofKey.toSorted());
    }
  },

  'attempts a limited delivery again when its retry is due': async (bench) => {
    await bench.consume((_, attempt) => (attempt === 1 ? retry(bench.now() + 500) : DELIVERED));
    await enqueueLimited(bench, { concurrency: 1 }, 'a-1', 'a-2');

    await bench.untilState('a-1', 'delivered 2');
    await bench.untilState('a-2', 'delivered 2');
  },

  'pauses a limited lane after an overload': async (bench) => {
    await bench.consume(({ id }) => {
      const inAnHour = bench.now() + HOUR;
      return id === 'other' ? DELIVERED : { ...retry(inAnHour), overloadedUntil: inAnHour };
    });
    await enqueueLimited(bench, { concurrency: 1 }, 'a-1', 'a-2');
    await bench.untilState('a-1', 'pending 1');
    await bench.advance(A_WHILE);
    await bench.queue.enqueue([bench.due('other', { endpointId: 'erp' })]);

    await bench.untilState('other', 'delivered 1');
    assert.deepEqual(bench.ran(), ['a-1', 'other']);
  },

  'starts nothing early after an overload': async (bench) => {
    await bench.consume(() => ({ ...DELIVERED, overloadedUntil: bench.now() + STEP }));
    await enqueueLimited(bench, RARELY, 'a-1', 'a-2');
    await bench.untilState('a-1', 'delivered 1');

    await bench.advance(A_WHILE);
    assert.deepEqual(bench.ran(), ['a-1']);
  },

  'keeps the longer one of two pauses': async (bench) => {
    const [first, second] = [gate(), gate()];
    await bench.consume(async ({ id }) => {
      await (id === 'a-1' ? first : second).opened;
      return { ...DELIVERED, overloadedUntil: bench.now() + (id === 'a-1' ? HOUR : STEP) };
    });
    await enqueueLimited(bench, { concurrency: 2 }, 'a-1', 'a-2');
    await bench.untilRuns(2);
    await enqueueLimited(bench, { concurrency: 2 }, 'a-3');
    first.open();
    await bench.untilState('a-1', 'delivered 1');
    second.open();
    await bench.untilState('a-2', 'delivered 1');

    await bench.advance(A_WHILE);
    assert.ok(!bench.ran().includes('a-3'));
  },

  'ends a pause without a burst': async (bench) => {
    await bench.consume(() =>
      bench.runs.length > 1 ? DELIVERED : { ...DELIVERED, overloadedUntil: bench.now() + STEP },
    );
    const limits = { ...RARELY, burst: 3, concurrency: 1 };
    await enqueueLimited(bench, limits, 'a-1', 'a-2', 'a-3');
    await bench.untilState('a-2', 'delivered 1');

    await bench.advance(A_WHILE);
    assert.deepEqual(bench.ran(), ['a-1', 'a-2']);
  },

  'ends a pause with the limits that are recorded next': async (bench) => {
    const limits = { concurrency: 1, perSecond: 50, burst: 2 };
    await pauseAfterFirst(bench, limits, 'a-1', 'a-2');

    // The pause may begin a moment after the outcome can be read.
    await bench.until(async () => {
      await enqueueLimited(bench, { ...limits, since: bench.now() }, 'a-3');
      return (await bench.stateOf('a-3')) === 'delivered 1';
    });
    assert.deepEqual(bench.ran(), ['a-1', 'a-2', 'a-3']);
  },

  'starts no second burst when a pause ends': async (bench) => {
    await bench.consume();
    await enqueueLimited(bench, RARELY, 'a-1');
    await bench.untilState('a-1', 'delivered 1');
    await enqueueLimited(bench, { ...RARELY, since: bench.now() }, 'a-2');

    await bench.advance(A_WHILE);
    assert.deepEqual(bench.ran(), ['a-1']);
  },

  'lifts the limits of a lane': async (bench) => {
    await bench.consume();
    await enqueueLimited(bench, RARELY, 'a-1', 'a-2');
    await bench.untilState('a-1', 'delivered 1');
    await enqueueLimited(bench, {}, 'a-3');

    await bench.untilState('a-3', 'delivered 1');
    assert.deepEqual(bench.ran(), ['a-1', 'a-2', 'a-3']);
  },

  'lifts the limits of a lane without a delivery, if it can': async (bench) => {
    if (bench.queue.limitLane === undefined) return;
    await bench.consume();
    await enqueueLimited(bench, RARELY, 'a-1', 'a-2', 'a-3');
    await bench.untilState('a-1', 'delivered 1');
    await bench.queue.limitLane(LANE, { since: bench.now() });

    await bench.untilCount(3, 'delivered');
    await bench.advance(STEP);
    await bench.queue.limitLane(LANE, RARELY);
    await bench.enqueue('a-4', 'a-5');
    await bench.untilState('a-4', 'delivered 1');
    await bench.advance(A_WHILE);
    assert.equal(await bench.stateOf('a-5'), 'pending 0');
  },

  'ends a pause without a delivery, if it can': async (bench) => {
    const { queue } = bench;
    if (queue.limitLane === undefined) return;
    const limits = { concurrency: 1, perSecond: 50, burst: 2 };
    await pauseAfterFirst(bench, limits, 'a-1', 'a-2');

    // The pause may begin a moment after the outcome can be read.
    await bench.until(async () => {
      await queue.limitLane!(LANE, { ...limits, since: bench.now() });
      return (await bench.stateOf('a-2')) === 'delivered 1';
    });
  },

  'holds a limit that a busy lane gets': async (bench) => {
    const [old, limited] = [gate(), gate()];
    let running = 0;
    let most = 0;
    await bench.consume(async ({ id }) => {
      if (id === 'first') return DELIVERED;
      if (id.startsWith('old')) await old.opened;
      else {
        most = Math.max(most, ++running);
        await limited.opened;
        running--;
      }
      return DELIVERED;
    });
    // With an average, a queue runs more deliveries of the lane at once.
    await bench.enqueue('first');
    await bench.untilState('first', 'delivered 1');
    await bench.enqueue('old-1', 'old-2', 'old-3');
    await bench.untilRuns(4);
    await enqueueLimited(bench, { concurrency: 1 }, 'a-1', 'a-2', 'a-3');
    old.open();
    await bench.untilCount(4, 'delivered');
    await bench.advance(A_WHILE);
    limited.open();

    await bench.untilCount(7, 'delivered');
    assert.equal(most, 1);
  },

  'limits a lane once an attempt has reported its limits': async (bench) => {
    await bench.consume(() => ({ ...DELIVERED, limits: RARELY }));
    await bench.enqueue('a-1');
    await bench.untilState('a-1', 'delivered 1');
    await bench.enqueue('a-2', 'a-3');
    await bench.untilState('a-2', 'delivered 1');
    await bench.advance(A_WHILE);
    await bench.queue.enqueue([bench.due('other', { endpointId: 'erp' })]);

    await bench.untilState('other', 'delivered 1');
    assert.ok(!bench.ran().includes('a-3'));
  },
};

/** The rule on a limited lane whose worker has stalled. */
export function limitFencingRules(
  expireLease: (queue: Bench['queue'], id: string) => Promise<void>,
): QueueRules {
  return {
    'frees the slot of a limited lane when a lease expires': async (bench) => {
      const open = await bench.consumeGated(() => bench.runs.length === 1);
      await enqueueLimited(bench, { concurrency: 1 }, 'stalled', 'next');
      await bench.untilRuns(1);

      await expireLease(bench.queue, 'stalled');
      await bench.untilRuns(3, LONG_STEP);
      await bench.untilState('next', 'delivered 1');
      open();
      assert.deepEqual(bench.ran(), ['stalled', 'stalled', 'next']);
    },
  };
}

async function enqueueLimited(
  bench: Bench,
  limits: DeliveryLimits,
  ...ids: string[]
): Promise<void> {
  await bench.queue.enqueue(ids.map((id) => bench.due(id, {}, limits)));
}

/** Records deliveries, of which the first one is delivered, and makes the others wait for long. */
async function pauseAfterFirst(
  bench: Bench,
  limits: DeliveryLimits,
  first: string,
  ...others: string[]
): Promise<void> {
  await bench.consume(() =>
    bench.runs.length > 1 ? DELIVERED : { ...DELIVERED, overloadedUntil: bench.now() + HOUR },
  );
  await enqueueLimited(bench, limits, first, ...others);
  await bench.untilState(first, 'delivered 1');
}
