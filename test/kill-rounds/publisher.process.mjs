// A publisher's process for the kill rounds of stored deliveries: publishes events and delivers them until it is killed.
// Says which events are published, and answers the line "deliveries" with what its queue holds.
import 'reflect-metadata';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { WebhookDeliveries, WebhookModule, WebhookPublisher } from '../../dist/index.js';
import { openQueue } from '../fixtures/durable-queues.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

const { engine, place, url, first, count } = settings;
const queue = await openQueue(engine, { concurrency: 20, ...place });

class App {}
Module({
  imports: [
    WebhookModule.forRoot({
      publisher: {
        issuer: 'https://billing.example',
        secret: 'correct-horse-battery-staple-0001',
        endpoints: [{ id: 'crm', url, method: 'POST' }],
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        retry: { attempts: 20, schedule: ['0s', '100ms'], jitter: 0 },
        queue,
      },
    }),
  ],
})(App);
const app = await NestFactory.createApplicationContext(App, { logger: false });
const deliveries = app.get(WebhookDeliveries);
async function reportDeliveries() {
  const { pending } = await deliveries.stats();
  const stored = [];
  for (let after; ;) {
    const page = await deliveries.list({}, { limit: 500, after });
    for (const { id, eventId, status, attemptsMade } of page.deliveries) {
      const { attempts } = await deliveries.get(id);
      const results = attempts.map(({ failureReason }) => (failureReason ? 'failed' : 'succeeded'));
      stored.push(`${eventId}=${status}=${attemptsMade}=${results.join(',')}`);
    }
    after = page.next;
    if (after === undefined) break;
  }
  report('deliveries', String(pending), ...stored);
}
onCommand(() => void reportDeliveries());
report('ready');
for (let number = first; number < first + count; number++) {
  const id = `event-${number}`;
  await app.get(WebhookPublisher).publish('order.created', { number }, { id });
  report('published', id);
}
