// Senders that use WebhookPublisher in a Nest application, with the egress guard enabled.
import { Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import {
  InProcessQueue,
  WebhookDeliveryEvents,
  WebhookModule,
  WebhookPublisher,
} from '../../dist/index.js';
import { ISSUER, SECRET } from '../event.mjs';
import { CONCURRENCY, EVENT } from './settings.mjs';

export const WITH_PUBLISHER = {
  'send-undici': (url, load) => sending('auto', url, load),
  'send-axios': (url, load) => sending('axios', url, load),

  /** `publish` does not wait for the delivery; the benchmark does, to include its cost. */
  async 'publish-undici'(url, { method, data }) {
    const app = await application('auto', url, method);
    const publisher = app.get(WebhookPublisher);
    const waiting = new Map();
    app.get(WebhookDeliveryEvents).events$.subscribe(({ deliveryId, statusCode }) => {
      waiting.get(deliveryId)?.(statusCode);
      waiting.delete(deliveryId);
    });
    return async () => {
      const { deliveries } = await publisher.publish(EVENT, data);
      return new Promise((resolve) => waiting.set(deliveries[0].id, resolve));
    };
  },
};

/** `send` resolves after the first attempt, like a hand-written request. */
async function sending(transport, url, { method, data }) {
  const app = await application(transport, url, method);
  const publisher = app.get(WebhookPublisher);
  return async () => (await publisher.send('sink', EVENT, data)).statusCode;
}

async function application(transport, url, method) {
  const publisher = {
    issuer: ISSUER,
    secret: SECRET,
    endpoints: [{ id: 'sink', url, method }],
    transport,
    // The same concurrency as the other variants: by default, one destination gets a quarter of it.
    queue: new InProcessQueue({
      concurrency: CONCURRENCY,
      concurrencyPerDestination: CONCURRENCY,
    }),
    allowHttp: true,
    allowedAddresses: ['127.0.0.1'],
  };
  class App {}
  Module({ imports: [WebhookModule.forRoot({ publisher })] })(App);
  return NestFactory.createApplicationContext(App, { logger: ['error'] });
}
