import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { DeliveryLogWriter } from '../../lib/deliveries/delivery-log.writer.js';
import type { DeliveryChange } from '../../lib/deliveries/delivery-log.js';
import { MemoryDeliveryLog } from '../../lib/deliveries/memory-delivery.log.js';
import { WebhookDeliveries } from '../../lib/deliveries/webhook.deliveries.js';
import type { OutgoingDelivery } from '../../lib/queue/webhook-delivery.interface.js';
import type { EnqueuedDelivery } from '../../lib/queue/webhook-queue.js';
import { InProcessQueue } from '../../lib/queue/in-process.queue.js';
import { TestClock } from '../../lib/testing/test-clock.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

/** A log that can fail or hang, and records its calls. */
class ScriptedLog extends MemoryDeliveryLog {
  fails: (ids: readonly string[]) => boolean = () => false;
  held: Promise<void> | undefined;
  readonly calls: (readonly string[])[] = [];

  override async record(deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[]): Promise<void> {
    await this.call(deliveries.map(({ delivery }) => delivery.eventId));
    return super.record(deliveries);
  }

  override async change(changes: readonly DeliveryChange[]): Promise<void> {
    await this.call(changes.map(({ delivery }) => delivery.eventId));
    return super.change(changes);
  }

  private async call(ids: readonly string[]): Promise<void> {
    this.calls.push(ids);
    await this.held;
    if (this.fails(ids)) throw new TypeError('the secret {"n":1} could not be stored');
  }
}

class TransactionalQueue extends InProcessQueue {
  override readonly transactional = true as never;
}

class TransactionalLog extends MemoryDeliveryLog {
  override readonly transactional = true as never;
  readonly joined: unknown[] = [];
  isBroken = false;

  override async record(
    deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[],
    options?: { readonly tx?: unknown },
  ): Promise<void> {
    if (this.isBroken) throw new TypeError('relation does not exist');
    this.joined.push(options?.tx);
    return super.record(deliveries);
  }
}

let receiver: WireReceiver;
let log: ScriptedLog;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  log = new ScriptedLog();
  bench = await PublisherBench.start({
    endpoints: [{ id: 'crm', url: receiver.url }],
    deliveryLog: log,
  });
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

const send = (id: string) => bench.publisher.send('crm', 'order.created', { n: 1 }, { id });
const statuses = async (): Promise<string[]> => {
  const { deliveries } = await bench.module.get(WebhookDeliveries).list();
  return deliveries.map(({ eventId, status }) => `${eventId} ${status}`).toSorted();
};

describe('a delivery log that fails', () => {
  it('delays neither publish nor send, and receives every change once it is available again', async () => {
    log.fails = () => true;
    const sent = [await send('a'), await send('b')];
    await bench.publisher.publish('order.created', {}, { id: 'c', delay: '1h' });
    const during = await statuses();
    log.fails = () => false;
    await bench.clock.advance(60_000);

    expect(sent).toMatchObject([{ status: 'delivered' }, { status: 'delivered' }]);
    expect(during).toEqual([]);
    expect(await statuses()).toEqual(['a delivered', 'b delivered', 'c pending']);
  });

  it('is logged once when it fails and once when it is available again, without its messages', async () => {
    log.fails = () => true;
    await send('a');
    await bench.clock.advance(10_000);
    await send('b');
    await bench.clock.advance(10_000);
    log.fails = () => false;
    await bench.clock.advance(60_000);

    expect(bench.logs('warn')).toEqual([
      expect.stringMatching(/^The delivery log failed \(TypeError\)/),
    ]);
    expect(bench.logs('log')).toContainEqual('The delivery log is available again.');
    expect(JSON.stringify(bench.logged)).not.toMatch(/secret|"n\\*":1/);
  });

  it('is retried with backoff', async () => {
    log.fails = () => true;
    await send('a');
    await bench.clock.advance(10 * 60_000);

    expect(log.calls.length).toBeGreaterThan(10);
    expect(log.calls.length).toBeLessThan(40);
  });

  it('is not blocked by one delivery that it refuses', async () => {
    log.fails = (ids) => ids.includes('bad');
    await Promise.all(['good-1', 'bad', 'good-2'].map(send));
    await bench.clock.advance(10 * 60_000);
    await send('good-3');

    expect(await statuses()).toEqual(['good-1 delivered', 'good-2 delivered', 'good-3 delivered']);
    expect(bench.logs('log')).toContainEqual(expect.stringMatching(/\d changes were dropped/));
  });

  it('receives the changes of an outage of any length', async () => {
    log.fails = () => true;
    await send('a');
    await bench.clock.advance(24 * 3_600_000);
    log.fails = () => false;
    await bench.clock.advance(60_000);

    expect(await statuses()).toEqual(['a delivered']);
    expect(bench.logs('log')).toContainEqual('The delivery log is available again.');
  });

  it('loses the oldest changes beyond 10,000', async () => {
    await bench.stop();
    log.fails = () => true;
    bench = await PublisherBench.start({
      endpoints: [{ id: 'crm', url: receiver.url }],
      deliveryLog: log,
      queue: new InProcessQueue({ maxPending: 20_000, clock: new TestClock() }),
    });
    for (let n = 0; n < 10_001; n++) {
      await bench.publisher.publish('order.created', {}, { id: `e${n}`, delay: '1h' });
    }
    log.fails = () => false;
    await bench.clock.advance(60_000);

    const { pending } = await bench.module.get(WebhookDeliveries).stats();
    expect(pending).toBe(9_000);
    expect(bench.logs('log')).toContainEqual(expect.stringMatching(/1001 changes were dropped/));
  });
});

describe('a delivery log that is slow', () => {
  it('receives the changes during a write as one batch', async () => {
    let goOn!: () => void;
    log.held = new Promise((resolve) => (goOn = resolve));
    await bench.publisher.publish('order.created', {}, { id: 'first', delay: '1h' });
    for (const id of ['a', 'b', 'c']) {
      await bench.publisher.publish('order.created', {}, { id, delay: '1h' });
    }
    goOn();

    expect(await statuses()).toHaveLength(4);
    expect(log.calls).toEqual([['first'], ['a', 'b', 'c']]);
  });

  it('receives buffered changes at shutdown', async () => {
    let goOn!: () => void;
    log.held = new Promise((resolve) => (goOn = resolve));
    await bench.publisher.publish('order.created', {}, { id: 'first', delay: '1h' });
    await bench.publisher.publish('order.created', {}, { id: 'last', delay: '1h' });
    const closed = bench.module.close();
    await bench.clock.advance(1_000);
    goOn();
    await closed;

    expect(await log.list({}, { limit: 10 })).toHaveLength(2);
    expect(bench.logs('warn')).toEqual([expect.stringMatching(/2 deliveries were not finished/)]);
  });

  it('delays a shutdown until its deadline at most', async () => {
    log.held = new Promise(() => {});
    await bench.publisher.publish('order.created', {}, { id: 'first', delay: '1h' });
    await bench.publisher.publish('order.created', {}, { id: 'last', delay: '1h' });
    const closed = bench.module.close();
    await bench.clock.advance(10_000);
    await closed;

    expect(bench.logs('warn')).toContainEqual(
      expect.stringMatching(/2 change\(s\) were not written/),
    );
  });

  it('is retried at shutdown after a failure', async () => {
    log.fails = () => true;
    await send('a');
    await bench.clock.advance(0);
    log.fails = () => false;
    await bench.module.close();

    expect(await log.list({ status: 'delivered' }, { limit: 10 })).toHaveLength(1);
    expect(bench.clock.waiting).toBe(0);
  });
});

describe('publish in a transaction', () => {
  const tx = { is: 'a transaction' };

  async function startWith(deliveryLog: MemoryDeliveryLog): Promise<void> {
    await bench.stop();
    bench = await PublisherBench.start({
      endpoints: [{ id: 'crm', url: receiver.url }],
      queue: new TransactionalQueue({ clock: new TestClock() }),
      deliveryLog,
    });
  }

  it('is joined by a transactional log', async () => {
    const transactional = new TransactionalLog();
    await startWith(transactional);
    await bench.publisher.publish('order.created', {}, { tx, delay: '1h' });

    expect(transactional.joined).toEqual([tx]);
  });

  it('fails with the log, which has broken the transaction', async () => {
    const transactional = new TransactionalLog();
    transactional.isBroken = true;
    await startWith(transactional);

    await expect(
      bench.publisher.publish('order.created', {}, { tx, delay: '1h' }),
    ).rejects.toMatchObject({ code: 'store_unavailable' });
  });

  it('reaches a log that cannot join it with the first attempt', async () => {
    await startWith(log);
    await bench.publisher.publish('order.created', {}, { tx, id: 'waiting', delay: '1h' });
    const before = await statuses();
    await bench.publisher.publish('order.created', {}, { tx, id: 'tried' });
    await bench.reported(1);

    expect(before).toEqual([]);
    expect(await statuses()).toEqual(['tried delivered']);
  });
});

describe('a durable delivery log', () => {
  class DurableLog extends ScriptedLog {
    override readonly durable = true as never;
  }

  it('holds the outcome of an attempt before the queue does', async () => {
    const durable = new DurableLog();
    await bench.stop();
    bench = await PublisherBench.start({
      endpoints: [{ id: 'crm', url: receiver.url }],
      deliveryLog: durable,
    });
    let goOn = (): void => {};
    receiver.script = () => {
      durable.held = new Promise((resolve) => (goOn = resolve));
      return { status: 204 };
    };
    await send('a');
    const [delivery] = await durable.list({}, { limit: 1 });
    const { id } = delivery!.delivery;
    const during = await bench.queue.find([id]);
    goOn();
    while ((await bench.queue.find([id]))[0]?.status !== 'delivered') await bench.clock.advance(0);

    expect(during).toMatchObject([{ status: 'pending' }]);
    expect(await durable.find(id)).toMatchObject({ status: 'delivered' });
  });

  it('delays an attempt by a second at most if it does not answer', async () => {
    const durable = new DurableLog();
    await bench.stop();
    bench = await PublisherBench.start({
      endpoints: [{ id: 'crm', url: receiver.url }],
      deliveryLog: durable,
    });
    receiver.script = () => {
      durable.held = new Promise(() => {});
      return { status: 204 };
    };
    await send('a');
    const [delivery] = await durable.list({}, { limit: 1 });
    await bench.clock.advance(1_000);

    expect(await bench.queue.find([delivery!.delivery.id])).toMatchObject([
      { status: 'delivered' },
    ]);
  });
});

describe('flushed', () => {
  it('waits for earlier changes, and not for later ones', async () => {
    const releases: (() => void)[] = [];
    const slow = new ScriptedLog();
    const writer = new DeliveryLogWriter(slow, bench.clock);
    const hold = (): void => {
      slow.held = new Promise((resolve) => releases.push(resolve));
    };
    const item = (n: number): EnqueuedDelivery<OutgoingDelivery> => ({
      delivery: {
        id: `d${n}`,
        eventId: `e${n}`,
        event: 'order.created',
        payload: { kind: 'json', bytes: undefined, contentType: 'application/json' },
        createdAt: n,
      },
      notBefore: 0,
    });
    const next = async (count: number): Promise<void> => {
      while (slow.calls.length < count) await new Promise((resolve) => setImmediate(resolve));
    };
    hold();
    await writer.enqueued([item(1)]);
    await next(1);
    const settled = writer.flushed();
    await writer.enqueued([item(2)]);
    const release = releases.shift()!;
    hold();
    release();
    await next(2);

    await expect(settled).resolves.toBeUndefined();
    expect(await slow.find('d1')).toBeDefined();
    expect(await slow.find('d2')).toBeUndefined();
    releases.shift()!();
    await writer.flushed();
    expect(await slow.find('d2')).toBeDefined();
  });
});
