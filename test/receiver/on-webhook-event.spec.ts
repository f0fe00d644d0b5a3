import { describe, expect, it } from '@jest/globals';
import {
  type CallHandler,
  type CanActivate,
  Catch,
  type ExceptionFilter,
  Injectable,
  Module,
  type NestInterceptor,
  type PipeTransform,
  type Provider,
  Scope,
  type Type,
  UseFilters,
  UseGuards,
  UseInterceptors,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import {
  OnWebhookDelivery,
  WebhookData,
  type WebhookModuleOptions,
  WebhookModule,
  WebhookRoute,
} from 'nestjs-webhook-token';
import { OnWebhookEvent } from '../../lib/receiver/decorators/on-webhook-event.decorator.js';
import { head } from '../fixtures/http-client.js';
import { ISSUER, receiverOptions, SECRET, signed, startApp } from '../fixtures/receiver-app.js';
import { RecordingLogger } from '../fixtures/recording-logger.js';

describe('@OnWebhookEvent', () => {
  it.each<[string, unknown, unknown, string, RegExp]>([
    ['an empty list of events', [], undefined, 'Handlers.never', /list of events is empty.*"\*\*"/],
    ['no event', undefined, undefined, 'Handlers.never', /must be strings.*"\*\*"/],
    ['an event that is not a string', ['a.b', 1], undefined, 'Handlers.never', /must be strings/],
    [
      'a misspelt option',
      'a.b',
      { reciever: 'shop' },
      'Handlers.never: options of @OnWebhookEvent.reciever',
      /unknown option.*did you mean "receiver"/,
    ],
    [
      'a receiver that is not a name',
      'a.b',
      { receiver: 1 },
      'Handlers.never: options of @OnWebhookEvent.receiver',
      /must be the name of a receiver/,
    ],
  ])('refuses %s when the class is defined', (_name, events, options, path, message) => {
    const define = (): unknown => {
      class Handlers {
        @OnWebhookEvent(events as 'a.b', options as object)
        never(): void {}
      }
      return Handlers;
    };

    expect(define).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [{ path, message: expect.stringMatching(message) }],
      }),
    );
  });
});

const on = Symbol('on');

describe.each<[string, () => MethodDecorator]>([
  ['OnWebhookEvent', () => OnWebhookEvent('a.b') as MethodDecorator],
  ['OnWebhookDelivery', () => OnWebhookDelivery('delivered')],
  ['WebhookRoute', () => WebhookRoute()],
])('@%s', (name, decorator) => {
  it.each<[string, () => unknown, string, path?: string]>([
    [
      'a static method',
      () => {
        class Handlers {
          @decorator()
          static on(): void {}
        }
        return Handlers;
      },
      'is static, so it would never run; remove "static"',
    ],
    [
      'a generator method',
      () => {
        class Handlers {
          @decorator()
          *on(): Generator {}
        }
        return Handlers;
      },
      'is a generator, so its body would never run; remove the "*"',
    ],
    [
      'an async generator method',
      () => {
        class Handlers {
          @decorator()
          async *on(): AsyncGenerator {}
        }
        return Handlers;
      },
      'is a generator, so its body would never run; remove the "*"',
    ],
    [
      'a method that a symbol names',
      () => {
        class Handlers {
          @decorator()
          [on](): void {}
        }
        return Handlers;
      },
      'is named by a symbol, so it would never run; name it by a string',
      'Handlers.Symbol(on)',
    ],
  ])('refuses %s when the class is defined', (_, define, message, path = 'Handlers.on') => {
    expect(define).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [{ path, message: `the method of @${name} ${message}` }],
      }),
    );
  });
});

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  onCreated(): void {}
}

const ran: string[] = [];

@Injectable()
class Refusing implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

@Injectable()
class Traced implements NestInterceptor {
  intercept(_: unknown, next: CallHandler): ReturnType<CallHandler['handle']> {
    return next.handle();
  }
}

@Catch()
class Ignoring implements ExceptionFilter {
  catch(): void {}
}

@Injectable()
class Unchanged implements PipeTransform {
  transform(value: unknown): unknown {
    return value;
  }
}

@Injectable()
class Billing {
  @UseGuards(Refusing)
  @UseInterceptors(Traced)
  @UseFilters(Ignoring)
  @OnWebhookEvent('invoice.paid')
  onPaid(@WebhookData({}, Unchanged) _data: unknown): void {
    ran.push('onPaid');
  }
}

class Guarded {
  @UseGuards(new Refusing())
  @OnWebhookEvent('invoice.paid')
  onPaid(): void {
    ran.push('onPaid');
  }
}

@UseGuards(Refusing)
class GuardedClass {
  @OnWebhookEvent('invoice.paid')
  onPaid(): void {}
}

describe('guards, interceptors, filters and pipes of a handler', () => {
  it.each<[string, Provider]>([
    ['useFactory', { provide: Billing, useFactory: () => new Billing() }],
    [
      'a request-scoped useFactory',
      { provide: Billing, scope: Scope.REQUEST, useFactory: () => new Billing() },
    ],
    ['useValue', { provide: Billing, useValue: new Billing() }],
  ])('that Nest does not create for %s fail start-up', async (_, provider) => {
    const starting = startApp(new ExpressAdapter(), { providers: [provider] });

    await expect(starting).rejects.toMatchObject({
      problems: [
        {
          path: 'Billing.onPaid',
          message: expect.stringMatching(
            /would not run (?=.*Refusing)(?=.*Traced)(?=.*Ignoring)(?=.*Unchanged).*provide the handler as a class.*new Refusing\(\)/,
          ),
        },
      ],
    });
  });

  it('of its class fail start-up too', async () => {
    const provider = { provide: 'BILLING', useValue: new GuardedClass() };

    await expect(startApp(new ExpressAdapter(), { providers: [provider] })).rejects.toThrow(
      /BILLING\.onPaid: Nest would not run Refusing/,
    );
  });

  it.each<[string, unknown[], unknown[]]>([
    ['passed as instances', [{ provide: Guarded, useFactory: () => new Guarded() }], []],
    ['of useClass', [{ provide: 'BILLING', useClass: Billing }], []],
    [
      'of a class whose instance a factory of another module provides too',
      [{ provide: 'BILLING', useFactory: (one: Billing) => one, inject: [Billing] }],
      [Billing],
    ],
  ])('run if they are %s', async (_, providers, others) => {
    ran.length = 0;
    class Other {}
    Module({ providers: others as Type[], exports: others as Type[] })(Other);
    const { app, origin } = await startApp(new ExpressAdapter(), { providers, imports: [Other] });

    const answer = await head(origin, signed({ event: 'invoice.paid' }));
    await app.close();

    expect(answer.status).toBe(403);
    expect(ran).toEqual([]);
  });
});

async function linesOf(
  options: WebhookModuleOptions,
  level: 'log' | 'warn',
  imports: Type[] = [],
): Promise<string> {
  const logger = new RecordingLogger();
  class App {}
  Module({ imports: [WebhookModule.forRoot(options), ...imports], providers: [Orders] })(App);
  const app = await NestFactory.createApplicationContext(App, { logger });
  await app.close();
  return logger.at(level).join('\n');
}

describe('at start-up', () => {
  const publisher = { issuer: ISSUER, secret: SECRET };
  const neverRuns = /Orders\.onCreated handles webhooks, but no receiver is configured/;

  it('a handler of an application without a receiver is named in a warning', async () => {
    expect(await linesOf({ publisher }, 'warn')).toMatch(neverRuns);
  });

  it('a handler whose receiver is in another webhook module is not', async () => {
    class Feature {}
    Module({ imports: [WebhookModule.forRoot({ ...receiverOptions(), isGlobal: false })] })(
      Feature,
    );

    expect(await linesOf({ publisher }, 'warn', [Feature])).not.toMatch(neverRuns);
  });

  it('a handler that no mounted path reaches is named', async () => {
    expect(await linesOf(receiverOptions({ path: undefined }), 'log')).toMatch(
      /Mapped \{order\.created\} to Orders\.onCreated.*its receiver has no path/,
    );
    expect(await linesOf(receiverOptions(), 'log')).not.toMatch(/has no path/);
  });
});
