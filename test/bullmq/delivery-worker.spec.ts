import { afterEach, describe, expect, it, jest } from '@jest/globals';
import type { ConnectionOptions } from 'bullmq';
import { Cluster, Redis } from 'ioredis';
import { createClient } from 'redis';
import { DeliveryWorker, workerConnection } from '../../lib/bullmq/delivery-worker.js';
import { describeWith, urlOf } from '../fixtures/services.js';

const cleanUp: (() => unknown)[] = [];
afterEach(async () => {
  for (const clean of cleanUp.splice(0).toReversed()) await clean();
});

/** The worker's connection, released after the test. */
function connectionFor(connection: ConnectionOptions): Record<string, unknown> {
  const own = workerConnection(connection);
  cleanUp.push(own.release);
  return own.connection as Record<string, unknown>;
}

async function nextTurn(): Promise<void> {
  await new Promise((resolve) => setImmediate(resolve));
}

describe("the worker's connection has an offline queue", () => {
  it('made of options that turn it off', () => {
    const options = { host: 'redis.example', enableOfflineQueue: false };

    expect(connectionFor(options)).toEqual({ host: 'redis.example', enableOfflineQueue: true });
    expect(options.enableOfflineQueue).toBe(false);
  });

  it('made of a client of ioredis', () => {
    const client = new Redis({ lazyConnect: true, enableOfflineQueue: false, db: 3 });
    cleanUp.push(() => client.disconnect());
    const own = connectionFor(client);

    expect(own).not.toBe(client);
    expect(own['options']).toMatchObject({ enableOfflineQueue: true, db: 3 });
  });

  it('made of a cluster of ioredis', () => {
    const nodes = [{ host: '127.0.0.1', port: 1 }];
    const client = new Cluster(nodes, { lazyConnect: true, enableOfflineQueue: false });
    cleanUp.push(() => client.disconnect());
    const own = connectionFor(client);

    expect(own).toMatchObject({ isCluster: true, startupNodes: nodes });
    expect(own['options']).toMatchObject({ enableOfflineQueue: true });
  });

  it('made of a client of node-redis', () => {
    const client = createClient({ url: 'redis://127.0.0.1:1', disableOfflineQueue: true });
    const own = connectionFor(client);

    expect(own['options']).toMatchObject({ disableOfflineQueue: false });
  });
});

(await describeWith('Redis'))('a worker whose fetches are refused at once', () => {
  it('fetches no more than once a second', async () => {
    const client = new Redis(urlOf('Redis'), { maxRetriesPerRequest: null });
    cleanUp.push(() => client.disconnect());
    const options = { connection: client, autorun: false };
    const worker = new DeliveryWorker('refused-fetches', async () => 1, options);
    worker.on('error', () => {});
    cleanUp.push(async () => worker.close(true));
    await worker.waitUntilReady();
    const fetches = jest.spyOn(worker.getBackend(), 'moveToActive').mockImplementation(async () => {
      await nextTurn();
      throw new Error('OOM command not allowed');
    });
    void worker.run();
    while (fetches.mock.calls.length === 0) await nextTurn();
    for (let turn = 0; turn < 200; turn++) await nextTurn();

    expect(fetches.mock.calls.length).toBeLessThanOrEqual(2);
  });

  it("leaves the application's client connected when it closes", async () => {
    const client = new Redis(urlOf('Redis'), { maxRetriesPerRequest: null });
    cleanUp.push(() => client.disconnect());
    const worker = new DeliveryWorker('closed', async () => 1, { connection: client });
    worker.on('error', () => {});
    await worker.waitUntilReady();
    await worker.disconnect();
    await worker.close(true);

    expect(await client.ping()).toBe('PONG');
  });
});
