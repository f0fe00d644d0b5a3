import { randomBytes } from 'node:crypto';
import { afterAll, afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, HttpCode, Post, Req, Res } from '@nestjs/common';
import { HttpModule } from '@nestjs/axios';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { Queue } from 'bullmq';
import { firstValueFrom } from 'rxjs';
import { PostgresQueue } from 'nestjs-webhook-token/postgres';
import { WebhookQueue } from 'nestjs-webhook-token/ports';
import {
  WebhookDeliveries,
  WebhookDeliveryEvents,
  WebhookPublisher,
  type WebhookDeliveryDetails,
} from 'nestjs-webhook-token';
import { BullMqQueue } from 'nestjs-webhook-token/bullmq';
import { createExpress, createFastify } from '../fixtures/adapters.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';
import { describeWith, urlOf } from '../fixtures/services.js';
import { TestDatabase } from '../postgres/database.js';

type Answer = (authorization: string, url: string) => { status: number; body: unknown };

let answer: Answer;
const received: string[] = [];

@Controller('hooks')
class Hooks {
  @Post()
  @HttpCode(200)
  receive(
    @Req() request: { headers: { authorization: string }; url: string },
    @Res({ passthrough: true }) response: { status(code: number): unknown },
  ): unknown {
    const { authorization } = request.headers;
    received.push(authorization.slice('Bearer '.length));
    const { status, body } = answer(authorization, request.url);
    response.status(status);
    return body;
  }
}

let started: StartedApp[] = [];

beforeEach(() => {
  received.length = 0;
  answer = () => ({ status: 200, body: '' });
});

afterEach(async () => {
  for (const { app } of started.toReversed()) await app.close();
  started = [];
});

async function start(adapter: AbstractHttpAdapter, queue?: WebhookQueue): Promise<StartedApp> {
  const receiver = await startApp(adapter, { controllers: [Hooks] });
  const publisher = await startApp(createExpress(), {
    options: {
      httpModule: HttpModule.register({}),
      publisher: {
        issuer: 'https://billing.example',
        secret: 'correct-horse-battery-staple-0001',
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        method: 'POST',
        retry: { attempts: 1 },
        endpoints: [{ id: 'crm', url: `${receiver.origin}/hooks` }],
        queue,
      },
    },
  });
  started = [receiver, publisher];
  return publisher;
}

/** Polls the delivery until the queue has recorded that it is finished. */
async function finished({ app }: StartedApp, id: string): Promise<WebhookDeliveryDetails> {
  for (;;) {
    const details = await app.get(WebhookDeliveries).get(id);
    if (details !== undefined && details.status !== 'pending') return details;
    await new Promise((resolve) => setImmediate(resolve));
  }
}

async function redelivers(publisher: StartedApp): Promise<void> {
  const { app } = publisher;
  const all = app.get(WebhookDeliveries);
  answer = () => ({ status: 500, body: 'broken' });
  const published = await app.get(WebhookPublisher).publish('order.created', { n: 1 }, { id: 'e' });
  const { id } = published.deliveries[0]!;
  const dead = await finished(publisher, id);
  answer = () => ({ status: 200, body: '' });
  const [revived] = (await all.redeliver({ eventId: 'e' })).deliveries;
  const delivered = await finished(publisher, id);
  const [again] = (await all.redeliver(id)).deliveries;
  const second = await finished(publisher, again!.as!);

  expect(dead).toMatchObject({ status: 'dead', failureReason: 'http_500' });
  expect(dead.attempts[0]?.answer).toBe('broken');
  expect(revived).toEqual({ id, redelivered: true });
  expect(delivered).toMatchObject({ status: 'delivered' });
  expect(delivered.attempts.map(({ statusCode }) => statusCode)).toEqual([500, 200]);
  expect(second).toMatchObject({ status: 'delivered', eventId: 'e', round: 2 });
  expect(received.map((token) => claimsOf(token).txn)).toEqual(['e', 'e', 'e']);
  expect(delivered.attempts.map(({ token }) => token?.jti)).toEqual(
    received.slice(0, 2).map((token) => claimsOf(token).jti),
  );
}

function claimsOf(token: string): { txn: string; jti: string } {
  return JSON.parse(Buffer.from(token.split('.')[1]!, 'base64url').toString());
}

describe('deliveries to a receiver', () => {
  it('are listed and redelivered', async () => {
    await redelivers(await start(createFastify()));
  });

  it.each<[string, Answer]>([
    ['the Authorization header', (authorization) => ({ status: 400, body: { authorization } })],
    ['it in upper case', (authorization) => ({ status: 400, body: authorization.toUpperCase() })],
    [
      'it across the length limit',
      (token) => ({ status: 500, body: `${' '.repeat(1_000)}${token}` }),
    ],
    ['it escaped', (token) => ({ status: 500, body: token.replaceAll('.', '%2E') })],
    ['it in an acknowledgement', (token) => ({ status: 200, body: token })],
  ])('contain no token if a receiver echoes %s', async (_, echo) => {
    const publisher = await start(createFastify());
    const { app, logger } = publisher;
    answer = echo;
    const emitted = firstValueFrom(app.get(WebhookDeliveryEvents).events$);
    const published = await app.get(WebhookPublisher).publish('order.created', { n: 1 });
    const details = await finished(publisher, published.deliveries[0]!.id);
    const event = await emitted;

    expect(details.attempts[0]?.answer).toMatch(/\[token\]| {1024}$/);
    const kept = JSON.stringify([details, event, logger]).toLowerCase();
    const [header, payload, signature] = received[0]!.toLowerCase().split('.');
    for (const part of [header!, payload!, signature!])
      expect(kept).not.toContain(part.slice(0, 16));
    expect(JSON.stringify(event)).not.toContain('[token]');
  });
});

(await describeWith('Redis'))('redelivery over BullMQ', () => {
  const queue = new Queue(`webhooks-${randomBytes(6).toString('hex')}`, {
    connection: { url: urlOf('Redis') },
  });
  afterAll(async () => {
    await queue.obliterate({ force: true });
    await queue.close();
  });

  it('works as with the in-memory queue', async () => {
    await redelivers(await start(createExpress(), new BullMqQueue(queue)));
  });
});

(await describeWith('PostgreSQL'))('redelivery over PostgreSQL', () => {
  const database = new TestDatabase();
  afterAll(async () => database.close());

  it('works as with the in-memory queue', async () => {
    const schema = database.newSchema();
    const queue = new PostgresQueue({ pool: database.pool, schema, pollInterval: '100ms' });
    await redelivers(await start(createExpress(), queue));
  });
});

describe('WebhookDeliveries without a publisher', () => {
  it('throws a configuration error', async () => {
    const receiver = await startApp(createExpress());
    started = [receiver];

    await expect(receiver.app.get(WebhookDeliveries).list()).rejects.toMatchObject({
      code: 'invalid_configuration',
    });
  });
});
