import { afterAll, beforeAll, beforeEach, describe, expect, it } from '@jest/globals';
import { Controller, Injectable, Post, Body, Get } from '@nestjs/common';
import { IsInt, IsString } from 'class-validator';
import {
  MemoryReplayStore,
  OnWebhookEvent,
  WebhookContext,
  WebhookData,
  WebhookEvent,
} from 'nestjs-webhook-token';
import type { ReplayReservation } from 'nestjs-webhook-token/ports';
import { adapters } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

class OrderCreated {
  @IsString() id!: string;
  @IsInt() total!: number;
}

@Injectable()
class Orders {
  seen: unknown[] = [];

  @OnWebhookEvent('order.created')
  onCreated(order: OrderCreated, event: WebhookEvent): void {
    this.seen.push(['created', order, event]);
  }

  @OnWebhookEvent('order.updated')
  onUpdated(@WebhookContext() event: WebhookEvent, @WebhookData('id') id: string): void {
    this.seen.push(['updated', id, event.event]);
  }

  @OnWebhookEvent(['refund.**', 'payout.*'])
  async onMoney(data: unknown, event: WebhookEvent): Promise<void> {
    this.seen.push(['money', event.event, await event.rawBody(), data]);
  }

  @OnWebhookEvent('failing.always')
  onFailing(): void {
    throw new Error('handler says no');
  }
}

@Controller('api')
class HostController {
  @Post('echo')
  echo(@Body() body: unknown): unknown {
    return { got: body };
  }

  @Get('hello')
  hello(): string {
    return 'hello';
  }
}

describe.each(adapters)('a receiver mounted on %s', (_, createAdapter) => {
  let started: StartedApp;
  let orders: Orders;

  beforeAll(async () => {
    started = await startApp(createAdapter(), {
      providers: [Orders],
      controllers: [HostController],
    });
    orders = started.app.get(Orders);
  });
  afterAll(() => started.app.close());
  beforeEach(() => {
    orders.seen = [];
  });

  it('passes the validated inline data of a HEAD request to its handler', async () => {
    const answer = await head(started.origin, signed({ data: { id: 'o1', total: 3 } }));

    expect(answer.status).toBe(204);
    expect(answer.headers['cache-control']).toBe('no-store');
    expect(orders.seen).toHaveLength(1);
    const [, order, event] = orders.seen[0] as [string, OrderCreated, WebhookEvent];
    expect(order).toBeInstanceOf(OrderCreated);
    expect(event).toBeInstanceOf(WebhookEvent);
    expect(event).toMatchObject({
      method: 'HEAD',
      issuer: 'https://shop.example',
      bodyVerified: true,
    });
  });

  it('passes a JSON body to its handler', async () => {
    const answer = await post(started.origin, signedBody('{ "id": "o2", "total": 4 }'));

    expect(answer.status).toBe(204);
    expect(orders.seen[0]).toMatchObject(['created', { id: 'o2', total: 4 }, { method: 'POST' }]);
  });

  it('injects decorated parameters', async () => {
    await head(started.origin, signed({ event: 'order.updated', data: { id: 'o3' } }));

    expect(orders.seen).toEqual([['updated', 'o3', 'order.updated']]);
  });

  it('passes a body of another content type as a Buffer', async () => {
    const bytes = Buffer.from([0, 255, 1, 254]);
    const answer = await post(started.origin, signedBody(bytes, { event: 'refund.a.b' }), {
      headers: { 'content-type': 'application/octet-stream' },
    });

    expect(answer.status).toBe(204);
    expect(orders.seen).toEqual([['money', 'refund.a.b', bytes, bytes]]);
  });

  it('answers once an event whose handler failed is free again', async () => {
    const steps: string[] = [];
    class DistantStore extends MemoryReplayStore {
      override async release(reservation: ReplayReservation): Promise<boolean> {
        // As long as a request and its answer take.
        await send(started.origin, { method: 'GET', path: '/api/hello' });
        steps.push('released');
        return super.release(reservation);
      }
    }
    const other = await startApp(createAdapter(), {
      options: receiverOptions({ replay: { store: new DistantStore() } }),
      providers: [Orders],
    });
    const token = signed({ event: 'failing.always' });
    const first = await head(other.origin, token);
    steps.push('answered');
    const second = await head(other.origin, token);

    expect(steps.slice(0, 2)).toEqual(['released', 'answered']);
    expect([first.status, second.status]).toEqual([500, 500]);
    await other.app.close();
  });

  it('answers 422 to invalid data', async () => {
    const answer = await post(started.origin, signedBody('{"id":"o4","total":"many"}'));

    expect(answer.status).toBe(422);
    expect(answer.json).toMatchObject({
      code: 'invalid_payload',
      errors: ['total must be an integer number'],
    });
    expect(answer.headers['content-type']).toBe('application/problem+json');
  });

  it('answers 500 if a handler fails, and runs it again for the same token', async () => {
    const token = signed({ event: 'failing.always' });

    expect((await head(started.origin, token)).status).toBe(500);
    expect((await head(started.origin, token)).headers['webhook-error']).toBe('handler_failed');
  });

  it('acknowledges a duplicate without handling it again', async () => {
    const token = signed({ data: { id: 'o5', total: 1 } });

    const answers = [await head(started.origin, token), await head(started.origin, token)];

    expect(answers.map(({ status }) => status)).toEqual([204, 204]);
    expect(answers.map(({ headers }) => headers['webhook-duplicate'])).toEqual([undefined, 'true']);
    expect(orders.seen).toHaveLength(1);
  });

  it('rejects a changed body, and still accepts the token with the right one', async () => {
    const { token, body } = signedBody('{"id":"o6","total":1}');
    const tampered = Buffer.from(body.toString().replace('1}', '2}'));

    expect(await post(started.origin, { token, body: tampered })).toMatchObject({
      status: 400,
      json: { code: 'hash_mismatch' },
    });
    expect((await post(started.origin, { token, body })).status).toBe(204);
  });

  it('rejects a request without a token before it reads the body', async () => {
    expect(await send(started.origin, { body: '{}' })).toMatchObject({
      status: 401,
      json: { code: 'missing_token' },
      headers: { 'www-authenticate': 'Bearer realm="webhooks"' },
    });
  });

  it('answers another method with 405', async () => {
    for (const method of ['GET', 'PUT', 'PATCH', 'DELETE']) {
      expect(await send(started.origin, { method })).toMatchObject({
        status: 405,
        headers: { allow: 'HEAD, POST' },
      });
    }
  });

  it('leaves other routes unchanged', async () => {
    expect(await send(started.origin, { path: '/api/echo', body: '{"a":1}' })).toMatchObject({
      status: 201,
      json: { got: { a: 1 } },
    });
    expect((await send(started.origin, { path: '/api/echo', body: '{"a":' })).status).toBe(400);
    expect((await send(started.origin, { method: 'GET', path: '/api/hello' })).text).toBe('hello');
  });
});
