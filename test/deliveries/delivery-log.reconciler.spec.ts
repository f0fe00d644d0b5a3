import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { DeliveryLogReconciler } from '../../lib/deliveries/delivery-log.reconciler.js';
import type { LoggedDelivery } from '../../lib/deliveries/delivery-log.js';
import { DeliveryLogWriter } from '../../lib/deliveries/delivery-log.writer.js';
import { MemoryDeliveryLog } from '../../lib/deliveries/memory-delivery.log.js';
import { WebhookDeliveries } from '../../lib/deliveries/webhook.deliveries.js';
import { InProcessQueue } from '../../lib/queue/in-process.queue.js';
import type { OutgoingDelivery } from '../../lib/queue/webhook-delivery.interface.js';
import type { DeliveryOutcome, EnqueuedDelivery } from '../../lib/queue/webhook-queue.js';
import { enqueued } from '../../lib/testing/delivery-log.contract-data.js';
import { TestClock } from '../../lib/testing/test-clock.js';

const MINUTE = 60_000;
const HOUR = 60 * MINUTE;

class DurableLog extends MemoryDeliveryLog {
  override readonly durable = true as never;
}

/** A queue that other processes use too, and that can be down. */
class SharedQueue extends InProcessQueue {
  override readonly shared = true as never;
  isDown = false;

  override async find(ids: readonly string[]): ReturnType<InProcessQueue['find']> {
    if (this.isDown) throw new TypeError('connection refused');
    return super.find(ids);
  }
}

let clock: TestClock;
let log: DurableLog;
let queue: SharedQueue;
let writer: DeliveryLogWriter;
let reconciler: DeliveryLogReconciler;
let deliveries: WebhookDeliveries;

beforeEach(() => {
  clock = new TestClock();
  log = new DurableLog();
  queue = new SharedQueue({ clock });
  writer = new DeliveryLogWriter(log, clock);
  reconciler = new DeliveryLogReconciler(log, queue, writer, clock);
  deliveries = new WebhookDeliveries(log, queue, writer, clock);
});

afterEach(async () => {
  reconciler.beforeApplicationShutdown();
  const stopped = queue.stop(clock.now());
  await clock.advance(0);
  await stopped;
});

/** Logs a delivery as pending; with an outcome, the queue holds it too, and attempts it with that outcome. */
async function pendingInLog(
  id: string,
  outcome?: DeliveryOutcome,
): Promise<EnqueuedDelivery<OutgoingDelivery>> {
  const item = enqueued(id, { createdAt: clock.now() }, clock.now());
  await log.record([item]);
  if (outcome === undefined) return item;
  await queue.enqueue([item]);
  outcomes.set(id, outcome);
  return item;
}

const outcomes = new Map<string, DeliveryOutcome>();

/** Attempts everything in the queue without logging it. */
async function attemptAll(): Promise<void> {
  queue.consume(async ({ id }) => outcomes.get(id)!);
  await clock.advance(0);
}

/** Starts the process after the crash. */
async function start(after: number): Promise<void> {
  await clock.advance(after);
  reconciler.onApplicationBootstrap();
  await clock.advance(0);
  await writer.flushed();
}

const logged = async (id: string): Promise<LoggedDelivery | undefined> => log.find(id);

describe('a delivery that stayed pending in the log', () => {
  it('is logged as delivered if the queue has delivered it', async () => {
    await pendingInLog('a', { type: 'delivered' });
    await attemptAll();
    await start(MINUTE);

    expect(await logged('a')).toMatchObject({ status: 'delivered', attempts: 1 });
    expect(await deliveries.stats()).toMatchObject({ pending: 0, delivered: 1, lag: 0 });
  });

  it('is logged as dead, with the reason, if the queue has given it up', async () => {
    await pendingInLog('a', { type: 'dead', reason: 'http_500', attempts: 3 });
    await attemptAll();
    await start(MINUTE);

    expect(await logged('a')).toMatchObject({ status: 'dead', attempts: 3, reason: 'http_500' });
  });

  it('shows its next attempt if the queue has deferred it', async () => {
    const at = clock.now() + HOUR;
    await pendingInLog('a', { type: 'retry', at, reason: 'timeout' });
    await attemptAll();
    await start(MINUTE);

    expect(await logged('a')).toMatchObject({
      status: 'pending',
      attempts: 1,
      nextAttemptAt: at,
      reason: 'timeout',
    });
    expect(await deliveries.stats()).toMatchObject({ pending: 1, lag: 0 });
  });

  it('stays overdue if the queue has a backlog', async () => {
    await pendingInLog('a', { type: 'delivered' });
    const before = await logged('a');
    await start(2 * HOUR);

    expect(await logged('a')).toEqual(before);
    expect(await deliveries.stats()).toMatchObject({ pending: 1, lag: 2 * HOUR });
  });

  it('becomes dead after an hour if the queue does not know it', async () => {
    await pendingInLog('a');
    await start(HOUR - 1);
    expect(await logged('a')).toMatchObject({ status: 'pending' });
    await clock.advance(MINUTE);
    await writer.flushed();

    expect(await logged('a')).toMatchObject({ status: 'dead', reason: 'outcome_unknown' });
    expect(await deliveries.stats()).toMatchObject({ pending: 0, dead: 1, lag: 0 });
  });

  it('can be redelivered and pruned once it is dead', async () => {
    await pendingInLog('a');
    await pendingInLog('b');
    await start(2 * HOUR);
    const { deliveries: redelivered } = await deliveries.redeliver({ status: 'dead' });
    const pruned = await deliveries.prune({ olderThan: '1h' });

    expect(redelivered.map(({ id }) => id).toSorted()).toEqual(['a', 'b']);
    expect(redelivered.every((result) => result.redelivered)).toBe(true);
    expect(pruned).toBe(2);
    expect(await deliveries.stats()).toMatchObject({ pending: 2, dead: 0, lag: 0 });
  });
});

it('corrects more deliveries than one page has', async () => {
  for (let n = 0; n < 250; n++) await pendingInLog(`d-${n}`, { type: 'delivered' });
  await attemptAll();
  for (let done = 0; done < 10; done++) await clock.advance(0);
  await start(MINUTE);
  await reconciler.sweep();

  expect(await deliveries.stats()).toMatchObject({ pending: 0, delivered: 250 });
});

it('does not change deliveries that became due a moment ago', async () => {
  await pendingInLog('a', { type: 'delivered' });
  await attemptAll();
  await start(1_000);

  expect(await logged('a')).toMatchObject({ status: 'pending' });
});

it('sweeps again every minute, also after the queue was unavailable', async () => {
  queue.isDown = true;
  await pendingInLog('a', { type: 'delivered' });
  await attemptAll();
  await start(MINUTE);
  expect(await logged('a')).toMatchObject({ status: 'pending' });
  queue.isDown = false;
  await clock.advance(MINUTE);
  await writer.flushed();

  expect(await logged('a')).toMatchObject({ status: 'delivered' });
});

it('does not run if log and queue are both in the memory of one process', () => {
  const wakes = clock.waiting;
  new DeliveryLogReconciler(
    new MemoryDeliveryLog(),
    new InProcessQueue({ clock }),
    writer,
    clock,
  ).onApplicationBootstrap();

  expect(clock.waiting).toBe(wakes);
});
