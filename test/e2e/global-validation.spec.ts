import { describe, expect, it } from '@jest/globals';
import { Injectable, Scope, ValidationPipe, type ValidationPipeOptions } from '@nestjs/common';
import { APP_PIPE } from '@nestjs/core';
import { IsInt } from 'class-validator';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
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

const ADOPTED =
  'Receiver "default" validates data with the options of the application\'s global ValidationPipe';

describe.each(adapters)('the global ValidationPipe of an application on %s', (_, make) => {
  it.each<[string, StartOptions]>([
    ['useGlobalPipes', { configure: (app) => void app.useGlobalPipes(new ValidationPipe(STRICT)) }],
    ['APP_PIPE', { providers: [{ provide: APP_PIPE, useValue: new ValidationPipe(STRICT) }] }],
  ])('also validates the data of handlers if set by %s', async (_name, start) => {
    const { status, handled, lines } = await sendExtraMember(make(), start);
    expect(status).toBe(422);
    expect(handled).toEqual([]);
    expect(lines).toContain(ADOPTED);
  });
});

describe('a receiver in an application with a global ValidationPipe', () => {
  const [, make] = adapters[0]!;
  const whitelisting: StartOptions = {
    configure: (app) => void app.useGlobalPipes(new ValidationPipe({ whitelist: true })),
  };

  it('transforms data into an instance of the class', async () => {
    const { status, handled } = await sendExtraMember(make(), whitelisting);
    expect(status).toBe(204);
    expect(handled).toEqual([Object.assign(new Order(), { total: 1 })]);
    expect(handled[0]).toBeInstanceOf(Order);
  });

  it.each<[string, ValidationPipeOptions | false]>([
    ['options of its own', { forbidNonWhitelisted: false }],
    ['validation: false', false],
  ])('does not adopt its options with %s', async (_, validation) => {
    const options = receiverOptions({ validation });
    const { status, handled, lines } = await sendExtraMember(make(), { ...whitelisting, options });
    expect(status).toBe(204);
    expect(handled).toEqual([{ total: 1, isAdmin: true }]);
    expect(lines).not.toContain(ADOPTED);
  });

  it('warns if the pipe is request-scoped, since its options cannot be read', async () => {
    const scoped = { provide: APP_PIPE, scope: Scope.REQUEST, useClass: ValidationPipe };
    const { lines } = await sendExtraMember(make(), { providers: [scoped] });
    expect(lines).toMatch(/request-scoped, so receiver "default" cannot read its options/);
  });
});
