// An application with the HTTP instrumentations of OpenTelemetry, which sends an event to itself. Prints the result, its spans, and
// the spans that the `traceparent` headers of the request name.
import 'reflect-metadata';
import { subscribe } from 'node:diagnostics_channel';
import { register } from 'node:module';
import { context, propagation, SpanKind, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { HttpInstrumentation } from '@opentelemetry/instrumentation-http';
import {
  BasicTracerProvider,
  InMemorySpanExporter,
  SimpleSpanProcessor,
} from '@opentelemetry/sdk-trace-base';
import { report, settings } from '../fixtures/parent-channel.mjs';

register('@opentelemetry/instrumentation/hook.mjs', import.meta.url);
const exporter = new InMemorySpanExporter();
context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
propagation.setGlobalPropagator(new W3CTraceContextPropagator());
const provider = new BasicTracerProvider({ spanProcessors: [new SimpleSpanProcessor(exporter)] });
trace.setGlobalTracerProvider(provider);
new HttpInstrumentation().setTracerProvider(provider);

const { Injectable, Module } = await import('@nestjs/common');
const { NestFactory } = await import('@nestjs/core');
const { OnWebhookEvent, WebhookModule, WebhookPublisher } = await import('../../dist/index.js');
const { WebhookTelemetryModule } = await import('../../dist/opentelemetry/index.js');

class Orders {
  onCreated() {}
}
Injectable()(Orders);
const handler = Object.getOwnPropertyDescriptor(Orders.prototype, 'onCreated');
OnWebhookEvent('order.created')(Orders.prototype, 'onCreated', handler);

const party = { issuer: 'https://shop.example', secret: 'correct-horse-battery-staple-0001' };
class App {}
Module({
  imports: [
    WebhookModule.forRoot({
      receiver: { path: 'webhooks', issuers: [party] },
      publisher: {
        ...party,
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        method: settings.method,
      },
    }),
    ...(settings.telemetry ? [WebhookTelemetryModule.forRoot(settings.options)] : []),
  ],
  providers: [Orders],
})(App);

const traceparents = [];
subscribe('http.server.request.start', ({ request: { rawHeaders } }) => {
  traceparents.push(...rawHeaders.filter((_, index) => rawHeaders[index - 1] === 'traceparent'));
});
const app = await NestFactory.create(App, await adapterOf(settings.adapter), { logger: ['error'] });
await app.listen(0, '127.0.0.1');
const { port } = app.getHttpServer().address();
const { status } = await trace.getTracer('shop').startActiveSpan('checkout', async (span) => {
  const url = `http://127.0.0.1:${port}/webhooks`;
  const result = await app.get(WebhookPublisher).send(url, 'order.created', { id: 1 });
  span.end();
  return result;
});
await app.close();
const spans = exporter.getFinishedSpans();
const nameOf = (id) => spans.find((span) => span.spanContext().spanId === id)?.name ?? 'none';
const result = {
  status,
  spans: spans.map(describe).sort(),
  traces: new Set(spans.map((span) => span.spanContext().traceId)).size,
  traceparents: traceparents.map((value) => nameOf(value.split('-')[2])),
};
report('result', encodeURIComponent(JSON.stringify(result)));
process.exit();

/** `KIND name < parent`, with the linked spans of a received request. */
function describe({ kind, name, parentSpanContext, links }) {
  const linked = kind === SpanKind.INTERNAL ? links : [];
  const ends = linked.map((link) => ` ~ ${nameOf(link.context.spanId)}`);
  return `${SpanKind[kind]} ${name} < ${nameOf(parentSpanContext?.spanId)}${ends.join('')}`;
}

async function adapterOf(name) {
  if (name === 'express') {
    return new (await import('@nestjs/platform-express')).ExpressAdapter();
  }
  return new (await import('@nestjs/platform-fastify')).FastifyAdapter();
}
