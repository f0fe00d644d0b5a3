import { afterEach, describe, expect, it } from '@jest/globals';
import { TestClock } from 'nestjs-webhook-token/testing';
import { ClaimLoop } from '../../lib/postgres/claim-loop.js';
import type { ClaimedDelivery } from '../../lib/postgres/delivery-row.js';
import type { ClaimRequest } from '../../lib/postgres/delivery-table.js';
import { LimitedLanes } from '../../lib/postgres/limited-lanes.js';
import { due } from './deliveries.js';

const SLOW = JSON.stringify(['slow', null]);
const NOW = Date.UTC(2026, 0, 1);

function claimedBy(seq: string, endpointId: string): ClaimedDelivery {
  const lane = JSON.stringify([endpointId, null]);
  const read = () => due(seq, endpointId).delivery;
  return { seq, id: seq, claim: 1, lane, attempts: 0, throws: 0, holdsKey: false, read };
}

function fail(error: unknown): never {
  throw error;
}

type LimitTable = ConstructorParameters<typeof LimitedLanes>[0];

/** No lane has limits. */
const NO_LIMITS: LimitTable = {
  claimWithinLimits: async () => ({ claimed: [], lanes: [] }),
  findLanes: async () => ({ hasLimits: false, lanes: [], unlimited: [] }),
  flag: async () => {},
};

describe('a claim loop with more due deliveries of one lane than the lane has slots', () => {
  const clock = new TestClock(NOW);
  /** Jobs of the slow lane that are due but not claimed, and the claims that were made. */
  let backlog: ClaimedDelivery[];
  let requests: ClaimRequest[];
  let finish: (() => void)[];
  let loop: ClaimLoop;

  function start(
    slots: Partial<ConstructorParameters<typeof ClaimLoop>[0]> = {},
    limits: Partial<LimitTable> = {},
  ): void {
    backlog = Array.from({ length: 10 }, (_, index) => claimedBy(`slow-${index}`, 'slow'));
    requests = [];
    finish = [];
    loop = new ClaimLoop({
      limited: new LimitedLanes(
        { ...NO_LIMITS, ...limits },
        { clock, pollInterval: slots.pollInterval ?? 1_000 },
      ),
      claimDeliveries: async (request) => {
        requests.push(request);
        const { limit, lane, lanes, perLane } = request;
        const isAsked = lane === undefined ? request.maxAge === undefined : lane === SLOW;
        const count = isAsked ? Math.min(limit, lanes[SLOW] ?? perLane) : 0;
        return { claimed: backlog.splice(0, count) };
      },
      findDueLanes: async (lanes) => lanes,
      run: async () => new Promise((resolve) => finish.push(() => resolve(true))),
      release: async () => {},
      onOutage: fail,
      onLimitedFailure: fail,
      clock,
      concurrency: 4,
      concurrencyPerDestination: 2,
      pollInterval: 1_000,
      ...slots,
    });
    loop.wake();
  }
  afterEach(async () => {
    const stopped = loop.stop();
    for (const done of finish) done();
    await stopped;
  });

  it('claims from that lane alone when it has a free slot', async () => {
    start();
    await clock.advance(0);
    expect(loop.running).toHaveLength(2);
    requests.length = 0;
    finish.shift()!();
    await clock.advance(0);

    expect(requests).toMatchObject([{ lane: SLOW, limit: 1 }]);
    expect(loop.running.map(({ seq }) => seq)).toEqual(['slow-1', 'slow-2']);
  });

  it('returns what a claim takes while the loop stops', async () => {
    const released: string[] = [];
    let answer: (() => void) | undefined;
    start({
      claimDeliveries: async () => {
        await new Promise<void>((resolve) => (answer = resolve));
        return { claimed: backlog.splice(0, 1) };
      },
      release: async ({ seq }) => void released.push(seq),
    });
    await clock.advance(0);
    const stopped = loop.stop();
    answer!();
    await stopped;

    expect(released).toEqual(['slow-0']);
    expect(finish).toEqual([]);
  });

  it('counts a delivery as running that it claimed again, when its first run ends', async () => {
    let claims = 0;
    start({
      claimDeliveries: async () => ({
        claimed: claims++ < 2 ? [claimedBy('again', 'slow')] : [],
      }),
    });
    await clock.advance(0);
    finish.shift()!();
    await clock.advance(0);

    expect(loop.running.map(({ seq }) => seq)).toEqual(['again']);
  });

  it('polls for deliveries that became due since the last scan, and scans the backlog again after 5 s', async () => {
    start();
    await clock.advance(0);
    requests.length = 0;
    await clock.advance(1_000);
    expect(requests).toMatchObject([{ maxAge: expect.any(Number) }]);
    requests.length = 0;
    await clock.advance(5_000);

    expect(requests).toContainEqual(expect.objectContaining({ maxAge: undefined }));
  });

  it('skips the backlog of a slow lane once, also while other lanes always have deliveries', async () => {
    let others = 0;
    start({
      claimDeliveries: async (request) => {
        requests.push(request);
        const { limit, lane, lanes, perLane } = request;
        const count = Math.min(limit, lanes[SLOW] ?? perLane);
        if (lane === SLOW || (request.maxAge === undefined && count > 0)) {
          return { claimed: backlog.splice(0, count), dueIn: -50_000 };
        }
        return { claimed: [claimedBy(`${others++}`, 'fast')], dueIn: -20 };
      },
      run: async ({ lane }) =>
        new Promise((resolve) => {
          finish.push(() => resolve(true));
          if (lane !== SLOW) clock.wakeAt(clock.now() + 100, () => resolve(true));
        }),
    });
    await clock.advance(2_000);
    requests.length = 0;
    await clock.advance(4_000);

    expect(requests.length).toBeGreaterThan(40);
    expect(requests.filter(({ maxAge }) => maxAge === undefined).length).toBeLessThan(2);
    requests.length = 0;
    for (const done of finish.splice(0)) done();
    await clock.advance(100);
    expect(requests).toContainEqual(expect.objectContaining({ lane: SLOW, limit: 1 }));
  });

  it('claims more once the lane turns out to be slow, however rarely it polls', async () => {
    start({ concurrency: 20, concurrencyPerDestination: 8, pollInterval: 3_600_000 });
    await clock.advance(0);
    expect(loop.running).toHaveLength(2);
    await clock.advance(1_001);

    // A fifth of all slots.
    expect(loop.running).toHaveLength(4);
  });

  it('fills a slot that became free while it looked for deliveries of other lanes', async () => {
    let scanned = (): void => {};
    start({
      pollInterval: 3_600_000,
      claimDeliveries: async ({ limit, lanes, perLane }) => {
        const count = Math.min(limit, lanes[SLOW] ?? perLane);
        if (count === 0) await new Promise<void>((resolve) => (scanned = resolve));
        return { claimed: backlog.splice(0, count) };
      },
    });
    await clock.advance(0);
    finish.shift()!();
    await clock.advance(0);
    scanned();
    await clock.advance(0);

    expect(loop.running.map(({ seq }) => seq)).toEqual(['slow-1', 'slow-2']);
  });

  it('fills a free slot from a limited lane that was due while all slots were in use', async () => {
    const claimWithinLimits = async (lanes: readonly { readonly lane: string }[]) => ({
      claimed: lanes.map(({ lane }) => claimedBy(lane, lane)),
      lanes: lanes.map(({ lane }) => ({ lane, limits: '', wait: undefined, isFull: false })),
    });
    start(
      { claimDeliveries: async () => ({ claimed: [] }), concurrency: 2 },
      { claimWithinLimits },
    );
    loop.wake(['a', 'b', 'c']);
    await clock.advance(0);
    const before = loop.running.map(({ seq }) => seq);
    finish.shift()!();
    await clock.advance(0);

    expect(before).toEqual(['a', 'b']);
    expect(loop.running.map(({ seq }) => seq)).toEqual(['b', 'c']);
  });

  it('searches for limited lanes on time after the clock has jumped during a search', async () => {
    let searches = 0;
    const findLanes = async () => {
      searches++;
      if (searches === 1) clock.set(clock.now() + 86_400_000);
      return { hasLimits: true, lanes: [], unlimited: [] };
    };
    start({}, { findLanes });
    await clock.advance(0);
    await clock.advance(2_000);

    expect(searches).toBeGreaterThan(1);
  });

  it('looks for everything again after the clock was set back', async () => {
    let searches = 0;
    const findLanes = async () => {
      searches++;
      return { hasLimits: true, lanes: [], unlimited: [] };
    };
    start({}, { findLanes });
    await clock.advance(0);
    requests.length = 0;
    clock.set(clock.now() - 3_600_000);
    loop.wake();
    await clock.advance(0);

    expect(searches).toBe(2);
    expect(requests).toContainEqual(expect.objectContaining({ maxAge: undefined }));
  });

  it('polls on time after the clock was set back during a claim', async () => {
    let claims = 0;
    let answer = (): void => {};
    const answered = new Promise<void>((resolve) => (answer = resolve));
    const claimDeliveries = async () => {
      claims++;
      await answered;
      return { claimed: [] };
    };
    start({ claimDeliveries });
    await clock.advance(0);
    clock.set(clock.now() - 3_600_000);
    answer();
    await clock.advance(0);
    claims = 0;
    await clock.advance(1_000);

    expect(claims).toBe(1);
  });

  it('claims from other lanes while a search for limited lanes fails', async () => {
    const reported: unknown[] = [];
    const lookups: number[] = [];
    let isBroken = true;
    const findLanes: LimitTable['findLanes'] = async () => {
      lookups.push(clock.now());
      if (isBroken) throw new Error('out of range');
      return NO_LIMITS.findLanes();
    };
    start({ onLimitedFailure: (error) => reported.push(error) }, { findLanes });
    await clock.advance(0);
    const running = loop.running.length;
    for (let step = 0; step < 40; step++) await clock.advance(250);
    isBroken = false;
    for (let step = 0; step < 60; step++) await clock.advance(250);

    expect(running).toBe(2);
    expect(reported).toEqual([new Error('out of range')]);
    const seconds = lookups.map((at) => Math.round((at - lookups[0]!) / 1_000));
    expect(seconds.slice(0, 7)).toEqual([0, 1, 3, 7, 15, 16, 17]);
  });

  it('reports a failure of the second claim from limited lanes of a round', async () => {
    const reported: unknown[] = [];
    let calls = 0;
    const claimWithinLimits: LimitTable['claimWithinLimits'] = async () => {
      if (++calls > 1) throw new Error('out of range');
      return { claimed: [], lanes: [] };
    };
    start({ onLimitedFailure: (error) => reported.push(error) }, { claimWithinLimits });
    for (let step = 0; step < 40; step++) {
      loop.wake(['limited']);
      await clock.advance(250);
    }

    expect(calls).toBeGreaterThan(1);
    expect(reported).toEqual([new Error('out of range')]);
  });

  it('soon forgets a limited lane whose limits were rolled back', async () => {
    const asked: string[] = [];
    const claimWithinLimits = async (lanes: readonly { readonly lane: string }[]) => {
      asked.push(...lanes.map(({ lane }) => lane));
      return { claimed: [], lanes: [] };
    };
    start({ claimDeliveries: async () => ({ claimed: [] }) }, { claimWithinLimits });
    loop.wake(['rolled back']);
    for (let step = 0; step < 100; step++) await clock.advance(20);

    expect(asked).toHaveLength(10);
  });
});

describe('a claim loop that is woken while a claim runs', () => {
  it('claims again, since the first claim may not have seen the new delivery', async () => {
    const clock = new TestClock(NOW);
    const recorded: ClaimedDelivery[] = [];
    const claims: (() => void)[] = [];
    const handled: string[] = [];
    const loop = new ClaimLoop({
      limited: new LimitedLanes(NO_LIMITS, { clock, pollInterval: 3_600_000 }),
      claimDeliveries: async () => {
        const seen = recorded.splice(0);
        await new Promise<void>((resolve) => claims.push(resolve));
        return { claimed: seen };
      },
      findDueLanes: async (lanes) => lanes,
      run: async ({ seq }) => {
        handled.push(seq);
        return true;
      },
      release: async () => {},
      onOutage: fail,
      onLimitedFailure: fail,
      clock,
      concurrency: 4,
      concurrencyPerDestination: 2,
      pollInterval: 3_600_000,
    });
    loop.wake();
    await clock.advance(0);
    recorded.push(claimedBy('recorded', 'shop'));
    loop.wake();
    while (claims.length > 0) {
      claims.shift()!();
      await clock.advance(0);
    }
    await loop.stop();

    expect(handled).toEqual(['recorded']);
  });
});

describe('limited lanes', () => {
  it('are checked after a lane got limits during a search that did not see them', async () => {
    const clock = new TestClock(NOW);
    const lanes: LimitedLanes = new LimitedLanes(
      {
        ...NO_LIMITS,
        findLanes: async () => {
          lanes.wake([SLOW]);
          return { hasLimits: false, lanes: [], unlimited: [] };
        },
      },
      { clock, pollInterval: 1_000 },
    );
    await lanes.search();

    expect(lanes.hasLimits).toBe(true);
  });
});

describe('a claim loop with one slot for two slow lanes', () => {
  it('gives it to the lane with a due delivery within a second, however rarely it polls', async () => {
    const clock = new TestClock(NOW);
    const recorded: ClaimedDelivery[] = [];
    const running: (() => void)[] = [];
    const started: string[] = [];
    const loop = new ClaimLoop({
      limited: new LimitedLanes(NO_LIMITS, { clock, pollInterval: 3_600_000 }),
      claimDeliveries: async ({ limit, lane, lanes, perLane }) => {
        const at = recorded.findIndex(
          (one) => (lane ?? one.lane) === one.lane && (lanes[one.lane] ?? perLane) > 0,
        );
        return { claimed: at === -1 || limit < 1 ? [] : recorded.splice(at, 1) };
      },
      findDueLanes: async (lanes) =>
        lanes.filter((lane) => recorded.some((one) => one.lane === lane)),
      run: async ({ seq }) => {
        started.push(seq);
        return new Promise((resolve) => running.push(() => resolve(true)));
      },
      release: async () => {},
      onOutage: fail,
      onLimitedFailure: fail,
      clock,
      concurrency: 5,
      concurrencyPerDestination: 2,
      pollInterval: 3_600_000,
    });
    const attempt = async (seq: string, endpointId: string, ms: number): Promise<void> => {
      recorded.push(claimedBy(seq, endpointId));
      loop.wake();
      await clock.advance(ms);
      for (const end of running.splice(0)) end();
      await clock.advance(0);
    };
    await attempt('idle-1', 'idle', 2_000);
    await attempt('due-1', 'due', 2_000);
    // While a fast lane is in use, slow ones share a fifth of the slots.
    await attempt('fast-1', 'fast', 1);
    await attempt('due-2', 'due', 1_000);
    await clock.advance(0);
    await loop.stop();

    expect(started).toEqual(['idle-1', 'due-1', 'fast-1', 'due-2']);
  });
});
