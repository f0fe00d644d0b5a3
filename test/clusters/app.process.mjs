// One instance of an application that sends webhooks to its own address, and receives them. See trial.mjs.
// Prints "ready", "acknowledged ID" when a publish resolves, "refused ID CODE" when it rejects, and "handled ID".
// Takes the lines "publish FIRST", "pause" and "memory"; SIGTERM shuts it down as an orchestrator does.
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { setFlagsFromString } from 'node:v8';
import { runInNewContext } from 'node:vm';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { OnWebhookEvent, WebhookModule, WebhookPublisher } from '../../dist/index.js';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';
import { openStores } from './stores.mjs';

const { place, port, url, instance, pause } = settings;
const ISSUER = 'https://billing.example';
const SECRET = 'correct-horse-battery-staple-0001';
/** Calls of `publish` at the same time, and endpoints. */
const CALLERS = 4;
const ENDPOINTS = 8;

const { queue, store, close } = await openStores(place);

class Orders {
  handle(_data, { id }) {
    report('handled', id);
  }
}
const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, 'handle');
OnWebhookEvent('order.*')(Orders.prototype, 'handle', descriptor);

class App {}
Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        issuers: [{ issuer: ISSUER, secret: SECRET }],
        replay: { store, lease: '10s' },
      },
      publisher: {
        issuer: ISSUER,
        secret: SECRET,
        endpoints: Array.from({ length: ENDPOINTS }, (_, number) => ({
          id: `endpoint-${number}`,
          url,
          events: [`order.for_${number}`],
        })),
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        retry: { attempts: 60, schedule: ['500ms', '1s', '2s'] },
        shutdownTimeout: '5s',
        queue,
      },
    }),
  ],
  providers: [Orders],
})(App);
const app = await NestFactory.create(App, new ExpressAdapter(), { logger: false });
const publisher = app.get(WebhookPublisher);

let isPublishing = false;
let next = 0;
async function publishAll() {
  for (;;) {
    if (!isPublishing) return;
    const number = next++;
    await publish(`event-${instance}-${number}`, number % ENDPOINTS);
    await sleep(pause);
  }
}

/** Publishes with the same id until it is acknowledged, as an application does whose publish was rejected. */
async function publish(id, endpoint) {
  for (;;) {
    try {
      await publisher.publish(`order.for_${endpoint}`, { id }, { id });
      return report('acknowledged', id);
    } catch (error) {
      report('refused', id, error.code ?? error.name);
      if (!isPublishing) return;
      await sleep(200);
    }
  }
}

setFlagsFromString('--expose-gc');
const collectGarbage = runInNewContext('gc');

function reportMemory() {
  const { rss } = process.memoryUsage();
  collectGarbage();
  const { heapUsed, external } = process.memoryUsage();
  report('memory', `${heapUsed + external},${rss}`);
}

onCommand((line) => {
  const [command, value] = line.split(' ');
  if (command === 'memory') reportMemory();
  if (command === 'pause') isPublishing = false;
  if (command !== 'publish') return;
  next = Number(value);
  isPublishing = true;
  for (let caller = 0; caller < CALLERS; caller++) void publishAll();
});
process.on('SIGTERM', () => {
  isPublishing = false;
  void app
    .close()
    .then(close)
    .finally(() => process.exit());
});
await app.listen(port, '127.0.0.1');
report('ready');
