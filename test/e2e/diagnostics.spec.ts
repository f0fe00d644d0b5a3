import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, it, jest } from '@jest/globals';
import { Controller, Injectable, Post, UseGuards } from '@nestjs/common';
import { WebhookQueue } from 'nestjs-webhook-token/ports';
import {
  OnWebhookEvent,
  WebhookRoute,
  WebhookGuard,
  WebhookStoreError,
  WebhookPublisher,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

const RECEIVED = 'nestjs-webhook-token:received';
const HANDLED = 'nestjs-webhook-token:handled';
const PUBLISHED = 'nestjs-webhook-token:published';
const ATTEMPTED = 'nestjs-webhook-token:attempted';
const DELIVERY = 'nestjs-webhook-token:delivery';

@Injectable()
class Orders {
  @OnWebhookEvent('order.*')
  on(): void {}
  @OnWebhookEvent('failing.event')
  fail(): void {
    throw new Error('no');
  }
}

@Controller('own')
class Own {
  @WebhookRoute('endpoint')
  endpoint(): void {}
  @WebhookRoute('failing')
  failing(): void {
    throw new Error('no');
  }
  @UseGuards(WebhookGuard)
  @Post('guarded')
  guarded(): void {}
}

describe.each(adapters)('the diagnostics channel on %s', (_, createAdapter) => {
  let started: StartedApp;
  let messages: string[];
  const listen = (message: unknown): void => {
    const { situation, status, event, unhandled } = message as Record<string, unknown>;
    messages.push([situation, status, event, unhandled ? 'unhandled' : ''].join(' ').trim());
  };
  beforeEach(async () => {
    messages = [];
    subscribe(RECEIVED, listen);
    started = await startApp(createAdapter(), { providers: [Orders], controllers: [Own] });
  });
  afterEach(async () => {
    unsubscribe(RECEIVED, listen);
    await started.app.close();
  });

  it('reports every request once, on every kind of route', async () => {
    const { origin } = started;
    const token = signed();
    await head(origin, token);
    await head(origin, token);
    await head(origin, signed({ event: 'unknown.event' }));
    await head(origin, signed({ event: 'failing.event' }));
    await send(origin, { method: 'GET' });
    await send(origin, { body: '{}' });
    await head(origin, signed(), { path: '/own/endpoint' });
    await head(origin, signed(), { path: '/own/failing' });
    await send(origin, { path: '/own/endpoint', body: '{}' });
    await post(origin, signedBody('{}'), { path: '/own/guarded' });
    await send(origin, { path: '/own/guarded', body: '{}' });

    expect(messages).toEqual([
      'processed 204 order.created',
      'duplicate 204 order.created',
      'processed 204 unknown.event unhandled',
      'handler_failed 500 failing.event',
      'method_not_allowed 405',
      'missing_token 401',
      'processed 204 order.created',
      'handler_failed 500 order.created',
      'missing_token 401',
      'processed 204 order.created',
      'missing_token 401',
    ]);
  });
});

describe('the diagnostics channels of a publisher', () => {
  const channels = [PUBLISHED, ATTEMPTED, DELIVERY, HANDLED];
  let started: StartedApp;
  let messages: Record<string, object[]>;
  const listen = (message: unknown, name: string | symbol): void => {
    (messages[String(name)] ??= []).push(message as object);
  };
  beforeEach(async () => {
    messages = {};
    const [, createAdapter] = adapters[0]!;
    started = await startApp(createAdapter(), {
      options: {
        ...receiverOptions(),
        publisher: {
          issuer: ISSUER,
          secret: SECRET,
          allowHttp: true,
          allowedAddresses: ['127.0.0.1'],
        },
      },
      providers: [Orders],
    });
    for (const name of channels) subscribe(name, listen);
  });
  afterEach(async () => {
    for (const name of channels) unsubscribe(name, listen);
    await started.app.close();
  });
  const sendTo = (path: string, event: string) =>
    started.app
      .get(WebhookPublisher)
      .send(`${started.origin}${path}`, event, { card: 'hidden' }, { id: event });

  it('report what was recorded, each attempt and the outcome', async () => {
    await sendTo('/webhooks', 'order.created');
    await sendTo('/webhooks', 'order.created');

    expect(messages[PUBLISHED]).toMatchObject([
      { event: 'order.created', eventId: 'order.created', deliveries: 1, duplicate: false },
      { event: 'order.created', eventId: 'order.created', deliveries: 1, duplicate: true },
    ]);
    expect(messages[ATTEMPTED]).toMatchObject([
      {
        event: 'order.created',
        origin: started.origin,
        attempt: 1,
        outcome: 'acknowledged',
        method: 'HEAD',
        statusCode: 204,
        durationMs: expect.any(Number),
      },
    ]);
    expect(messages[DELIVERY]).toMatchObject([{ type: 'delivered', attempts: 1 }]);
    expect(messages[HANDLED]).toMatchObject([
      { handler: 'Orders.on', event: 'order.created', run: 1 },
    ]);
  });

  it('report failures by their codes, without payload, path, query or message', async () => {
    await sendTo('/webhooks?key=hidden', 'failing.event');
    const blocked = sendTo('/webhooks/hidden', 'not a name');

    await expect(blocked).rejects.toThrow();
    expect(messages[ATTEMPTED]).toMatchObject([
      { outcome: 'failed', reason: 'http_500', statusCode: 500 },
    ]);
    expect(messages[HANDLED]).toMatchObject([{ error: 'Error' }]);
    expect(messages[DELIVERY]).toMatchObject([{ type: 'retry-scheduled' }]);
    expect(JSON.stringify(messages)).not.toMatch(/hidden|\/webhooks|Bearer/);
  });

  it('report an event that could not be recorded', async () => {
    const enqueue = jest.spyOn(started.app.get(WebhookQueue), 'enqueue');
    enqueue.mockRejectedValueOnce(new WebhookStoreError('store_full', 'no room'));

    await expect(sendTo('/webhooks', 'order.refused')).rejects.toThrow('no room');
    expect(messages).toEqual({
      [PUBLISHED]: [
        expect.objectContaining({ event: 'order.refused', deliveries: 0, error: 'store_full' }),
      ],
    });
  });
});
