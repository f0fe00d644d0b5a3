import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, expect, it, jest } from '@jest/globals';
import { DelayedError, Queue, Worker } from 'bullmq';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import { TestClock } from 'nestjs-webhook-token/testing';
import { DeliveryHistory } from '../../lib/bullmq/delivery-history.js';
import type { DeliveryJob } from '../../lib/bullmq/delivery-job.js';
import { DeliveryRunner } from '../../lib/bullmq/delivery-runner.js';
import { FairTurns } from '../../lib/bullmq/fair-turns.js';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { KeyTurns } from '../../lib/bullmq/key-turns.js';
import type { LaneGate } from '../../lib/bullmq/lane-gate.js';
import { SharedLimits } from '../../lib/bullmq/shared-limits.js';
import { StoredDeliveries } from '../../lib/bullmq/stored-deliveries.js';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { describeWith, urlOf } from '../fixtures/services.js';
import { due } from '../postgres/deliveries.js';

const queues: Queue[] = [];
afterAll(async () => {
  for (const queue of queues) {
    await queue.close();
    await dropJobs('bullmq', { redis: urlOf('Redis'), name: queue.name });
  }
});

interface Process {
  readonly bull: Queue;
  readonly queue: BullMqQueue;
}

function bullQueue(name = `webhooks-${randomBytes(6).toString('hex')}`): Queue {
  const queue = new Queue(name, { connection: { url: urlOf('Redis') } });
  queues.push(queue);
  return queue;
}

function keyed(id: string) {
  const { delivery, notBefore } = due(id);
  return { delivery: { ...delivery, orderingKey: 'key' }, notBefore };
}

/** Deliveries that are due in an hour. */
function later(clock: TestClock, count: number) {
  const notBefore = clock.now() + 3_600_000;
  return Array.from({ length: count }, (_, n) => ({ ...due(`later-${n}`), notBefore }));
}

/** Lets the next `add` reject like a lost connection, after it has run `work`. */
function failNextAdd(
  bull: Queue,
  work: (run: () => Promise<unknown>) => Promise<void>,
  message = 'Connection is closed.',
): void {
  const add = bull.add.bind(bull);
  bull.add = async (...job) => {
    bull.add = add;
    await work(async () => add(...job));
    throw new Error(message);
  };
}

/** Lets each read of a job take so many milliseconds. */
function slowDown(bull: Queue, clock: TestClock, ms: number): void {
  const getJob = bull.getJob.bind(bull);
  bull.getJob = async (id) => {
    await clock.advance(ms);
    return getJob(id);
  };
}

async function idsOf(queue: WebhookQueue): Promise<readonly string[]> {
  return (await queue.list({}, { limit: 10 })).map(({ delivery }) => delivery.id);
}

(await describeWith('Redis'))('BullMqQueue, if the answer to an add is lost', () => {
  async function queueWithLostAnswer() {
    const clock = new TestClock(Date.now() + 1_000);
    const bull = bullQueue();
    const queue = new BullMqQueue(bull, { clock });
    const ran: string[] = [];
    await queue.consume(async ({ id }) => {
      ran.push(id);
      return { outcome: { type: 'delivered' } };
    });
    failNextAdd(bull, async (run) => {
      await run();
      await queue.flush();
    });
    await expect(queue.enqueue([keyed('lost')])).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    return { queue, ran, stop: async () => queue.stop(clock.now() + 5_000) };
  }

  it('lists and erases the delivery', async () => {
    const { queue, stop } = await queueWithLostAnswer();

    expect(await queue.find(['lost'])).toMatchObject([{ status: 'delivered' }]);
    expect(await idsOf(queue)).toEqual(['lost']);
    expect(await queue.erase({ event: 'order.created' })).toBe(1);
    expect(await queue.find(['lost'])).toEqual([undefined]);
    await stop();
  });

  it('recognises the delivery, and delivers the next ones of its key', async () => {
    const { queue, ran, stop } = await queueWithLostAnswer();

    expect(await queue.enqueue([keyed('lost')])).toMatchObject([{ status: 'delivered' }]);
    await queue.enqueue([keyed('next')]);
    await queue.flush();
    expect(ran).toEqual(['lost', 'next']);
    await stop();
  });
});

(await describeWith('Redis'))('BullMqQueue, if the server refuses a delivery', () => {
  it.each([
    ["OOM command not allowed when used memory > 'maxmemory'.", 'its memory is full'],
    ['NOREPLICAS Not enough good replicas to write.', 'too few replicas'],
    ['MISCONF Redis is configured to save RDB snapshots.', 'cannot write to its disk'],
  ])('with %s, lets the next one of its key start', async (reply, expected) => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    failNextAdd(bull, async () => {}, reply);
    await expect(queue.enqueue([keyed('refused')])).rejects.toThrow(expected);
    await queue.enqueue([keyed('next')]);

    expect(await queue.find(['next'])).toMatchObject([{ status: 'pending', keyState: undefined }]);
  });
});

(await describeWith('Redis'))('BullMqQueue, if two processes change a dead delivery', () => {
  it('sends one that is redelivered while it is skipped', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const [dying, skipping, sending] = [bull, bullQueue(bull.name), bullQueue(bull.name)].map(
      (each) => ({ bull: each, queue: new BullMqQueue(each, { clock }) }),
    ) as [Process, Process, Process];
    const dead = { type: 'dead', reason: 'http_410', attempts: 1, blocksKey: true } as const;
    await dying.queue.consume(async () => ({ outcome: dead }));
    await dying.queue.enqueue([keyed('lost'), keyed('next')]);
    while ((await dying.queue.find(['lost']))[0]?.status !== 'dead') await sleep(10);
    await dying.queue.stop(clock.now() + 5_000);
    const getJob = skipping.bull.getJob.bind(skipping.bull);
    skipping.bull.getJob = async (id) => {
      skipping.bull.getJob = getJob;
      const job = await getJob(id);
      expect(await sending.queue.redeliver(['lost'])).toEqual(['lost']);
      return job;
    };
    expect(await skipping.queue.skip(['lost'])).toEqual(['lost']);
    await sending.queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    const states = async () => {
      const found = await sending.queue.find(['lost', 'next']);
      return found.map((record) => record?.status);
    };
    while ((await states()).includes('pending')) await sleep(10);

    expect(await states()).toEqual(['delivered', 'delivered']);
    await sending.queue.stop(clock.now() + 5_000);
  });
});

(await describeWith('Redis'))('BullMqQueue, if a delivery is erased while it is changed', () => {
  async function withDead() {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const [changing, erasing] = [bull, bullQueue(bull.name)].map(
      (each) => new BullMqQueue(each, { clock }),
    ) as [BullMqQueue, BullMqQueue];
    await erasing.consume(async () => ({
      outcome: { type: 'dead', reason: 'http_410', attempts: 1, blocksKey: true },
    }));
    await erasing.enqueue([keyed('gone')]);
    while ((await erasing.find(['gone']))[0]?.status !== 'dead') await sleep(10);
    await erasing.stop(clock.now() + 5_000);
    const erase = async () => {
      expect(await erasing.erase({ event: 'order.created' })).toBe(1);
    };
    /** Runs `work` with the job that the next change reads, before the change. */
    const beforeChange = (work: (job: DeliveryJob) => Promise<void> | void): void => {
      const getJob = bull.getJob.bind(bull);
      bull.getJob = async (id) => {
        bull.getJob = getJob;
        const job = await getJob(id);
        await work(job as DeliveryJob);
        return job;
      };
    };
    return { changing, erase, beforeChange };
  }

  it.each(['redeliver', 'skip'] as const)('does not %s it', async (change) => {
    const { changing, erase, beforeChange } = await withDead();
    beforeChange(erase);

    expect(await changing[change](['gone'])).toEqual([]);
    expect(await changing.find(['gone'])).toEqual([undefined]);
  });

  it('does not redeliver it between two steps of the change', async () => {
    const { changing, erase, beforeChange } = await withDead();
    beforeChange((job) => {
      const updateData = job.updateData.bind(job);
      job.updateData = async (data) => {
        await erase();
        await updateData(data);
      };
    });

    expect(await changing.redeliver(['gone'])).toEqual([]);
    expect(await idsOf(changing)).toEqual([]);
  });
});

(await describeWith('Redis'))('BullMqQueue, listing by key state', () => {
  it('reads no delivery that is in no order of keys', async () => {
    const clock = new TestClock(Date.now() + 1_000);
    const bull = bullQueue();
    const queue = new BullMqQueue(bull, { clock });
    await queue.consume(async ({ id }) => {
      const blocksKey = id === 'first';
      return { outcome: { type: 'dead', reason: 'http_410', attempts: 1, blocksKey } };
    });
    await queue.enqueue([keyed('first'), keyed('second'), due('dead'), ...later(clock, 4)]);
    await queue.flush();
    const read = jest.spyOn(bull, 'getJob');
    const idsIn = async (keyState: 'waiting' | 'blocking') => {
      const status = keyState === 'waiting' ? 'pending' : 'dead';
      const found = await queue.list({ status, keyState }, { limit: 10 });
      return found.map(({ delivery }) => delivery.id);
    };

    expect(await idsIn('waiting')).toEqual(['second']);
    expect(await idsIn('blocking')).toEqual(['first']);
    expect(read).toHaveBeenCalledTimes(2);
    await queue.stop(clock.now() + 5_000);
  });

  it('finds a delivery that waits behind thousands that do not', async () => {
    const clock = new TestClock(Date.now());
    const queue = new BullMqQueue(bullQueue(), { clock });
    const createdAt = clock.now() - 1_000;
    const old = ['first', 'second'].map((id) => {
      const { delivery, notBefore } = keyed(id);
      return { delivery: { ...delivery, createdAt }, notBefore };
    });
    await queue.enqueue(old);
    await queue.enqueue(later(clock, 2_100));

    const found = await queue.list({ keyState: 'waiting' }, { limit: 10 });
    expect(found.map(({ delivery }) => delivery.id)).toEqual(['second']);
  });
});

(await describeWith('Redis'))('BullMqQueue on a slow server', () => {
  function slowQueue() {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const queue = new BullMqQueue(bull, { clock, timeout: '10s' });
    return { clock, queue, slowDown: () => slowDown(bull, clock, 4_000) };
  }

  it('lists deliveries by key state', async () => {
    const { clock, queue, slowDown } = slowQueue();
    await queue.enqueue(later(clock, 4));
    slowDown();

    expect(await queue.list({ keyState: 'waiting' }, { limit: 1 })).toEqual([]);
  });

  it('redelivers every delivery', async () => {
    const { clock, queue, slowDown } = slowQueue();
    const deliveries = later(clock, 4);
    await queue.enqueue(deliveries);
    slowDown();
    const ids = deliveries.map(({ delivery }) => delivery.id);

    expect(await queue.redeliver([...ids, ids[0]!])).toEqual(ids);
  });

  it('looks for deliveries to skip', async () => {
    const { queue, slowDown } = slowQueue();
    slowDown();

    expect(await queue.skip(['a', 'b', 'c', 'd'])).toEqual([]);
  });
});

(await describeWith('Redis'))('the maintenance of BullMqQueue', () => {
  function partsOn(bull: Queue, clock: TestClock) {
    const history = new DeliveryHistory(bull, false);
    const turns = new FairTurns(bull);
    const keys = new KeyTurns(bull, clock);
    const limits = new SharedLimits(bull, clock, 30_000);
    const replaceConnection = async () => {};
    const parts = { queue: bull, history, turns, keys, limits, clock, replaceConnection };
    return { ...parts, deliveries: new StoredDeliveries(parts) };
  }

  it('counts no delivery whose add has failed, once a minute has passed', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries, history } = partsOn(bull, clock);
    failNextAdd(bull, async () => {});
    await expect(deliveries.record([due('failed')])).rejects.toThrow('Connection is closed.');
    // More than two checks read, and newer.
    await clock.advance(1_000);
    const newer = later(clock, 500).map(({ delivery, notBefore }) => ({
      delivery: { ...delivery, createdAt: delivery.createdAt + 1_000 },
      notBefore,
    }));
    await deliveries.record(newer);
    await deliveries.checkHistory();
    await clock.advance(60_000);
    await deliveries.checkHistory();

    expect(await history.counts({})).toMatchObject([{ pending: newer.length }]);
    expect(history.unwritten.size).toBe(0);
  });

  it('counts the steps of many endpoints in one pass', async () => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    const since = 300_000;
    const at = (id: string, endpointId: string, createdAt: number) => {
      const { delivery } = due(id, endpointId);
      return { delivery: { ...delivery, createdAt }, notBefore: Date.now() + createdAt };
    };
    const few = Array.from({ length: 150 }, (_, n) => at(`few-${n}`, `few-${n}`, since + 47_000));
    const many = Array.from({ length: 300 }, (_, n) => at(`many-${n}`, 'many', since + n * 100));
    await queue.enqueue([...few, ...many]);
    const requests = jest.spyOn(bull, 'getBackend');
    const counts = await queue.counts({ since, until: since + 47_500, step: 1_000 });

    expect(requests.mock.calls.length).toBeLessThan(5);
    expect(counts.filter(({ endpointId }) => endpointId !== 'many')).toHaveLength(150);
    expect(counts.find(({ endpointId }) => endpointId === 'few-0')).toMatchObject({
      at: since + 47_000,
      pending: 1,
      oldestDue: few[0]!.notBefore,
    });
    const ofMany = counts.filter(({ endpointId }) => endpointId === 'many');
    expect(ofMany.toSorted((one, other) => one.at! - other.at!)).toMatchObject(
      Array.from({ length: 30 }, (_, n) => ({
        at: since + n * 1_000,
        pending: 10,
        delivered: 0,
        oldestDue: many[n * 10]!.notBefore,
      })),
    );
  });

  it('lists a delivery by the time of the publish that recorded it, not of one that failed', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries, history } = partsOn(bull, clock);
    const item = due('again');
    failNextAdd(bull, async () => {});
    await expect(deliveries.record([item])).rejects.toThrow('Connection is closed.');
    const since = item.delivery.createdAt + 1_000;
    await deliveries.record([{ ...item, delivery: { ...item.delivery, createdAt: since } }]);
    await clock.advance(60_000);
    await deliveries.checkHistory();

    expect(await history.list({ since }, { limit: 1 })).toMatchObject({ ids: ['again'] });
  });

  it('reads no payloads to check deliveries', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries, keys } = partsOn(bull, clock);
    await deliveries.record([...later(clock, 3), keyed('first'), keyed('second')]);
    await keys.settled();
    await clock.advance(61_000);
    // Those whose time has passed are read once.
    await deliveries.checkHistory();
    await clock.advance(61_000);
    const reads = jest.spyOn(bull, 'getJob');
    await deliveries.checkHistory();

    expect(reads).not.toHaveBeenCalled();
  });

  it('reads few payloads at once to list deliveries', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries } = partsOn(bull, clock);
    await deliveries.record(later(clock, 50));
    const getJob = bull.getJob.bind(bull);
    let running = 0;
    let most = 0;
    bull.getJob = async (id) => {
      most = Math.max(most, ++running);
      const job = await getJob(id);
      running--;
      return job;
    };
    const { found } = await deliveries.page({}, { limit: 50 });

    expect(found).toHaveLength(50);
    expect(most).toBeLessThanOrEqual(10);
  });

  it('counts a delivery as what its job says, also if a process died before it could write that', async () => {
    const clock = new TestClock(Date.now());
    const { deliveries, history } = partsOn(bullQueue(), clock);
    const [item] = later(clock, 1);
    await deliveries.record([item!]);
    const record = {
      delivery: item!.delivery,
      status: 'pending',
      attempts: 0,
      updatedAt: 0,
    } as const;
    await history.set({ ...record, status: 'dead', nextAttemptAt: undefined }, clock.now());
    await clock.advance(61_000);
    await deliveries.checkHistory();
    expect(await history.counts({})).toMatchObject([
      { pending: 1, dead: 0, oldestDue: item!.notBefore },
    ]);
    await history.set({ ...record, nextAttemptAt: clock.now() }, clock.now());
    await clock.advance(61_000);
    await deliveries.checkHistory();

    expect(await history.counts({})).toMatchObject([{ oldestDue: item!.notBefore }]);
  });

  it('drops the payloads of deliveries that were recorded before it was to do so', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const queue = new BullMqQueue(bull, { clock });
    await queue.enqueue([due('old')]);
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    await queue.flush();
    while ((await bull.getCompletedCount()) === 0) await sleep(20);
    await queue.stop(clock.now() + 5_000);
    await clock.advance(61_000);
    const history = new DeliveryHistory(bull, true);
    await new StoredDeliveries({ ...partsOn(bull, clock), history }).checkHistory();

    expect(await history.takePayloads(clock.now(), 10)).toEqual(['old']);
  });

  it('counts no pending delivery whose job was removed, however many deliveries are newer', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries, history } = partsOn(bull, clock);
    await deliveries.record([due('removed')]);
    await bull.remove('d-removed');
    const newer = Array.from({ length: 500 }, (_, n) => {
      const { delivery } = due(`newer-${n}`);
      const state = { status: 'delivered', attempts: 1, updatedAt: clock.now() } as const;
      return { ...state, delivery: { ...delivery, createdAt: delivery.createdAt + 1_000 } };
    });
    await history.add(newer, clock.now());
    await clock.advance(61_000);
    await deliveries.checkHistory();

    expect(await history.list({ status: 'pending' }, { limit: 1 })).toMatchObject({ ids: [] });
  });

  it('ends the turn of a delivery whose job was removed in a dashboard', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries, keys } = partsOn(bull, clock);
    await deliveries.record([keyed('removed'), keyed('also-removed'), keyed('next')]);
    await keys.settled();
    await bull.remove('d-removed');
    await bull.remove('d-also-removed');
    await clock.advance(61_000);
    await deliveries.checkHistory();

    expect(await deliveries.read(['next'])).toMatchObject([{ keyState: undefined }]);
    expect(await bull.getDelayedCount()).toBe(0);
  });

  it('ends a turn that neither a job nor an entry of the history is left of', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const { deliveries, history, keys } = partsOn(bull, clock);
    await deliveries.record([keyed('gone'), keyed('next')]);
    await keys.settled();
    await bull.remove('d-gone');
    await history.delete(['gone']);
    for (let seconds = 0; seconds < 150; seconds += 5) {
      await clock.advance(5_000);
      await deliveries.checkHistory();
      await keys.checkOpen();
    }

    expect(await deliveries.read(['next'])).toMatchObject([{ keyState: undefined }]);
    expect(await bull.getDelayedCount()).toBe(0);
  });

  it('does not bring a delivery forward whose lane has no slot', async () => {
    // Ahead of the clock of BullMQ, which would otherwise make the job due.
    const clock = new TestClock(Date.now() + 3_600_000);
    const bull = bullQueue();
    const parts = partsOn(bull, clock);
    await parts.deliveries.record([keyed('first')]);
    const worker = new Worker(bull.name, null, { connection: { url: urlOf('Redis') } });
    const job = (await worker.getNextJob('token')) as DeliveryJob;
    const full = { enter: async () => undefined, retryAt: () => clock.now() + 30_000 };
    const runner = new DeliveryRunner({
      ...parts,
      handler: async () => ({ outcome: { type: 'delivered' } }),
      lanes: full as unknown as LaneGate,
      onError: () => {},
      lease: 30_000,
    });
    await expect(runner.process(job, 'token')).rejects.toThrow(DelayedError);
    await worker.close();
    await clock.advance(6_000);
    await parts.keys.checkOpen();

    expect(await bull.getDelayedCount()).toBe(1);
  });
});
