import assert from 'node:assert/strict';
import { AsyncLocalStorage } from 'node:async_hooks';
import { isWebhookError, WebhookDeliveryError } from '../errors/webhook.error.js';
import type { EnqueueOptions, EnqueuedDelivery } from '../queue/webhook-queue.js';
import {
  AHEAD,
  comparableDelivery,
  DELIVERED,
  gate,
  HOUR,
  LONG_STEP,
  type QueueRules,
  retry,
  STEP,
} from './webhook-queue.bench.js';

/** The rules of the contract on recording and running deliveries. */
export const RUN_RULES: QueueRules = {
  'passes a delivery unchanged to the handler, as attempt 1': async (bench) => {
    await bench.consume();
    const answers = await bench.enqueue('whole');

    await bench.untilRuns(1);

    assert.deepEqual(answers, [undefined]);
    assert.deepEqual(bench.runs, [{ id: 'whole', attempt: 1 }]);
    assert.deepEqual(comparableDelivery(bench.received[0]!), bench.delivery('whole'));
  },

  'keeps deliveries that are recorded before consume': async (bench) => {
    await bench.enqueue('early');
    await bench.advance(STEP);
    await bench.consume();

    await bench.untilRuns(1);
  },

  'records an id once, within one call and across calls': async (bench) => {
    const first = { ...bench.delivery('twin'), contentDigest: 'sha256:1' };
    const second = { ...bench.delivery('twin'), contentDigest: 'sha256:2' };
    const [recorded, twin] = await bench.enqueueLater(first, second);
    const [again, other] = await bench.enqueueLater(second, bench.delivery('other'));

    assert.deepEqual([recorded, other], [undefined, undefined]);
    for (const known of [twin!, again!]) {
      assert.equal(known.delivery.contentDigest, 'sha256:1');
      assert.equal(known.status, 'pending');
    }
    assert.deepEqual(await bench.ids(), ['twin', 'other']);
  },

  'records nothing if the check of the call throws': async (bench) => {
    const deliveries = [bench.due('other'), bench.due('known')];
    await bench.queue.enqueue(deliveries.slice(1));
    const seen: unknown[] = [];
    let refuses = true;
    const check: EnqueueOptions['check'] = (records) => {
      seen.push(records.map((record) => record?.delivery.id));
      if (refuses) throw new WebhookDeliveryError('id_conflict', 'The check refused it.');
    };
    const call = async () => bench.queue.enqueue(deliveries, { check });

    await assert.rejects(call, (error) => isWebhookError(error, 'id_conflict'));
    assert.equal(await bench.find('other'), undefined);
    refuses = false;
    assert.equal((await call())[0], undefined);
    assert.notEqual(await bench.find('other'), undefined);
    for (const ids of seen) assert.deepEqual(ids, [undefined, 'known']);
  },

  'records an id once across concurrent calls, and the other ids of each call': async (bench) => {
    const names = Array.from({ length: 20 }, (_, index) => `own-${index}`);
    const calls = await Promise.all(names.map(async (name) => bench.enqueue('twin', name)));

    assert.equal(calls.filter(([twin]) => twin === undefined).length, 1);
    assert.ok(calls.every(([, own]) => own === undefined));
    await bench.consume();
    await bench.untilRuns(names.length + 1);
    assert.equal(new Set(bench.ran()).size, names.length + 1);
  },

  'knows an id after it was delivered': async (bench) => {
    await bench.consume();
    await bench.enqueue('done');
    await bench.untilState('done', 'delivered 1');

    const [known] = await bench.enqueue('done');
    assert.equal(known?.status, 'delivered');
    assert.equal(known.attempts, 1);
    assert.equal(known.reason, undefined);
    await bench.advance(STEP * 5);
    assert.equal(bench.runs.length, 1);
  },

  'knows an id whose delivery is dead, and does not run it again': async (bench) => {
    await bench.consume(() => ({ type: 'dead', reason: 'http_500', attempts: 1 }));
    await bench.enqueue('lost');
    await bench.untilState('lost', 'dead 1');

    const [known] = await bench.enqueue('lost');
    assert.equal(known?.status, 'dead');
    assert.equal(known.reason, 'http_500');
    await bench.advance(STEP * 5);
    assert.equal(bench.runs.length, 1);
  },

  'runs no delivery before it is due': async (bench) => {
    await bench.consume();
    const notBefore = bench.now() + 2_000;
    await bench.queue.enqueue([{ delivery: bench.delivery('later'), notBefore }]);

    await bench.advance(2_000);
    await bench.untilRuns(1);
    assert.ok(bench.startedAt[0]! > notBefore - AHEAD, 'it must not run before it is due');
  },

  'retries at the time of the outcome, as the next attempt': async (bench) => {
    let at = Infinity;
    await bench.consume((_, attempt) => {
      if (attempt > 1) return DELIVERED;
      at = bench.now() + 2_000;
      return retry(at);
    });
    await bench.enqueue('again');

    await bench.advance(2_000);
    await bench.untilRuns(2);
    const attempts = bench.runs.map(({ attempt }) => attempt);
    assert.deepEqual(attempts, [1, 2]);
    assert.ok(bench.startedAt[1]! > at - AHEAD, 'it must not be retried before that time');
  },

  'counts no attempt for a deferred delivery': async (bench) => {
    await bench.consume(() =>
      bench.runs.length === 1 ? { type: 'defer', at: bench.now() + 500 } : DELIVERED,
    );
    await bench.enqueue('deferred');

    await bench.advance(500);
    await bench.untilRuns(2);

    const attempts = bench.runs.map(({ attempt }) => attempt);
    assert.deepEqual(attempts, [1, 1]);
  },

  'repeats the attempt if the handler throws': async (bench) => {
    await bench.consume(() =>
      bench.runs.length === 1 ? Promise.reject(new Error('the handler failed')) : DELIVERED,
    );
    await bench.enqueue('stumbled');

    await bench.untilRuns(2, LONG_STEP);

    assert.deepEqual(bench.runs, [
      { id: 'stumbled', attempt: 1 },
      { id: 'stumbled', attempt: 1 },
    ]);
    await bench.untilState('stumbled', 'delivered 1');
    assert.equal((await bench.queue.attempts('stumbled')).length, 1);
  },

  'attempts a redelivered delivery again under its id': async (bench) => {
    let isBroken = true;
    await bench.consume((_, attempt) =>
      isBroken ? { type: 'dead', reason: 'http_500', attempts: attempt } : DELIVERED,
    );
    await bench.enqueue('revived');
    await bench.untilState('revived', 'dead 1');
    isBroken = false;

    assert.deepEqual(await bench.queue.redeliver(['revived', 'unknown', 'revived']), ['revived']);
    await bench.untilState('revived', 'delivered 1');

    assert.deepEqual(bench.runs.at(-1), { id: 'revived', attempt: 1 });
    const attempts = await bench.queue.attempts('revived');
    const results = attempts.map(({ attempt, reason = 'success' }) => `${attempt} ${reason}`);
    assert.deepEqual(results, ['1 http_500', '1 success']);
  },

  'redelivers a dead delivery once across concurrent calls': async (bench) => {
    const ids = Array.from({ length: 10 }, (_, index) => `lost-${index}`);
    const { opened, open } = gate();
    await bench.consume(async () => {
      // Without this wait, a call could find a delivery dead again that another call had redelivered.
      if (bench.runs.length > ids.length) await opened;
      return { type: 'dead', reason: 'http_500', attempts: 1 };
    });
    await bench.enqueue(...ids);
    await bench.untilCount(ids.length, 'dead');

    const calls = await Promise.all([1, 2, 3].map(async () => bench.queue.redeliver(ids)));
    const redelivered = await bench.queue.find(ids);
    open();

    assert.deepEqual(calls.flat().toSorted(), ids);
    for (const record of redelivered) {
      assert.equal(record!.status, 'pending');
      assert.equal(record!.reason, undefined);
    }
  },

  'brings the next attempt of a pending delivery forward': async (bench) => {
    await bench.consume((_, attempt) => (attempt === 1 ? retry(bench.now() + HOUR) : DELIVERED));
    await bench.enqueue('hurried');
    await bench.untilState('hurried', 'pending 1');

    assert.deepEqual(await bench.queue.redeliver(['hurried', 'unknown', 'hurried']), ['hurried']);
    await bench.untilRuns(2);
    assert.deepEqual(bench.runs.at(-1), { id: 'hurried', attempt: 2 });
  },

  'brings the first attempt of a pending delivery forward': async (bench) => {
    await bench.consume();
    await bench.enqueueLater(bench.delivery('early'));

    assert.deepEqual(await bench.queue.redeliver(['early']), ['early']);
    await bench.untilRuns(1);
    assert.deepEqual(bench.runs, [{ id: 'early', attempt: 1 }]);
  },

  'does not redeliver a running or delivered delivery': async (bench) => {
    const open = await bench.consumeGated();
    await bench.enqueue('busy');
    await bench.untilRuns(1);

    assert.deepEqual(await bench.queue.redeliver(['busy']), []);
    open();
    await bench.untilState('busy', 'delivered 1');
    assert.deepEqual(await bench.queue.redeliver(['busy']), []);
    assert.equal(bench.runs.length, 1);
  },

  'runs the handler outside of the async context of the call that makes a delivery due': async (
    bench,
  ) => {
    const caller = new AsyncLocalStorage<string>();
    const callers: (string | undefined)[] = [];
    await bench.consume((_, attempt) => {
      callers.push(caller.getStore());
      const reason = 'http_500';
      if (attempt === 1) return retry(bench.now() + STEP);
      return callers.length === 2 ? { type: 'dead', reason, attempts: attempt } : DELIVERED;
    });
    await caller.run('enqueue', async () => bench.enqueue('called'));
    await bench.untilState('called', 'dead 2');
    await caller.run('redeliver', async () => bench.queue.redeliver(['called']));
    await bench.untilState('called', 'delivered 2');

    await caller.run('flush', async () => {
      await bench.enqueueLater(bench.delivery('flushed'));
      await bench.queue.redeliver(['flushed']);
      await bench.queue.flush?.();
    });
    await bench.untilState('flushed', 'delivered 2');
    assert.deepEqual(new Set(callers), new Set([undefined]));
  },

  'delivers to other endpoints while five hang': async (bench) => {
    const isHealthy = (id: string): boolean => id.startsWith('healthy');
    const open = await bench.consumeGated((id) => !isHealthy(id));
    const notBefore = bench.now();
    const to = (endpointId: string, count: number): EnqueuedDelivery[] =>
      Array.from({ length: count }, (_, index) => ({
        delivery: bench.delivery(`${endpointId}-${index}`, { endpointId }),
        notBefore,
      }));
    const hanging = ['a', 'b', 'c', 'd', 'e'].flatMap((name) => to(`hanging-${name}`, 30));
    await bench.queue.enqueue([...hanging, ...to('healthy', 10)]);

    await bench.until(() => bench.ran().filter(isHealthy).length === 10, LONG_STEP / 10);
    open();
  },

  'starts deliveries due at the same time in the order they were recorded': async (bench) => {
    const ids = Array.from({ length: 20 }, (_, index) => `in-order-${index}`);
    await bench.enqueue(...ids.slice(0, 10));
    await bench.enqueue(...ids.slice(10));
    await bench.consume();

    await bench.untilRuns(ids.length);

    assert.deepEqual(bench.ran(), ids);
  },

  'waits for running attempts when it stops': async (bench) => {
    const open = await bench.consumeGated();
    await bench.enqueue('running');
    await bench.untilRuns(1);

    let left: number | undefined;
    const stopped = bench.stop(60_000).then((count) => (left = count));
    await bench.advance(STEP);
    assert.equal(left, undefined);
    open();

    assert.equal(await stopped, 0);
  },

  'stops at the deadline and returns the number of unfinished deliveries': async (bench) => {
    const open = await bench.consumeGated();
    await bench.enqueue('stuck');
    await bench.untilRuns(1);

    const stopped = bench.stop(200);
    await bench.advance(200);

    assert.equal(await stopped, 1);
    open();
  },

  'refuses new deliveries after it was stopped': async (bench) => {
    await bench.consume();
    await bench.stop(0);

    await assert.rejects(bench.enqueue('late'), (error) => isWebhookError(error, 'shutting_down'));
  },
};
