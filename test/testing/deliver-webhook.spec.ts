import { readFileSync } from 'node:fs';
import { afterAll, beforeAll, describe, expect, it } from '@jest/globals';
import {
  Controller,
  Injectable,
  type INestApplication,
  Module,
  type Type,
  VersioningType,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { OnWebhookEvent, WebhookData, WebhookModule, WebhookRoute } from 'nestjs-webhook-token';
import { deliverWebhook, TestClock } from '../../lib/testing/index.js';
import { adapters } from '../fixtures/adapters.js';
import { ISSUER, SECRET } from '../fixtures/receiver-app.js';

const sender = { issuer: ISSUER, secret: SECRET };

@Injectable()
class Handlers {
  readonly seen: unknown[] = [];

  @OnWebhookEvent('order.*')
  on(data: unknown): void {
    this.seen.push(data);
  }

  @OnWebhookEvent('fail.now')
  fail(): void {
    throw new Error('the database is away');
  }
}

@Controller()
class Routes {
  readonly seen: unknown[] = [];

  @WebhookRoute('hooks/billing', { receiver: 'routes' })
  receive(@WebhookData() data: { fail?: boolean }): void {
    this.seen.push(data);
    if (data.fail === true) throw new Error('the route is broken');
  }
}

describe.each(adapters)('deliverWebhook to an application on %s', (_, create) => {
  const clock = new TestClock(Date.UTC(2001, 0, 1));
  let app: INestApplication;

  beforeAll(async () => {
    class App {}
    const issuers = [sender];
    Module({
      imports: [
        WebhookModule.forRoot({
          clock,
          receiver: [
            { path: 'webhooks', issuers },
            { name: 'routes', issuers },
          ],
        }),
      ],
      providers: [Handlers],
      controllers: [Routes] as Type[],
    })(App);
    app = await NestFactory.create(App, create(), { logger: false });
    app.setGlobalPrefix('api');
    app.enableVersioning({ type: VersioningType.URI, defaultVersion: '2' });
  });
  afterAll(() => app.close());

  it('reaches the handlers without listening, at the mounted path and the time of its clock', async () => {
    const answer = await deliverWebhook(app, 'order.created', { id: 'o1' }, sender);

    expect(answer).toMatchObject({ status: 204, outcome: 'handled', body: undefined });
    expect(answer.event?.data).toEqual({ id: 'o1' });
    expect(app.get(Handlers).seen).toContainEqual({ id: 'o1' });
    expect((app.getHttpServer() as { listening: boolean }).listening).toBe(false);
  });

  it('sends a body by POST', async () => {
    const data = Buffer.alloc(300_000, 'x');
    const answer = await deliverWebhook(app, 'order.file', data, {
      ...sender,
      contentType: 'text/csv',
    });

    expect(answer).toMatchObject({ status: 204, outcome: 'handled' });
    expect(data.equals(app.get(Handlers).seen.at(-1) as Buffer)).toBe(true);
  });

  it('reports a duplicate, and an event without a handler', async () => {
    const once = { ...sender, id: 'evt-1' };
    await deliverWebhook(app, 'order.created', {}, once);

    expect(await deliverWebhook(app, 'order.created', {}, once)).toMatchObject({
      status: 204,
      outcome: 'duplicate',
      headers: { 'webhook-duplicate': 'true' },
    });
    expect(await deliverWebhook(app, 'other.event', {}, sender)).toMatchObject({
      status: 204,
      outcome: 'unhandled',
    });
  });

  it('returns what a handler threw', async () => {
    const answer = await deliverWebhook(app, 'fail.now', {}, sender);

    expect(answer).toMatchObject({
      status: 500,
      code: 'handler_failed',
      outcome: 'failed',
      error: { message: 'the database is away' },
    });
  });

  it('reports the code and the body of a refusal', async () => {
    const answer = await deliverWebhook(
      app,
      'order.created',
      { id: 'o1' },
      {
        ...sender,
        method: 'POST',
        tamper: (request) => ({ ...request, body: Buffer.from('{"id":"o2"}') }),
      },
    );

    expect(answer).toMatchObject({
      status: 400,
      code: 'hash_mismatch',
      outcome: 'refused',
      body: { code: 'hash_mismatch' },
    });
    expect(app.get(Handlers).seen).not.toContainEqual({ id: 'o2' });
  });

  it('lets the caller edit the request in place', async () => {
    const answer = await deliverWebhook(
      app,
      'order.created',
      {},
      {
        ...sender,
        tamper: ({ headers }) => {
          delete headers['authorization'];
        },
      },
    );

    expect(answer).toMatchObject({ status: 401, outcome: 'refused' });
  });

  it('reaches a webhook route by its path', async () => {
    const to = { ...sender, receiver: 'routes', path: '/api/v2/hooks/billing' };

    expect(await deliverWebhook(app, 'order.created', { id: 'r1' }, to)).toMatchObject({
      outcome: 'handled',
      event: { event: 'order.created' },
    });
    expect(await deliverWebhook(app, 'order.created', { fail: true }, to)).toMatchObject({
      status: 500,
      outcome: 'failed',
    });
    expect(app.get(Routes).seen).toEqual([{ id: 'r1' }, { fail: true }]);
  });

  it('asks for the path of a receiver without one', async () => {
    const delivering = deliverWebhook(app, 'order.created', {}, { ...sender, receiver: 'routes' });

    await expect(delivering).rejects.toThrow(/pass the path of its @WebhookRoute/);
  });

  it('reports a path that no receiver answers as refused', async () => {
    const answer = await deliverWebhook(app, 'order.created', {}, { ...sender, path: '/nowhere' });

    expect(answer).toMatchObject({ status: 404, outcome: 'refused' });
  });
});

it('delivers to an application on HTTPS', async () => {
  const file = (kind: string): Buffer =>
    readFileSync(new URL(`../egress/certificates/hooks.test.${kind}.pem`, import.meta.url));
  class App {}
  Module({
    imports: [WebhookModule.forRoot({ receiver: { path: 'webhooks', issuers: [sender] } })],
    providers: [Handlers],
  })(App);
  const app = await NestFactory.create(App, adapters[0]![1](), {
    logger: false,
    httpsOptions: { cert: file('cert'), key: file('key') },
  });
  try {
    const answer = await deliverWebhook(app, 'order.created', { id: 'o1' }, sender);
    expect(answer).toMatchObject({ status: 204, outcome: 'handled' });
  } finally {
    await app.close();
  }
});

it('deliverWebhook finds the receivers of all webhook modules', async () => {
  const moduleOf = (name: string): Type => {
    class Feature {}
    const receiver = { name, path: name, issuers: [sender] };
    Module({ imports: [WebhookModule.forRoot({ receiver, isGlobal: false })] })(Feature);
    return Feature;
  };
  class App {}
  Module({ imports: [moduleOf('one'), moduleOf('other')], providers: [Handlers] })(App);
  const app = await NestFactory.create(App, adapters[0]![1](), { logger: false });
  for (const receiver of ['one', 'other']) {
    const delivered = deliverWebhook(app, 'order.created', { receiver }, { ...sender, receiver });
    expect(await delivered).toMatchObject({ outcome: 'handled', event: { receiver } });
  }

  expect(app.get(Handlers).seen).toEqual([{ receiver: 'one' }, { receiver: 'other' }]);
  await expect(
    deliverWebhook(app, 'order.created', {}, { ...sender, receiver: 'none' }),
  ).rejects.toThrow('none');
  await app.close();
});
