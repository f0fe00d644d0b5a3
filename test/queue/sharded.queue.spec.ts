import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it, jest } from '@jest/globals';
import { InProcessQueue, WebhookConfigurationError, WebhookStoreError } from 'nestjs-webhook-token';
import type { EnqueuedDelivery, OutgoingDelivery, WebhookQueue } from 'nestjs-webhook-token/ports';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { TestClock, webhookQueueContract } from 'nestjs-webhook-token/testing';

import { deliveryLane } from '../../lib/queue/webhook-delivery.js';
import { ShardedQueue, type ShardedQueueOptions } from '../../lib/queue/sharded.queue.js';
import { describeContract } from '../fixtures/contract.js';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from '../postgres/database.js';

const NAMES = ['a', 'b', 'c', 'd'];
const DELIVERED = { outcome: { type: 'delivered' } } as const;

describe('ShardedQueue fulfils the contract with four queues in memory', () => {
  const cases = webhookQueueContract({
    create: (clock) =>
      new ShardedQueue({
        shards: shardsOf(() => new InProcessQueue({ clock, concurrency: 100 }), NAMES),
        clock,
      }),
    createDropping: (clock, keepPayloads) =>
      new ShardedQueue({
        shards: shardsOf(() => new InProcessQueue({ clock, keepPayloads }), NAMES),
        clock,
      }),
  });
  for (const rule of cases) it(rule.name, () => rule.run());
});

(await describeWith('PostgreSQL'))('ShardedQueue with four queues on PostgreSQL', () => {
  // Each shard has its own connections, as if it had its own server.
  const databases = new Map(NAMES.map((name) => [name, new TestDatabase()]));
  afterAll(async () => {
    for (const database of databases.values()) await database.close();
  });

  const schemas = new Map([...databases].map(([name, database]) => [name, database.newSchema()]));
  let queues = 0;
  const contract = webhookQueueContract({
    create: () => {
      const name = `case-${queues++}`;
      const shards = shardsOf(
        (shard) =>
          new PostgresQueue({
            pool: databases.get(shard)!.pool,
            schema: schemas.get(shard)!,
            name,
          }),
        NAMES,
      );
      return new ShardedQueue({ shards });
    },
    advance: (ms) => sleep(ms),
    expireLease: async (_, id) => {
      for (const [shard, schema] of schemas) {
        const expire = `UPDATE ${schema}.delivery SET leased_until = now() WHERE id = $1`;
        await databases.get(shard)!.pool.query(expire, [id]);
      }
    },
  });
  describeContract(contract, 6);
});

describe('ShardedQueue', () => {
  it('keeps the deliveries of an endpoint in one shard, and spreads endpoints evenly', async () => {
    const { queue, shards } = bench();
    const endpoints = Array.from({ length: 400 }, (_, index) => `endpoint-${index}`);
    await queue.enqueue(endpoints.flatMap((id) => [due(`${id}-1`, id), due(`${id}-2`, id)]));

    const counts = await Promise.all(Object.values(shards).map((shard) => shard.counts({})));
    expect(counts.flat()).toHaveLength(400);
    for (const own of counts) {
      expect(own.every(({ pending }) => pending === 2)).toBe(true);
      expect(own.length).toBeGreaterThan(60);
    }
  });

  it('checks every shard, and calls skip of those without a check', async () => {
    const { queue, shards } = bench();
    const [checked, skipped] = Object.values(shards);
    const failure = new WebhookStoreError('store_unavailable', 'The server is read-only.');
    await expect(queue.check()).resolves.toBeUndefined();
    checked!.check = async () => Promise.reject(failure);
    await expect(queue.check()).rejects.toBe(failure);
    checked!.check = async () => undefined;
    skipped!.skip = async () => Promise.reject(failure);
    await expect(queue.check()).rejects.toBe(failure);
  });

  it('moves only the endpoints that a new shard takes over', async () => {
    const three = bench({}, ['a', 'b', 'c']);
    const four = bench();
    const endpoints = Array.from({ length: 400 }, (_, index) => `endpoint-${index}`);
    const deliveries = endpoints.map((id) => due(id, id));
    await three.queue.enqueue(deliveries);
    await four.queue.enqueue(deliveries);

    const placesOf = async (shards: Readonly<Record<string, WebhookQueue>>) => {
      const places = new Map<string, string>();
      for (const [name, shard] of Object.entries(shards)) {
        for (const { endpointId } of await shard.counts({})) places.set(endpointId!, name);
      }
      return places;
    };
    const [before, after] = [await placesOf(three.shards), await placesOf(four.shards)];
    const moved = endpoints.filter((id) => before.get(id) !== after.get(id));
    expect(moved.every((id) => after.get(id) === 'd')).toBe(true);
    expect(moved.length).toBeGreaterThan(60);
    expect(moved.length).toBeLessThan(140);
  });

  it('records what is missing when an event is published again after a shard failed', async () => {
    class Failing extends InProcessQueue {
      fails = true;
      override async enqueue(...args: Parameters<InProcessQueue['enqueue']>) {
        if (this.fails) throw new WebhookStoreError('store_unavailable', 'the server is down');
        return super.enqueue(...args);
      }
    }
    const clock = new TestClock();
    const failing = new Failing({ clock });
    const queue = new ShardedQueue({ shards: { a: new InProcessQueue({ clock }), b: failing } });
    const deliveries = NAMES.concat('e', 'f', 'g', 'h').map((id) => due(id, id));

    await expect(queue.enqueue(deliveries)).rejects.toMatchObject({ code: 'store_unavailable' });
    failing.fails = false;
    await queue.enqueue(deliveries);

    const counts = await queue.counts({});
    expect(counts).toHaveLength(deliveries.length);
    expect(counts.every(({ pending }) => pending === 1)).toBe(true);
  });

  it('starts the shards that did not start before', async () => {
    class Failing extends InProcessQueue {
      fails = true;
      override consume(...args: Parameters<InProcessQueue['consume']>) {
        if (this.fails) throw new WebhookStoreError('store_unavailable', 'the server is down');
        super.consume(...args);
      }
    }
    const clock = new TestClock();
    const failing = new Failing({ clock });
    const queue = new ShardedQueue({ shards: { a: new InProcessQueue({ clock }), b: failing } });
    const delivered: string[] = [];
    const consume = async () =>
      queue.consume(async ({ id }) => {
        delivered.push(id);
        return DELIVERED;
      });

    await expect(consume()).rejects.toMatchObject({ code: 'store_unavailable' });
    failing.fails = false;
    await consume();
    await queue.enqueue(NAMES.concat('e', 'f', 'g', 'h').map((id) => due(id, id)));
    await clock.advance(0);

    expect(delivered.toSorted()).toEqual(['a', 'b', 'c', 'd', 'e', 'f', 'g', 'h']);
  });

  it('checks ids only in the shards of their endpoints', async () => {
    const { queue, shards } = bench();
    const item = due('1', 'crm');
    await queue.enqueue([item]);
    const others = Object.values(shards).filter((shard) => (shard as InProcessQueue).size === 0);
    for (const shard of others) {
      shard.find = async () => {
        throw new WebhookStoreError('store_unavailable', 'the server is down');
      };
    }
    const checked = jest.fn();
    await queue.enqueue([item, due('2', 'crm')], { check: checked });

    expect(others).toHaveLength(3);
    expect(checked.mock.calls).toEqual([
      [[expect.objectContaining({ status: 'pending' }), undefined]],
    ]);
  });

  it('asks less often about a key that waits for long in the former shard', async () => {
    const { clock, before, after, keyed } = movingBench();
    await before.enqueue(keyed(1).map((item) => ({ ...item, notBefore: clock.now() + 3_600_000 })));
    await after.enqueue(keyed(2));
    const list = jest.spyOn(InProcessQueue.prototype, 'list');
    await after.consume(async () => DELIVERED);
    for (let second = 0; second < 600; second++) await clock.advance(1_000);
    const asked = list.mock.calls.map(([{ endpointId }]) => endpointId);
    list.mockRestore();
    const moved = new Set(asked).size;

    // 1, 2, 4, … 32 s, and then each minute.
    expect(moved).toBeGreaterThan(0);
    expect(asked.length).toBeLessThanOrEqual(moved * 16);
  });

  it('records an event once although its endpoint has moved to another shard', async () => {
    const { before, after } = movingBench();
    const deliveries = Array.from({ length: 40 }, (_, index) => due(`${index}`, `${index}`));
    await before.enqueue(deliveries);

    const known = await after.enqueue(deliveries);

    expect(known.every((record) => record?.status === 'pending')).toBe(true);
    expect(await after.counts({})).toHaveLength(40);
  });

  it.each<[string, (item: EnqueuedDelivery<OutgoingDelivery>) => EnqueuedDelivery]>([
    ['endpoint', (item) => item],
    ['receiver', asReceived],
  ])('keeps the order of a key whose %s moves to another shard', async (_, laneOf) => {
    const { clock, before, after, endpoints, keyed } = movingBench();
    await before.enqueue(keyed(1).map(laneOf));
    await after.enqueue(keyed(2).map(laneOf));
    const order = new Map<string, string[]>();
    const failed = new Set<string>();
    await after.consume(async ({ id }, attempt) => {
      const [endpoint, version] = id.split(':') as [string, string];
      // The first attempt of each fails, so that a later one could overtake it.
      if (!failed.has(id)) {
        failed.add(id);
        const at = clock.now() + 10_000;
        return {
          outcome: { type: 'retry', at, reason: 'http_503' },
          attempt: { attempt, at: clock.now(), durationMs: 1, reason: 'http_503' },
        };
      }
      order.set(endpoint, [...(order.get(endpoint) ?? []), version]);
      return DELIVERED;
    });
    for (let second = 0; second < 120; second++) await clock.advance(1_000);

    expect(order.size).toBe(endpoints.length);
    expect([...order.values()].every((versions) => versions.join() === '1,2')).toBe(true);
  });

  it('holds a key that is blocked in the former shard until it is skipped', async () => {
    const { clock, before, after, endpoints, keyed } = movingBench();
    await before.enqueue(keyed(1));
    await after.enqueue(keyed(2));
    const delivered: string[] = [];
    await after.consume(async ({ id }) => {
      if (id.endsWith(':1')) {
        return { outcome: { type: 'dead', reason: 'http_410', attempts: 1, blocksKey: true } };
      }
      delivered.push(id);
      return DELIVERED;
    });
    for (let second = 0; second < 5; second++) await clock.advance(1_000);
    expect(delivered).toEqual([]);

    await after.skip(endpoints.map((id) => `${id}:1`));
    for (let second = 0; second < 15; second++) await clock.advance(1_000);

    expect(delivered).toHaveLength(endpoints.length);
  });

  it('limits an endpoint in both shards while it moves', async () => {
    const { clock, before, after, endpoints } = movingBench();
    const deliveries = endpoints.flatMap((id) => [due(`${id}:1`, id), due(`${id}:2`, id)]);
    await before.enqueue(deliveries);
    for (const { delivery } of deliveries) {
      await after.limitLane(deliveryLane(delivery), { perSecond: 1, burst: 1 });
    }
    const delivered: string[] = [];
    await after.consume(async ({ id }) => {
      delivered.push(id);
      return DELIVERED;
    });
    await clock.advance(0);

    expect(delivered.toSorted()).toEqual(endpoints.map((id) => `${id}:1`).toSorted());
  });

  it('adds the numbers of an endpoint that has deliveries in two shards', async () => {
    const { before, after, endpoints } = movingBench();
    await before.enqueue(endpoints.map((id) => due(`${id}:1`, id)));
    await after.enqueue(endpoints.map((id) => due(`${id}:2`, id)));

    const counts = await after.counts({});

    expect(counts).toHaveLength(endpoints.length);
    expect(counts.every(({ pending, oldestDue }) => pending === 2 && oldestDue === 0)).toBe(true);
  });

  it.each<[string, Partial<ShardedQueueOptions>, string]>([
    ['no queue', { shards: {} }, 'shards'],
    ['a value that is no queue', { shards: { a: {} as WebhookQueue } }, 'shards'],
    ['an unknown shard', { moving: { ...move('to'), to: ['a', 'e'] } }, 'moving.to'],
    ['an unknown phase', { moving: { ...move('to'), record: 'later' as 'to' } }, 'moving.record'],
  ])('refuses %s', (_, change, path) => {
    const { shards } = bench();
    const create = () => new ShardedQueue({ shards, ...change });

    expect(create).toThrow(WebhookConfigurationError);
    expect(create).toThrow(`ShardedQueue.${path}`);
  });
});

function bench(change: Partial<ShardedQueueOptions> = {}, names: readonly string[] = NAMES) {
  const clock = new TestClock();
  const shards = shardsOf(() => new InProcessQueue({ clock }), names);
  return { clock, shards, queue: new ShardedQueue({ shards, clock, ...change }) };
}

/** The queue before and after a shard was added, and versions of a key of 20 endpoints. */
function movingBench() {
  const { shards, clock } = bench();
  const endpoints = Array.from({ length: 20 }, (_, index) => `endpoint-${index}`);
  const keyed = (version: number) =>
    endpoints.map((id) =>
      due(`${id}:${version}`, id, { orderingKey: 'sku-1', createdAt: clock.now() }),
    );
  return {
    clock,
    before: new ShardedQueue({ shards, clock, moving: move('from') }),
    after: new ShardedQueue({ shards, clock, moving: move('to') }),
    endpoints,
    keyed,
  };
}

function shardsOf(
  create: (name: string) => WebhookQueue,
  names: readonly string[],
): Record<string, WebhookQueue> {
  return Object.fromEntries(names.map((name) => [name, create(name)]));
}

function move(record: 'from' | 'to') {
  return { from: ['a', 'b', 'c'], to: NAMES, record } as const;
}

/** An event that a receiver with the name of the endpoint has acknowledged. */
function asReceived({ delivery, ...item }: EnqueuedDelivery<OutgoingDelivery>): EnqueuedDelivery {
  const { endpointId: receiver = '', event, ...recorded } = delivery;
  const claims = {
    iss: 'https://shop.example',
    jti: delivery.id,
    iat: 1,
    exp: 2,
    webhook: { event },
  };
  const received = { receiver, claims, method: 'POST', profile: 'webhook-token' } as const;
  const contentType = 'application/json';
  return {
    ...item,
    delivery: { ...recorded, event, received: { ...received, contentType, bodyVerified: true } },
  };
}

function due(
  id: string,
  endpointId: string,
  change: Partial<OutgoingDelivery> = {},
): EnqueuedDelivery<OutgoingDelivery> {
  const payload = {
    kind: 'json',
    bytes: Buffer.from('{}'),
    contentType: 'application/json',
  } as const;
  return {
    delivery: {
      id,
      eventId: id,
      event: 'stock.changed',
      endpointId,
      payload,
      createdAt: 0,
      ...change,
    },
    notBefore: 0,
  };
}
