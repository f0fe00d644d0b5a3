import { describe, expect, it, jest } from '@jest/globals';
import { Controller, Injectable } from '@nestjs/common';
import { ExpressAdapter } from '@nestjs/platform-express';

// As if class-validator alone were installed.
jest.unstable_mockModule('class-transformer', () => {
  throw new Error("Cannot find package 'class-transformer'");
});

const { OnWebhookEvent } =
  await import('../../lib/receiver/decorators/on-webhook-event.decorator.js');
const { WebhookData } = await import('../../lib/receiver/decorators/webhook-data.decorator.js');
const { WebhookRoute } = await import('../../lib/receiver/decorators/webhook-route.decorator.js');
const { receiverOptions, startApp } = await import('../fixtures/receiver-app.js');

class Order {
  total!: number;
}

const SCHEMA = {
  '~standard': { version: 1, vendor: 'test', validate: (value: unknown) => ({ value }) },
} as const;

@Injectable()
class TakesClass {
  @OnWebhookEvent('order.created')
  on(_order: Order): void {}
}

@Controller()
class RouteTakesClass {
  @WebhookRoute('route')
  receive(@WebhookData() _order: Order): void {}
}

@Injectable()
class TakesOthers {
  @OnWebhookEvent('order.created')
  onInterface(_order: { total: number }): void {}

  @OnWebhookEvent('order.listed')
  onArray(_orders: Order[]): void {}

  @OnWebhookEvent('order.parsed')
  onParsed(@WebhookData({ schema: SCHEMA }) _order: { total: number }): void {}

  @OnWebhookEvent('order.named')
  onNamed(): void {}
}

/** Starts and stops an application, and returns its log. */
async function linesAtStart(
  provider: new () => object,
  change: Parameters<typeof receiverOptions>[0] = {},
): Promise<string[]> {
  const { app, logger } = await startApp(new ExpressAdapter(), {
    options: receiverOptions(change),
    providers: [provider],
  });
  await app.close();
  return logger.lines;
}

describe('class-validator without class-transformer', () => {
  const remedy = /its data is validated by class-validator.*npm install class-transformer/;

  it('fails start-up if a handler takes data as a class', async () => {
    await expect(linesAtStart(TakesClass)).rejects.toThrow(remedy);
  });

  it('fails start-up if a webhook route takes data as a class', async () => {
    const starting = startApp(new ExpressAdapter(), { controllers: [RouteTakesClass] });
    await expect(starting).rejects.toThrow(remedy);
  });

  it('is not needed with validation: false', async () => {
    const lines = await linesAtStart(TakesClass, { validation: false });
    expect(lines).toContainEqual(
      expect.stringContaining('Mapped {order.created} to TakesClass.on'),
    );
  });

  it('is not needed by handlers that take no class', async () => {
    await expect(linesAtStart(TakesOthers)).resolves.toBeDefined();
  });
});

describe('the start-up line of a handler', () => {
  it('says that data is not validated if the parameter is typed with an interface or an array', async () => {
    const lines = await linesAtStart(TakesOthers);
    const note = '(data not validated: the parameter is not typed with a class)';
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.stringContaining(`Mapped {order.created} to TakesOthers.onInterface ${note}`),
        expect.stringContaining(`Mapped {order.listed} to TakesOthers.onArray ${note}`),
        expect.stringMatching(/Mapped \{order\.parsed\} to TakesOthers\.onParsed(?! \(data)/),
        expect.stringMatching(/Mapped \{order\.named\} to TakesOthers\.onNamed(?! \(data)/),
      ]),
    );
  });
});
