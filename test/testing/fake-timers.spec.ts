import { afterEach, beforeEach, expect, it, jest } from '@jest/globals';
import { Injectable, type INestApplication, Module } from '@nestjs/common';
import { Test } from '@nestjs/testing';
import { OnWebhookEvent, WebhookModule, WebhookPublisher } from 'nestjs-webhook-token';
import {
  deliverWebhook,
  flushDeliveries,
  InMemoryWebhookTransport,
  overrideWebhooks,
  TestClock,
} from 'nestjs-webhook-token/testing';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';

const sender = { issuer: ISSUER, secret: SECRET };
const CRM = 'https://crm.example/hooks';

@Injectable()
class Orders {
  @OnWebhookEvent('order.*')
  on(): void {}
}

@Module({
  imports: [
    WebhookModule.forRoot({
      publisher: { ...sender, endpoints: [{ id: 'crm', url: CRM, timeout: '5s' }] },
      receiver: { path: 'webhooks', issuers: [sender] },
    }),
  ],
  providers: [Orders],
})
class AppModule {}

const transport = new InMemoryWebhookTransport();
let clock: TestClock;
let app: INestApplication;
beforeEach(async () => {
  jest.useFakeTimers();
  clock = new TestClock();
  const builder = Test.createTestingModule({ imports: [AppModule] });
  const testing = await overrideWebhooks(builder, { transport, clock }).compile();
  app = testing.createNestApplication({ logger: false });
});
afterEach(async () => {
  jest.useRealTimers();
  await app.close();
});

it('a TestClock wakes under fake timers of Jest', async () => {
  const woken: number[] = [];
  const note = (): void => void woken.push(clock.now());
  const start = clock.now();
  clock.wakeAt(start + 10, note);
  await clock.advance(10);
  clock.wakeAt(start, note);
  await clock.advance(0);

  expect(woken).toEqual([start + 10, start + 10]);
});

it('deliveries and retries are made under fake timers of Jest', async () => {
  transport.script(CRM, 503, 204);
  const answer = await deliverWebhook(app, 'order.created', { id: 'o1' }, sender);
  await app.get(WebhookPublisher).publish('order.created', { id: 'o1' });
  const attempts = await flushDeliveries(app, { retries: true });

  expect(answer.outcome).toBe('handled');
  expect(attempts.map(({ status }) => status)).toEqual(['scheduled', 'delivered']);
});
