// One of two processes that share a queue, or the network. The role "publish" publishes an event in a span of the application; the
// role "deliver" attempts what the queue holds, and receives at its own port. Prints its spans once it has ended.
import 'reflect-metadata';
import { Injectable, Module } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { context, propagation, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { OnWebhookEvent, WebhookModule, WebhookPublisher } from '../../dist/index.js';
import { WebhookTelemetryModule } from '../../dist/opentelemetry/index.js';
import { WebhookQueue } from '../../dist/ports/index.js';
import { openQueue } from '../fixtures/durable-queues.mjs';
import { onCommand, report, settings } from '../fixtures/parent-channel.mjs';

const { role, engine, place, port, delay, recorded } = settings;
const exporter = new InMemorySpanExporter();
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
trace.setGlobalTracerProvider(
  new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] }),
);

class Orders {
  onCreated() {
    report('handled');
  }
}
Injectable()(Orders);
const handler = Object.getOwnPropertyDescriptor(Orders.prototype, 'onCreated');
OnWebhookEvent('order.created')(Orders.prototype, 'onCreated', handler);

const party = { issuer: 'https://shop.example', secret: 'correct-horse-battery-staple-0001' };
const options = {
  ...(role === 'deliver' && { receiver: { path: 'webhooks', issuers: [party] } }),
  publisher: {
    ...party,
    endpoints: [{ id: 'partner', url: `http://127.0.0.1:${port}/webhooks` }],
    allowHttp: true,
    allowedAddresses: ['127.0.0.1'],
    queue: await openQueue(engine, place),
  },
};

class App {}
Module({
  imports: [
    WebhookModule.forRoot(options),
    WebhookTelemetryModule.forRoot({ joinTraceFor: '10m' }),
  ],
  providers: [Orders],
})(App);

const app = await NestFactory.create(App, { logger: ['error'] });
onCommand(() => void end());
if (role === 'deliver') {
  await app.listen(port, '127.0.0.1');
  if (recorded !== undefined) await app.get(WebhookQueue).redeliver([recorded]);
  report('ready');
} else {
  await app.init();
  await trace.getTracer('shop').startActiveSpan('checkout', async (span) => {
    const { deliveries } = await app
      .get(WebhookPublisher)
      .publish('order.created', { id: 1 }, { delay });
    span.end();
    report('ready', deliveries[0].id);
  });
}

async function end() {
  await app.close();
  const spans = exporter.getFinishedSpans().map((span) => ({
    name: span.name,
    id: span.spanContext().spanId,
    trace: span.spanContext().traceId,
    parent: span.parentSpanContext?.spanId,
    links: span.links.map((link) => link.context.spanId),
  }));
  report('spans', encodeURIComponent(JSON.stringify(spans)));
  process.exit();
}
