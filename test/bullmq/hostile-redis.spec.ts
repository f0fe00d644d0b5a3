import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';
import { fileURLToPath } from 'node:url';
import { afterEach, expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { SystemClock } from '../../lib/clock/webhook-clock.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { freePort, RedisProcess } from '../fixtures/redis-process.js';
import { describeWith } from '../fixtures/services.js';
import { due, large } from '../postgres/deliveries.js';

const mending: (() => Promise<unknown>)[] = [];
const closing: (() => Promise<unknown>)[] = [];
const late: RedisProcess[] = [];

/** Mends what was at fault: BullMQ closes nothing that was never open, and its timers would outlive the test. */
function afterwards(mend: () => Promise<unknown>): void {
  mending.push(mend);
}

afterEach(async () => {
  for (const mend of mending.splice(0)) await mend();
  for (const close of closing.splice(0).toReversed()) await close().catch(() => {});
  for (const server of late.splice(0)) await server.stop();
}, 20_000);

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
    // It says goodbye to Redis, which is stopped next.
    async () => deliveries.stop((clock ?? new SystemClock()).now() + 5_000),
  );
  return [deliveries, failed];
}

/** Records until the server has no room left. */
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

(await describeWith('Redis'))('A Redis that is at fault', () => {
  it('is said to be full, keeps what it took, and goes on when it has room again', async () => {
    const server = await redis(['maxmemory', '12mb'], ['maxmemory-policy', 'noeviction']);
    const [queue] = queueOn(server.port);
    const taken: string[] = [];
    const failure = await fill(queue, taken);

    expect(failure).toMatchObject({
      code: 'store_unavailable',
      message: `The delivery queue cannot use Redis at 127.0.0.1:${server.port}: its memory is full; raise maxmemory, or remove other keys`,
    });
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
      return { type: 'delivered' };
    });
    await queue.enqueue([due('a')]);
    while (runs.length < taken.length + 1) await sleep(10);

    expect(runs.toSorted()).toEqual([...taken, 'a'].toSorted());
  }, 30_000);

  it('delivers while it is full, and loses no outcome for good', async () => {
    const server = await redis(['maxmemory', '12mb'], ['maxmemory-policy', 'noeviction']);
    const [queue] = queueOn(server.port);
    const taken: string[] = [];
    await fill(queue, taken);
    const runs = new Set<string>();
    // What it cannot write down for want of memory it does again; delivered twice is allowed, lost is not.
    await queue.consume(async ({ id }) => {
      runs.add(id);
      return { type: 'delivered' };
    });
    await server.command('CONFIG SET maxmemory 0');
    const isDone = async (): Promise<boolean> =>
      (await queue.find(taken)).every((known) => known?.status === 'delivered');
    while (!(await isDone())) await sleep(50);

    expect([...runs].toSorted()).toEqual(taken.toSorted());
  }, 60_000);

  it('is said to be a replica', async () => {
    const primary = await redis();
    const replica = await redis(['replicaof', `127.0.0.1 ${primary.port}`]);
    const [queue] = queueOn(replica.port);

    await expect(queue.enqueue([due('x')])).rejects.toMatchObject({
      code: 'store_unavailable',
      message: expect.stringMatching(/read-only replica; connect to the primary/),
    });
    expect(await queueOn(primary.port)[0].find(['x'])).toEqual([undefined]);
  }, 20_000);

  /** What a call comes to that waits for Redis for as long as it may. */
  async function failureOf(
    port: number,
    connection: object,
    ask: (queue: BullMqQueue) => Promise<unknown>,
  ): Promise<unknown> {
    const clock = new TestClock();
    const [queue, failed] = queueOn(port, connection, clock);
    const failure = ask(queue).catch((error: unknown) => error);
    // BullMQ has to have tried, and to have failed.
    await failed;
    await clock.advance(10_000);
    return failure;
  }

  it.each<[string, object]>([
    ['a wrong password', { password: 'not-to-be-shown' }],
    ['no password', {}],
  ])(
    'is said to refuse %s',
    async (_, credentials) => {
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
    },
    20_000,
  );

  it('that has gone keeps no process from ending', async () => {
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
    // Where something is left, it never ends, and the test runs into its bound.
    expect(await ended).toEqual([0, null]);
  }, 30_000);

  it.each<[string, (queue: BullMqQueue) => Promise<unknown>]>([
    ['publish', async (queue) => queue.enqueue([due('x')])],
    ['start', async (queue) => queue.consume(async () => ({ type: 'delivered' }))],
    ['ask', async (queue) => queue.find(['x'])],
  ])(
    'is said to be away to those who %s, before they wait for ever',
    async (_, ask) => {
      const port = await freePort();
      afterwards(async () => late.push(await RedisProcess.startAt(port)));

      expect(await failureOf(port, {}, ask)).toMatchObject({
        code: 'store_unavailable',
        message: `The delivery queue cannot use Redis at 127.0.0.1:${port}: connection refused; check that it is running and that the address is right`,
      });
    },
    20_000,
  );
});
