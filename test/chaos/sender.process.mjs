// Publishes until it reads a line or is killed, one event or two at a time. Prints "published ID" for each acknowledged event.
import 'reflect-metadata';
import { setTimeout } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { WebhookModule, WebhookPublisher } from '../../dist/index.js';
import { openQueue } from '../fixtures/durable-queues.mjs';
import { LIMITED } from './unreliable-proxy.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

const { engine, place, name, orderedBy, publishes, pause, origin, issuer, secret } = settings;
/** Each endpoint has a circuit of its own. Every second one gets its events in order, by one of some keys. */
const ENDPOINTS = 8;
const KEYS = 3;

function numbered(number) {
  const index = number % ENDPOINTS;
  const orderingKey = index % 2 === 1 ? `${orderedBy}-${number % KEYS}` : undefined;
  return {
    event: `chaos.e${index}`,
    data: { number },
    options: { id: `${name}-${number}`, orderingKey },
  };
}

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
          ...(`chaos.e${index}` === LIMITED.event && { concurrency: LIMITED.concurrency }),
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

for (let turn = 0, next = 0; !publishing.signal.aborted; turn++) {
  const events = Array.from({ length: 1 + (turn % 2) }, () => numbered(next++));
  try {
    await publisher.publishAll(events);
    for (const { options } of events) report('published', options.id);
  } catch {
    // The events were not acknowledged, so they may be lost.
  }
  await setTimeout(pause);
}
