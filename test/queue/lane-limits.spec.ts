import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { InProcessQueue } from '../../lib/queue/in-process.queue.js';
import {
  deliveryLane,
  type DeliveryLimits,
  type DeliveryRun,
  type OutgoingDelivery,
} from '../../lib/queue/webhook-delivery.js';

const SECOND = 1_000;
const MINUTE = 60 * SECOND;

let clock: TestClock;
let queue: InProcessQueue;
/** Milliseconds after the start. */
let starts: number[];
/** @param at - milliseconds after the start */
let runOf: (at: number) => DeliveryRun;

beforeEach(() => {
  clock = new TestClock();
  starts = [];
  runOf = () => ({ outcome: { type: 'delivered' } });
  queue = new InProcessQueue({ clock });
  const begin = clock.now();
  queue.consume(async () => {
    const at = clock.now() - begin;
    starts.push(at);
    return runOf(at);
  });
});

afterEach(async () => {
  await queue.stop(clock.now());
});

function deliveryOf(id: string): OutgoingDelivery {
  const payload = { kind: 'json', bytes: undefined, contentType: 'application/json' } as const;
  return { id, eventId: id, event: 'a.b', endpointId: 'crm', payload, createdAt: clock.now() };
}

async function enqueue(limits: DeliveryLimits, count: number, first = 0): Promise<void> {
  const notBefore = clock.now();
  await queue.enqueue(
    Array.from({ length: count }, (_, index) => ({
      delivery: deliveryOf(`d-${first + index}`),
      notBefore,
      limits,
    })),
  );
}

/** Runs that succeed, of which the first one asks for a pause of the lane, or each whose start fits. */
function askingToWait(ms: number, fits = (at: number): boolean => at === 0): typeof runOf {
  return (at) => ({
    outcome: { type: 'delivered' },
    ...(fits(at) && { overloadedUntil: clock.now() + ms }),
  });
}

/** Lets the clock pass in small steps, so that each timer of the queue fires at its time. */
async function pass(ms: number, step = 50): Promise<void> {
  for (let passed = 0; passed < ms; passed += step) await clock.advance(step);
}

describe('the rate of a lane', () => {
  it('is its burst at once, then a start for each token', async () => {
    await enqueue({ perSecond: 2, burst: 3 }, 6);
    await pass(2 * SECOND);

    expect(starts).toEqual([0, 0, 0, 500, 1_000, 1_500]);
  });

  it('gathers no more than its burst during a rest', async () => {
    await enqueue({ perSecond: 2, burst: 2 }, 2);
    await pass(MINUTE, SECOND);
    starts.length = 0;
    await enqueue({ perSecond: 2, burst: 2 }, 4, 2);
    await pass(2 * SECOND);

    expect(starts.map((at) => at - starts[0]!)).toEqual([0, 0, 500, 1_000]);
  });

  it('is halved after an overload, without a burst, and recovers', async () => {
    runOf = askingToWait(MINUTE);
    await enqueue({ perSecond: 1, burst: 1 }, 1_000);
    await pass(MINUTE + 20 * SECOND);
    const slow = starts.filter((at) => at > MINUTE + SECOND).length;
    await pass(11 * MINUTE, 500);
    starts.length = 0;
    await pass(20 * SECOND);

    expect(starts).toHaveLength(20);
    // Ten in twenty seconds at half of the rate, which recovers meanwhile.
    expect(slow).toBeGreaterThanOrEqual(8);
    expect(slow).toBeLessThanOrEqual(11);
  });

  it('falls to no less than a sixteenth of the limit', async () => {
    runOf = askingToWait(SECOND, (at) => at < 8 * SECOND);
    await enqueue({ perSecond: 1, burst: 1 }, 100);
    await pass(MINUTE, 500);
    const waits = starts.map((at, index) => at - (starts[index - 1] ?? at));

    expect(Math.max(...waits)).toBeGreaterThan(5 * SECOND);
    expect(Math.max(...waits)).toBeLessThanOrEqual(18 * SECOND);
  });

  it('is not lowered twice by answers to requests that were under way together', async () => {
    runOf = askingToWait(MINUTE);
    await enqueue({ perSecond: 4, burst: 4 }, 400);
    await pass(MINUTE + 10 * SECOND);

    const slow = starts.filter((at) => at >= MINUTE).length;
    expect(slow).toBeGreaterThanOrEqual(18);
  });
});

describe('a pause of a lane', () => {
  it('does not end because its limits change', async () => {
    runOf = askingToWait(10 * SECOND);
    await enqueue({ concurrency: 1 }, 1);
    await pass(SECOND);
    await enqueue({ concurrency: 2 }, 1, 1);
    await pass(11 * SECOND);

    expect(starts).toEqual([0, 10 * SECOND]);
  });
});

describe('deliveries that wait for a limit', () => {
  const lag = async (of = queue): Promise<number> =>
    clock.now() - (await of.counts({}))[0]!.oldestDue!;

  it.each<[string, DeliveryLimits]>([
    ['a rate', { perSecond: 0.1, burst: 1 }],
    ['a rate and a concurrency', { perSecond: 0.1, burst: 1, concurrency: 1 }],
  ])('is not late behind %s', async (_, limits) => {
    await enqueue(limits, 60);
    await pass(6 * MINUTE, SECOND);

    expect(starts).toHaveLength(37);
    expect(await lag()).toBeLessThanOrEqual(0);
  });

  it('is not late behind a concurrency, but an attempt that does not end is', async () => {
    const busy = new InProcessQueue({ clock });
    let end = (): void => {};
    busy.consume(async () => {
      await new Promise<void>((resolve) => (end = resolve));
      return { outcome: { type: 'delivered' } };
    });
    const notBefore = clock.now();
    const limits = { concurrency: 1 };
    await busy.enqueue(
      ['a', 'b', 'c'].map((id) => ({ delivery: deliveryOf(id), notBefore, limits })),
    );
    await pass(6 * MINUTE, SECOND);
    const stuck = await lag(busy);
    end();
    await clock.advance(0);

    expect([stuck, await lag(busy)]).toEqual([6 * MINUTE, 0]);
    end();
  });

  it('is late if nothing consumes the queue', async () => {
    const idle = new InProcessQueue({ clock });
    const limits = { perSecond: 0.1, burst: 1, concurrency: 1 };
    await idle.enqueue([{ delivery: deliveryOf('a'), notBefore: clock.now(), limits }]);
    await pass(6 * MINUTE, SECOND);

    expect(await lag(idle)).toBe(6 * MINUTE);
  });
});

describe('a clock that is set back', () => {
  /** Milliseconds after the clock was set back. */
  const startsAfter = (begin: number): number[] =>
    starts.filter((at) => at < 0).map((at) => at - begin);

  it('delays a lane by no more than the time of a token', async () => {
    await enqueue({ perSecond: 1, burst: 3 }, 3);
    await pass(SECOND);
    clock.set(clock.now() - 60 * MINUTE);
    await enqueue({ perSecond: 1, burst: 3 }, 3, 3);
    await pass(4 * SECOND);

    expect(startsAfter(SECOND - 60 * MINUTE)).toEqual([SECOND, 2 * SECOND, 3 * SECOND]);
  });

  it('extends a pause to no more than its length', async () => {
    runOf = askingToWait(10 * SECOND);
    await enqueue({ concurrency: 1 }, 1);
    await pass(SECOND);
    clock.set(clock.now() - 60 * MINUTE);
    await enqueue({ concurrency: 1 }, 2, 1);
    await pass(11 * SECOND);

    expect(startsAfter(SECOND - 60 * MINUTE)).toEqual([10 * SECOND, 10 * SECOND]);
  });

  it('does not repeat a pause that has ended', async () => {
    runOf = askingToWait(10 * SECOND);
    await enqueue({ concurrency: 1 }, 1);
    await pass(11 * SECOND);
    await enqueue({ concurrency: 1 }, 1, 1);
    await pass(SECOND);
    clock.set(clock.now() - 60 * MINUTE);
    await enqueue({ concurrency: 1 }, 1, 2);
    await pass(SECOND);

    expect(startsAfter(12 * SECOND - 60 * MINUTE)).toEqual([0]);
  });

  it('lets a lowered rate recover in time', async () => {
    runOf = askingToWait(SECOND);
    await enqueue({ perSecond: 1, burst: 1 }, 1);
    await pass(SECOND);
    clock.set(clock.now() - 60 * MINUTE);
    await enqueue({ perSecond: 1, burst: 1 }, 700, 1);
    await pass(11 * MINUTE, 500);
    starts.length = 0;
    await pass(20 * SECOND, 500);

    expect(starts).toHaveLength(20);
  });
});

describe('the concurrency of a lane', () => {
  it('counts the attempts that run when it is set', async () => {
    const free: (() => void)[] = [];
    let running = 0;
    const counts: number[] = [];
    const busy = new InProcessQueue({ clock });
    busy.consume(async () => {
      running++;
      await new Promise<void>((resolve) => free.push(resolve));
      running--;
      return { outcome: { type: 'delivered' } };
    });
    const add = async (id: string, limits?: DeliveryLimits): Promise<void> => {
      await busy.enqueue([{ delivery: deliveryOf(id), notBefore: clock.now(), limits }]);
      await clock.advance(0);
    };
    for (const id of ['a', 'b']) await add(id);
    for (const id of ['c', 'd', 'e']) await add(id, { concurrency: 1 });
    while (free.length > 0) {
      counts.push(running);
      free.shift()!();
      await clock.advance(0);
    }
    await busy.stop(clock.now());

    expect(counts).toEqual([2, 1, 1, 1, 1]);
  });

  it('are gone once they are removed: an overload pauses the lane no more', async () => {
    await enqueue({ concurrency: 1 }, 1);
    await pass(SECOND);
    const lane = deliveryLane(deliveryOf('any'));
    await queue.limitLane(lane, {});
    runOf = askingToWait(MINUTE, () => true);
    await enqueue({}, 1, 1);
    await pass(SECOND);
    await enqueue({}, 1, 2);
    await queue.enqueue([{ delivery: deliveryOf('later'), notBefore: clock.now() + MINUTE }]);
    const [later] = await queue.find(['later']);
    await clock.advance(0);

    expect(starts).toEqual([0, SECOND, 2 * SECOND]);
    expect(later!.isLimited).toBeUndefined();
  });
});
