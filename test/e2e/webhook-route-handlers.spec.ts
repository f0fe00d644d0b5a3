import { afterEach, describe, expect, it } from '@jest/globals';
import { Controller } from '@nestjs/common';
import { OnWebhookEvent, WebhookData, WebhookEvent, WebhookRoute } from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { head } from '../fixtures/http-client.js';
import { receiverOptions, signed, startApp, type StartedApp } from '../fixtures/receiver-app.js';

const seen: unknown[] = [];

@Controller('both')
class Both {
  @WebhookRoute()
  @OnWebhookEvent('order.created')
  first(@WebhookData() data: unknown): void {
    seen.push(['first', data]);
  }

  @OnWebhookEvent('order.paid')
  @WebhookRoute('second')
  second(@WebhookData() data: unknown): void {
    seen.push(['second', data]);
  }

  @WebhookRoute('third')
  @OnWebhookEvent('order.third')
  third(data: unknown, event: WebhookEvent): void {
    seen.push([event.event, data]);
  }

  @OnWebhookEvent('order.fourth')
  @WebhookRoute('fourth')
  fourth(data: unknown, event: WebhookEvent): void {
    seen.push([event.event, data]);
  }
}

describe.each(adapters)(
  'a @WebhookRoute() method that is a handler too, on %s',
  (_, createAdapter) => {
    let started: StartedApp;
    afterEach(() => started.app.close());

    it.each([
      ['order.created', 'first'],
      ['order.paid', 'second'],
    ])('handles "%s" once', async (event, method) => {
      seen.length = 0;
      started = await startApp(createAdapter(), {
        options: receiverOptions(),
        controllers: [Both],
      });

      const answer = await head(started.origin, signed({ event, data: { id: 'o1' } }));

      expect(answer.status).toBe(204);
      expect(seen).toEqual([[method, { id: 'o1' }]]);
    });

    it.each([
      ['order.third', 'third'],
      ['order.fourth', 'fourth'],
    ])('gets "%s" by position as a handler and as a route', async (event, path) => {
      seen.length = 0;
      started = await startApp(createAdapter(), {
        options: receiverOptions(),
        controllers: [Both],
      });

      await head(started.origin, signed({ event, data: { id: 'handler' } }));
      await head(started.origin, signed({ event, data: { id: 'route' } }), {
        path: `/both/${path}`,
      });

      expect(seen).toEqual([
        [event, { id: 'handler' }],
        [event, { id: 'route' }],
      ]);
    });
  },
);
