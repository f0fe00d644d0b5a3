import { AsyncLocalStorage } from 'node:async_hooks';
import { expect, it } from '@jest/globals';
import { Injectable, type OnModuleInit } from '@nestjs/common';
import { InProcessQueue, WebhookPublisher } from 'nestjs-webhook-token';
import { WebhookDeliverer } from '../../lib/deliveries/webhook.deliverer.js';
import { createFastify } from '../fixtures/adapters.js';
import { ISSUER, SECRET, startApp } from '../fixtures/receiver-app.js';
import { PublisherBench } from '../publisher/publisher-bench.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

it('keeps the outcome of an attempt if a listener throws', async () => {
  const receiver = await WireReceiver.start();
  receiver.script = (_, index) => ({ status: index === 0 ? 500 : 204 });
  const bench = await PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }] });
  bench.module.get(WebhookDeliverer).onRun(() => {
    throw new Error('an error of the application');
  });
  await bench.publisher.publish('order.created', ['x']);
  await bench.clock.advance(0);
  await bench.reported(1);
  await bench.clock.advance(3_600_000);
  await bench.reported(2);
  await bench.stop();
  await receiver.stop();

  expect(bench.reports.map(({ outcome }) => outcome.type)).toEqual(['retry', 'delivered']);
  expect(receiver.requests).toHaveLength(2);
  expect(bench.logs('error')).toEqual(
    Array(2).fill(expect.stringContaining('a listener of its outcome failed (Error)')),
  );
});

it('waits for an overloaded endpoint no longer than it has asked for if the clock is set back', async () => {
  const receiver = await WireReceiver.start();
  receiver.script = (_, index) =>
    index === 0 ? { status: 503, headers: { 'Retry-After': '10' } } : { status: 204 };
  const bench = await PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }] });
  await bench.publisher.publish('order.created', ['first']);
  await bench.reported(1);
  bench.clock.set(bench.clock.now() - 3_600_000);
  await bench.publisher.publish('order.created', ['second']);
  await bench.reported(2);
  await bench.clock.advance(10_000);
  await bench.reported(4);
  await bench.stop();
  await receiver.stop();

  const outcomes = bench.reports.map(({ outcome }) => outcome.type);
  expect(outcomes).toEqual(['retry', 'defer', 'delivered', 'delivered']);
});

it('does not wait again for an overload that is over if the clock is set back', async () => {
  const receiver = await WireReceiver.start();
  receiver.script = (_, index) =>
    index === 0 ? { status: 503, headers: { 'Retry-After': '10' } } : { status: 204 };
  const bench = await PublisherBench.start({ endpoints: [{ id: 'crm', url: receiver.url }] });
  await bench.publisher.publish('order.created', ['first']);
  await bench.reported(1);
  await bench.clock.advance(10_000);
  await bench.reported(2);
  bench.clock.set(bench.clock.now() - 3_600_000);
  await bench.publisher.publish('order.created', ['second']);
  await bench.reported(3);
  await bench.stop();
  await receiver.stop();

  const outcomes = bench.reports.map(({ outcome }) => outcome.type);
  expect(outcomes).toEqual(['retry', 'delivered', 'delivered']);
});

it('consumes the queue outside of the async context of a publish that starts it', async () => {
  const caller = new AsyncLocalStorage<string>();
  const callers: (string | undefined)[] = [];
  class Queue extends InProcessQueue {
    override consume(...args: Parameters<InProcessQueue['consume']>): void {
      callers.push(caller.getStore());
      super.consume(...args);
    }
  }
  @Injectable()
  class EarlyPublisher implements OnModuleInit {
    constructor(private readonly publisher: WebhookPublisher) {}

    async onModuleInit(): Promise<void> {
      await caller.run('publish', async () => this.publisher.publish('order.created', {}));
    }
  }
  const { app } = await startApp(createFastify(), {
    options: { publisher: { issuer: ISSUER, secret: SECRET, queue: new Queue() } },
    providers: [EarlyPublisher],
  });
  await app.close();

  expect(callers).toEqual([undefined]);
});
