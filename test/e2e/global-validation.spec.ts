import { describe, expect, it } from '@jest/globals';
import {
  Controller,
  Injectable,
  Scope,
  UsePipes,
  ValidationPipe,
  type ValidationPipeOptions,
} from '@nestjs/common';
import { APP_PIPE } from '@nestjs/core';
import { IsInt } from 'class-validator';
import {
  OnWebhookEvent,
  WebhookContext,
  WebhookData,
  WebhookEvent,
  WebhookRoute,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { send } from '../fixtures/http-client.js';
import { receiverOptions, signed, startApp, type StartOptions } from '../fixtures/receiver-app.js';

class Order {
  @IsInt()
  total!: number;
}

const STRICT: ValidationPipeOptions = { whitelist: true, forbidNonWhitelisted: true };

/** Sends an order with an undeclared member; returns the status and the data that the handler got. */
async function sendExtraMember(
  adapter: Parameters<typeof startApp>[0],
  start: StartOptions,
): Promise<{ status: number; handled: unknown[]; lines: string }> {
  const handled: unknown[] = [];

  @Injectable()
  class Orders {
    @OnWebhookEvent('order.created')
    onCreated(order: Order): void {
      handled.push(order);
    }
  }

  const { app, origin, logger } = await startApp(adapter, {
    ...start,
    providers: [Orders, ...(start.providers ?? [])],
  });
  const token = signed({ data: { total: 1, isAdmin: true } });
  const { status } = await send(origin, { method: 'HEAD', token });
  await app.close();
  return { status, handled, lines: logger.lines.join('\n') };
}

const WARNING =
  'Receiver "default" validates data without the options of the application\'s global ValidationPipe';

describe.each(adapters)('the global ValidationPipe of an application on %s', (_, make) => {
  it.each<[string, StartOptions]>([
    ['useGlobalPipes', { configure: (app) => void app.useGlobalPipes(new ValidationPipe(STRICT)) }],
    ['APP_PIPE', { providers: [{ provide: APP_PIPE, useValue: new ValidationPipe(STRICT) }] }],
    [
      'a request-scoped APP_PIPE',
      { providers: [{ provide: APP_PIPE, scope: Scope.REQUEST, useClass: ValidationPipe }] },
    ],
  ])('does not apply to webhooks if set by %s, and start-up warns', async (_name, start) => {
    const { status, handled, lines } = await sendExtraMember(make(), start);
    expect(status).toBe(204);
    expect(handled).toEqual([{ total: 1, isAdmin: true }]);
    expect(handled[0]).toBeInstanceOf(Order);
    expect(lines).toContain(WARNING);
  });
});

const CUSTOM = new ValidationPipe({ ...STRICT, transform: true, validateCustomDecorators: true });

describe.each(adapters)('a ValidationPipe with validateCustomDecorators on %s', (_, make) => {
  it('leaves the event of routes and handlers as it is', async () => {
    const got: unknown[] = [];
    @Controller('own')
    class Routes {
      @WebhookRoute('decorated')
      decorated(@WebhookData() order: Order, @WebhookContext() event: WebhookEvent): void {
        got.push(['decorated route', order.total, event.event]);
      }
      @WebhookRoute('plain')
      plain(event: WebhookEvent, order: Order): void {
        got.push(['plain route', order.total, event.event]);
      }
    }
    @Injectable()
    @UsePipes(CUSTOM)
    class Handlers {
      @OnWebhookEvent('order.created')
      decorated(@WebhookData() order: Order, @WebhookContext() event: WebhookEvent): void {
        got.push(['decorated handler', order.total, event.event]);
      }
      @OnWebhookEvent('order.created')
      plain(order: Order, event: WebhookEvent): void {
        got.push(['plain handler', order.total, event.event]);
      }
    }
    const { app, origin } = await startApp(make(), {
      options: receiverOptions({ validation: {} }),
      controllers: [Routes],
      providers: [Handlers],
      configure: (one) => void one.useGlobalPipes(CUSTOM),
    });
    const statuses: number[] = [];
    for (const path of ['/webhooks', '/own/decorated', '/own/plain']) {
      const token = signed({ data: { total: 1 } });
      statuses.push((await send(origin, { method: 'HEAD', path, token })).status);
    }
    await app.close();

    expect(statuses).toEqual([204, 204, 204]);
    expect(got).toEqual([
      ['decorated handler', 1, 'order.created'],
      ['plain handler', 1, 'order.created'],
      ['decorated route', 1, 'order.created'],
      ['plain route', 1, 'order.created'],
    ]);
  });
});

describe('the option validation of a receiver', () => {
  const [, make] = adapters[0]!;
  const start = (validation: ValidationPipeOptions | false): StartOptions => ({
    options: receiverOptions({ validation }),
    configure: (app) => void app.useGlobalPipes(new ValidationPipe(STRICT)),
  });

  it('refuses undeclared members with forbidNonWhitelisted', async () => {
    const { status, handled } = await sendExtraMember(make(), start(STRICT));
    expect(status).toBe(422);
    expect(handled).toEqual([]);
  });

  it('removes undeclared members with whitelist', async () => {
    const { status, handled } = await sendExtraMember(make(), start({ whitelist: true }));
    expect(status).toBe(204);
    expect(handled).toEqual([Object.assign(new Order(), { total: 1 })]);
  });

  it.each<[ValidationPipeOptions | false]>([[{}], [false]])(
    'silences the warning of start-up: %j',
    async (validation) => {
      const { status, handled, lines } = await sendExtraMember(make(), start(validation));
      expect(status).toBe(204);
      expect(handled).toEqual([{ total: 1, isAdmin: true }]);
      expect(lines).not.toContain(WARNING);
    },
  );
});
