// Senders that use WebhookPublisher in a Nest application, with the egress guard enabled.
import { HttpModule, HttpService } from '@nestjs/axios';
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

/** The same concurrency as the other variants: by default, one destination gets 12. */
const alike = () =>
  new InProcessQueue({ concurrency: CONCURRENCY, concurrencyPerDestination: CONCURRENCY });

export const WITH_PUBLISHER = {
  /** `send` resolves after the first attempt, like a hand-written request. */
  send: (url, load) => sending(url, load, { queue: alike() }),
  'send-default': (url, load) => sending(url, load, {}),

  async 'send-interceptor'(url, load) {
    class Outgoing {
      constructor(http) {
        http.axiosRef.interceptors.request.use((config) => {
          config.headers.set('X-Trace', 'abc');
          return config;
        });
      }
    }
    Reflect.defineMetadata('design:paramtypes', [HttpService], Outgoing);
    Module({ imports: [HttpModule.register({})], exports: [HttpModule] })(Outgoing);
    return sending(url, load, { queue: alike() }, Outgoing);
  },

  /** `publish` does not wait for the delivery; the benchmark does, to include its cost. */
  async publish(url, { method, data }) {
    const app = await application(url, method, { queue: alike() });
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

async function sending(url, { method, data }, options, httpModule) {
  const app = await application(url, method, options, httpModule);
  const publisher = app.get(WebhookPublisher);
  return async () => (await publisher.send('sink', EVENT, data)).statusCode;
}

/** An application that sends to one endpoint. */
export async function application(url, method, options, httpModule) {
  const publisher = {
    issuer: ISSUER,
    secret: SECRET,
    endpoints: [{ id: 'sink', url, method }],
    allowHttp: true,
    allowedAddresses: ['127.0.0.1'],
    ...options,
  };
  class App {}
  Module({ imports: [WebhookModule.forRoot({ publisher, httpModule })] })(App);
  return NestFactory.createApplicationContext(App, { logger: ['error'] });
}
