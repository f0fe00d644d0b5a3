import { randomBytes } from 'node:crypto';
import { type EventEmitter, once } from 'node:events';
import { connect, createServer, type AddressInfo, type Server, type Socket } from 'node:net';
import { setTimeout as sleep } from 'node:timers/promises';
import { afterAll, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { Redis } from 'ioredis';
import { createClient } from 'redis';
import { replayStoreContract, TestClock } from 'nestjs-webhook-token/testing';
import type { ReplayVerdict } from 'nestjs-webhook-token/ports';
import { RedisReplayStore, type RedisClient } from '../../lib/redis/index.js';
import { describeContract } from '../fixtures/contract.js';
import { freePort } from '../fixtures/free-port.js';
import { LosingNetwork } from '../fixtures/losing-network.js';
import { newClaim, race } from '../fixtures/racing-replicas.js';
import { RedisProcess } from '../fixtures/redis-process.js';
import { describeWith, urlOf } from '../fixtures/services.js';

const prefix = `test-${randomBytes(6).toString('hex')}`;
/** A busy machine can exceed the default timeout. */
const OPTIONS = { prefix, timeout: '1m' };
const closing: (() => unknown)[] = [];
afterAll(async () => Promise.all(closing.map((close) => close())));

function ioredis(url = urlOf('Redis')): Redis {
  const client = new Redis(url, { enableOfflineQueue: true });
  closing.push(() => client.disconnect());
  return client;
}

async function nodeRedis(url = urlOf('Redis')): Promise<RedisClient> {
  const client = createClient({ url });
  client.on('error', () => undefined);
  await client.connect();
  closing.push(() => client.destroy());
  return client;
}

const describeRedis = await describeWith('Redis');

describeRedis.each<[string, () => RedisClient | Promise<RedisClient>]>([
  ['ioredis', () => ioredis()],
  ['node-redis', async () => nodeRedis()],
])('RedisReplayStore through %s', (_, connectClient) => {
  // One connection for all cases: what is under test is the store.
  let client: RedisClient;
  beforeAll(async () => {
    client = await connectClient();
  });

  const contract = replayStoreContract({
    create: () => new RedisReplayStore(client, OPTIONS),
    advance: (ms) => sleep(ms),
  });
  describeContract(contract, 10);

  it('lets four replicas that race on 300 events handle each once', async () => {
    const stores = await Promise.all(
      Array.from({ length: 4 }, async () => new RedisReplayStore(await connectClient(), OPTIONS)),
    );
    const claims = Array.from({ length: 300 }, () => newClaim());
    const handled = await race(stores, claims);

    expect(new Set(handled).size).toBe(claims.length);
    expect(handled).toHaveLength(claims.length);
  });

  it('runs its scripts on a server that has forgotten them', async () => {
    const store = new RedisReplayStore(client, OPTIONS);
    const admin = ioredis();
    await admin.script('FLUSH');

    expect(await store.reserve(newClaim())).toMatchObject({ status: 'reserved' });
  });
});

describeRedis('RedisReplayStore, if a connection ends before the answer', () => {
  it('reserves the event for the request whose command the client sends again', async () => {
    const redis = ioredis();
    // As ioredis does on its next connection.
    const evalTwice = async (...args: Parameters<Redis['eval']>) => {
      await redis.eval(...args);
      return redis.eval(...args);
    };
    const evalsha = async () => Promise.reject(new Error('NOSCRIPT'));
    const store = new RedisReplayStore({ eval: evalTwice, evalsha }, OPTIONS);
    const claim = newClaim({ tokenKey: randomBytes(32).toString('base64url') });
    const verdict = (await store.reserve(claim)) as Extract<ReplayVerdict, { status: 'reserved' }>;

    expect(verdict).toMatchObject({ status: 'reserved' });
    expect(await new RedisReplayStore(redis, OPTIONS).reserve(claim)).toMatchObject({
      status: 'in-progress',
    });
    expect(await new RedisReplayStore(redis, OPTIONS).commit(verdict.reservation)).toBe(true);
  });
});

describeRedis('the keys of RedisReplayStore', () => {
  it('expire with the lease while reserved, and with the replay window once handled', async () => {
    const redis = ioredis();
    const store = new RedisReplayStore(redis, OPTIONS);
    const first = newClaim({ tokenKey: randomBytes(32).toString('base64url'), lease: 30_000 });
    const verdict = (await store.reserve(first)) as Extract<ReplayVerdict, { status: 'reserved' }>;
    const keys = await redis.keys(`${prefix}:*${first.key}`);
    keys.push(...(await redis.keys(`${prefix}:*${first.tokenKey}`)));
    const reserved = await Promise.all(keys.map((key) => redis.pttl(key)));
    await store.commit(verdict.reservation);
    const done = await Promise.all(keys.map((key) => redis.pttl(key)));

    expect(keys).toHaveLength(2);
    for (const ttl of reserved) expect(ttl).toBeLessThanOrEqual(30_000);
    for (const ttl of done) expect(ttl).toBeGreaterThan(30_000);
    for (const ttl of done) expect(ttl).toBeLessThanOrEqual(60_000);
  });

  it('uses one cluster slot for each issuer, and does not reveal the issuer', async () => {
    const redis = ioredis();
    const store = new RedisReplayStore(redis, OPTIONS);
    const one = newClaim({ issuer: 'https://secret-customer.example' });
    await store.reserve(one);
    const [key] = await redis.keys(`${prefix}:*${one.key}`);

    expect(key).toMatch(new RegExp(`^${prefix}:\\{[\\w-]{16}\\}:event:`));
    expect(await redis.keys('*secret-customer*')).toEqual([]);
  });
});

describe('RedisReplayStore without its server', () => {
  async function silentServer(): Promise<Server> {
    const server = createServer((socket) => socket.resume());
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closing.push(() => server.close());
    return server;
  }

  it('reports in time that the server does not answer', async () => {
    const { port } = (await silentServer()).address() as AddressInfo;
    const client = new Redis({ host: '127.0.0.1', port, retryStrategy: () => null });
    closing.push(() => client.disconnect());
    client.on('error', () => undefined);
    const clock = new TestClock();
    const answer = new RedisReplayStore(client, { clock, timeout: '2s' }).reserve(newClaim());
    const refusal = expect(answer).rejects.toMatchObject({ code: 'store_unavailable' });
    await clock.advance(2_000);

    await refusal;
  });

  /** Answers READONLY on its first connection, as a demoted primary, and as a primary on the others. */
  async function demotedServer(): Promise<{ port: number }> {
    let connections = 0;
    const server = createServer((socket) => {
      const answer =
        ++connections === 1
          ? "-READONLY You can't write against a read only replica.\r\n"
          : '*1\r\n$8\r\nreserved\r\n';
      socket
        .on('error', () => undefined)
        .on('data', (commands) => {
          const count = commands.toString('latin1').match(/^\*\d+\r\n/gm)?.length ?? 0;
          socket.write(answer.repeat(count));
        });
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closing.push(() => server.close());
    return { port: (server.address() as AddressInfo).port };
  }

  it('connects again when its server has become a replica', async () => {
    const { port } = await demotedServer();
    const client = new Redis({ port, enableReadyCheck: false, retryStrategy: () => 1 });
    closing.push(() => client.disconnect());
    client.on('error', () => undefined);
    const store = new RedisReplayStore(client);
    await expect(store.reserve(newClaim())).rejects.toMatchObject({ code: 'store_unavailable' });

    expect(await store.reserve(newClaim())).toMatchObject({ status: 'reserved' });
  });

  it('leaves a client of node-redis connected that does not reconnect', async () => {
    const refuse = async (): Promise<never> => {
      throw new Error('READONLY It is a replica.');
    };
    const destroy = jest.fn();
    const options = { socket: { reconnectStrategy: false } };
    const client = { eval: refuse, evalSha: refuse, isReady: true, destroy, options };

    await expect(new RedisReplayStore(client).reserve(newClaim())).rejects.toMatchObject({
      code: 'store_unavailable',
    });
    expect(destroy).not.toHaveBeenCalled();
  });

  it("reports a missing server immediately, with the driver's error as the cause", async () => {
    const client = new Redis({
      host: '127.0.0.1',
      port: await freePort(),
      maxRetriesPerRequest: 0,
      retryStrategy: () => null,
    });
    client.on('error', () => undefined);

    await expect(new RedisReplayStore(client).reserve(newClaim())).rejects.toMatchObject({
      code: 'store_unavailable',
      cause: expect.any(Error),
    });
  });
});

describeRedis('RedisReplayStore, when its server vanishes', () => {
  /** A proxy that can stop forwarding without closing a connection, as a host that vanishes does. */
  async function vanishingProxy(): Promise<{ url: string; vanish: () => void }> {
    const target = new URL(urlOf('Redis'));
    const sockets = new Set<Socket>();
    const server = createServer((socket) => {
      const upstream = connect(Number(target.port || 6379), target.hostname);
      socket.pipe(upstream).pipe(socket);
      for (const one of [socket, upstream]) {
        sockets.add(one);
        one.on('error', () => undefined).on('close', () => sockets.delete(one));
      }
    });
    await new Promise<void>((resolve) => server.listen(0, '127.0.0.1', resolve));
    closing.push(() => {
      server.close();
      for (const socket of sockets) socket.destroy();
    });
    const { port } = server.address() as AddressInfo;
    const vanish = (): void => {
      for (const socket of sockets) socket.unpipe().pause();
    };
    return { url: `redis://127.0.0.1:${port}`, vanish };
  }

  async function throughIoredis(url: string): Promise<RedisClient & EventEmitter> {
    const client = new Redis(url, { disconnectTimeout: 10, retryStrategy: () => 10 });
    closing.push(() => client.disconnect());
    return client;
  }

  async function throughNodeRedis(url: string): Promise<RedisClient & EventEmitter> {
    const client = createClient({ url });
    client.on('error', () => undefined);
    await client.connect();
    closing.push(() => client.destroy());
    return client;
  }

  it.each([
    ['ioredis', throughIoredis],
    ['node-redis', throughNodeRedis],
  ])('replaces the connection of %s', async (_, connectClient) => {
    const { url, vanish } = await vanishingProxy();
    const client = await connectClient(url);
    const store = new RedisReplayStore(client, { prefix, timeout: '1s' });
    expect(await store.reserve(newClaim())).toMatchObject({ status: 'reserved' });
    vanish();
    const ready = once(client, 'ready');

    await expect(store.reserve(newClaim())).rejects.toMatchObject({ code: 'store_unavailable' });
    await ready;
    expect(await store.reserve(newClaim())).toMatchObject({ status: 'reserved' });
  });

  it('replaces a connection that is silent from its start', async () => {
    const network = await LosingNetwork.start(urlOf('Redis'));
    const client = new Redis(network.port, { disconnectTimeout: 10, retryStrategy: () => 10 });
    closing.push(
      () => client.disconnect(),
      async () => network.stop(),
    );
    const clock = new TestClock(Date.now());
    const store = new RedisReplayStore(client, { prefix, timeout: '1s', clock });
    await store.check();
    network.vanish();
    const lose = async (): Promise<void> => {
      const answer = store.reserve(newClaim()).catch((error: unknown) => error);
      await clock.advance(1_000);
      expect(await answer).toMatchObject({ code: 'store_unavailable' });
    };
    const connected = once(client, 'connect');
    await lose();
    await connected;
    network.recover();
    await lose();

    expect(await store.reserve(newClaim())).toMatchObject({ status: 'reserved' });
  });
});

describeRedis('RedisReplayStore on a server that has become full', () => {
  it('records an event that was handled meanwhile, and recognises it', async () => {
    const server = await RedisProcess.start();
    const client = new Redis(server.port);
    closing.push(
      () => client.disconnect(),
      async () => server.stop(),
    );
    const store = new RedisReplayStore(client, OPTIONS);
    const claim = newClaim();
    const verdict = (await store.reserve(claim)) as Extract<ReplayVerdict, { status: 'reserved' }>;
    await client.config('SET', 'maxmemory', '100kb');

    await expect(store.reserve(newClaim())).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(await store.extend(verdict.reservation)).toBe(true);
    expect(await store.commit(verdict.reservation)).toBe(true);
    const repeated = { ...claim, keepUntil: claim.keepUntil + 60_000 };
    expect(await store.reserve(repeated)).toEqual({ status: 'done' });
  });
});

describeRedis('the check of RedisReplayStore', () => {
  it.each<[string, string, [string, string][]]>([
    ['a full server', 'its memory is full', [['maxmemory', '100kb']]],
    ['a replica', 'it is a read-only replica', [['replicaof', '127.0.0.1 1']]],
  ])('refuses %s, which could not store an event', async (_, reason, options) => {
    const server = await RedisProcess.start(...options);
    const client = new Redis(server.port);
    closing.push(
      () => client.disconnect(),
      async () => server.stop(),
    );

    await expect(new RedisReplayStore(client, OPTIONS).check()).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringContaining(reason),
    });
  });

  it.each<[string, (url: string) => RedisClient | Promise<RedisClient>]>([
    ['ioredis', (url) => ioredis(url)],
    ['node-redis', async (url) => nodeRedis(url)],
  ])('warns through %s about a server that evicts keys', async (_, connectClient) => {
    const server = await RedisProcess.start(['maxmemory-policy', 'volatile-lru']);
    const client = await connectClient(`redis://127.0.0.1:${server.port}`);
    closing.push(async () => server.stop());
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    await new RedisReplayStore(client, OPTIONS).check();
    const warnings = warn.mock.calls.slice();
    warn.mockRestore();

    expect(warnings).toContainEqual([
      expect.stringContaining('maxmemory-policy is volatile-lru'),
      { code: 'WEBHOOK_REPLAY_MAY_FORGET' },
    ]);
  });

  it('leaves a key that expires', async () => {
    const redis = ioredis();
    const own = `${prefix}-check`;
    await new RedisReplayStore(redis, { ...OPTIONS, prefix: own }).check();
    for (const key of await redis.keys(`${own}:*`)) {
      expect(await redis.pttl(key)).not.toBe(-1);
    }
  });
});

describe('the check of RedisReplayStore at start-up', () => {
  const answers = { eval: async () => 0, evalsha: async () => 0 };
  const nodeRedis = { eval: async () => 0, evalSha: async () => 0 };
  const RECONNECTING = 'reconnectStrategy: (retries) => Math.min(retries * 50, 2_000)';

  async function warningsFor(client: object): Promise<string[]> {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    const store = new RedisReplayStore(client as RedisClient);
    await store.check();
    await store.check();
    const warnings = warn.mock.calls.map(([message]) => String(message));
    warn.mockRestore();
    return warnings;
  }

  it.each([
    ['ioredis', { ...answers, options: {} }, 'Set socketTimeout: 5_000.'],
    [
      'ioredis with a command timeout only',
      { ...answers, options: { commandTimeout: 5_000 } },
      'Set socketTimeout: 5_000.',
    ],
    [
      'a cluster of ioredis',
      { ...answers, isCluster: true, options: { socketTimeout: 1 } },
      'Set redisOptions: { socketTimeout: 5_000 }.',
    ],
    [
      'node-redis',
      { ...nodeRedis, options: { socket: {} } },
      `Set socket: { socketTimeout: 5_000, ${RECONNECTING} }, with a shorter pingInterval.`,
    ],
    [
      'node-redis that reconnects',
      { ...nodeRedis, options: { socket: { reconnectStrategy: 500 } } },
      `Set socket: { socketTimeout: 5_000, ${RECONNECTING} }, with a shorter pingInterval.`,
    ],
  ])('warns once about %s without a socket timeout', async (_, client, remedy) => {
    expect(await warningsFor(client)).toEqual([expect.stringContaining(remedy)]);
  });

  it.each([
    ['ioredis', { ...answers, options: { socketTimeout: 5_000 } }],
    [
      'a cluster of ioredis',
      { ...answers, isCluster: true, options: { redisOptions: { socketTimeout: 1 } } },
    ],
    [
      'node-redis that reconnects',
      { ...nodeRedis, options: { socket: { socketTimeout: 5_000, reconnectStrategy: 500 } } },
    ],
    ['a client of another library', answers],
  ])('does not warn about %s with one', async (_, client) => {
    expect(await warningsFor(client)).toEqual([]);
  });

  it('warns once about node-redis that closes for good at its socket timeout', async () => {
    const client = { ...nodeRedis, options: { socket: { socketTimeout: 5_000 } } };

    expect(await warningsFor(client)).toEqual([
      expect.stringContaining(`Set socket: { ${RECONNECTING} }.`),
    ]);
  });

  const policy = (name: string) => ({
    ...answers,
    info: async () => `# Memory\r\nmaxmemory_policy:${name}\r\n`,
  });

  it.each(['allkeys-lru', 'volatile-ttl'])('warns once about a server with %s', async (name) => {
    expect(await warningsFor(policy(name))).toEqual([
      expect.stringMatching(`policy is ${name}, .*; set "maxmemory-policy noeviction"`),
    ]);
  });

  it.each<[string, object]>([
    ['evicts no keys', policy('noeviction')],
    [
      'refuses INFO',
      {
        ...answers,
        info: async () => {
          throw new Error("NOPERM User app has no permissions to run the 'info' command");
        },
      },
    ],
  ])('does not warn about a server that %s', async (_, client) => {
    expect(await warningsFor(client)).toEqual([]);
  });

  it('does not wait longer than the timeout for a server that leaves INFO unanswered', async () => {
    const clock = new TestClock();
    const info = jest.fn(async () => new Promise<string>(() => undefined));
    const store = new RedisReplayStore({ ...answers, info } as RedisClient, { clock });
    const checked = store.check();
    while (info.mock.calls.length === 0) await new Promise((turn) => setImmediate(turn));
    await clock.advance(2_000);

    await checked;
  });
});

describe('new RedisReplayStore', () => {
  const client = { eval: async () => 1, evalsha: async () => 1 };

  it.each([
    ['a missing client', {}, {}, 'client'],
    ['a prefix with braces, which would choose the slot', client, { prefix: '{a}' }, 'prefix'],
    ['an empty prefix', client, { prefix: '' }, 'prefix'],
    ['an invalid timeout', client, { timeout: '0s' }, 'timeout'],
  ])('refuses %s', (_, given, options, path) => {
    expect(() => new RedisReplayStore(given as never, options)).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [expect.objectContaining({ path: `RedisReplayStore.${path}` })],
      }),
    );
  });
});
