import { afterEach, describe, expect, it } from '@jest/globals';
import {
  Controller,
  Get,
  Post,
  Injectable,
  Module,
  type DynamicModule,
  type INestApplication,
  type Type,
} from '@nestjs/common';
import { HttpModule } from '@nestjs/axios';
import { NestFactory, REQUEST } from '@nestjs/core';
import { Test } from '@nestjs/testing';
import type { AddressInfo } from 'node:net';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookRoute,
  type WebhookEvent,
  WebhookVerifier,
  type WebhookModuleOptions,
  type WebhookOptionsFactory,
  WebhookPublisher,
  WebhookModule,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head, post, send } from '../fixtures/http-client.js';
import { RecordingLogger } from '../fixtures/recording-logger.js';
import {
  ISSUER,
  SECRET,
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';
import { WireReceiver } from '../publisher/wire-receiver.js';

const OTHER_SECRET = 'another-secret-of-sufficient-length';

let seen: unknown[] = [];

@Injectable()
class Everything {
  @OnWebhookEvent('**')
  on(data: unknown, event: WebhookEvent): void {
    seen.push([event.receiver, event.event, data]);
  }
}

@Injectable()
class OnlyBilling {
  @OnWebhookEvent('**', { receiver: 'billing' })
  on(_: unknown, event: WebhookEvent): void {
    seen.push(['only billing', event.event]);
  }
}

describe.each(adapters)('the module on %s', (_, createAdapter) => {
  let app: INestApplication | undefined;
  afterEach(async () => {
    seen = [];
    await app?.close();
    app = undefined;
  });
  const keep = (started: StartedApp): StartedApp => {
    app = started.app;
    return started;
  };

  it('serves several receivers, with their own issuers and handlers', async () => {
    const { origin } = keep(
      await startApp(createAdapter(), {
        options: {
          receiver: [
            { name: 'shop', path: 'hooks/shop', issuers: [{ issuer: ISSUER, secret: SECRET }] },
            {
              name: 'billing',
              path: 'hooks/billing',
              issuers: [{ issuer: 'b', secret: OTHER_SECRET }],
            },
          ],
        },
        providers: [Everything, OnlyBilling],
      }),
    );
    const billing = createTokenSigner({ issuer: 'b', key: OTHER_SECRET });
    const forBilling = (): string => billing.sign({ event: 'a.b' }) as string;

    expect((await head(origin, signed(), { path: '/hooks/shop' })).status).toBe(204);
    expect((await head(origin, forBilling(), { path: '/hooks/billing' })).status).toBe(204);
    expect((await head(origin, signed(), { path: '/hooks/billing' })).status).toBe(401);
    expect(seen).toEqual([
      ['shop', 'order.created', undefined],
      ['billing', 'a.b', undefined],
      ['only billing', 'a.b'],
    ]);
  });

  it.each<[string, Parameters<typeof WebhookModule.forRootAsync>[0]]>([
    ['useFactory', { useFactory: async () => receiverOptions() }],
    [
      'useClass',
      {
        useClass: class implements WebhookOptionsFactory {
          createWebhookOptions(): WebhookModuleOptions {
            return receiverOptions();
          }
        },
      },
    ],
  ])('takes its options, including the path, from %s', async (_how, asyncOptions) => {
    @Module({ imports: [WebhookModule.forRootAsync(asyncOptions)], providers: [Everything] })
    class Root {}
    app = await NestFactory.create(Root, createAdapter(), { logger: false });
    app.setGlobalPrefix('api');
    await app.listen(0, '127.0.0.1');
    const { port } = app.getHttpServer().address() as AddressInfo;

    const answer = await head(`http://127.0.0.1:${port}`, signed(), { path: '/api/webhooks' });

    expect(answer.status).toBe(204);
    expect(seen).toHaveLength(1);
  });

  it.each<[string, () => DynamicModule, RegExp]>([
    [
      'options',
      () =>
        WebhookModule.forRootAsync({
          inject: [REQUEST],
          useFactory: () => receiverOptions(),
        }),
      /forRootAsync: its options are request-scoped.*inject no REQUEST/,
    ],
    [
      'an HttpService',
      () =>
        WebhookModule.forRoot({
          publisher: { issuer: ISSUER, secret: SECRET },
          httpModule: HttpModule.registerAsync({ inject: [REQUEST], useFactory: () => ({}) }),
        }),
      /httpModule: its HttpService is request-scoped.*register it without REQUEST/,
    ],
  ])('does not start with %s of a request', async (_what, webhooks, message) => {
    @Module({ imports: [webhooks()], providers: [Everything] })
    class Root {}
    app = await NestFactory.create(Root, createAdapter(), { logger: false });

    await expect(app.init()).rejects.toMatchObject({
      code: 'invalid_configuration',
      message: expect.stringMatching(message),
    });
  });

  it.each<[string, (app: INestApplication) => void, string, number]>([
    ['the global prefix', (host) => void host.setGlobalPrefix('api/v0'), '/api/v0/webhooks', 204],
    ['the global prefix only', (host) => void host.setGlobalPrefix('api'), '/webhooks', 404],
    [
      'the exclusions of the global prefix',
      (host) => void host.setGlobalPrefix('api', { exclude: ['webhooks'] }),
      '/webhooks',
      204,
    ],
    [
      'URI versioning',
      (host) => void host.enableVersioning({ type: 0, defaultVersion: ['1', '2'] }),
      '/v2/webhooks',
      204,
    ],
  ])('mounts its path under %s', async (_name, configure, path, status) => {
    const { origin } = keep(
      await startApp(createAdapter(), { configure, providers: [Everything] }),
    );

    expect((await post(origin, signedBody('{}'), { path })).status).toBe(status);
    expect(seen).toHaveLength(status === 204 ? 1 : 0);
  });

  it('works in a testing module, which creates the adapter late', async () => {
    @Controller()
    class Own {
      @WebhookRoute('own')
      receive(): void {
        seen.push('own');
      }
    }
    const testing = await Test.createTestingModule({
      imports: [WebhookModule.forRoot(receiverOptions())],
      controllers: [Own],
      providers: [Everything],
    }).compile();
    app = testing.createNestApplication(createAdapter(), { logger: false });
    await app.listen(0, '127.0.0.1');
    const { port } = app.getHttpServer().address() as AddressInfo;
    const origin = `http://127.0.0.1:${port}`;

    expect((await post(origin, signedBody('{"a":1}'))).status).toBe(204);
    expect((await post(origin, signedBody('{"a":1}'), { path: '/own' })).status).toBe(204);
    expect(seen).toHaveLength(2);
  });

  it('answers 403 to an event that its issuer may not send', async () => {
    const { origin } = keep(
      await startApp(createAdapter(), {
        options: receiverOptions({
          issuers: [{ issuer: ISSUER, secret: SECRET, events: ['order.*'] }],
        }),
        providers: [Everything],
      }),
    );

    expect((await head(origin, signed({ event: 'order.created' }))).status).toBe(204);
    expect((await head(origin, signed({ event: 'refund.created' }))).headers).toMatchObject({
      'webhook-error': 'event_forbidden',
      'www-authenticate': expect.stringContaining('error="insufficient_scope"'),
    });
  });

  it('waits for its handlers at shutdown, and rejects new requests', async () => {
    let finish = (): void => undefined;
    const running = new Promise<void>((started) => {
      @Injectable()
      class Slow {
        @OnWebhookEvent('slow.event')
        on(): Promise<void> {
          started();
          return new Promise((resolve) => (finish = resolve));
        }
      }
      Object.assign(SlowHolder, { Slow });
    });
    const { origin } = keep(
      await startApp(createAdapter(), { providers: [SlowHolder.Slow!, Everything] }),
    );
    const slow = head(origin, signed({ event: 'slow.event' }));
    await running;
    const closing = app!.close();
    await new Promise((turn) => setImmediate(turn));

    const late = await send(origin, { method: 'POST', token: signed() });
    expect(late).toMatchObject({
      status: 503,
      headers: { 'retry-after': '5', connection: 'close' },
    });
    finish();
    expect((await slow).status).toBe(204);
    await closing;
    app = undefined;
  });

  it.each(['handled', 'queued'] as const)(
    'publishes what a handler does at shutdown, with acknowledge %s',
    async (acknowledge) => {
      const partner = await WireReceiver.start();
      const gate = new Gate();
      @Injectable()
      class Chained {
        constructor(private readonly publisher: WebhookPublisher) {}
        @OnWebhookEvent('order.created')
        async on(): Promise<void> {
          await gate.pass();
          await this.publisher.publish('order.accepted', { id: 1 });
        }
      }
      const publisher = {
        issuer: ISSUER,
        secret: OTHER_SECRET,
        endpoints: [{ id: 'partner', url: partner.url }],
        allowHttp: true,
        allowPrivateNetworks: true,
      };
      const queue = acknowledge === 'queued' ? new InProcessQueue() : undefined;
      const options = { ...receiverOptions({ acknowledge, queue }), publisher };
      const { origin } = keep(await startApp(createAdapter(), { options, providers: [Chained] }));
      const answer = head(origin, signed());
      await gate.reached;
      const closing = app!.close();
      await new Promise((turn) => setImmediate(turn));
      gate.open();
      await closing;
      app = undefined;
      await partner.stop();

      expect((await answer).status).toBe(acknowledge === 'queued' ? 202 : 204);
      expect(partner.requests.map(({ claims }) => claims.webhook.event)).toEqual([
        'order.accepted',
      ]);
    },
  );

  it("stops waiting at the deadline, and aborts the handler's signal", async () => {
    const clock = new TestClock();
    let aborted = false;
    const running = new Promise<void>((started) => {
      @Injectable()
      class Endless {
        @OnWebhookEvent('slow.event')
        on(_: unknown, event: WebhookEvent): Promise<void> {
          started();
          return new Promise((resolve) =>
            event.signal.addEventListener('abort', () => {
              aborted = true;
              resolve();
            }),
          );
        }
      }
      Object.assign(SlowHolder, { Slow: Endless });
    });
    const { origin, logger } = keep(
      await startApp(createAdapter(), {
        options: { ...receiverOptions(), clock, shutdownTimeout: '3s' },
        providers: [SlowHolder.Slow!],
      }),
    );
    const signer = createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => clock.now() });
    const slow = head(origin, signer.sign({ event: 'slow.event' }) as string);
    await running;
    const closing = app!.close();
    await new Promise((turn) => setImmediate(turn));
    await clock.advance(3_000);
    await closing;
    await slow;
    app = undefined;

    expect(aborted).toBe(true);
    expect(logger.at('warn').join()).toContain('still being handled after 3000 ms');
  });
});

const SlowHolder: { Slow?: Type } = {};

describe('start-up', () => {
  const [, createAdapter] = adapters[0]!;
  const start = (options: WebhookModuleOptions, providers: Type[] = []): Promise<StartedApp> =>
    startApp(createAdapter(), { options, providers });

  it('lists every error in the options, with its remedy and without secrets', async () => {
    const error = await start({
      receiver: [
        { path: 'hooks/:id', issuers: [{ issuer: ISSUER, secret: 'short-secret' }] },
        { path: 'b', issuers: [], clockTolerance: 900, replay: { window: 'long' } },
      ],
      publisher: { issuer: '', endpoints: [{ id: 'crm', url: 'http://crm.example' }] },
      shutdownTimeout: 'soon',
    }).catch((thrown: unknown) => thrown as Error);

    expect(error).toMatchObject({
      name: 'WebhookConfigurationError',
      code: 'invalid_configuration',
    });
    const message = (error as Error).message;
    for (const path of [
      'shutdownTimeout:',
      'receiver[0].path:',
      'receiver[0].issuers[0].secret:',
      'receiver[1].issuers:',
      'receiver[1].clockTolerance:',
      'receiver[1].replay.window:',
      'publisher.issuer:',
      'publisher.endpoints[0].url:',
    ]) {
      expect(message).toContain(path);
    }
    expect(message).not.toContain('short-secret');
  });

  it.each<[string, WebhookModuleOptions['receiver'], RegExp]>([
    [
      'two receivers with one name',
      [
        { path: 'a', issuers: [{ issuer: ISSUER, secret: SECRET }] },
        { path: 'b', issuers: [{ issuer: ISSUER, secret: SECRET }] },
      ],
      /another receiver is named "default"/,
    ],
    [
      'two receivers on one path',
      [
        { name: 'a', path: 'hooks', issuers: [{ issuer: ISSUER, secret: SECRET }] },
        { name: 'b', path: '/hooks/', issuers: [{ issuer: ISSUER, secret: SECRET }] },
      ],
      /"hooks" is taken by receiver "a"/,
    ],
  ])('fails with %s', async (_name, receiver, message) => {
    await expect(start({ receiver })).rejects.toThrow(message);
  });

  it('fails with a handler that can never run', async () => {
    @Injectable()
    class Wrong {
      @OnWebhookEvent('order.created', { receiver: 'nowhere' })
      one(): void {}
      @OnWebhookEvent('*')
      two(): void {}
    }

    const error = (await start(receiverOptions(), [Wrong]).catch(
      (thrown: unknown) => thrown,
    )) as Error;
    expect(error.message).toMatch(/Wrong\.one: receiver "nowhere" is not configured/);
    expect(error.message).toMatch(/Wrong\.two: "\*" matches one segment.*"\*\*"/);
  });

  it('fails on Fastify with a GET route at the mounted path, which would answer HEAD', async () => {
    @Controller('webhooks')
    class Page {
      @Get()
      page(): string {
        return 'hello';
      }
    }
    await expect(startApp(adapters[1]![1](), { controllers: [Page] })).rejects.toThrow(
      /\/webhooks is taken by a route of the application for HEAD \(a GET route answers HEAD too\)/,
    );
  });

  it('fails on Fastify with a POST route at the mounted path', async () => {
    @Controller('webhooks')
    class Own {
      @Post()
      receive(): void {}
    }
    await expect(startApp(adapters[1]![1](), { controllers: [Own] })).rejects.toThrow(
      /receiver "default"\.path: \/webhooks is taken by a route of the application for POST/,
    );
  });

  it('allows a GET route at the mounted path on Express', async () => {
    @Controller('webhooks')
    class Page {
      @Get()
      page(): string {
        return 'hello';
      }
    }
    const { app, origin } = await startApp(createAdapter(), {
      controllers: [Page],
      providers: [Everything],
    });
    seen = [];
    expect((await send(origin, { method: 'GET' })).text).toBe('hello');
    expect((await head(origin, signed())).status).toBe(204);
    expect(seen).toHaveLength(1);
    await app.close();
  });

  it('warns once that the replay store protects one process only', async () => {
    const { app, logger } = await start(receiverOptions());
    await app.close();

    expect(logger.at('warn').filter((line) => line.includes('in this process only'))).toHaveLength(
      1,
    );
  });

  it('works without HTTP: a standalone application verifies requests from another transport', async () => {
    @Module({ imports: [WebhookModule.forRoot(receiverOptions())], providers: [Everything] })
    class Root {}
    const context = await NestFactory.createApplicationContext(Root, {
      logger: new RecordingLogger(),
    });
    const verifier = context.get(WebhookVerifier);
    const { token, body } = signedBody('{"a":1}');
    const request = {
      method: 'POST',
      headers: { Authorization: `Bearer ${token}`, 'Content-Type': 'application/json' },
      body,
    };

    const event = await verifier.verify(request);
    expect(event).toMatchObject({ event: 'order.created', data: { a: 1 }, bodyVerified: true });
    await expect(verifier.verify(request)).rejects.toMatchObject({ code: 'replayed' });
    await expect(
      verifier.verify({ ...request, headers: new Headers({ authorization: 'Bearer x.y.z' }) }),
    ).rejects.toMatchObject({ code: 'invalid_token' });
    await context.close();
  });

  it('releases an event whose handler failed in WebhookVerifier.verify', async () => {
    @Module({ imports: [WebhookModule.forRoot(receiverOptions())] })
    class Root {}
    const context = await NestFactory.createApplicationContext(Root, { logger: false });
    const verifier = context.get(WebhookVerifier);
    const request = { method: 'HEAD', headers: { authorization: `Bearer ${signed()}` } };
    const failing = verifier.verify(request, { handle: () => Promise.reject(new Error('no')) });

    await expect(failing).rejects.toThrow('no');
    await expect(verifier.verify(request)).resolves.toMatchObject({ method: 'HEAD' });
    await context.close();
  });
});
