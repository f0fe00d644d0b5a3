// An application in its own process: node bench/receive/server.mjs ADAPTER VARIANT
import 'reflect-metadata';
import { Controller, Head, HttpCode, Module, Post, UseGuards } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { now } from '../e2e/settings.mjs';
import { ISSUER, SECRET } from '../event.mjs';
import { ADAPTERS, decorate, MAX_BODY, PATH, UNGUARDED } from './settings.mjs';

const OURS = ['mounted', 'bare', 'traced', 'endpoint'];
const [, , adapter, variant] = process.argv;
const { isExpress, hasMiddleware } = ADAPTERS[adapter];
let [handled, handledAt] = [0, 0];
const note = () => {
  handled++;
  handledAt = now();
};
const app = await NestFactory.create(
  await moduleOf(variant),
  isExpress ? new ExpressAdapter() : new FastifyAdapter({ bodyLimit: MAX_BODY }),
  // Only the hand-written guards need the raw body.
  { logger: ['error'], rawBody: ![...OURS, ...UNGUARDED].includes(variant) },
);
if (isExpress) app.useBodyParser('json', { limit: MAX_BODY });
if (hasMiddleware) app.use(...(await usualMiddleware()));
await app.listen(0, '127.0.0.1');
// Variants take turns, so a connection can be idle for longer than the default timeout.
app.getHttpServer().keepAliveTimeout = 0;
const { port } = app.getHttpServer().address();
process.on('message', () => process.send({ ...process.cpuUsage(), handled, handledAt }));
process.on('disconnect', () => process.exit(0));
process.send({ port });

/** What many applications use: security headers, CORS and a request log, here to nowhere. */
async function usualMiddleware() {
  const [{ default: helmet }, { default: cors }, { default: morgan }] = await Promise.all([
    import('helmet'),
    import('cors'),
    import('morgan'),
  ]);
  return [helmet(), cors(), morgan('combined', { stream: { write() {} } })];
}

async function moduleOf(name) {
  if (OURS.includes(name)) return ours(name);
  class Hook {
    head() {
      note();
    }
    post() {
      note();
    }
  }
  Controller(PATH)(Hook);
  decorate(Hook, 'head', [Head(), HttpCode(204)]);
  decorate(Hook, 'post', [Post(), HttpCode(204)]);
  if (!UNGUARDED.includes(name)) {
    const { GUARDS } = await import('./guards.mjs');
    UseGuards(GUARDS[name])(Hook);
  }
  class App {}
  const imports = name === 'beside' ? [await receiverModule()] : [];
  Module({ controllers: [Hook], imports })(App);
  return App;
}

async function receiverModule() {
  const { WebhookModule } = await import('../../dist/index.js');
  const receiver = { path: 'elsewhere', issuers: [{ issuer: ISSUER, secret: SECRET }] };
  return WebhookModule.forRoot({ receiver });
}

async function ours(name) {
  const library = await import('../../dist/index.js');
  const { OnWebhookEvent, WebhookData, WebhookRoute, WebhookModule } = library;
  class Orders {
    handle(_data) {
      note();
    }
  }
  class App {}
  const receiver = { issuers: [{ issuer: ISSUER, secret: SECRET }], maxBodyBytes: MAX_BODY };
  if (name === 'endpoint') {
    Controller()(Orders);
    decorate(Orders, 'handle', [WebhookRoute(PATH.slice(1))], { 0: WebhookData() });
    Module({ imports: [WebhookModule.forRoot({ receiver })], controllers: [Orders] })(App);
  } else {
    decorate(Orders, 'handle', [OnWebhookEvent('order.created')]);
    const options = { receiver: { ...receiver, path: PATH.slice(1) } };
    const imports = [
      WebhookModule.forRoot(name === 'bare' ? { ...options, inbox: false } : options),
    ];
    if (name === 'traced') imports.push(await telemetry());
    Module({ imports, providers: [Orders] })(App);
  }
  return App;
}

/** Every span is recorded, and none is exported. */
async function telemetry() {
  const [{ trace, context }, { AsyncLocalStorageContextManager }, { BasicTracerProvider }] =
    await Promise.all([
      import('@opentelemetry/api'),
      import('@opentelemetry/context-async-hooks'),
      import('@opentelemetry/sdk-trace-base'),
    ]);
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  trace.setGlobalTracerProvider(new BasicTracerProvider());
  const { WebhookTelemetryModule } = await import('../../dist/opentelemetry/index.js');
  return WebhookTelemetryModule.forRoot();
}
