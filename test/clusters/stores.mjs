// The queue and the replay store of an instance, on the servers that a trial has started.

const LIMITS = { concurrency: 20 };

async function redisClient({ nodes, sentinels, port }, options) {
  const { Cluster, Redis } = await import('ioredis');
  if (nodes !== undefined) {
    const client = new Cluster(nodes, { redisOptions: options, clusterRetryStrategy: () => 200 });
    return quiet(client);
  }
  const where =
    sentinels === undefined ? { host: '127.0.0.1', port } : { sentinels, name: 'webhooks' };
  return quiet(new Redis({ ...where, ...options, retryStrategy: () => 200 }));
}

/** Without a listener, a connection error would end the process. */
function quiet(client) {
  client.on('error', () => {});
  return client;
}

const OPEN = {
  async redis(place) {
    const { Queue } = await import('bullmq');
    const { BullMqQueue } = await import('../../dist/bullmq/index.js');
    const { RedisReplayStore } = await import('../../dist/redis/index.js');
    const client = await redisClient(place, {
      enableOfflineQueue: false,
      maxRetriesPerRequest: null,
      socketTimeout: 5_000,
    });
    const jobs = quiet(new Queue('events', { connection: client, prefix: '{webhooks}' }));
    return {
      queue: new BullMqQueue(jobs, { lease: '10s', ...LIMITS }),
      store: new RedisReplayStore(client),
      async close() {
        await jobs.close();
        client.disconnect();
      },
    };
  },

  async postgres({ url, notify = true }) {
    const { Pool } = await import('pg');
    const { PostgresQueue, PostgresReplayStore } = await import('../../dist/postgres/index.js');
    const queue = new PostgresQueue({
      connectionString: url,
      schema: 'webhooks',
      lease: '10s',
      pollInterval: '200ms',
      notify,
      ...LIMITS,
    });
    const pool = quiet(
      new Pool({
        connectionString: url,
        max: 4,
        query_timeout: 5_000,
        connectionTimeoutMillis: 5_000,
        keepAlive: true,
      }),
    );
    const store = new PostgresReplayStore(pool, { schema: 'webhooks' });
    return { queue, store, close: async () => pool.end() };
  },
};

/** @param place - `engine`, and where its servers are */
export async function openStores({ engine, ...place }) {
  return OPEN[engine](place);
}

/** Creates the tables, as a deployment does before its instances start. */
export async function migrate({ engine, ...place }) {
  if (engine !== 'postgres') return;
  const { queue, store, close } = await OPEN.postgres(place);
  await store.migrate();
  await queue.stop(Date.now());
  await close();
}
