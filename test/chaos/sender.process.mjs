// Publishes until it reads a line or is killed. Prints "published ID" for each acknowledged event.
import 'reflect-metadata';
import { setTimeout } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { WebhookModule, WebhookPublisher } from '../../dist/index.js';
import { openQueue } from '../fixtures/durable-queues.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

const { engine, place, name, publishes, pause, origin, issuer, secret } = settings;
/** Each endpoint has a circuit of its own. */
const ENDPOINTS = 8;

class SenderModule {}
Module({
  imports: [
    WebhookModule.forRoot({
      publisher: {
        issuer,
        secret,
        endpoints: Array.from({ length: ENDPOINTS }, (_, index) => ({
          id: `endpoint-${index}`,
          url: `${origin}/webhooks`,
          events: [`chaos.e${index}`],
        })),
        retry: { attempts: 1_000, schedule: ['0s', '100ms', '300ms', '1s'] },
        queue: await openQueue(engine, place),
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
      },
    }),
  ],
})(SenderModule);

const app = await NestFactory.createApplicationContext(SenderModule, { logger: false });
const publisher = app.get(WebhookPublisher);
const publishing = new AbortController();
if (!publishes) publishing.abort();
onCommand((command) => {
  publishing.abort();
  if (command === 'end') void app.close().then(() => process.exit());
});
report('ready');

for (let number = 0; !publishing.signal.aborted; number++) {
  const id = `${name}-${number}`;
  try {
    await publisher.publish(`chaos.e${number % ENDPOINTS}`, { number }, { id });
    report('published', id);
  } catch {
    // The event was not acknowledged, so it may be lost.
  }
  await setTimeout(pause);
}
