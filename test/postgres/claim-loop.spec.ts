import { afterEach, describe, expect, it } from '@jest/globals';
import { ClaimLoop } from '../../lib/postgres/claim-loop.js';
import type { ClaimedJob, ClaimRequest } from '../../lib/postgres/job-statements.js';
import { storedDelivery } from '../../lib/queue/stored-delivery.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { due } from './deliveries.js';

const SLOW = JSON.stringify(['slow', null]);
const NOW = Date.UTC(2026, 0, 1);

function job(id: string, endpointId: string): ClaimedJob {
  const delivery = storedDelivery(due(id, endpointId).delivery);
  return { id, claim: 0, data: { delivery, attempts: 0, dueAt: NOW, throws: 0 } };
}

describe('a claim loop with more due jobs of one lane than the lane has slots', () => {
  const clock = new TestClock(NOW);
  /** Jobs of the slow lane that are due but not claimed, and the claims that were made. */
  let backlog: ClaimedJob[];
  let requests: ClaimRequest[];
  let finish: (() => void)[];
  let loop: ClaimLoop;

  function start(): void {
    backlog = Array.from({ length: 10 }, (_, index) => job(`slow-${index}`, 'slow'));
    requests = [];
    finish = [];
    loop = new ClaimLoop({
      claim: async (request) => {
        requests.push(request);
        const { limit, lane, lanes, perLane } = request;
        const isAsked = lane === undefined ? request.dueSince === undefined : lane === SLOW;
        const count = isAsked ? Math.min(limit, lanes[SLOW] ?? perLane) : 0;
        return { jobs: backlog.splice(0, count) };
      },
      findDueLanes: async (lanes) => lanes,
      run: async () => new Promise((resolve) => finish.push(() => resolve(true))),
      release: async () => {},
      onOutage: (error) => {
        throw error;
      },
      clock,
      concurrency: 4,
      concurrencyPerDestination: 2,
      pollInterval: 1_000,
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
    expect(loop.running.map(({ id }) => id)).toEqual(['slow-1', 'slow-2']);
  });

  it('polls for jobs that became due since the last scan, and scans the backlog again after 5 s', async () => {
    start();
    await clock.advance(0);
    requests.length = 0;
    await clock.advance(1_000);
    expect(requests).toMatchObject([{ dueSince: expect.any(Number) }]);
    requests.length = 0;
    await clock.advance(5_000);

    expect(requests).toContainEqual(expect.objectContaining({ dueSince: undefined }));
  });
});

describe('a claim loop that is woken while a claim runs', () => {
  it('claims again, since the first claim may not have seen the new job', async () => {
    const clock = new TestClock(NOW);
    const recorded: ClaimedJob[] = [];
    const claims: (() => void)[] = [];
    const handled: string[] = [];
    const loop = new ClaimLoop({
      claim: async () => {
        const seen = recorded.splice(0);
        await new Promise<void>((resolve) => claims.push(resolve));
        return { jobs: seen };
      },
      findDueLanes: async (lanes) => lanes,
      run: async ({ id }) => {
        handled.push(id);
        return true;
      },
      release: async () => {},
      onOutage: (error) => {
        throw error;
      },
      clock,
      concurrency: 4,
      concurrencyPerDestination: 2,
      pollInterval: 3_600_000,
    });
    loop.wake();
    await clock.advance(0);
    recorded.push(job('recorded', 'shop'));
    loop.wake();
    while (claims.length > 0) {
      claims.shift()!();
      await clock.advance(0);
    }
    await loop.stop();

    expect(handled).toEqual(['recorded']);
  });
});
