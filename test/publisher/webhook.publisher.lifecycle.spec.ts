import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Observable, of } from 'rxjs';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { FailureReason, OutgoingDelivery, DeliveryHandler } from 'nestjs-webhook-token/ports';
import { WebhookStoreError, InProcessQueue } from 'nestjs-webhook-token';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { describeWith } from '../fixtures/services.js';
import { TestDatabase } from '../postgres/database.js';
import { PublisherBench } from './publisher-bench.js';
import { WireReceiver } from './wire-receiver.js';

let receiver: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  receiver = await WireReceiver.start();
  bench = await PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }] });
});

afterEach(async () => {
  await bench.stop();
  await receiver.stop();
});

describe('at start-up', () => {
  it('logs once that a crash loses pending deliveries', async () => {
    await bench.module.init();

    expect(bench.logs('log').filter((line) => line.includes('a crash loses'))).toHaveLength(1);
  });

  it('delivers pending deliveries', async () => {
    await bench.stop();
    const queue = new InProcessQueue({ clock: new TestClock() });
    await queue.enqueue([{ delivery: recorded({ endpointId: 'crm' }), notBefore: 0 }]);
    bench = await PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }], queue });
    await bench.module.init();

    await receiver.received(1);
    expect(receiver.requests[0]!.claims.txn).toBe('e');
  });

  it.each<[string, Partial<OutgoingDelivery>, FailureReason, number]>([
    ['an endpoint that no longer exists', { endpointId: 'gone' }, 'unknown_endpoint', 0],
    ['a URL that is now blocked', { url: 'http://10.0.0.1/' }, 'destination_blocked', 1],
  ])('gives up deliveries that were recorded for %s', async (_, destination, reason, attempts) => {
    await bench.stop();
    const request = () => of({ status: 204 });
    bench = await PublisherBench.start({}, { request: request as never });
    await bench.module.init();
    await bench.queue.enqueue([{ delivery: recorded(destination), notBefore: 0 }]);
    await bench.reported(1);

    expect(bench.reports[0]!.outcome).toEqual({ type: 'dead', reason, attempts });
  });

  it('waits for an endpoint that it does not know, which may be in a newer configuration', async () => {
    await bench.module.init();
    const createdAt = bench.clock.now();
    const delivery = { ...recorded({ endpointId: 'new' }), createdAt };
    await bench.queue.enqueue([{ delivery, notBefore: createdAt }]);
    await bench.reported(1);
    const [waiting] = await bench.queue.find(['d']);
    for (let runs = 2; runs <= 31; runs++) {
      await bench.clock.advance(30_000);
      await bench.reported(runs);
    }

    const reason = 'unknown_endpoint';
    expect(waiting).toMatchObject({ status: 'pending', attempts: 0, reason });
    expect(bench.reports[0]!.outcome).toEqual({ type: 'defer', at: createdAt + 30_000, reason });
    expect(bench.reports[29]!.outcome).toMatchObject({ type: 'defer' });
    expect(bench.reports[30]!.outcome).toEqual({ type: 'dead', reason, attempts: 0 });
  });

  it('leaves received events that share its queue by mistake, and logs them', async () => {
    const received = {
      receiver: 'default',
      claims: {} as never,
      method: 'POST',
      profile: 'webhook-token',
      bodyVerified: true,
    } as const;
    await bench.queue.enqueue([{ delivery: { ...recorded({}), received }, notBefore: 0 }]);
    await bench.module.init();
    await bench.clock.advance(60_000);

    expect(await bench.queue.find(['d'])).toMatchObject([{ status: 'pending', attempts: 0 }]);
    expect(bench.logs('error')).toEqual([
      expect.stringContaining('holds the received event d; give the queues'),
      expect.stringContaining('holds the received event d; give the queues'),
    ]);
  });

  it('consumes the queue once it is available', async () => {
    class Late extends InProcessQueue {
      private calls = 0;

      override consume(handler: DeliveryHandler): void {
        if (this.calls++ === 0) throw new WebhookStoreError('store_unavailable', 'not yet');
        super.consume(handler);
      }
    }
    await bench.stop();
    bench = await PublisherBench.start({ queue: new Late() });
    const send = () => bench.publisher.send(receiver.url, 'order.created', {}, { id: 'late' });

    await expect(send()).rejects.toMatchObject({ code: 'store_unavailable' });
    await expect(send()).resolves.toMatchObject({ status: 'delivered' });
  });
});

describe('at shutdown', () => {
  it('lets running attempts finish', async () => {
    receiver.script = () => 'hang';
    const sent = bench.publisher.send('crm', 'order.created', {});
    await receiver.received(1);
    const closed = bench.module.close();
    await bench.clock.advance(9_000);
    receiver.answerHeld({ status: 204 });

    expect(await sent).toMatchObject({ status: 'delivered' });
    await closed;
    expect(bench.logs('warn')).toEqual([]);
  });

  it('stops waiting at the shutdown timeout, aborts the rest and logs how many are left', async () => {
    receiver.script = () => 'hang';
    const sent = bench.publisher.send('crm', 'order.created', {});
    const failed = expect(sent).rejects.toMatchObject({ code: 'shutting_down' });
    await bench.publisher.publish('order.created', {}, { delay: '1h' });
    await receiver.received(1);
    const closed = bench.module.close();
    await bench.clock.advance(10_000);

    await closed;
    await failed;
    expect(bench.logs('warn')).toEqual([expect.stringMatching(/^2 deliveries .* lost\.$/)]);
  });

  it('aborts a request that would never end', async () => {
    let isCancelled = false;
    const never = new Observable<never>(() => () => (isCancelled = true));
    await bench.stop();
    bench = await PublisherBench.start({}, { request: () => never });
    const sent = bench.publisher.send(receiver.url, 'order.created', {});
    await bench.clock.advance(0);
    const failed = expect(sent).rejects.toMatchObject({ code: 'shutting_down' });
    const closed = bench.module.close();
    await bench.clock.advance(10_000);
    await closed;
    await failed;

    expect(isCancelled).toBe(true);
  });

  it('does not count an aborted attempt', async () => {
    await bench.stop();
    bench = await PublisherBench.start({
      endpoints: [{ id: 'crm', url: receiver.url, timeout: '60s' }],
      retry: { attempts: 1 },
    });
    receiver.script = () => 'hang';
    await bench.publisher.publish('order.created', {});
    await receiver.received(1);
    const closed = bench.module.close();
    await bench.clock.advance(10_000);
    await closed;
    await bench.reported(1);

    expect(bench.reports[0]).toMatchObject({ outcome: { type: 'defer' } });
    expect(bench.reports[0]!.attempt).toBeUndefined();
    expect(await bench.dead()).toEqual([]);
  });

  it('survives an interceptor whose teardown throws', async () => {
    const never = new Observable<never>(() => () => {
      throw new Error('an error of the application');
    });
    await bench.stop();
    bench = await PublisherBench.start({}, { request: () => never });
    await bench.publisher.publish('order.created', {});
    const sent = bench.publisher.send(receiver.url, 'order.created', {});
    await bench.clock.advance(15_000);

    expect(await sent).toMatchObject({ status: 'scheduled', failureReason: 'timeout' });
  });

  it('refuses new events', async () => {
    await bench.module.close();

    for (const call of [
      bench.publisher.publish('order.created', {}),
      bench.publisher.send('crm', 'order.created', {}),
      bench.queue.enqueue([]),
    ]) {
      await expect(call).rejects.toMatchObject({ code: 'shutting_down' });
    }
  });

  it('leaves no timer behind', async () => {
    await bench.publisher.send('crm', 'order.created', {});
    await bench.publisher.publish('order.created', {}, { delay: '1h' });
    await bench.module.close();

    expect(bench.clock.waiting).toBe(0);
  });
});

function recorded(destination: Partial<OutgoingDelivery>): OutgoingDelivery {
  return {
    id: 'd',
    eventId: 'e',
    event: 'order.created',
    payload: { kind: 'json', bytes: undefined, contentType: 'application/json' },
    createdAt: 0,
    ...destination,
  };
}

(await describeWith('PostgreSQL'))('at shutdown with a durable queue', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('records that aborted attempts are due, so that another process makes them at once', async () => {
    const clock = new TestClock(Date.now() + 60_000);
    const options = { pool: database.pool, schema: database.newSchema(), clock, notify: false };
    const endpoints = [{ id: 'crm', url: receiver.url }];
    const start = async (): Promise<PublisherBench> =>
      PublisherBench.start({ endpoints, queue: new PostgresQueue(options) }, undefined, clock);
    const stopping = await start();
    receiver.script = (_, index) => (index === 0 ? 'hang' : { status: 204 });
    const { id } = await stopping.publisher.publish('order.created', {});
    await receiver.received(1);
    const closed = stopping.module.close();
    await clock.advance(9_500);
    await closed;
    const next = await start();
    await next.module.init();
    await next.reported(1);
    await next.stop();

    expect(next.reports[0]).toMatchObject({
      delivery: { eventId: id },
      outcome: { type: 'delivered' },
      attempt: { attempt: 1 },
    });
  });
});
