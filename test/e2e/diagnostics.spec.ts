import { subscribe, unsubscribe } from 'node:diagnostics_channel';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, Post, UseGuards } from '@nestjs/common';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
import { WebhookRoute } from '../../lib/receiver/decorators/webhook-route.decorator.js';
import { WEBHOOK_RECEIVED_CHANNEL } from '../../lib/receiver/receiver.reporter.js';
import { WebhookGuard } from '../../lib/receiver/webhook.guard.js';
import { adapters } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import { signed, signedBody, startApp, type StartedApp } from '../fixtures/receiver-app.js';

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
    subscribe(WEBHOOK_RECEIVED_CHANNEL, listen);
    started = await startApp(createAdapter(), { providers: [Orders], controllers: [Own] });
  });
  afterEach(async () => {
    unsubscribe(WEBHOOK_RECEIVED_CHANNEL, listen);
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
