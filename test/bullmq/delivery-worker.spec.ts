import { afterEach, describe, expect, it } from '@jest/globals';
import { type ConnectionOptions, Queue } from 'bullmq';
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

/** A worker of a queue, of which only the connection and the options matter. */
function workerOf(queue: Queue): DeliveryWorker {
  return new DeliveryWorker(queue, {
    process: async () => ({ attempts: 1, updatedAt: 1 }),
    onError: () => {},
    onWorking: () => {},
    onDrained: () => {},
    onEnded: () => {},
    concurrency: 1,
    lease: 5_000,
    timeout: 10_000,
  });
}

describe("the worker's connection has an offline queue", () => {
  it('made of options that turn it off', () => {
    const options = { host: 'redis.example', enableOfflineQueue: false, commandTimeout: 5_000 };

    expect(connectionFor(options)).toEqual({
      host: 'redis.example',
      enableOfflineQueue: true,
      maxRetriesPerRequest: null,
      reconnectOnError: expect.any(Function),
    });
    expect(options.enableOfflineQueue).toBe(false);
  });

  it('made of a client of ioredis', () => {
    const settings = {
      lazyConnect: true,
      enableOfflineQueue: false,
      db: 3,
      socketTimeout: 30_000,
      commandTimeout: 5_000,
    };
    const client = new Redis(settings);
    cleanUp.push(() => client.disconnect());
    const own = connectionFor(client);

    expect(own).not.toBe(client);
    // With ioredis 5, a socketTimeout would keep the process alive after a stop.
    expect(own['options']).toMatchObject({
      enableOfflineQueue: true,
      db: 3,
      socketTimeout: undefined,
      commandTimeout: undefined,
      // The default, 20, is refused by BullMQ.
      maxRetriesPerRequest: null,
    });
  });

  it('made of a cluster of ioredis', () => {
    const nodes = [{ host: '127.0.0.1', port: 1 }];
    const client = new Cluster(nodes, {
      lazyConnect: true,
      enableOfflineQueue: false,
      redisOptions: { password: 'hush', commandTimeout: 5_000 },
    });
    cleanUp.push(() => client.disconnect());
    const own = connectionFor(client);

    expect(own).toMatchObject({ isCluster: true, startupNodes: nodes });
    expect(own['options']).toMatchObject({
      enableOfflineQueue: true,
      redisOptions: { password: 'hush', commandTimeout: undefined },
    });
  });

  it('made of a client of node-redis', () => {
    const socket = {
      reconnectStrategy: false,
      connectTimeout: 1_000,
      socketTimeout: 5_000,
    } as const;
    const client = createClient({
      url: 'redis://127.0.0.1:1',
      socket,
      disableOfflineQueue: true,
    });
    const own = connectionFor(client);

    expect(own['options']).toMatchObject({
      disableOfflineQueue: false,
      // It reconnects by the default strategy, and waits for a job as long as BullMQ does.
      socket: { connectTimeout: 1_000, reconnectStrategy: undefined, socketTimeout: undefined },
    });
  });
});

(await describeWith('Redis'))('a worker on a client of the application', () => {
  it('leaves it connected when it closes', async () => {
    const client = new Redis(urlOf('Redis'), { maxRetriesPerRequest: null });
    cleanUp.push(() => client.disconnect());
    const queue = new Queue('closed', { connection: client });
    const worker = workerOf(queue);
    await worker.waitUntilReady();
    await worker.abandon();
    await worker.close();

    expect(await client.ping()).toBe('PONG');
  });

  it('skips the check of the version of the server if its queue does', async () => {
    const client = new Redis(urlOf('Redis'), { maxRetriesPerRequest: null });
    cleanUp.push(() => client.disconnect());
    const worker = workerOf(new Queue('old', { connection: client, skipVersionCheck: true }));
    cleanUp.push(async () => worker.close());
    await worker.waitUntilReady();

    expect(worker['worker'].opts.skipVersionCheck).toBe(true);
  });
});
