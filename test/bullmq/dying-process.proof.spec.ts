import { randomBytes } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { expect, it } from '@jest/globals';
import { Queue } from 'bullmq';
import type { DeliveryHandler } from 'nestjs-webhook-token/ports';
import { TestClock } from 'nestjs-webhook-token/testing';
import { BullMqQueue } from '../../lib/bullmq/index.js';
import { dropJobs } from '../fixtures/drop-jobs.mjs';
import { LosingNetwork } from '../fixtures/losing-network.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { due } from '../postgres/deliveries.js';

/** Trials at once. */
const AT_ONCE = 20;
/** Milliseconds by which the commands of a slow process are late: longer than a delivery takes the other one. */
const LATE = 25;

/** With an ordering key, or to an endpoint that allows one attempt at once. */
type Kind = 'keyed' | 'limited';

(await describeWith('Redis'))('a BullMqQueue whose process dies', () => {
  const redis = urlOf('Redis');

  function queueOn(name: string, url: string, clock?: TestClock) {
    const jobs = new Queue(name, { connection: { url, retryStrategy: () => null } });
    jobs.on('error', () => {});
    // Minutes of the test clock pass in a second.
    const timeout = clock === undefined ? '2s' : '10h';
    return { jobs, queue: new BullMqQueue(jobs, { lease: '5s', timeout, clock }) };
  }

  async function publish(queue: BullMqQueue, id: string, kind: Kind = 'keyed'): Promise<void> {
    const { delivery, notBefore } = due(id);
    await queue.enqueue([
      kind === 'keyed'
        ? { delivery: { ...delivery, orderingKey: 'key' }, notBefore }
        : { delivery, notBefore, limits: { concurrency: 1 } },
    ]);
  }

  /** Another process publishes the last delivery, and delivers what it can. */
  async function deliverTheRest(
    name: string,
    deliver: DeliveryHandler,
    isDone: () => boolean,
    kind?: Kind,
  ): Promise<string | undefined> {
    const clock = new TestClock(Date.now());
    const { jobs, queue } = queueOn(name, redis, clock);
    // The lease of the one that died expires.
    const client = await jobs.getBackend().client;
    for (const id of ['first', 'second']) await client.del(jobs.toKey(`d-${id}:lock`));
    await publish(queue, 'last', kind);
    await queue.consume(deliver);
    const state = async () => (await queue.find(['first']))[0]?.keyState;
    for (let turn = 0; turn < 6_000 && !isDone(); turn++) {
      if (turn > 200 && (await state()) === 'blocking') break;
      await clock.advance(1_000);
      await sleep(5);
    }
    const keyState = await state();
    await queue.stop(clock.now() + 5_000);
    await jobs.close();
    await dropJobs('bullmq', { redis, name });
    return keyState;
  }

  /**
   * One process publishes two deliveries, and another one delivers them; one of them is slow. One dies after it has sent so many
   * commands. Then a third process publishes the last delivery, and delivers what is left.
   */
  async function deliveredAfterDeath(
    dying: 'publisher' | 'consumer',
    slow: 'publisher' | 'consumer',
    commands: number,
    kind: Kind,
  ): Promise<{
    readonly ran: readonly string[];
    readonly isRight: boolean;
    readonly sent: number;
  }> {
    const name = `dying-${randomBytes(6).toString('hex')}`;
    const networks = {
      publisher: await LosingNetwork.start(redis),
      consumer: await LosingNetwork.start(redis),
    };
    networks[slow].delay = LATE;
    networks[dying].vanishAfter = commands;
    const publisher = queueOn(name, networks.publisher.url);
    const consumer = queueOn(name, networks.consumer.url);
    const ran: string[] = [];
    const deliver = async ({ id }: { id: string }) => {
      if (!ran.includes(id)) ran.push(id);
      return { outcome: { type: 'delivered' } } as const;
    };

    void consumer.queue.consume(deliver).catch(() => {});
    const recorded: string[] = [];
    for (const id of ['first', 'second']) {
      void publish(publisher.queue, id, kind).then(
        () => recorded.push(id),
        () => {},
      );
    }
    await isQuiet(networks.publisher, networks.consumer);
    const { sent } = networks[dying];
    for (const network of Object.values(networks)) await network.stop();
    for (const { jobs, queue } of [publisher, consumer]) {
      await queue.stop(0).catch(() => {});
      await jobs.close().catch(() => {});
    }

    // With a key, the last one runs after all others.
    const isRight = () => ['last', ...recorded].every((id) => ran.includes(id));
    await deliverTheRest(name, deliver, isRight, kind);
    return { ran, isRight: isRight() && (kind === 'limited' || ran.at(-1) === 'last'), sent };
  }

  it.each([
    ['keyed', 'consumer', 'publisher'],
    ['keyed', 'publisher', 'publisher'],
    ['keyed', 'publisher', 'consumer'],
    ['limited', 'consumer', 'publisher'],
  ] as const)(
    'delivers %s deliveries if the %s dies at any command while the %s is slow',
    async (kind, dying, slow) => {
      const whole = await deliveredAfterDeath(dying, slow, Infinity, kind);
      const wrong: string[] = [];
      for (let from = 1; from <= whole.sent; from += AT_ONCE) {
        const trials = Array.from({ length: AT_ONCE }, async (_, index) => {
          const { isRight, ran } = await deliveredAfterDeath(dying, slow, from + index, kind);
          if (!isRight) wrong.push(`after ${from + index} commands: ${ran.join()}`);
        });
        await Promise.all(trials);
      }

      expect(whole.isRight).toBe(true);
      expect(whole.ran).toHaveLength(3);
      expect(wrong).toEqual([]);
    },
  );

  /** A process skips or erases a delivery that blocks its key, and dies after so many commands. */
  async function isRightAfter(
    call: 'skip' | 'erase',
    commands: number,
  ): Promise<{ readonly isRight: boolean; readonly sent: number }> {
    const name = `dying-${randomBytes(6).toString('hex')}`;
    const before = queueOn(name, redis);
    await publish(before.queue, 'first');
    await before.queue.consume(async () => ({
      outcome: { type: 'dead', reason: 'http_410', attempts: 1, blocksKey: true },
    }));
    while ((await before.queue.find(['first']))[0]?.status !== 'dead') await sleep(5);
    await publish(before.queue, 'second');
    await before.queue.flush();
    await before.queue.stop(Date.now() + 5_000);
    await before.jobs.close();

    const network = await LosingNetwork.start(redis);
    network.vanishAfter = commands;
    const { jobs, queue } = queueOn(name, network.url);
    const filter = { event: 'order.created', status: 'dead' } as const;
    void (call === 'skip' ? queue.skip(['first']) : queue.erase(filter)).catch(() => {});
    await isQuiet(network);
    const { sent } = network;
    await network.stop();
    await jobs.close().catch(() => {});

    const ran: string[] = [];
    const deliver = async ({ id }: { id: string }) => {
      ran.push(id);
      return { outcome: { type: 'delivered' } } as const;
    };
    const keyState = await deliverTheRest(name, deliver, () => ran.includes('last'));
    const expected = keyState === 'blocking' ? [] : ['second', 'last'];
    return { isRight: ran.join() === expected.join(), sent };
  }

  it.each(['skip', 'erase'] as const)(
    'keeps or releases a blocked key if it dies during %s',
    async (call) => {
      const { sent, isRight } = await isRightAfter(call, Infinity);
      const trials = Array.from({ length: sent }, async (_, n) => isRightAfter(call, n + 1));
      const wrong = (await Promise.all(trials)).flatMap((trial, n) =>
        trial.isRight ? [] : [n + 1],
      );

      expect(isRight).toBe(true);
      expect(sent).toBeGreaterThan(4);
      expect(wrong).toEqual([]);
    },
  );
});

/** Resolves when nothing has been sent for some time, or no more arrives. */
async function isQuiet(...networks: readonly LosingNetwork[]): Promise<void> {
  const count = (): number => networks.reduce((sum, { sent }) => sum + sent, 0);
  for (let last = -1; last !== count(); await sleep(12 * LATE)) last = count();
}
