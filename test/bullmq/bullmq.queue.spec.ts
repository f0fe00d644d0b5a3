import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it, jest } from '@jest/globals';
import { Queue } from 'bullmq';
import { Cluster, Redis } from 'ioredis';
import type { WebhookQueue } from 'nestjs-webhook-token/ports';
import { TestClock, webhookQueueContract } from 'nestjs-webhook-token/testing';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { serverWarnings } from '../../lib/bullmq/redis-server.js';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { describeContract } from '../fixtures/contract.js';
import { runsAfterEndedPause, runsAfterReplacedLimit } from '../fixtures/replaced-limit.js';
import { Gate } from '../fixtures/gate.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { due, dueReceived } from '../postgres/deliveries.js';

const queues: Queue[] = [];
afterAll(async () => {
  for (const queue of queues) {
    await queue.close();
    await dropJobs('bullmq', { redis: urlOf('Redis'), name: queue.name });
  }
});

function bullQueue(name = `webhooks-${randomBytes(6).toString('hex')}`): Queue {
  const queue = new Queue(name, {
    connection: { url: urlOf('Redis') },
  });
  queues.push(queue);
  return queue;
}

(await describeWith('Redis'))('BullMqQueue', () => {
  const engines = new WeakMap<WebhookQueue, Queue>();
  const contract = webhookQueueContract({
    create: () => {
      const bull = bullQueue();
      const queue = new BullMqQueue(bull, { lease: '5s' });
      engines.set(queue, bull);
      return queue;
    },
    createDropping: (clock, keepPayloads) => new BullMqQueue(bullQueue(), { clock, keepPayloads }),
    advance: (ms) => sleep(ms),
    expireLease: async (queue, id) => {
      const bull = engines.get(queue)!;
      await (await bull.getBackend().client).del(bull.toKey(`d-${id}:lock`));
    },
  });
  describeContract(contract, 6);

  it('redelivers each dead delivery once if two processes redeliver it at the same time', async () => {
    const { name } = bullQueue();
    const deliveries = Array.from({ length: 20 }, (_, n) => due(`dead-${n}`));
    const ids = deliveries.map(({ delivery }) => delivery.id);
    const [one, two, dying] = [1, 2, 3].map(() => new BullMqQueue(bullQueue(name))) as [
      BullMqQueue,
      BullMqQueue,
      BullMqQueue,
    ];
    await dying.enqueue(deliveries);
    await dying.consume(async () => ({
      outcome: { type: 'dead', reason: 'network', attempts: 1 },
    }));
    const isDead = async () => (await dying.list({ status: 'dead' }, { limit: 50 })).length;
    while ((await isDead()) < ids.length) await sleep(20);
    await dying.stop(Date.now() + 5_000);
    const redelivered = await Promise.all([one.redeliver(ids), two.redeliver(ids)]);

    expect(redelivered.flat().toSorted()).toEqual(ids.toSorted());
  });

  it('reports the first error of its worker that is no outage, and no payload', async () => {
    const bull = bullQueue();
    const client = await bull.getBackend().client;
    await client.set(bull.toKey('delayed'), 'text');
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const queue = new BullMqQueue(bull);
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    const errors = () =>
      warn.mock.calls.filter(([, options]) => JSON.stringify(options).includes('QUEUE_ERROR'));
    while (errors().length === 0) await sleep(10);
    // Its worker fetches again after a second.
    await sleep(1_500);
    await client.del(bull.toKey('delayed'));
    await queue.stop(Date.now() + 5_000);

    expect(errors()).toEqual([[expect.stringMatching(/: WRONGTYPE\. Later/), expect.anything()]]);
    warn.mockRestore();
  });

  it.each<[string, unknown]>([
    ['holds nothing', null],
    ['holds other data', { to: 'someone' }],
    ['was damaged', { status: 'pending', delivery: {} }],
  ])('keeps a job that %s, reports it once, and delivers the others', async (_, data) => {
    const bull = bullQueue();
    await bull.add('foreign', data);
    await bull.add('foreign', data);
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const errors = () =>
      warn.mock.calls.filter(([, options]) => JSON.stringify(options).includes('QUEUE_ERROR'));
    const queue = new BullMqQueue(bull);
    await queue.enqueue([due('own')]);
    const runs: string[] = [];
    await queue.consume(async ({ id }) => {
      runs.push(id);
      return { outcome: { type: 'delivered' } };
    });
    await queue.flush();
    await queue.stop(Date.now() + 5_000);

    expect(runs).toEqual(['own']);
    expect(await bull.getJobCounts('delayed', 'failed')).toEqual({ delayed: 2, failed: 0 });
    expect(errors()).toEqual([[expect.stringMatching(/holds no delivery/), expect.anything()]]);
    expect(errors()[0]![0]).not.toContain('someone');
    warn.mockRestore();
  });

  /** Deletes the hash of a job, as a server with an eviction policy does. */
  async function evict(bull: Queue, id: string): Promise<void> {
    await (await bull.getBackend().client).del(bull.toKey(`d-${id}`));
  }

  it('removes a job that the server has evicted, and delivers what is published again', async () => {
    const bull = bullQueue();
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const queue = new BullMqQueue(bull);
    await queue.enqueue([due('evicted'), due('own')]);
    await evict(bull, 'evicted');
    const runs: string[] = [];
    await queue.consume(async ({ id }) => {
      runs.push(id);
      return { outcome: { type: 'delivered' } };
    });
    await queue.flush();

    expect(await bull.getJobCounts('delayed', 'failed')).toEqual({ delayed: 0, failed: 0 });
    expect(warn.mock.calls.map(([message]) => message)).toContainEqual(
      expect.stringMatching(/evicted.*set "maxmemory-policy noeviction"/),
    );
    expect(await queue.enqueue([due('evicted')])).toEqual([undefined]);
    await queue.flush();
    await queue.stop(Date.now() + 5_000);
    expect(runs).toEqual(['own', 'evicted']);
    warn.mockRestore();
  });

  it('lists and finds no evicted delivery, and records it again', async () => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    const evicted = { ...due('evicted'), notBefore: Date.now() + 3_600_000 };
    await queue.enqueue([evicted, due('kept')]);
    await evict(bull, 'evicted');
    // BullMQ writes such members to a job that it fetches.
    await (await bull.getBackend().client).hset(bull.toKey('d-evicted'), { ats: 1 });

    expect(await queue.list({}, { limit: 10 })).toMatchObject([{ delivery: { id: 'kept' } }]);
    expect(await queue.find(['evicted'])).toEqual([undefined]);
    expect(await queue.attempts('evicted')).toEqual([]);
    expect(await queue.redeliver(['evicted'])).toEqual([]);
    expect(await queue.enqueue([evicted])).toEqual([undefined]);
    expect(await queue.find(['evicted'])).toMatchObject([{ status: 'pending' }]);
  });

  it('records deliveries on a connection that joins commands to pipelines', async () => {
    const connection = { url: urlOf('Redis'), enableAutoPipelining: true };
    const bull = new Queue(`webhooks-${randomBytes(6).toString('hex')}`, { connection });
    queues.push(bull);
    const client = await bull.getBackend().client;
    const earlier = Promise.all(['a', 'b'].map(async (key) => client.get(bull.toKey(key))));
    const recorded = new BullMqQueue(bull).enqueue([due('one'), due('two')]);

    expect(await earlier).toEqual([null, null]);
    expect(await recorded).toEqual([undefined, undefined]);
  });

  it('counts each delivery once that two processes erase at the same time', async () => {
    const { name } = bullQueue();
    const [one, two] = [1, 2].map(() => new BullMqQueue(bullQueue(name)));
    await one!.enqueue(Array.from({ length: 40 }, (_, n) => due(`erased-${n}`)));
    const counts = await Promise.all([one!.erase({}), two!.erase({})]);

    expect(counts[0] + counts[1]).toBe(40);
  });

  it('uses the slots of a lane again whose deliveries have waited for its limit', async () => {
    const options = { concurrency: 8, concurrencyPerDestination: 2 };
    const queue = new BullMqQueue(bullQueue(), options);
    const deliveries = Array.from({ length: 8 }, (_, n) => due(`limited-${n}`));
    await queue.enqueue(deliveries.map((one) => ({ ...one, limits: { concurrency: 1 } })));
    let ended = 0;
    await queue.consume(async () => {
      ended++;
      return { outcome: { type: 'delivered' } };
    });
    while (ended < deliveries.length) await sleep(5);

    expect(await queue.stop(Date.now() + 5_000)).toBe(0);
  });

  it('says so if a second application uses it after the first was closed', async () => {
    const queue = new BullMqQueue(bullQueue());
    const consume = async () => queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    await consume();
    await queue.stop(Date.now() + 5_000);

    await expect(consume()).rejects.toThrow('was stopped with the application');
  });

  it('starts no worker if its application was closed while it started', async () => {
    const queue = new BullMqQueue(bullQueue());
    await queue.enqueue([due('kept')]);
    await queue.stop(Date.now() + 5_000);
    const consumed = queue.consume(async () => ({ outcome: { type: 'delivered' } }));

    await expect(consumed).rejects.toMatchObject({ code: 'shutting_down' });
    expect(await queue.find(['kept'])).toMatchObject([{ status: 'pending', attempts: 0 }]);
  });

  it('adds one listener to a BullMQ queue, however many applications use it', () => {
    const bull = bullQueue();
    const sharing = Array.from({ length: 20 }, () => new BullMqQueue(bull));

    expect(sharing).toHaveLength(20);
    expect(bull.listenerCount('error')).toBe(1);
  });

  it('starts the deliveries of other endpoints ahead of the backlog of one', async () => {
    const queue = new BullMqQueue(bullQueue(), { concurrency: 8 });
    const backlog = Array.from({ length: 3_000 }, (_, n) => due(`large-${n}`, 'large'));
    await queue.enqueue(backlog);
    const started: string[] = [];
    await queue.consume(async ({ id }) => {
      started.push(id);
      await sleep(5);
      return { outcome: { type: 'delivered' } };
    });
    while (started.length < 50) await sleep(5);
    const small = Array.from({ length: 40 }, (_, n) => due(`small-${n}`, `endpoint-${n}`));
    const before = started.length;
    await queue.enqueue(small);
    const smallStarted = () => started.filter((id) => id.startsWith('small')).length;
    while (smallStarted() < small.length) await sleep(5);

    // Those of the backlog that started meanwhile.
    expect(started.length - before - small.length).toBeLessThan(backlog.length / 4);
    await queue.stop(Date.now() + 5_000);
  });

  it('keeps no more delivered deliveries than it should, and lists only these', async () => {
    const clock = new TestClock(Date.now());
    const queue = new BullMqQueue(bullQueue(), { maxDelivered: 10, clock });
    const ids = Array.from({ length: 30 }, (_, n) => `n-${String(n).padStart(2, '0')}`);
    await queue.enqueue(ids.map((id) => due(id)));
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    const delivered = async () =>
      (await queue.find(ids)).filter((record) => record?.status === 'delivered').length;
    while ((await delivered()) < ids.length) await sleep(20);
    while ((await delivered()) > 10) {
      await clock.advance(5_000);
      await sleep(5);
    }
    const listed = await queue.list({}, { limit: 100 });
    const known = (await queue.find(ids)).flatMap((record) => record?.delivery.id ?? []);

    expect(listed.map(({ delivery }) => delivery.id).toSorted()).toEqual(known.toSorted());
    expect(known).toHaveLength(10);
    await queue.stop(clock.now() + 5_000);
  });

  it('deletes all delivered deliveries past their retention in one round, in batches', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const queue = new BullMqQueue(bull, { keepDelivered: 1, clock });
    const ids = Array.from({ length: 1_100 }, (_, n) => `n-${n}`);
    await queue.enqueue(ids.map((id) => due(id)));
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    while ((await bull.getCompletedCount()) < ids.length) await sleep(20);

    await clock.advance(5_000);
    while ((await queue.counts({})).length > 0) await sleep(20);
    expect(await queue.list({}, { limit: 1 })).toEqual([]);
    await queue.stop(clock.now() + 5_000);
  });

  it('deletes dead deliveries past their retention, but none that blocks its key', async () => {
    const clock = new TestClock(Date.now());
    const bull = bullQueue();
    const queue = new BullMqQueue(bull, { keepDead: '1h', clock });
    const at = clock.now();
    const items = [due('old'), due('blocking'), due('young')].map((item, index) => ({
      ...item,
      delivery: {
        ...item.delivery,
        createdAt: index === 2 ? at : at - 3_600_000,
        ...(index === 1 && { orderingKey: 'key' }),
      },
    }));
    await queue.enqueue(items);
    await queue.consume(async ({ id }) => ({
      outcome: { type: 'dead', reason: 'http_410', attempts: 1, blocksKey: id === 'blocking' },
    }));
    const ids = ['old', 'blocking', 'young'];
    const dead = async () =>
      (await queue.find(ids)).filter((record) => record?.status === 'dead').length;
    while ((await dead()) < 3) await sleep(20);
    while ((await queue.find(['old']))[0] !== undefined) {
      await clock.advance(5_000);
      await sleep(5);
    }

    expect(await queue.find(['blocking', 'young'])).toMatchObject([
      { status: 'dead', keyState: 'blocking' },
      { status: 'dead' },
    ]);
    const reads = jest.spyOn(bull, 'getJob');
    const checks = jest.spyOn(bull, 'getJobState');
    while (checks.mock.calls.length === 0) {
      await clock.advance(5_000);
      await sleep(5);
    }
    expect(reads).not.toHaveBeenCalledWith('d-blocking');
    await queue.stop(clock.now() + 5_000);
  });

  it.each([
    ['', false],
    [', even if the history cannot be checked', true],
  ])(
    'wakes a delivery whose process died after the one before it had ended%s',
    async (_, isBad) => {
      const clock = new TestClock(Date.now());
      const bull = bullQueue();
      const queue = new BullMqQueue(bull, { clock });
      const keyed = (id: string) => {
        const { delivery, notBefore } = due(id);
        return { delivery: { ...delivery, orderingKey: 'key' }, notBefore };
      };
      await queue.enqueue([keyed('ended'), keyed('waiting')]);
      await queue.flush();
      // As if the first one had ended before the second was recorded, and the process had died before it closed its turn.
      const redis = new Redis(urlOf('Redis'));
      const own = bull.toKey('webhooks');
      const turns = (await redis.keys(`${own}:turns:*`))[0]!;
      const key = turns.slice(`${own}:turns:`.length);
      await bull.remove('d-ended');
      await redis.zrem(turns, 'ended');
      await redis.zadd(`${own}:open`, clock.now() - 60_000, `waiting\n${key}`);
      if (isBad) await redis.set(`${own}:by:status:pending`, 'text');
      await redis.quit();

      const ran: string[] = [];
      await queue.consume(async ({ id }) => {
        ran.push(id);
        return { outcome: { type: 'delivered' } };
      });
      while (ran.length === 0) {
        await clock.advance(5_000);
        await sleep(5);
      }
      expect(ran).toEqual(['waiting']);
      await queue.stop(clock.now() + 5_000);
    },
  );

  it('starts the next delivery of a key in time after the clock was set back', async () => {
    const clock = new TestClock(Date.now());
    const queue = new BullMqQueue(bullQueue(), { clock });
    const items = ['first', 'next'].map((id) => {
      const { delivery, notBefore } = due(id);
      return { delivery: { ...delivery, orderingKey: 'key' }, notBefore };
    });
    await queue.enqueue(items);
    const bothRan = new Promise<void>((resolve) => {
      void queue.consume(async ({ id }) => {
        if (id === 'next') resolve();
        else clock.set(clock.now() - 86_400_000);
        return { outcome: { type: 'delivered' } };
      });
    });
    await bothRan;
    await queue.stop(clock.now());
  });

  it('applies a limit again that another process has replaced meanwhile', async () => {
    const { name } = bullQueue();
    const open = (options: object) => new BullMqQueue(bullQueue(name), options);

    expect(await runsAfterReplacedLimit(open)).toBe(1);
  });

  it('delivers soon when a process that delivers nothing ends a pause', async () => {
    const { name } = bullQueue();

    // BullMqQueue records a pause before the outcome that came with it.
    await runsAfterEndedPause(
      () => new BullMqQueue(bullQueue(name)),
      async () => true,
    );
  });

  it('keeps nothing of endpoints, keys and limits without deliveries for longer than 30 days', async () => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    const { delivery, notBefore } = due('once');
    const limits = { concurrency: 1 };
    const item = { delivery: { ...delivery, orderingKey: 'key' }, notBefore, limits };
    const received = dueReceived('received');
    await queue.enqueue([item, received]);
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    const statuses = async () =>
      (await queue.find(['once', 'received'])).map((record) => record?.status);
    while ((await statuses()).some((status) => status !== 'delivered')) await sleep(20);
    await queue.stop(Date.now() + 5_000);
    await queue.erase({ eventId: received.delivery.eventId });
    await queue.erase({ eventId: delivery.eventId });
    const client = (await bull.getBackend().client) as unknown as {
      keys(pattern: string): Promise<string[]>;
      pttl(key: string): Promise<number>;
    };
    const base = bull.toKey('webhooks');
    // The virtual time names no endpoint.
    const keys = (await client.keys(`${base}:*`))
      .filter((key) => key !== `${base}:turn`)
      .toSorted();
    const lives = await Promise.all(keys.map(async (key) => client.pttl(key)));

    expect(keys.map((key) => key.slice(base.length + 1).split(':')[0])).toEqual([
      'limit',
      'number',
    ]);
    for (const ms of lives) {
      expect(ms).toBeGreaterThan(29 * 24 * 3_600_000);
      expect(ms).toBeLessThanOrEqual(30 * 24 * 3_600_000);
    }
  });

  it('erases the answers of receivers from all keys of BullMQ', async () => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    const { delivery, notBefore } = due('answered');
    const attempt = { attempt: 1, at: 1_700_000_000_000, durationMs: 1, statusCode: 200 };
    await queue.consume(async () => ({
      outcome: { type: 'delivered' },
      attempt: { ...attempt, answer: 'Hello Jane' },
    }));
    await queue.enqueue([{ delivery, notBefore }]);
    while ((await queue.find(['answered']))[0]?.status !== 'delivered') await sleep(20);
    await queue.stop(Date.now() + 5_000);

    expect(await queue.attempts('answered')).toEqual([{ ...attempt, answer: 'Hello Jane' }]);
    expect(await queue.erase({ eventId: delivery.eventId })).toBe(1);
    const redis = new Redis(urlOf('Redis'));
    const events = await redis.xrange(bull.toKey('events'), '-', '+');
    const left = await redis.keys(`${bull.toKey('')}d-*`);
    await redis.quit();
    expect(events.length).toBeGreaterThan(0);
    expect(JSON.stringify(events)).not.toContain('Jane');
    expect(left).toEqual([]);
  });

  it('counts the run of a received event whose process died', async () => {
    const { name } = bullQueue();
    const [dying, next] = [1, 2].map(() => new BullMqQueue(bullQueue(name), { lease: '5s' })) as [
      BullMqQueue,
      BullMqQueue,
    ];
    const gate = new Gate();
    const started: string[] = [];
    await dying.consume(async ({ id }) => {
      started.push(id);
      await gate.pass();
      return { outcome: { type: 'delivered' } };
    });
    await dying.enqueue([dueReceived('received'), due('sent')]);
    while (started.length < 2) await sleep(20);
    await dying.stop(Date.now());
    const runs = new Map<string, number>();
    await next.consume(async ({ id }, attempt) => {
      runs.set(id, attempt);
      return { outcome: { type: 'retry', at: Date.now() + 3_600_000, reason: 'handler_failed' } };
    });
    const ids = ['received', 'sent'];
    while (runs.size < 2 || (await next.find(ids)).some((record) => !record?.reason)) {
      await sleep(50);
    }

    expect(Object.fromEntries(runs)).toEqual({ received: 2, sent: 1 });
    expect(await next.find(ids)).toMatchObject([{ attempts: 2 }, { attempts: 1 }]);
    await next.stop(Date.now() + 5_000);
    gate.open();
  });

  it('lists no delivery whose job is gone, and lists one as what its job says', async () => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    await queue.enqueue([due('kept'), due('removed')]);
    await bull.remove('d-removed');

    expect(await queue.list({}, { limit: 10 })).toMatchObject([{ delivery: { id: 'kept' } }]);
    expect(await queue.list({ event: 'order.created' }, { limit: 1 })).toHaveLength(1);
  });

  it('records deliveries whose ids are numbers or keys of BullMQ', async () => {
    const queue = new BullMqQueue(bullQueue());
    const ids = ['7', 'wait', 'meta', 'events'];

    expect(await queue.enqueue(ids.map((id) => due(id)))).toEqual(ids.map(() => undefined));
    const records = await queue.find(ids);
    expect(records.map((record) => record?.delivery.id)).toEqual(ids);
  });

  it('fails only the call whose delivery BullMQ refuses', async () => {
    const queue = new BullMqQueue(bullQueue());
    const calls = [['before'], ['beside', 'no:colon'], ['after']].map(async (ids) =>
      queue.enqueue(ids.map((id) => due(id))),
    );

    expect((await Promise.allSettled(calls)).map(({ status }) => status)).toEqual([
      'fulfilled',
      'rejected',
      'fulfilled',
    ]);
    expect(await queue.find(['before', 'beside', 'after'])).toMatchObject([
      { status: 'pending' },
      undefined,
      { status: 'pending' },
    ]);
  });

  it('tells new deliveries from known ones on a server that has lost its scripts', async () => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    await queue.enqueue([due('known')]);
    await ((await bull.getBackend().client) as unknown as Redis).script('FLUSH');

    expect(await queue.enqueue([due('new'), due('known')])).toMatchObject([
      undefined,
      { status: 'pending' },
    ]);
    expect(await queue.enqueue([due('new')])).toMatchObject([{ status: 'pending' }]);
  });

  it('answers the calls that it has accepted before it stops', async () => {
    const queue = new BullMqQueue(bullQueue());
    const calls = Array.from({ length: 1_200 }, async (_, n) => queue.enqueue([due(`n-${n}`)]));
    let answered = 0;
    for (const call of calls) void call.then(() => answered++);
    await queue.stop(Date.now() + 30_000);
    await sleep(0);

    expect(answered).toBe(calls.length);
  });
});

describe('BullMqQueue on a server', () => {
  const NOW = 1_800_000_000_000;

  async function warningsOn(connection: object, ...lines: string[]): Promise<string[]> {
    const info = async (): Promise<string> => lines.join('\r\n');
    const backend = { client: Promise.resolve({ info }) };
    const queue = { getBackend: () => backend, opts: { connection } } as unknown as Queue;
    return (await serverWarnings(queue, () => NOW)).map(({ message }) => message);
  }

  it.each<[string, object, string[], RegExp]>([
    ['without an append-only file', {}, ['aof_enabled:0'], /appendonly/],
    ['that evicts', {}, ['aof_enabled:1', 'maxmemory_policy:allkeys-lru'], /allkeys-lru/],
    ['whose clock is ahead', {}, [`server_time_usec:${(NOW + 90_000) * 1_000}`], /90\.0 s behind/],
    ['whose clock is behind', {}, [`server_time_usec:${(NOW - 90_000) * 1_000}`], /90\.0 s ahead/],
    ['reached through a client without a timeout', new Redis({ lazyConnect: true }), [], /30_000/],
  ])('%s warns', async (_, connection, lines, expected) => {
    expect(await warningsOn(connection, ...lines)).toEqual([expect.stringMatching(expected)]);
  });

  it('with a durable configuration does not warn', async () => {
    const client = new Redis({ lazyConnect: true, socketTimeout: 30_000 });
    const lines = [
      'aof_enabled:1',
      'maxmemory_policy:noeviction',
      `server_time_usec:${NOW * 1_000}`,
    ];

    expect(await warningsOn(client, ...lines)).toEqual([]);
  });
});

describe('new BullMqQueue', () => {
  const opts = { connection: {} };
  const queue = { addBulk: async () => [], opts } as unknown as Queue;

  it.each([
    ['no queue', {}, {}, 'queue'],
    ['a queue without a connection', { addBulk: async () => [], opts: {} }, {}, 'queue'],
    ['no concurrency', queue, { concurrency: 0 }, 'concurrency'],
    ['a lease that is too short', queue, { lease: '1s' }, 'lease'],
    ['an invalid duration', queue, { keepDelivered: 'long' }, 'keepDelivered'],
  ])('refuses %s', (_, given, options, path) => {
    expect(() => new BullMqQueue(given as Queue, options)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: expect.arrayContaining([
          expect.objectContaining({ path: `BullMqQueue.${path}` }),
        ]),
      }),
    );
  });

  it.each<[string, () => object]>([
    ['the options of its connection', () => ({ host: '127.0.0.1', keyPrefix: 'shop:' })],
    ['the URL of its connection', () => ({ url: 'redis://127.0.0.1:1/?keyPrefix=shop:' })],
    ['a client', () => new Redis({ lazyConnect: true, keyPrefix: 'shop:' })],
    [
      'a cluster',
      () => {
        const redisOptions = { keyPrefix: 'shop:' };
        return new Cluster([{ host: '127.0.0.1', port: 1 }], { lazyConnect: true, redisOptions });
      },
    ],
  ])('refuses a keyPrefix in %s, which hides the keys of a job from BullMQ', (_, connection) => {
    const opts = { connection: connection() };
    const prefixed = { addBulk: async () => [], opts, toKey: () => '{webhooks}:queue:' };

    expect(() => new BullMqQueue(prefixed as unknown as Queue)).toThrow(
      /keyPrefix; remove it, and create the Queue with the option prefix/,
    );
  });

  it('refuses a Redis Cluster that would spread its keys, and says how to keep them together', () => {
    const nodes = [{ host: '127.0.0.1', port: 1 }];
    const connection = new Cluster(nodes, { lazyConnect: true });
    connection.on('error', () => {});
    const on = (prefix: string) => ({
      addBulk: async () => [],
      opts: { connection },
      toKey: (type: string) => `${prefix}:queue:${type}`,
    });

    expect(() => new BullMqQueue(on('bull') as unknown as Queue)).toThrow(/prefix: "\{webhooks\}"/);
    expect(() => new BullMqQueue(on('{webhooks}') as unknown as Queue)).not.toThrow();
    connection.disconnect();
  });
});
