import { describe, expect, it } from '@jest/globals';
import { Injectable, Scope, ValidationPipe, type ValidationPipeOptions } from '@nestjs/common';
import { APP_PIPE } from '@nestjs/core';
import { IsInt } from 'class-validator';
import { OnWebhookEvent } from 'nestjs-webhook-token';
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
