import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { type AddressInfo, connect, createServer } from 'node:net';
import { createInterface } from 'node:readline';
import { setImmediate as turn, setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, it, jest } from '@jest/globals';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { TestClock } from 'nestjs-webhook-token/testing';
import { SystemClock } from 'nestjs-webhook-token/ports';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { freePort } from '../fixtures/free-port.js';
import { LosingNetwork } from '../fixtures/losing-network.js';
import { RedisProcess } from '../fixtures/redis-process.js';
import { describeWith } from '../fixtures/services.js';
import { due, large } from '../postgres/deliveries.js';

const mending: (() => Promise<unknown>)[] = [];
const closing: (() => Promise<unknown>)[] = [];
const late: RedisProcess[] = [];

/** Repairs the server after the test: BullMQ cannot close a connection that was never open. */
function afterwards(mend: () => Promise<unknown>): void {
  mending.push(mend);
}

afterEach(async () => {
  for (const mend of mending.splice(0)) await mend();
  for (const close of closing.splice(0).toReversed()) await close().catch(() => {});
  for (const server of late.splice(0)) await server.stop();
});

async function redis(...options: [string, string][]): Promise<RedisProcess> {
  const server = await RedisProcess.start(...options);
  closing.push(async () => server.stop());
  return server;
}

function queueOn(
  port: number,
  more: object = {},
  clock?: TestClock,
): [BullMqQueue, Promise<unknown>] {
  const connection = { host: '127.0.0.1', port, enableOfflineQueue: false, ...more };
  const queue = new Queue('webhooks', { connection });
  const failed = new Promise((resolve) => queue.on('error', resolve));
  const deliveries = new BullMqQueue(queue, { clock });
  closing.push(
    async () => queue.disconnect(),
    // Before the server is stopped.
    async () => deliveries.stop((clock ?? new SystemClock()).now() + 5_000),
  );
  return [deliveries, failed];
}

/** Records deliveries until the memory of the server is full. */
async function fill(queue: BullMqQueue, taken: string[]): Promise<unknown> {
  for (let n = 0; ; n++) {
    try {
      const id = `large-${n}`;
      await queue.enqueue([large(id, 256 * 1024)]);
      taken.push(id);
    } catch (error) {
      return error;
    }
  }
}

/** Two servers behind one address, which leads new connections to the second one after the fail-over. */
async function redisWithFailOver() {
  const [old, primary] = [await redis(), await redis()];
  let { port } = old;
  const address = createServer((near) => {
    const far = connect(port, '127.0.0.1');
    for (const [from, to] of [
      [near, far],
      [far, near],
    ] as const) {
      from.on('error', () => {}).on('close', () => to.destroy());
      from.pipe(to);
    }
  });
  await once(address.listen(0, '127.0.0.1'), 'listening');
  closing.push(async () => address.close());
  const failOver = async (): Promise<void> => {
    await old.command('REPLICAOF 127.0.0.1 1');
    ({ port } = primary);
  };
  return { address, primary, failOver };
}

it('names the package that connection options need', async () => {
  jest.doMock('ioredis', () => {
    throw new Error(`Cannot find module 'ioredis'`);
  });
  const [queue] = queueOn(6379);
  const failure = await queue
    .consume(async () => Promise.reject())
    .catch((error: unknown) => error);
  jest.dontMock('ioredis');

  expect(failure).toMatchObject({
    code: 'store_unavailable',
    message: expect.stringContaining('run "npm install ioredis"'),
  });
});

(await describeWith('Redis'))('BullMqQueue on a faulty Redis', () => {
  it('reports a full server, keeps recorded deliveries, and continues once memory is free', async () => {
    const server = await redis(['maxmemory', '12mb'], ['maxmemory-policy', 'noeviction']);
    const [queue] = queueOn(server.port);
    const taken: string[] = [];
    const failure = await fill(queue, taken);

    expect(failure).toMatchObject({
      code: 'store_unavailable',
      message: `The delivery queue cannot use Redis at 127.0.0.1:${server.port}: its memory is full; raise maxmemory, or remove other keys`,
    });
    // Smaller than what is used, or the key of the check may fit.
    await server.command('CONFIG SET maxmemory 1mb');
    await expect(queue.check()).rejects.toMatchObject({ code: 'store_unavailable' });
    expect(JSON.stringify(failure)).not.toContain('xxxx');
    expect(taken.length).toBeGreaterThan(5);
    expect((await queue.find(['a', ...taken])).map((known) => known?.status)).toEqual([
      undefined,
      ...taken.map(() => 'pending'),
    ]);
    await server.command('CONFIG SET maxmemory 0');
    const runs: string[] = [];
    await queue.consume(async ({ id }) => {
      runs.push(id);
      return { outcome: { type: 'delivered' } };
    });
    await queue.enqueue([due('a')]);
    while (runs.length < taken.length + 1) await sleep(10);

    expect(runs.toSorted()).toEqual([...taken, 'a'].toSorted());
  });

  it.each([200, 400, 800, 1_600])(
    'records all deliveries of a call or none on a server with %i kB of free memory',
    async (free) => {
      const server = await redis();
      const observer = new Redis(server.port, '127.0.0.1');
      closing.push(async () => observer.disconnect());
      const [queue] = queueOn(server.port);
      await queue.check();
      const used = Number(/used_memory:(\d+)/.exec(await observer.info('memory'))?.[1]);
      await server.command(`CONFIG SET maxmemory ${used + free * 1024}`);
      const many = Array.from({ length: 300 }, (_, n) => large(`many-${n}`, 4_000));
      const ids = many.map(({ delivery }) => delivery.id);
      const failure = await queue.enqueue(many).catch((error: unknown) => error);
      await server.command('CONFIG SET maxmemory 0');
      const states = async () => {
        const found = await queue.find(ids).catch(() => undefined);
        return found && new Set(found.map((known) => known?.status));
      };
      const publishAgain = async () => queue.enqueue(many).catch(() => undefined);
      let before: Awaited<ReturnType<typeof states>>;
      // The connection may be being replaced.
      while ((before = await states()) === undefined) await sleep(10);
      while ((await publishAgain()) === undefined) await sleep(10);

      expect(failure).toMatchObject({ message: expect.stringContaining('its memory is full') });
      expect([...before]).toEqual([undefined]);
      expect([...(await states())!]).toEqual(['pending']);
    },
  );

  it('delivers from a full server and records every outcome in the end', async () => {
    const server = await redis(['maxmemory', '12mb'], ['maxmemory-policy', 'noeviction']);
    const [queue] = queueOn(server.port);
    const taken: string[] = [];
    await fill(queue, taken);
    const runs = new Set<string>();
    // An outcome that does not fit is repeated: duplicates are allowed, losses are not.
    await queue.consume(async ({ id }) => {
      runs.add(id);
      return { outcome: { type: 'delivered' } };
    });
    await server.command('CONFIG SET maxmemory 0');
    const isDone = async (): Promise<boolean> =>
      (await queue.find(taken)).every((known) => known?.status === 'delivered');
    while (!(await isDone())) await sleep(50);

    expect([...runs].toSorted()).toEqual(taken.toSorted());
  });

  it('erases deliveries from a full server', async () => {
    const server = await redis();
    const [queue] = queueOn(server.port);
    const { delivery, notBefore } = due('ordered');
    const many = Array.from({ length: 1_001 }, (_, n) => due(`many-${n}`));
    await queue.enqueue([{ delivery: { ...delivery, orderingKey: 'key' }, notBefore }, ...many]);
    await server.command('CONFIG SET maxmemory 1mb');
    await expect(queue.check()).rejects.toMatchObject({ code: 'store_unavailable' });

    expect(await queue.erase({})).toBe(1_002);
    expect(await queue.counts({})).toEqual([]);
  });

  it('reports a read-only replica', async () => {
    const primary = await redis();
    const replica = await redis(['replicaof', `127.0.0.1 ${primary.port}`]);
    const [queue] = queueOn(replica.port);

    await expect(queue.enqueue([due('x')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/read-only replica; connect to the primary/),
    });
    await expect(queue.check()).rejects.toMatchObject({ code: 'store_unavailable' });
    await expect(queueOn(primary.port)[0].check()).resolves.toBeUndefined();
    // BullMQ cannot close a connection that is being replaced.
    while (!(await queue.find(['x']).catch(() => false))) await sleep(10);
    expect(await queueOn(primary.port)[0].find(['x'])).toEqual([undefined]);
  });

  it('publishes to the new primary once its own has become a replica', async () => {
    const { address, primary, failOver } = await redisWithFailOver();
    const [queue] = queueOn((address.address() as AddressInfo).port);
    await queue.enqueue([due('before')]);
    await failOver();

    await expect(queue.enqueue([due('meanwhile')])).rejects.toThrow(/read-only replica/);
    const publish = async () => queue.enqueue([due('after')]).catch(() => undefined);
    while ((await publish()) === undefined) await sleep(10);
    expect(await queueOn(primary.port)[0].find(['after'])).toMatchObject([
      { delivery: { id: 'after' } },
    ]);
  });

  it.each([true, false])(
    'can be closed after a fail-over, with enableOfflineQueue: %s',
    async (enableOfflineQueue) => {
      const { address, failOver } = await redisWithFailOver();
      const { port } = address.address() as AddressInfo;
      const queue = new Queue('webhooks', { connection: { port, enableOfflineQueue } });
      closing.push(async () => queue.disconnect());
      const deliveries = new BullMqQueue(queue);
      await deliveries.consume(async () => ({ outcome: { type: 'delivered' } }));
      await failOver();
      await expect(deliveries.enqueue([due('meanwhile')])).rejects.toThrow(/read-only replica/);

      expect(await deliveries.stop(Date.now() + 60_000)).toBe(0);
      await queue.close();
      // It closes once no connection is left.
      await new Promise((resolve) => address.close(resolve));
    },
  );

  it('reports once that it cannot fetch, and does not keep the process busy', async () => {
    const primary = await redis();
    const replica = await redis(['replicaof', `127.0.0.1 ${primary.port}`]);
    const [queue] = queueOn(replica.port);
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    closing.push(async () => warn.mockRestore());
    const outages = () =>
      warn.mock.calls.filter(([, options]) => JSON.stringify(options).includes('UNAVAILABLE'));
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    while (outages().length === 0) await sleep(10);
    const observer = new Redis(replica.port, '127.0.0.1');
    closing.push(async () => observer.disconnect());
    const commands = async () =>
      Number(/total_commands_processed:(\d+)/.exec(await observer.info('stats'))?.[1]);
    const before = await commands();
    for (let turns = 0; turns < 200; turns++) await turn();

    expect((await commands()) - before).toBeLessThan(20);
    expect(outages()).toEqual([
      [expect.stringMatching(/read-only replica.*Deliveries wait/), expect.anything()],
    ]);
  });

  it('reports a fail-over as an outage, and keeps its only report of an error', async () => {
    const server = await redis();
    const [queue] = queueOn(server.port);
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    closing.push(async () => warn.mockRestore());
    const reports = () =>
      warn.mock.calls.filter(([, options]) =>
        /QUEUE_(?:ERROR|UNAVAILABLE)/.test(JSON.stringify(options)),
      );
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    const observer = new Redis(server.port, '127.0.0.1');
    closing.push(async () => observer.disconnect());
    while (!/flags=b .*cmd=bzpopmin/.test(String(await observer.client('LIST')))) await sleep(10);
    afterwards(async () => server.command('REPLICAOF NO ONE'));
    await server.command('REPLICAOF 127.0.0.1 1');
    while (reports().length === 0) await sleep(10);

    expect(reports()).toEqual([
      [
        expect.stringMatching(/it has become a replica.*Deliveries wait/),
        { code: 'WEBHOOK_QUEUE_UNAVAILABLE' },
      ],
    ]);
  });

  it('delivers again after its connections were lost without being closed', async () => {
    const server = await redis();
    const network = await LosingNetwork.start(`redis://127.0.0.1:${server.port}`);
    closing.push(async () => network.stop());
    const connection = { host: '127.0.0.1', port: network.port, disconnectTimeout: 50 };
    const queue = new Queue('webhooks', { connection });
    queue.on('error', () => {});
    // Its time is that of the test, so that a slow machine loses no other call.
    const clock = new TestClock(Date.now());
    const deliveries = new BullMqQueue(queue, { timeout: '400ms', clock });
    closing.push(
      async () => queue.disconnect(),
      async () => deliveries.stop(clock.now() + 5_000),
    );
    const runs: string[] = [];
    await deliveries.consume(async ({ id }) => {
      runs.push(id);
      return { outcome: { type: 'delivered' } };
    });
    await deliveries.enqueue([due('before')]);
    while (runs.length < 1) await sleep(10);
    network.vanish();
    const client = await queue.getBackend().client;
    const lose = async (id: string): Promise<void> => {
      const failure = deliveries.enqueue([due(id)]).catch((error: unknown) => error);
      await clock.advance(400);
      expect(await failure).toMatchObject({ code: 'store_unavailable' });
    };
    await lose('lost');
    // On the next connection, nothing is answered either.
    while (client.status !== 'connect') await sleep(10);
    await lose('also-lost');
    network.recover();
    await deliveries.enqueue([due('after')]);
    while (!runs.includes('after')) await sleep(10);
    const isDone = async () => (await deliveries.find(['after']))[0]?.status === 'delivered';
    while (!(await isDone())) await sleep(10);

    expect(await deliveries.find(['lost', 'also-lost'])).toEqual([undefined, undefined]);
    expect(runs).toEqual(['before', 'after']);
  });

  it('records both deliveries of a call on a server that has forgotten its scripts', async () => {
    const server = await redis();
    const [queue] = queueOn(server.port);
    await queue.check();
    const later = (id: string) => ({ ...due(id), notBefore: Date.now() + 3_600_000 });
    await queue.enqueue([due('first'), later('first-later')]);
    await server.command('SCRIPT FLUSH');
    // This one is loaded again.
    await queue.enqueue([due('second')]);
    await queue.enqueue([due('third'), later('third-later')]);

    expect(await queue.find(['third', 'third-later'])).toMatchObject([
      { status: 'pending' },
      { status: 'pending' },
    ]);
  });

  it.each(['options', 'a client'])(
    'delivers again after the application has reconnected, with %s without a retry strategy',
    async (kind) => {
      const server = await redis();
      const settings = { port: server.port, retryStrategy: () => null };
      const own = new Redis({ ...settings, maxRetriesPerRequest: null, lazyConnect: true });
      closing.push(async () => own.disconnect());
      const queue = new Queue('webhooks', { connection: kind === 'options' ? settings : own });
      closing.push(async () => queue.disconnect());
      const deliveries = new BullMqQueue(queue);
      closing.push(async () => deliveries.stop(Date.now() + 5_000));
      const runs: string[] = [];
      await deliveries.consume(async ({ id }) => {
        runs.push(id);
        return { outcome: { type: 'delivered' } };
      });
      const client = await queue.getBackend().client;
      const ended = new Promise<void>((resolve) => client.on('end', resolve));
      await server.command('CLIENT KILL TYPE normal');
      await ended;
      await client.connect();
      await deliveries.enqueue([due('after')]);
      while (!runs.includes('after')) await sleep(10);
    },
  );

  /** The error of a call after its timeout. */
  async function failureOf(
    port: number,
    connection: object,
    ask: (queue: BullMqQueue) => Promise<unknown>,
  ): Promise<unknown> {
    const clock = new TestClock();
    const [queue, failed] = queueOn(port, connection, clock);
    const failure = ask(queue).catch((error: unknown) => error);
    // After the first failed connection attempt.
    await failed;
    await clock.advance(10_000);
    return failure;
  }

  it.each<[string, object]>([
    ['a wrong password', { password: 'not-to-be-shown' }],
    ['no password', {}],
  ])('reports %s', async (_, credentials) => {
    const server = await redis(['requirepass', 'right']);
    afterwards(async () => server.command('AUTH right\r\nCONFIG SET requirepass ""'));
    const failure = await failureOf(server.port, credentials, async (queue) =>
      queue.enqueue([due('x')]),
    );

    expect(failure).toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/rejected the credentials/),
    });
    expect(JSON.stringify(failure)).not.toContain('not-to-be-shown');
  });

  it('reports a password that was changed while it was connected', async () => {
    const server = await redis();
    const [queue] = queueOn(server.port);
    await queue.consume(async () => ({ outcome: { type: 'delivered' } }));
    await server.command('CONFIG SET requirepass right\r\nAUTH right\r\nCLIENT KILL TYPE normal');
    const failure = async (): Promise<string> => queue.check().then(() => '', String);
    afterwards(async () => {
      await server.command('AUTH right\r\nCONFIG SET requirepass ""');
      while ((await failure()) !== '') await turn();
    });
    while (!(await failure()).includes('rejected the credentials')) await turn();

    await expect(queue.enqueue([due('x')])).rejects.toThrow('rejected the credentials');
  });

  it('lets the process end while Redis is unavailable', async () => {
    const server = await redis();
    const script = fileURLToPath(new URL('leaver.process.mjs', import.meta.url));
    const leaver = spawn(process.execPath, [script, JSON.stringify({ port: server.port })]);
    closing.push(async () => leaver.kill('SIGKILL'));
    const ended = once(leaver, 'close');
    const words = createInterface({ input: leaver.stdout })[Symbol.asyncIterator]();
    expect(await words.next()).toMatchObject({ value: 'consumes' });
    await server.stop();
    expect(await words.next()).toMatchObject({ value: 'alone' });

    leaver.stdin.write('stop');
    expect(await words.next()).toMatchObject({ value: 'stopped' });
    // The process ends only if no handle is left open.
    expect(await ended).toEqual([0, null]);
  });

  it.each<[string, (queue: BullMqQueue) => Promise<unknown>]>([
    ['enqueue', async (queue) => queue.enqueue([due('x')])],
    ['consume', async (queue) => queue.consume(async () => ({ outcome: { type: 'delivered' } }))],
    ['find', async (queue) => queue.find(['x'])],
  ])('reports an unavailable server within the timeout to %s', async (_, ask) => {
    const port = await freePort();
    afterwards(async () => late.push(await RedisProcess.startAt(port)));

    expect(await failureOf(port, {}, ask)).toMatchObject({
      code: 'store_unavailable',
      message: `The delivery queue cannot use Redis at 127.0.0.1:${port}: connection refused; check that it is running and that the address is right`,
    });
  });
});
