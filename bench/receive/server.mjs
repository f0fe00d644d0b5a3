// An application in its own process: node bench/receive/server.mjs ADAPTER VARIANT
import 'reflect-metadata';
import { Controller, Head, HttpCode, Module, Post, UseGuards } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { ISSUER, SECRET } from '../event.mjs';
import { decorate, MAX_BODY, PATH } from './settings.mjs';

const [, , adapter, variant] = process.argv;
const app = await NestFactory.create(
  await moduleOf(variant),
  adapter === 'express' ? new ExpressAdapter() : new FastifyAdapter({ bodyLimit: MAX_BODY }),
  // Only the hand-written guards need the raw body.
  { logger: ['error'], rawBody: !['mounted', 'endpoint', 'unguarded'].includes(variant) },
);
if (adapter === 'express') app.useBodyParser('json', { limit: MAX_BODY });
await app.listen(0, '127.0.0.1');
// Variants take turns, so a connection can be idle for longer than the default timeout.
app.getHttpServer().keepAliveTimeout = 0;
const { port } = app.getHttpServer().address();
process.on('message', () => process.send(process.cpuUsage()));
process.on('disconnect', () => process.exit(0));
process.send({ port });

async function moduleOf(name) {
  if (name === 'mounted' || name === 'endpoint') return ours(name);
  class Hook {
    head() {}
    post() {}
  }
  Controller(PATH)(Hook);
  decorate(Hook, 'head', [Head(), HttpCode(204)]);
  decorate(Hook, 'post', [Post(), HttpCode(204)]);
  if (name !== 'unguarded') {
    const { GUARDS } = await import('./guards.mjs');
    UseGuards(GUARDS[name])(Hook);
  }
  class App {}
  Module({ controllers: [Hook] })(App);
  return App;
}

async function ours(name) {
  const library = await import('../../dist/index.js');
  const { OnWebhookEvent, WebhookData, WebhookRoute, WebhookModule } = library;
  class Orders {
    handle(_data) {}
  }
  class App {}
  const receiver = { issuers: [{ issuer: ISSUER, secret: SECRET }], maxBodyBytes: MAX_BODY };
  if (name === 'mounted') {
    decorate(Orders, 'handle', [OnWebhookEvent('order.created')]);
    const imports = [WebhookModule.forRoot({ receiver: { ...receiver, path: PATH.slice(1) } })];
    Module({ imports, providers: [Orders] })(App);
  } else {
    Controller()(Orders);
    decorate(Orders, 'handle', [WebhookRoute(PATH.slice(1))], { 0: WebhookData() });
    Module({ imports: [WebhookModule.forRoot({ receiver })], controllers: [Orders] })(App);
  }
  return App;
}
