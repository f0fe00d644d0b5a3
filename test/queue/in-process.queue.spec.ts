import { inspect } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import * as fc from 'fast-check';
import { webhookQueueContract, TestClock } from 'nestjs-webhook-token/testing';
import { WebhookConfigurationError } from 'nestjs-webhook-token/token';
import { DueHeap } from '../../lib/queue/due-heap.js';
import { InProcessQueue } from '../../lib/queue/in-process.queue.js';
import type { InProcessQueueOptions } from '../../lib/queue/queue-options.js';
import type { WebhookDelivery, DeliveryRun } from '../../lib/queue/webhook-delivery.js';
import type { DeliveryFilter } from '../../lib/queue/webhook-queue.js';
import { outgoing } from '../fixtures/outgoing.js';

describe('InProcessQueue fulfils the contract', () => {
  const cases = webhookQueueContract({
    create: (clock) => new InProcessQueue({ clock, concurrency: 100 }),
    createDropping: (clock, keepPayloads) => new InProcessQueue({ clock, keepPayloads }),
  });
  for (const rule of cases) it(rule.name, () => rule.run());
});

describe('the delivery queue contract', () => {
  class Broken extends InProcessQueue {
    override async enqueue(...args: Parameters<InProcessQueue['enqueue']>) {
      const [deliveries] = args;
      return super.enqueue(
        deliveries.map(({ delivery, notBefore }, index) => ({
          delivery: { ...delivery, id: `${delivery.id}#${index}#${this.size}` },
          notBefore,
        })),
      );
    }
  }

  it('detects a queue that records an id twice', async () => {
    const cases = webhookQueueContract({ create: (clock) => new Broken({ clock }) });
    const rule = cases.find(({ name }) => name.startsWith('records an id once'))!;

    await expect(rule.run()).rejects.toThrow();
  });

  it('detects a queue that counts a deferral as an attempt', async () => {
    class Counting extends InProcessQueue {
      override consume(handler: Parameters<InProcessQueue['consume']>[0]): void {
        super.consume(async (delivery, attempt) => {
          const run = await handler(delivery, attempt);
          return run.outcome.type === 'defer'
            ? { outcome: { type: 'retry', at: run.outcome.at, reason: 'network' } }
            : run;
        });
      }
    }
    const cases = webhookQueueContract({ create: (clock) => new Counting({ clock }) });
    const rule = cases.find(({ name }) => name.startsWith('counts no attempt'))!;

    await expect(rule.run()).rejects.toThrow();
  });

  it.each(['endpointId', 'eventId', 'event', 'status', 'receiver', 'since', 'until'])(
    'detects a queue that erases whatever the filter says of %s',
    async (member) => {
      class Erasing extends InProcessQueue {
        override async erase(filter: DeliveryFilter): Promise<number> {
          return super.erase({ ...filter, [member]: undefined });
        }
      }
      const cases = webhookQueueContract({ create: (clock) => new Erasing({ clock }) });
      const rule = cases.find(({ name }) => name.startsWith('erases what matches'))!;

      await expect(rule.run()).rejects.toThrow(`erase by ${member}`);
    },
  );
});

describe('InProcessQueue', () => {
  it('refuses a whole batch that exceeds maxPending', async () => {
    const { queue, enqueue } = bench({ maxPending: 3 });
    await enqueue('a', 'b');

    await expect(enqueue('c', 'd')).rejects.toMatchObject({ code: 'store_full' });
    expect(queue.size).toBe(2);
    await expect(enqueue('a', 'c')).resolves.toHaveLength(2);
    await expect(enqueue('d')).rejects.toThrow(/raise maxPending/);
  });

  it('says so if a second application uses it after the first was closed', async () => {
    const { queue } = bench();
    queue.consume(async () => DELIVERED);
    expect(() => queue.consume(async () => DELIVERED)).toThrow('already serves another publisher');
    await queue.stop(0);

    expect(() => queue.consume(async () => DELIVERED)).toThrow('was stopped with the application');
  });

  it('refuses a delivery that exceeds maxBytes', async () => {
    const { queue, enqueue } = bench({ maxBytes: 10_000 });
    await enqueue('a');

    await expect(
      queue.enqueue([{ delivery: delivery('big', 9_000), notBefore: 0 }]),
    ).rejects.toMatchObject({ code: 'store_full', message: expect.stringContaining('maxBytes') });
    expect(queue.size).toBe(1);
  });

  it('runs at most `concurrency` attempts at once', async () => {
    const { queue, enqueue, clock } = bench({ concurrency: 2, concurrencyPerDestination: 2 });
    const open: (() => void)[] = [];
    let most = 0;
    queue.consume(async () => {
      await new Promise<void>((resolve) => {
        open.push(resolve);
        most = Math.max(most, open.length);
      });
      return DELIVERED;
    });
    await enqueue('a', 'b', 'c', 'd', 'e');

    for (let finished = 0; finished < 5; finished++) {
      await clock.advance(0);
      expect(open.length).toBeGreaterThan(0);
      open.shift()!();
    }
    await clock.advance(0);

    expect(most).toBe(2);
    expect(queue.size).toBe(0);
  });

  it.each<[string, (index: number) => object]>([
    ['an endpoint', () => ({ endpointId: 'black-hole' })],
    ['an origin', (index) => ({ endpointId: undefined, url: `https://hole.example/${index}` })],
  ])('delivers to others while %s does not answer', async (_, destination) => {
    const { queue, clock } = bench({ concurrency: 8 });
    const stuck: string[] = [];
    const answered: string[] = [];
    const free: (() => void)[] = [];
    queue.consume(async ({ id }) => {
      if (!id.startsWith('lost')) {
        answered.push(id);
      } else {
        stuck.push(id);
        await new Promise<void>((resolve) => free.push(resolve));
      }
      return DELIVERED;
    });
    const lost = Array.from({ length: 1_000 }, (__, index) => ({
      delivery: { ...delivery(`lost-${index}`), ...destination(index) } as WebhookDelivery,
      notBefore: clock.now(),
    }));
    const well = ['a', 'b', 'c'].map((id) => ({
      delivery: { ...delivery(id), endpointId: 'healthy' },
      notBefore: clock.now(),
    }));
    await queue.enqueue([...lost, ...well]);
    await clock.advance(0);

    expect(answered).toEqual(['a', 'b', 'c']);
    expect(stuck).toEqual(['lost-0', 'lost-1']);
    free[1]!();
    await clock.advance(0);
    expect(stuck).toEqual(['lost-0', 'lost-1', 'lost-2']);
  });

  it.each([
    ['from the beginning', 0],
    ['after a while', 10_000],
  ])(
    'keeps 80 % of the rate of fast endpoints while 5 % take 14 seconds, %s',
    async (_, slowFrom) => {
      const alone = await fastDeliveries(0, slowFrom);
      const besideSlow = await fastDeliveries(5, slowFrom);

      expect(besideSlow).toBeGreaterThanOrEqual(0.8 * alone);
    },
  );

  it('delivers everything with at most concurrencyPerDestination attempts at once to each', async () => {
    await fc.assert(
      fc.asyncProperty(
        fc.array(fc.record({ to: fc.constantFrom('a', 'b', 'c'), wait: fc.nat({ max: 3 }) })),
        fc.integer({ min: 1, max: 4 }),
        fc.integer({ min: 1, max: 3 }),
        async (items, concurrency, concurrencyPerDestination) => {
          const { queue, clock } = bench({ concurrency, concurrencyPerDestination });
          const running = new Map<string, number>();
          let most = 0;
          let done = 0;
          queue.consume(async (delivery) => {
            const { endpointId } = outgoing(delivery);
            const now = (running.get(endpointId!) ?? 0) + 1;
            running.set(endpointId!, now);
            most = Math.max(most, now);
            await new Promise<void>((resolve) => setImmediate(resolve));
            running.set(endpointId!, running.get(endpointId!)! - 1);
            done++;
            return DELIVERED;
          });
          await queue.enqueue(
            items.map(({ to, wait }, index) => ({
              delivery: { ...delivery(String(index)), endpointId: to },
              notBefore: clock.now() + wait,
            })),
          );
          await clock.advance(3);

          expect(await queue.stop(clock.now() + 60_000)).toBe(0);
          expect(done).toBe(items.length);
          expect(most).toBeLessThanOrEqual(concurrencyPerDestination);
        },
      ),
    );
  });

  it('forgets the oldest delivered and the oldest dead deliveries beyond maxFinished', async () => {
    const { queue, enqueue, clock } = bench({ maxFinished: 2 });
    queue.consume(async ({ id }) => (id.startsWith('dead') ? DEAD : DELIVERED));
    await enqueue('dead-1', 'dead-2', 'a', 'b', 'c');
    await clock.advance(0);
    expect(await ids(queue)).toEqual(['dead-2', 'dead-1', 'c', 'b']);

    await enqueue('dead-3');
    await clock.advance(0);
    expect(await ids(queue)).toEqual(['dead-3', 'dead-2', 'c', 'b']);
    const known = await enqueue('a', 'b', 'dead-1');
    expect(known.map((record) => record?.status)).toEqual([undefined, 'delivered', undefined]);
  });

  it('keeps dead deliveries that block their ordering key, with their payloads', async () => {
    const { queue, enqueue, clock } = bench({ maxFinished: 2, maxBytes: 20_000 });
    const BLOCKED: DeliveryRun = { outcome: { ...DEAD.outcome, blocksKey: true } as never };
    queue.consume(async ({ id }) => (id === 'blocks' ? BLOCKED : DEAD));
    const keyed = (id: string, size: number) => ({
      delivery: { ...delivery(id, size), orderingKey: 'sku-1' },
      notBefore: 0,
    });
    await queue.enqueue([keyed('blocks', 6_000), keyed('waits', 10)]);
    await clock.advance(0);
    await enqueue('dead-1', 'dead-2', 'dead-3', 'dead-4');
    await clock.advance(0);

    expect((await ids(queue)).toSorted()).toEqual(['blocks', 'dead-4', 'waits']);
    const [blocks, waits] = await queue.find(['blocks', 'waits']);
    expect(blocks).toMatchObject({ keyState: 'blocking', payloadDropped: undefined });
    expect(waits).toMatchObject({ status: 'pending', keyState: 'waiting' });
    expect(await queue.redeliver(['blocks'])).toEqual(['blocks']);
  });

  it('drops the oldest payloads of delivered deliveries first, then of dead ones', async () => {
    const { queue, clock } = bench({ maxBytes: 20_000 });
    let run: DeliveryRun = DEAD;
    queue.consume(async () => run);
    const enqueue = async (id: string, size: number) => {
      await queue.enqueue([{ delivery: delivery(id, size), notBefore: 0 }]);
      await clock.advance(0);
    };
    const dropped = async () =>
      (await queue.list({}, { limit: 10 }))
        .filter(({ payloadDropped }) => payloadDropped === true)
        .map((record) => record.delivery.id);
    await enqueue('dead-old', 2_000);
    await enqueue('dead-young', 2_000);
    run = DELIVERED;
    await enqueue('delivered', 2_000);
    expect(await dropped()).toEqual(['delivered']);

    run = { outcome: { type: 'defer', at: Infinity } };
    await enqueue('pending', 16_000);
    expect(await dropped()).toEqual(['delivered', 'dead-old']);
    expect(await queue.redeliver(['dead-old'])).toEqual([]);
    const [known] = await queue.enqueue([{ delivery: delivery('dead-old'), notBefore: 0 }]);
    expect(known).toMatchObject({ status: 'dead', payloadDropped: true });
  });

  it('keeps one timer for all pending deliveries, and none after it was stopped', async () => {
    const { queue, clock } = bench();
    queue.consume(async () => DELIVERED);
    for (const wait of [3_000, 1_000, 2_000]) {
      const notBefore = clock.now() + wait;
      await queue.enqueue([{ delivery: delivery(`in ${wait}`), notBefore }]);
    }
    expect(clock.waiting).toBe(1);

    await clock.advance(1_000);
    expect(queue.size).toBe(2);
    expect(clock.waiting).toBe(1);
    expect(await queue.stop(clock.now())).toBe(2);
    expect(clock.waiting).toBe(0);
  });

  /** Runs a test on the system clock, whose time can be set apart from its timers. */
  async function onSystemClock(test: () => Promise<void>): Promise<void> {
    jest.useFakeTimers();
    try {
      await test();
    } finally {
      jest.useRealTimers();
    }
  }

  it('runs an overdue delivery within a minute after the machine was suspended', () =>
    onSystemClock(async () => {
      const queue = new InProcessQueue();
      const ran: string[] = [];
      queue.consume(async ({ id }) => {
        ran.push(id);
        return DELIVERED;
      });
      const notBefore = Date.now() + 3_600_000;
      await queue.enqueue([{ delivery: delivery('a'), notBefore }]);
      // Sets the clock, but advances no timer.
      jest.setSystemTime(notBefore);
      await jest.advanceTimersByTimeAsync(60_001);

      expect(ran).toEqual(['a']);
    }));

  it('retries in time after the clock was set back', () =>
    onSystemClock(async () => {
      const queue = new InProcessQueue();
      let runs = 0;
      queue.consume(async () => {
        const at = Date.now() + 60_000;
        return runs++ === 0 ? { outcome: { type: 'retry', at, reason: 'http_500' } } : DELIVERED;
      });
      await queue.enqueue([{ delivery: delivery('a'), notBefore: Date.now() }]);
      await jest.advanceTimersByTimeAsync(30_000);
      jest.setSystemTime(Date.now() - DAY);
      await jest.advanceTimersByTimeAsync(29_000);
      expect(runs).toBe(1);
      await jest.advanceTimersByTimeAsync(1_001);

      expect(runs).toBe(2);
    }));

  it('starts deliveries that wait for a rate limit in time after the clock was set back', () =>
    onSystemClock(async () => {
      const queue = new InProcessQueue();
      let runs = 0;
      queue.consume(async () => {
        runs++;
        return DELIVERED;
      });
      const limits = { perSecond: 0.1, burst: 1 };
      const notBefore = Date.now();
      await queue.enqueue(['a', 'b'].map((id) => ({ delivery: delivery(id), notBefore, limits })));
      await jest.advanceTimersByTimeAsync(5_000);
      jest.setSystemTime(Date.now() - DAY);
      await jest.advanceTimersByTimeAsync(20_000);

      expect(runs).toBe(2);
    }));

  it('keeps the delays and the order of its deliveries if the next one finds the clock set back', async () => {
    const { queue, enqueue, clock } = bench();
    const ran: string[] = [];
    queue.consume(async ({ id }) => {
      ran.push(id);
      return DELIVERED;
    });
    const later = (id: string, delay: number, more = {}) =>
      queue.enqueue([{ delivery: { ...delivery(id), ...more }, notBefore: clock.now() + delay }]);
    await later('erased', 1_000, { tenant: 'a' });
    await later('key', 2_000, { orderingKey: 'k' });
    await later('next of key', 3_000, { orderingKey: 'k' });
    await later('last', 4_000);
    await queue.erase({ tenant: 'a' });
    clock.set(clock.now() - DAY);
    await enqueue('now');
    await later('new', 1_500);
    await clock.advance(1_999);
    expect(ran).toEqual(['now', 'new']);
    const [next] = await queue.find(['next of key']);
    expect(next!.nextAttemptAt).toBe(clock.now() + 1_001);
    await clock.advance(2_001);

    expect(ran).toEqual(['now', 'new', 'key', 'next of key', 'last']);
  });

  it('runs due deliveries when it stops', async () => {
    const { queue, enqueue, clock } = bench({ concurrency: 1 });
    const ran: string[] = [];
    queue.consume(async ({ id }) => {
      ran.push(id);
      await clock.advance(0);
      return DELIVERED;
    });
    await enqueue('a', 'b', 'c');
    await queue.enqueue([{ delivery: delivery('later'), notBefore: clock.now() + 60_000 }]);

    expect(await queue.stop(clock.now() + 10_000)).toBe(1);
    expect(ran).toEqual(['a', 'b', 'c']);
  });

  it('is flushed while the rest waits for a limit of its endpoint', async () => {
    const { queue } = bench();
    const ran = await runRateLimited(queue, 'a', 'b', 'c');
    await queue.flush();

    expect(ran).toEqual(['a']);
    expect(queue.size).toBe(2);
  });

  it('delivers what waits for a limit before it stops, if there is time for it', async () => {
    jest.useFakeTimers();
    try {
      const queue = new InProcessQueue();
      const ran = await runRateLimited(queue, 'a', 'b', 'c');
      const stopped = queue.stop(Date.now() + 1_500);
      await jest.advanceTimersByTimeAsync(1_500);

      expect(await stopped).toBe(1);
      expect(ran).toEqual(['a', 'b']);
    } finally {
      jest.useRealTimers();
    }
  });

  it('stops at once after a burst that waited for a free slot of its endpoint', async () => {
    const { queue, enqueue, clock } = bench();
    queue.consume(async () => DELIVERED);
    await enqueue('a', 'b', 'c', 'd');
    await queue.flush();

    expect(await queue.stop(clock.now() + 10_000)).toBe(0);
  });

  it('is flushed if what was due has been erased', async () => {
    const { queue, enqueue, clock } = bench({ concurrency: 1 });
    queue.consume(async () => {
      await clock.advance(0);
      return DELIVERED;
    });
    await enqueue('a', 'b');
    const flushed = queue.flush();
    await queue.erase({});
    await flushed;

    expect(queue.size).toBe(0);
  });

  it('uses no token of a rate limit for erased deliveries', async () => {
    const erased = Array.from({ length: 60 }, (_, index) => `erased-${index}`);
    const { queue, clock } = bench();
    const ran = await runRateLimited(queue, 'first', ...erased, 'next');
    await queue.flush();
    for (const eventId of erased) await queue.erase({ eventId });
    await clock.advance(1_000);

    expect(ran).toEqual(['first', 'next']);
  });

  it('keeps nothing of erased deliveries that are delayed or wait for a rate limit', async () => {
    const { queue, clock } = bench();
    const kept = () => [...new Set(inspect(queue, { depth: 20 }).match(/erased-[a-z]+-\d/g))];
    await runRateLimited(queue, 'first', 'erased-held-1', 'erased-held-2');
    await queue.flush();
    await queue.enqueue([{ delivery: delivery('erased-delayed-1'), notBefore: clock.now() + DAY }]);
    await queue.erase({ eventId: 'erased-held-1' });
    expect(kept().sort()).toEqual(['erased-delayed-1', 'erased-held-2']);
    await queue.erase({});

    expect(kept()).toEqual([]);
  });

  it('continues after deliveries whose ordering key an erased delivery held', async () => {
    const { queue, clock } = bench();
    const ran: string[] = [];
    queue.consume(async ({ id }) => {
      ran.push(id);
      return DELIVERED;
    });
    const notBefore = clock.now() + 1_000;
    const ordered = ['erased-1', 'erased-2', 'next'].map((id) => ({
      delivery: { ...delivery(id), orderingKey: 'k', tenant: id === 'next' ? 'a' : 'b' },
      notBefore,
    }));
    await queue.enqueue(ordered);
    await queue.erase({ tenant: 'b' });
    await clock.advance(1_000);

    expect(ran).toEqual(['next']);
  });

  it('numbers the deliveries of a key on, also after all of them are done', async () => {
    const { queue, clock } = bench();
    const sequences: number[] = [];
    queue.consume(async ({ sequence }) => {
      sequences.push(sequence!);
      return DELIVERED;
    });
    const notBefore = clock.now();
    for (const id of ['first', 'second', 'third']) {
      await queue.enqueue([{ delivery: { ...delivery(id), orderingKey: 'k' }, notBefore }]);
      await clock.advance(0);
    }

    const [first] = sequences as [number];
    expect(sequences).toEqual([first, first + 1, first + 2]);
  });

  it('continues with a slow endpoint when another one leaves the slot that slow ones share', async () => {
    const { queue, clock } = bench({ concurrency: 5 });
    const begin = clock.now();
    const ran: string[] = [];
    queue.consume(async ({ id }) => {
      ran.push(`${id} after ${clock.now() - begin} ms`);
      await new Promise<void>((resolve) => void clock.wakeAt(clock.now() + 2_000, resolve));
      return { ...DELIVERED, attempt: { attempt: 1, at: clock.now(), durationMs: 2_000 } };
    });
    const enqueueFor = async (round: number): Promise<unknown> =>
      queue.enqueue(
        ['a', 'b'].map((endpointId) => ({
          delivery: { ...delivery(`${endpointId}${round}`), endpointId },
          notBefore: clock.now(),
        })),
      );
    await enqueueFor(1);
    await clock.advance(2_000);
    await enqueueFor(2);
    await clock.advance(10_000);

    expect(ran).toEqual(['a1 after 0 ms', 'b1 after 0 ms', 'a2 after 2000 ms', 'b2 after 4000 ms']);
  });

  it('continues after deliveries that are erased while they wait for a slot', async () => {
    const { queue, enqueue, clock } = bench({ concurrency: 4, concurrencyPerDestination: 1 });
    const ran: string[] = [];
    const free: (() => void)[] = [];
    queue.consume(async ({ id }) => {
      ran.push(id);
      await new Promise<void>((resolve) => free.push(resolve));
      return DELIVERED;
    });
    await enqueue('first', 'erased-1', 'erased-2', 'next');
    await clock.advance(0);
    for (const eventId of ['erased-1', 'erased-2']) await queue.erase({ eventId });
    free[0]!();
    await clock.advance(0);

    expect(ran).toEqual(['first', 'next']);
    free[1]!();
  });

  it('waits longer each time the handler throws, without counting attempts', async () => {
    const { queue, enqueue, clock } = bench();
    const runs: [number, number][] = [];
    const start = clock.now();
    queue.consume(async (_, attempt) => {
      runs.push([clock.now() - start, attempt]);
      throw new Error('no');
    });
    await enqueue('a');
    await clock.advance(16_000);

    expect(runs).toEqual([
      [0, 1],
      [1_000, 1],
      [3_000, 1],
      [7_000, 1],
      [15_000, 1],
    ]);
  });

  it('starts with the shortest wait again after a run that did not throw', async () => {
    const { queue, enqueue, clock } = bench();
    const runs: number[] = [];
    const start = clock.now();
    queue.consume(async () => {
      runs.push(clock.now() - start);
      if (runs.length === 3) {
        return { outcome: { type: 'retry', at: clock.now() + 10, reason: 'http_500' } };
      }
      throw new Error('no');
    });
    await enqueue('a');
    await clock.advance(4_010);

    expect(runs).toEqual([0, 1_000, 3_000, 3_010, 4_010]);
  });

  it('refuses a second publisher', () => {
    const { queue } = bench();
    queue.consume(async () => DELIVERED);

    expect(() => queue.consume(async () => DELIVERED)).toThrow(/queue of its own/);
  });

  it.each([
    { concurrency: 0 },
    { concurrencyPerDestination: 0 },
    { maxPending: -1 },
    { maxBytes: 1.5 },
    { maxFinished: NaN },
  ])('refuses the limit %j', (options) => {
    expect(() => new InProcessQueue(options)).toThrow(WebhookConfigurationError);
  });
});

describe('DueHeap', () => {
  it('pops items in the order of due times, then of insertion', () => {
    fc.assert(
      fc.property(fc.array(fc.integer({ min: 0, max: 20 })), (times) => {
        const items = times.map((due, order) => ({ due, order }));
        const heap = new DueHeap<{ due: number; order: number }>();
        items.forEach((item) => heap.push(item));
        const popped = items.map(() => heap.pop());

        expect(popped).toEqual([...items].sort((a, b) => a.due - b.due || a.order - b.order));
        expect(heap.pop()).toBeUndefined();
      }),
    );
  });
});

/**
 * Counts the deliveries to 95 endpoints that take 100 ms, during 30 seconds in which `slow` others take 14 seconds. Each
 * endpoint gets five events a second, which uses all slots.
 */
async function fastDeliveries(slow: number, slowFrom: number): Promise<number> {
  const { queue, clock } = bench({ maxPending: 1_000_000 });
  const start = clock.now();
  let delivered = 0;
  queue.consume(async (delivery) => {
    const { endpointId } = outgoing(delivery);
    const isSlow = Number(endpointId) < slow && clock.now() - start >= slowFrom;
    const end = clock.now() + (isSlow ? 14_000 : 100);
    await new Promise<void>((resolve) => clock.wakeAt(end, resolve));
    if (Number(endpointId) >= 5 && clock.now() - start >= slowFrom) delivered++;
    return DELIVERED;
  });
  const endpoints = Array.from({ length: 100 - 5 + slow }, (_, index) => String(99 - index));
  for (let at = 0; at < slowFrom + 30_000; at += 200) {
    const notBefore = clock.now();
    await queue.enqueue(
      endpoints.map((endpointId) => ({
        delivery: { ...delivery(`${endpointId} at ${at}`), endpointId },
        notBefore,
      })),
    );
    await clock.advance(200);
  }
  return delivered;
}

/** Milliseconds. */
const DAY = 86_400_000;

const DELIVERED: DeliveryRun = { outcome: { type: 'delivered' } };
const DEAD: DeliveryRun = { outcome: { type: 'dead', reason: 'http_500', attempts: 1 } };

async function ids(queue: InProcessQueue): Promise<string[]> {
  return (await queue.list({}, { limit: 100 })).map((record) => record.delivery.id);
}

/** Runs deliveries of an endpoint with one attempt a second. @returns the ids that have run */
async function runRateLimited(queue: InProcessQueue, ...ids: string[]): Promise<string[]> {
  const ran: string[] = [];
  queue.consume(async ({ id }) => {
    ran.push(id);
    return DELIVERED;
  });
  const limits = { perSecond: 1, burst: 1 };
  await queue.enqueue(ids.map((id) => ({ delivery: delivery(id), notBefore: 0, limits })));
  return ran;
}

function bench(options: InProcessQueueOptions = {}) {
  const clock = new TestClock();
  const queue = new InProcessQueue({ clock, ...options });
  const enqueue = (...ids: string[]) =>
    queue.enqueue(ids.map((id) => ({ delivery: delivery(id), notBefore: clock.now() })));
  return { clock, queue, enqueue };
}

function delivery(id: string, size = 10): WebhookDelivery {
  return {
    id,
    eventId: id,
    event: 'order.created',
    endpointId: 'crm',
    payload: { kind: 'bytes', bytes: Buffer.alloc(size), contentType: 'text/plain' },
    createdAt: 0,
  };
}
