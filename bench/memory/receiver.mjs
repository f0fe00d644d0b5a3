// A receiver in its own process: node bench/memory/receiver.mjs ADAPTER VARIANT CONCURRENCY DIRECTORY
import 'reflect-metadata';
import { createHash, createHmac, timingSafeEqual } from 'node:crypto';
import { monitorEventLoopDelay } from 'node:perf_hooks';
import { pipeline } from 'node:stream/promises';
import { Controller, HttpCode, Module, Post, Req, UnauthorizedException } from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { decorate } from '../receive/settings.mjs';
import { ISSUER, SECRET } from '../event.mjs';
import { BODY, PATH, sha256 } from './settings.mjs';

const TYPE = 'application/octet-stream';
const [, , adapter, variant, concurrency, directory] = process.argv;
const expected = sha256();
/** Number of bodies that reached a handler complete and unchanged. */
let whole = 0;

const isOurs = variant === 'spooled';
const app = await NestFactory.create(
  isOurs ? await ours() : byHand(),
  adapter === 'express' ? new ExpressAdapter() : new FastifyAdapter({ bodyLimit: BODY }),
  { logger: ['error'], rawBody: !isOurs },
);
if (!isOurs) app.useBodyParser(adapter === 'express' ? 'raw' : TYPE, parserOptions());
await app.listen(0, '127.0.0.1');

const delays = monitorEventLoopDelay({ resolution: 1 });
/** RSS before the first measured body: the system reports only the maximum since the start of the process. */
let rss;
let before;
process.on('message', (question) => {
  if (question === 'begin') {
    whole = 0;
    rss ??= process.memoryUsage.rss();
    before = process.cpuUsage();
    delays.enable();
    delays.reset();
    process.send('begun');
  } else {
    delays.disable();
    const { user, system } = process.cpuUsage(before);
    process.send({
      whole,
      // The system records the maximum, so no sampling is needed.
      growth: process.resourceUsage().maxRSS * 1_024 - rss,
      delay: delays.max / 1e6,
      cpu: (user + system) / 1e3,
    });
  }
});
process.on('disconnect', () => process.exit(0));
process.send({ port: app.getHttpServer().address().port });

async function ours() {
  const library = await import('../../dist/index.js');
  const { OnWebhookEvent, WebhookContext, WebhookModule } = library;
  class Exports {
    async handle(event) {
      await check(event.stream());
    }
  }
  class App {}
  decorate(Exports, 'handle', [OnWebhookEvent('export.finished')], { 0: WebhookContext() });
  const receiver = {
    path: PATH.slice(1),
    issuers: [{ issuer: ISSUER, secret: SECRET }],
    maxBodyBytes: BODY,
    // Just enough: if a round leaks space, the next one is answered with 503.
    spool: { directory, maxBytes: BODY * (Number(concurrency) + 1) },
  };
  Module({ imports: [WebhookModule.forRoot({ receiver })], providers: [Exports] })(App);
  return App;
}

/** A typical hand-written receiver: a parser buffers the body, then the guard computes its digest. */
function byHand() {
  class Hook {
    async post({ headers, rawBody }) {
      const token = headers.authorization.slice('Bearer '.length);
      const dot = token.lastIndexOf('.');
      const mac = createHmac('sha256', SECRET).update(token.slice(0, dot)).digest();
      const found = Buffer.from(token.slice(dot + 1), 'base64url');
      const claims = JSON.parse(Buffer.from(token.split('.')[1], 'base64url'));
      const digest = createHash('sha256').update(rawBody).digest('hex');
      const isSigned = found.length === mac.length && timingSafeEqual(mac, found);
      if (!isSigned || claims.webhook.hash !== `sha256:${digest}`) {
        throw new UnauthorizedException();
      }
      await check([rawBody]);
    }
  }
  class App {}
  Controller(PATH)(Hook);
  decorate(Hook, 'post', [Post(), HttpCode(204)], { 0: Req() });
  Module({ controllers: [Hook] })(App);
  return App;
}

function parserOptions() {
  return adapter === 'express' ? { type: TYPE, limit: BODY } : { bodyLimit: BODY };
}

/** The handler: reads a body and counts it if it is the one that was sent. */
async function check(body) {
  const hash = createHash('sha256');
  let length = 0;
  await pipeline(body, async (chunks) => {
    for await (const chunk of chunks) {
      length += chunk.length;
      hash.update(chunk);
    }
  });
  if (length !== BODY || hash.digest('hex') !== expected)
    throw new Error('The body differs from the one that was sent.');
  whole++;
}
