import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, describe, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import type { Redis } from 'ioredis';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { durabilityFaults } from '../../lib/bullmq/redis-durability.js';
import { webhookQueueContract } from '../../lib/testing/webhook-queue.contract.js';
import { describeContract } from '../fixtures/contract.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { due } from '../postgres/deliveries.js';

const queues: Queue[] = [];
afterAll(async () => {
  for (const queue of queues) {
    await queue.obliterate({ force: true });
    await queue.close();
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
  const contract = webhookQueueContract({
    create: () => new BullMqQueue(bullQueue()),
    advance: (ms) => sleep(ms),
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
    await dying.consume(async () => ({ type: 'dead', reason: 'network', attempts: 1 }));
    while ((await dying.listDead()).length < ids.length) await sleep(20);
    await dying.stop(Date.now() + 5_000);
    const redelivered = await Promise.all([one.redeliver(ids), two.redeliver(ids)]);

    expect(redelivered.flat().toSorted()).toEqual(ids.toSorted());
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

  it.each([
    ['that does not know its script', async (client: Redis) => client.script('FLUSH')],
    // Clients other than ioredis may not have it.
    [
      'through a client without eval',
      async (client: Redis) => Object.assign(client, { eval: undefined }),
    ],
  ])('tells new deliveries from known ones on a server %s', async (_, prepare) => {
    const bull = bullQueue();
    const queue = new BullMqQueue(bull);
    await queue.enqueue([due('known')]);
    await prepare((await bull.getBackend().client) as unknown as Redis);

    expect(await queue.enqueue([due('new'), due('known')])).toMatchObject([
      { status: 'recorded' },
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
  async function warningsOn(...lines: string[]): Promise<string[]> {
    const info = async (): Promise<string> => lines.join('\r\n');
    const backend = { client: Promise.resolve({ info }) };
    return durabilityFaults({ getBackend: () => backend } as unknown as Queue);
  }

  it.each([
    ['without an append-only file', 'aof_enabled:0', 'maxmemory_policy:noeviction', /appendonly/],
    ['that evicts', 'aof_enabled:1', 'maxmemory_policy:allkeys-lru', /allkeys-lru/],
  ])('%s warns that deliveries can be lost', async (_, persistence, memory, expected) => {
    expect(await warningsOn(persistence, memory)).toEqual([expect.stringMatching(expected)]);
  });

  it('with a durable configuration does not warn', async () => {
    expect(await warningsOn('aof_enabled:1', 'maxmemory_policy:noeviction')).toEqual([]);
  });
});

it('looks up more ids at once than a function takes arguments', async () => {
  const client = Promise.resolve({ eval: async () => [1] });
  const bull = {
    opts: {},
    toKey: (id: string) => id,
    getBackend: () => ({ client }),
    addBulk: async () => [],
    getJob: async () => undefined,
  };
  const queue = new BullMqQueue(bull as unknown as Queue);
  const deliveries = Array.from({ length: 200_000 }, (_, n) => due(`n-${n}`));
  const receipts = await queue.enqueue(deliveries);

  expect(receipts.slice(0, 2)).toMatchObject([{ status: 'pending' }, { status: 'recorded' }]);
  expect(receipts.filter(({ status }) => status === 'recorded')).toHaveLength(199_999);
});

describe('new BullMqQueue', () => {
  const queue = { addBulk: async () => [] } as unknown as Queue;

  it.each([
    ['no queue', {}, {}, 'queue'],
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
});
