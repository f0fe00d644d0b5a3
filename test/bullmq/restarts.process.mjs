// An application on BullMQ whose Redis is restarted by the test: it publishes, receives, and answers GET /health.
//   node restarts.process.mjs '{ "redis": url, "endpoints": origin, "issuer": …, "secret": … }'
// Prints "ready PORT", "acknowledged ID" for each event that was published or received, and "handled ID".
import 'reflect-metadata';
import { setTimeout as sleep } from 'node:timers/promises';
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { Queue } from 'bullmq';
import { Redis } from 'ioredis';
import { BullMqQueue } from '../../dist/bullmq/index.js';
import {
  OnWebhookDelivery,
  OnWebhookEvent,
  WebhookModule,
  WebhookPublisher,
} from '../../dist/index.js';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

const { redis, endpoints, issuer, secret } = settings;
const ENDPOINTS = ['healthy', 'failing', 'slow'];
/** Enough that every slot of both queues is always in use: an idle Worker waits for jobs in another way. */
const BACKLOG = 60;
const CONCURRENCY = { concurrency: 6, concurrencyPerDestination: 6 };

/** Both forms in which an application passes its connection to BullMQ. */
const url = new URL(redis);
const options = {
  host: url.hostname,
  port: Number(url.port),
  enableOfflineQueue: false,
  retryStrategy: () => 200,
};
const client = new Redis({ ...options, maxRetriesPerRequest: null });
client.on('error', () => {});

function queueOn(name, connection) {
  const jobs = new Queue(name, { connection });
  return new BullMqQueue(jobs, { lease: '5s', ...CONCURRENCY });
}

/** Events that were acknowledged and have not arrived. */
const outstanding = new Set();

class Orders {
  async handle(_data, { id }) {
    await sleep(100);
    outstanding.delete(id);
    report('handled', id);
  }

  delivered({ eventId }) {
    outstanding.delete(eventId);
  }
}
decorate('handle', OnWebhookEvent('order.received'));
decorate('delivered', OnWebhookDelivery('delivered'));

function decorate(method, decorator) {
  const descriptor = Object.getOwnPropertyDescriptor(Orders.prototype, method);
  decorator(Orders.prototype, method, descriptor);
}

class App {}
Module({
  imports: [
    WebhookModule.forRoot({
      receiver: {
        path: 'webhooks',
        issuers: [{ issuer, secret }],
        acknowledge: 'queued',
        queue: queueOn('received', client),
        retry: { attempts: 1_000, schedule: ['0s', '100ms'] },
      },
      publisher: {
        issuer,
        secret,
        endpoints: ENDPOINTS.map((id) => ({
          id,
          url: `${endpoints}/${id}`,
          events: [`order.${id}`],
        })),
        retry: { attempts: 1_000, schedule: ['0s', '100ms'] },
        queue: queueOn('sent', options),
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
      },
    }),
  ],
  providers: [Orders],
})(App);
const app = await NestFactory.create(App, new ExpressAdapter(), { logger: false });
app.getHttpAdapter().get('/health', (_request, response) => response.end('ok'));
await app.listen(0, '127.0.0.1');
const publisher = app.get(WebhookPublisher);
const origin = `http://127.0.0.1:${app.getHttpServer().address().port}`;

const publishing = new AbortController();
onCommand(() => publishing.abort());

function acknowledge(id) {
  outstanding.add(id);
  report('acknowledged', id);
}

async function publishTo(endpoint, number) {
  const id = `${endpoint}-${number}`;
  await publisher.publish(`order.${endpoint}`, { number }, { id });
  acknowledge(id);
}

/** Sends an event to this process's own receiver, which acknowledges it once it is in the queue. */
async function sendToReceiver(number) {
  const id = `received-${number}`;
  const request = await publisher.sign(`${origin}/webhooks`, 'order.received', { number }, { id });
  const { method, headers, body } = request;
  const answer = await fetch(request.url, { method, headers, body });
  if (answer.status === 202 || answer.status === 204) acknowledge(id);
}

report('ready', app.getHttpServer().address().port);
for (let number = 0; !publishing.signal.aborted; number++) {
  const sends = ENDPOINTS.map((endpoint) => publishTo(endpoint, number));
  sends.push(sendToReceiver(number), sendToReceiver(`${number}-again`));
  // Events that are refused while Redis is down were not acknowledged.
  await Promise.allSettled(sends);
  do await sleep(10);
  while (outstanding.size > BACKLOG && !publishing.signal.aborted);
}
