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

@Controller()
class RoutesTakeOthers {
  @WebhookRoute('interface')
  onInterface(_order: { total: number }): void {}

  @WebhookRoute('parsed')
  onParsed(@WebhookData({ schema: SCHEMA }) _order: { total: number }): void {}

  @WebhookRoute('named')
  onNamed(): void {}
}

@Injectable()
class TakesOthers {
  @OnWebhookEvent('order.created')
  onInterface(_order: { total: number }): void {}

  @OnWebhookEvent('order.listed')
  onArray(_orders: Order[]): void {}

  @OnWebhookEvent('order.counted')
  onCount(_count: number): void {}

  @OnWebhookEvent('order.renamed')
  onName(@WebhookData('name') _name: string): void {}

  @OnWebhookEvent('order.flagged')
  onFlag(@WebhookData('flag') _flag: boolean): void {}

  @OnWebhookEvent('order.dated')
  onDate(@WebhookData('at') _at: Date): void {}

  @OnWebhookEvent('order.filed')
  onFile(_file: Buffer): void {}

  @OnWebhookEvent('order.parsed')
  onParsed(@WebhookData({ schema: SCHEMA }) _order: { total: number }): void {}

  @OnWebhookEvent('order.named')
  onNamed(): void {}
}

/** Starts and stops an application with a provider or controller, and returns its log. */
async function linesAtStart(
  type: new () => object,
  change: Parameters<typeof receiverOptions>[0] = {},
  kind: 'providers' | 'controllers' = 'providers',
): Promise<string[]> {
  const { app, logger } = await startApp(new ExpressAdapter(), {
    options: receiverOptions(change),
    [kind]: [type],
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
  it('says that data is not validated if the parameter is typed with an interface, an array or a built-in type', async () => {
    const lines = await linesAtStart(TakesOthers);
    const note = '(data not validated: the parameter is not typed with a class)';
    expect(lines).toEqual(
      expect.arrayContaining([
        expect.stringContaining(`Mapped {order.created} to TakesOthers.onInterface ${note}`),
        expect.stringContaining(`Mapped {order.listed} to TakesOthers.onArray ${note}`),
        expect.stringContaining(`Mapped {order.counted} to TakesOthers.onCount ${note}`),
        expect.stringContaining(`Mapped {order.renamed} to TakesOthers.onName ${note}`),
        expect.stringContaining(`Mapped {order.flagged} to TakesOthers.onFlag ${note}`),
        expect.stringContaining(`Mapped {order.dated} to TakesOthers.onDate ${note}`),
        expect.stringMatching(/Mapped \{order\.filed\} to TakesOthers\.onFile(?! \(data)/),
        expect.stringMatching(/Mapped \{order\.parsed\} to TakesOthers\.onParsed(?! \(data)/),
        expect.stringMatching(/Mapped \{order\.named\} to TakesOthers\.onNamed(?! \(data)/),
      ]),
    );
  });
});

describe('a webhook route', () => {
  it('gets a line at start-up if its data is not validated', async () => {
    const lines = await linesAtStart(RoutesTakeOthers, {}, 'controllers');

    expect(lines.filter((line) => line.includes('data not validated'))).toEqual([
      expect.stringContaining(
        'RoutesTakeOthers.onInterface receives webhooks (data not validated: the parameter is not typed with a class)',
      ),
    ]);
  });
});

describe('a handler whose types the compiler did not record', () => {
  /** As esbuild compiles it. */
  class Untyped {
    on(_order: Order): void {}

    onAny(): void {}

    onParsed(_order: unknown): void {}
  }
  Injectable()(Untyped);
  class UntypedRoute {
    receive(_order: Order): void {}
  }
  Controller()(UntypedRoute);
  const receive = Object.getOwnPropertyDescriptor(UntypedRoute.prototype, 'receive')!;
  WebhookRoute('untyped')(UntypedRoute.prototype, 'receive', receive);
  for (const key of ['on', 'onAny', 'onParsed'] as const) {
    const method = Object.getOwnPropertyDescriptor(Untyped.prototype, key)!;
    if (key === 'onParsed') WebhookData({ schema: SCHEMA })(Untyped.prototype, key, 0);
    OnWebhookEvent(`order.${key}`)(Untyped.prototype, key, method as never);
  }

  it('is warned of, unless it takes no data or has a schema', async () => {
    const lines = await linesAtStart(Untyped);

    expect(lines.filter((line) => line.includes('emitDecoratorMetadata'))).toEqual([
      expect.stringMatching(/warn.*Mapped \{order\.on\} to Untyped\.on \(data not validated/),
    ]);
  });

  it('is warned of if it is a route', async () => {
    const lines = await linesAtStart(UntypedRoute, {}, 'controllers');

    expect(lines.filter((line) => line.includes('emitDecoratorMetadata'))).toEqual([
      expect.stringMatching(/warn.*UntypedRoute\.receive receives webhooks \(data not validated/),
    ]);
  });
});

describe('class-validator that cannot be loaded', () => {
  /** Starts an application whose handler takes a class, as `TakesClass` does. */
  async function startsWithout(message: string): Promise<string> {
    jest.resetModules();
    jest.unstable_mockModule('class-validator', () => {
      throw new Error(message);
    });
    const decorators = await import('../../lib/receiver/decorators/on-webhook-event.decorator.js');
    const nest = await import('@nestjs/common');
    const fixtures = await import('../fixtures/receiver-app.js');
    const express = await import('@nestjs/platform-express');
    class Handler {
      on(_order: Order): void {}
    }
    nest.Injectable()(Handler);
    const method = Object.getOwnPropertyDescriptor(Handler.prototype, 'on')!;
    Reflect.defineMetadata('design:paramtypes', [Order], Handler.prototype, 'on');
    decorators.OnWebhookEvent('order.created')(Handler.prototype, 'on', method);
    const { app } = await fixtures.startApp(new express.ExpressAdapter(), { providers: [Handler] });
    await app.close();
    return 'started';
  }

  it.each([
    ['Node', "Cannot find package 'class-validator' imported from /app/dist/index.js"],
    ['require()', "Cannot find module 'class-validator'\nRequire stack:\n- /app/dist/index.js"],
    ['Jest', "Cannot find module 'class-validator' from '../node_modules/x/dist/index.js'"],
    [
      'Yarn PnP',
      "nestjs-webhook-token tried to access class-validator (a peer dependency) but it isn't provided by your application",
    ],
    ['Vite', 'Could not resolve "class-validator" imported by "nestjs-webhook-token".'],
  ])('is not needed if it is not installed, in the words of %s', async (_, message) => {
    await expect(startsWithout(message)).resolves.toBe('started');
  });

  it.each([
    "Cannot find package 'validator' imported from /app/node_modules/class-validator/index.js",
    "Cannot find module '/app/node_modules/class-validator/index.js' imported from /app/main.js",
    "Cannot find module 'class-validator/missing' from 'main.js'",
    "class-validator tried to access validator, but it isn't declared in its dependencies",
    'Could not resolve "validator" imported by "class-validator".',
  ])('fails start-up if it is broken: %s', async (message) => {
    await expect(startsWithout(message)).rejects.toThrow(message);
  });
});
