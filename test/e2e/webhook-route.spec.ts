import { afterEach, describe, expect, it } from '@jest/globals';
import {
  Body,
  Catch,
  Controller,
  ForbiddenException,
  Headers,
  HttpCode,
  HttpException,
  Injectable,
  Param,
  Post,
  Req,
  Scope,
  UseGuards,
  UseInterceptors,
  type ArgumentsHost,
  type CallHandler,
  type CanActivate,
  type ExceptionFilter,
  type ExecutionContext,
  type INestApplication,
  type NestInterceptor,
  type PipeTransform,
  type Type,
} from '@nestjs/common';
import { APP_FILTER, APP_GUARD, HttpAdapterHost } from '@nestjs/core';
import { IsInt } from 'class-validator';
import { retry, tap } from 'rxjs';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import {
  WebhookRoute,
  WebhookContext,
  WebhookData,
  WebhookDispatcher,
  WebhookEvent,
  WebhookGuard,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { ScriptedReplayStore } from '../fixtures/scripted-replay.store.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
  SECRET,
  signed,
  receiverOptions,
  signedBody,
  startApp,
  type StartOptions,
  type StartedApp,
} from '../fixtures/receiver-app.js';

class Amount {
  @IsInt() amount!: number;
}

const seen: unknown[] = [];

@Controller('hooks')
class Hooks {
  @WebhookRoute('billing/:tenant')
  receive(
    @WebhookData() data: unknown,
    @Param('tenant') tenant: string,
    @WebhookContext() event: WebhookEvent,
  ): void {
    seen.push([tenant, data, event.method]);
  }

  @WebhookRoute('amount')
  amount(@WebhookData() data: Amount): void {
    seen.push(data);
  }

  @WebhookRoute('body')
  body(@Body() data: unknown): void {
    seen.push(data);
  }

  @WebhookRoute('fails')
  fails(): void {
    throw new Error('no');
  }

  @WebhookRoute('teapot')
  teapot(): void {
    throw new HttpException('short and stout', 418);
  }

  @Post('static/plain')
  plain(@Body() body: unknown): unknown {
    return { got: body };
  }

  @UseGuards(WebhookGuard)
  @Post('guarded')
  guarded(@Body() body: unknown, @WebhookContext() event: WebhookEvent): unknown {
    seen.push([body, event.event]);
    return { ok: true };
  }
}

@UseGuards(WebhookGuard)
@Controller('guarded-class')
class GuardedClass {
  @Post()
  receive(@Body() body: unknown): void {
    seen.push(body);
  }
}

class Refund {
  amount!: number;
  @IsInt() refund!: number;
}

class Routes {
  @WebhookRoute('replaced')
  replaced(_data: Amount): void {}

  @WebhookRoute('replaced-body')
  replacedBody(@Body() _data: unknown): void {}
}

@Controller('position')
class ByPosition extends Routes {
  constructor(private readonly dispatcher: WebhookDispatcher) {
    super();
  }

  @WebhookRoute('both')
  both(data: Amount, event: WebhookEvent): void {
    seen.push([data, event.event]);
  }

  @WebhookRoute('event')
  event(event: WebhookEvent, data: Amount): void {
    seen.push([data, event.event]);
  }

  @WebhookRoute('dispatch')
  async dispatch(event: WebhookEvent): Promise<void> {
    seen.push(await this.dispatcher.dispatch(event));
  }

  @WebhookRoute('dispatch-data')
  async dispatchData(data: unknown): Promise<void> {
    await this.dispatcher.dispatch(data as WebhookEvent);
  }

  @WebhookRoute('none')
  none(): void {
    seen.push(arguments.length);
  }

  @WebhookRoute('own')
  own(@WebhookContext() event: WebhookEvent, other?: unknown): void {
    seen.push([event.event, other]);
  }

  @WebhookRoute('body')
  body(@Body() data: unknown, other?: unknown): void {
    seen.push([data, other]);
  }

  @WebhookRoute('request')
  request(other: unknown, @Req() request: { readonly method: string }): void {
    seen.push([other, request.method]);
  }

  @WebhookRoute('header')
  header(@Headers('content-type') type: string, other?: unknown): void {
    seen.push([type, other]);
  }

  @WebhookRoute('replaced')
  override replaced(data: Refund): void {
    seen.push(data);
  }

  @WebhookRoute('replaced-body')
  override replacedBody(data: unknown, other?: unknown): void {
    seen.push([data, other]);
  }
}

@Catch()
@Injectable()
class EverythingIsFine implements ExceptionFilter {
  constructor(private readonly host: HttpAdapterHost) {}
  catch(_: unknown, host: ArgumentsHost): void {
    this.host.httpAdapter.reply(host.switchToHttp().getResponse(), { fine: true }, 200);
  }
}

const options = { receiver: { issuers: [{ issuer: ISSUER, secret: SECRET }] } };

describe.each(adapters)('webhook routes of the application on %s', (_, createAdapter) => {
  let started: StartedApp;
  const start = async (more: StartOptions = {}): Promise<StartedApp> => {
    seen.length = 0;
    started = await startApp(createAdapter(), {
      options,
      controllers: [Hooks, GuardedClass, ByPosition] as Type[],
      ...more,
    });
    return started;
  };
  afterEach(() => started.app.close());

  it.each([
    ['data and event', 'both', [{ amount: 1, refund: 2 }, 'order.created']],
    ['the event, by its class', 'event', [{ amount: 1, refund: 2 }, 'order.created']],
    ['the event to dispatch', 'dispatch', 0],
    ['no arguments that it does not take', 'none', 0],
    ['nothing beside a parameter of this package', 'own', ['order.created', undefined]],
    ['nothing beside @Body()', 'body', [{ amount: 1, refund: 2 }, undefined]],
    ['nothing beside @Req()', 'request', [undefined, 'POST']],
    ['nothing beside @Headers()', 'header', ['application/json', undefined]],
    ['data instead of what it overrides', 'replaced', { amount: 1, refund: 2 }],
    [
      'what it inherits from decorated parameters',
      'replaced-body',
      [{ amount: 1, refund: 2 }, undefined],
    ],
  ])('gives a method %s', async (_what, path, expected) => {
    const { origin } = await start();

    const answer = await post(origin, signedBody('{"amount":1,"refund":2}'), {
      path: `/position/${path}`,
    });

    expect(answer.status).toBe(204);
    expect(seen).toEqual([expected]);
  });

  it.each([
    ['both', 'amount must be an integer number'],
    ['event', 'amount must be an integer number'],
    ['replaced', 'refund must be an integer number'],
  ])('validate data that "%s" takes by position', async (path, problem) => {
    const { origin } = await start();

    const answer = await post(origin, signedBody('{}'), { path: `/position/${path}` });

    expect(answer.status).toBe(422);
    expect(answer.json).toMatchObject({ errors: [problem] });
    expect(seen).toEqual([]);
  });

  it('say what to pass to the dispatcher instead of data', async () => {
    const { origin, logger } = await start();

    const answer = await post(origin, signedBody('{}'), { path: '/position/dispatch-data' });

    expect(answer.status).toBe(500);
    expect(logger.lines.join()).toContain('pass the event of @WebhookContext()');
  });

  it('serve HEAD and POST, with path parameters', async () => {
    const { origin } = await start();

    const first = await head(origin, signed({ data: { a: 1 } }), { path: '/hooks/billing/acme' });
    const second = await post(origin, signedBody('{"b":[1]}'), { path: '/hooks/billing/acme' });

    expect([first.status, second.status]).toEqual([204, 204]);
    expect(seen).toEqual([
      ['acme', { a: 1 }, 'HEAD'],
      ['acme', { b: [1] }, 'POST'],
    ]);
  });

  it.each([
    ['text/plain; charset=utf-8', 'grüße'],
    ['application/xml', '<a/>'],
    ['application/x-www-form-urlencoded', 'a=1&b=2'],
    ['multipart/form-data; boundary=x', '--x\r\n\r\n--x--'],
    ['nonsense', 'bytes'],
    ['', 'bytes'],
  ])('take the exact bytes of content type "%s"', async (type, text) => {
    const { origin } = await start();

    const answer = await post(origin, signedBody(text), {
      path: '/hooks/billing/t',
      headers: { 'content-type': type },
    });

    expect(answer.status).toBe(204);
    expect(seen).toEqual([['t', Buffer.from(text), 'POST']]);
  });

  it.each<[string, StartOptions]>([
    ['rawBody: true', { nest: { rawBody: true } }],
    ['bodyParser: false', { nest: { bodyParser: false } }],
    [
      "the application's own parsers",
      {
        configure: (app: INestApplication) => {
          const host = app as INestApplication & { useBodyParser(type: string, o?: object): void };
          if (app.getHttpAdapter().getType() === 'express') {
            host.useBodyParser('raw', { type: () => true });
          } else host.useBodyParser('*');
        },
      },
    ],
  ])('need no configuration of the application, and work with %s', async (_name, more) => {
    const { origin } = await start(more);

    const answer = await post(origin, signedBody('{ "b" : 1 }'), { path: '/hooks/billing/t' });

    expect(answer.status).toBe(204);
    expect(seen).toEqual([['t', { b: 1 }, 'POST']]);
  });

  it('do not affect the body of other routes', async () => {
    const { origin } = await start();

    expect(await send(origin, { path: '/hooks/static/plain', body: '{"a":1}' })).toMatchObject({
      status: 201,
      json: { got: { a: 1 } },
    });
  });

  it('validate a DTO without a pipe of the application', async () => {
    const { origin } = await start();

    const bad = await post(origin, signedBody('{"amount":"1"}'), { path: '/hooks/amount' });
    const good = await post(origin, signedBody('{"amount":1}'), { path: '/hooks/amount' });

    expect(bad).toMatchObject({ status: 422, json: { code: 'invalid_payload' } });
    expect(good.status).toBe(204);
    expect(seen[0]).toBeInstanceOf(Amount);
  });

  it('provide the data through @Body() too', async () => {
    const { origin } = await start();
    await head(origin, signed({ data: { inline: true } }), { path: '/hooks/body' });

    expect(seen).toEqual([{ inline: true }]);
  });

  it('never let a global filter turn a failure into a success', async () => {
    const { origin } = await start({
      providers: [{ provide: APP_FILTER, useClass: EverythingIsFine }],
    });

    expect((await head(origin, signed(), { path: '/hooks/fails' })).status).toBe(500);
    expect(await post(origin, signedBody('{}'), { path: '/hooks/teapot' })).toMatchObject({
      status: 418,
      json: { code: 'handler_failed', detail: 'short and stout' },
    });
    expect((await send(origin, { path: '/hooks/billing/x' })).status).toBe(401);
  });

  it('acknowledge a duplicate, and run a failed handler again', async () => {
    const { origin } = await start();
    const path = '/hooks/billing/t';
    const token = signed();

    expect((await head(origin, token, { path })).status).toBe(204);
    expect((await head(origin, token, { path })).headers['webhook-duplicate']).toBe('true');
    expect(seen).toHaveLength(1);

    const failing = signed();
    expect((await head(origin, failing, { path: '/hooks/fails' })).status).toBe(500);
    expect((await head(origin, failing, { path: '/hooks/fails' })).status).toBe(500);
  });

  it('answer another method with 405', async () => {
    const { origin } = await start();

    expect(await send(origin, { method: 'GET', path: '/hooks/amount' })).toMatchObject({
      status: 405,
      headers: { allow: 'HEAD, POST' },
    });
  });

  it('respect the global prefix and versions', async () => {
    const { origin } = await start({
      configure: (app) => {
        app.setGlobalPrefix('api');
        app.enableVersioning({ type: 0, defaultVersion: '1' });
      },
    });

    const answer = await post(origin, signedBody('[1]'), { path: '/api/v1/hooks/billing/t' });

    expect(answer.status).toBe(204);
    expect(seen).toEqual([['t', [1], 'POST']]);
  });

  it('can be declared with the guard on a method or class', async () => {
    const { origin } = await start();

    expect(await send(origin, { path: '/hooks/guarded', body: '{}' })).toMatchObject({
      status: 401,
      json: { code: 'missing_token' },
    });
    const answer = await post(origin, signedBody('{"g":1}'), { path: '/hooks/guarded' });
    expect([answer.status, answer.headers['cache-control']]).toEqual([201, 'no-store']);
    expect((await post(origin, signedBody('{"g":2}'), { path: '/guarded-class' })).status).toBe(
      201,
    );
    expect(seen).toEqual([[{ g: 1 }, 'order.created'], { g: 2 }]);
  });

  it('record a guarded event as handled if the answer is a success', async () => {
    const { origin } = await start();
    const request = signedBody('{"g":3}');

    expect((await post(origin, request, { path: '/hooks/guarded' })).status).toBe(201);
    const copy = await post(origin, request, { path: '/hooks/guarded' });

    expect([copy.status, copy.headers['webhook-duplicate']]).toEqual([204, 'true']);
  });

  it("release the event if the application's own guard rejects it", async () => {
    let refusing = true;
    @Injectable()
    class Sometimes implements CanActivate {
      canActivate(): boolean {
        if (refusing) throw new ForbiddenException('not now');
        return true;
      }
    }
    @Controller()
    class Picky {
      @UseGuards(Sometimes)
      @WebhookRoute('picky')
      receive(): void {
        seen.push('picky');
      }
    }
    const { origin } = await start({ controllers: [Picky] });
    const token = signed();

    const refused = await post(origin, { token, body: Buffer.alloc(0) }, { path: '/picky' });
    refusing = false;

    expect([refused.status, refused.json?.['code']]).toEqual([403, undefined]);
    expect((await post(origin, { token, body: Buffer.alloc(0) }, { path: '/picky' })).status).toBe(
      204,
    );
    expect(seen).toEqual(['picky']);
  });

  it.each(['an interceptor', 'a decorator', 'a pipe'] as const)(
    'release the event if %s of the method fails, and run it again',
    async (where) => {
      const failing = new Set<string>([where]);
      const failOnce = (name: string): void => {
        if (failing.delete(name)) throw new ForbiddenException(`${name} failed`);
      };
      class Commit implements NestInterceptor {
        intercept(
          _context: ExecutionContext,
          next: CallHandler,
        ): ReturnType<CallHandler['handle']> {
          return next.handle().pipe(tap({ complete: () => failOnce('an interceptor') }));
        }
      }
      const transactional: MethodDecorator = (_target, _key, descriptor) => {
        const method = descriptor.value as unknown as (...args: unknown[]) => Promise<void>;
        const wrapped = async function (this: unknown, ...args: unknown[]): Promise<void> {
          await method.apply(this, args);
          failOnce('a decorator');
        };
        for (const key of Reflect.getMetadataKeys(method)) {
          Reflect.defineMetadata(key, Reflect.getMetadata(key, method), wrapped);
        }
        descriptor.value = wrapped as never;
      };
      class Checked implements PipeTransform {
        transform(value: unknown): unknown {
          failOnce('a pipe');
          return value;
        }
      }
      @Controller()
      class Orders {
        @UseInterceptors(...(where === 'an interceptor' ? [Commit] : []))
        @transactional
        @WebhookRoute('orders/:tenant')
        async receive(@Param('tenant', Checked) tenant: string): Promise<void> {
          seen.push(tenant);
        }
      }
      const { origin } = await start({ controllers: [Orders] });
      const request = signedBody('{}');
      const attempt = async (): Promise<number> =>
        (await post(origin, request, { path: '/orders/acme' })).status;

      expect([await attempt(), await attempt(), await attempt()]).toEqual([403, 204, 204]);
      expect(seen).toEqual(where === 'a pipe' ? ['acme'] : ['acme', 'acme']);
    },
  );

  it('answer 204 without the value that the method returns, and any other status with it', async () => {
    @Controller()
    class Returning {
      @WebhookRoute('no-content')
      noContent(): unknown {
        return { total: 1n };
      }

      @HttpCode(200)
      @WebhookRoute('content')
      content(): unknown {
        return { received: true };
      }
    }
    const { origin } = await start({ controllers: [Returning] });

    const noContent = await post(origin, signedBody('{}'), { path: '/no-content' });
    const content = await post(origin, signedBody('{}'), { path: '/content' });

    expect(noContent).toMatchObject({ status: 204, text: '' });
    expect(content).toMatchObject({ status: 200, json: { received: true } });
  });

  describe('behind an interceptor that retries', () => {
    /** How the method ends in each of its runs; later runs succeed. */
    let failures: Error[] = [];
    class Retrying implements NestInterceptor {
      intercept(_: unknown, next: CallHandler): ReturnType<CallHandler['handle']> {
        return next.handle().pipe(retry(2));
      }
    }
    @Controller()
    class Orders {
      @WebhookRoute('orders')
      receive(): void {
        seen.push('run');
        const failure = failures.shift();
        if (failure !== undefined) throw failure;
      }
    }
    const begin = async (store = new ScriptedReplayStore()): Promise<StartedApp> => {
      const { issuers } = options.receiver;
      return start({
        options: { receiver: { issuers, replay: { store } } },
        controllers: [Orders],
        configure: (app) => void app.useGlobalInterceptors(new Retrying()),
      });
    };

    it('run again, and are acknowledged when a run succeeds', async () => {
      failures = [new Error('deadlock detected')];
      const { origin } = await begin();
      const request = signedBody('{}');

      const answers = [
        await post(origin, request, { path: '/orders' }),
        await post(origin, request, { path: '/orders' }),
      ];

      expect(answers.map(({ status }) => status)).toEqual([204, 204]);
      expect(seen).toEqual(['run', 'run']);
    });

    it('answer 500 and log the error if every run fails, and release the event', async () => {
      failures = [new Error('first'), new Error('second'), new Error('third')];
      const { origin, logger } = await begin();
      const request = signedBody('{}');

      const answer = await post(origin, request, { path: '/orders' });

      expect(answer).toMatchObject({ status: 500, json: { code: 'handler_failed' } });
      expect(logger.at('error').join('\n')).toContain('Error: third');
      expect((await post(origin, request, { path: '/orders' })).status).toBe(204);
    });

    it('answer with the error if the event cannot be reserved again', async () => {
      failures = [new Error('deadlock detected')];
      const store = new ScriptedReplayStore();
      const { origin, logger } = await begin(store);
      store.onRelease = () => (store.failure = new Error('away'));

      const answer = await post(origin, signedBody('{}'), { path: '/orders' });

      expect(answer).toMatchObject({ status: 500, json: { code: 'handler_failed' } });
      expect(logger.at('error').join('\n')).toContain('deadlock detected');
      expect(seen).toEqual(['run']);
    });
  });

  it('leave their methods as they were written for other callers', async () => {
    await start();

    started.app.get(Hooks).receive('data', 'acme', { method: 'HEAD' } as WebhookEvent);

    expect(seen).toEqual([['acme', 'data', 'HEAD']]);
  });

  it('verify with the options of the receiver that they name', async () => {
    @Controller()
    class Billing {
      @WebhookRoute('invoices/:tenant', { receiver: 'billing' })
      receive(@Param('tenant') tenant: string, @WebhookContext() event: WebhookEvent): void {
        seen.push([tenant, event.receiver]);
      }
    }
    const secret = 'correct-horse-battery-staple-0099';
    const { origin } = await start({
      options: {
        receiver: [
          { issuers: [{ issuer: ISSUER, secret: SECRET }] },
          { name: 'billing', issuers: [{ issuer: ISSUER, secret }] },
        ],
      },
      controllers: [Billing],
    });
    const token = createTokenSigner({ issuer: ISSUER, key: secret }).sign({
      event: 'a.b',
    }) as string;
    const path = '/invoices/acme';

    expect((await head(origin, signed(), { path })).headers['webhook-error']).toBe('bad_signature');
    expect((await head(origin, token, { path })).status).toBe(204);
    expect(seen).toEqual([['acme', 'billing']]);
  });

  it('run behind global guards, like every route of the application', async () => {
    @Injectable()
    class Closed implements CanActivate {
      canActivate(): boolean {
        return false;
      }
    }
    const { origin } = await start({ providers: [{ provide: APP_GUARD, useClass: Closed }] });

    expect((await head(origin, signed(), { path: '/hooks/amount' })).status).toBe(403);
  });
});

@Controller('all')
class AllGuarded {
  @Post()
  receive(@Body() body: unknown, @WebhookContext() event: WebhookEvent): void {
    seen.push([body, event.event]);
  }
}

@Injectable({ scope: Scope.REQUEST })
class ScopedGuard extends WebhookGuard {}

@Controller('all')
@UseGuards(ScopedGuard)
class ScopedGuarded extends AllGuarded {}

it.each(
  adapters.flatMap(([adapter, createAdapter]) => [
    {
      guard: 'the guard of the module, global',
      controllers: [AllGuarded],
      providers: [{ provide: APP_GUARD, useExisting: WebhookGuard }],
      adapter,
      createAdapter,
    },
    {
      guard: 'a request-scoped subclass, global',
      controllers: [AllGuarded],
      providers: [{ provide: APP_GUARD, useClass: ScopedGuard }],
      adapter,
      createAdapter,
    },
    {
      guard: 'a request-scoped subclass on a controller',
      controllers: [ScopedGuarded],
      providers: [],
      adapter,
      createAdapter,
    },
  ]),
)(
  'a route gets the body of its first request with $guard, on $adapter',
  async ({ controllers, providers, createAdapter }) => {
    seen.length = 0;
    const options = receiverOptions({ path: undefined });
    const { app, origin } = await startApp(createAdapter(), { options, controllers, providers });
    const { status } = await post(origin, signedBody('{"a":1}'), { path: '/all' });
    await app.close();

    expect(status).toBe(201);
    expect(seen).toEqual([[{ a: 1 }, 'order.created']]);
  },
);
