import { afterEach, describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import { createServer, IncomingMessage, type Server } from 'node:http';
import type { AddressInfo } from 'node:net';
import {
  Body,
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  HttpCode,
  Injectable,
  Module,
  Post,
  Put,
  UseGuards,
  VersioningType,
  type Type,
  type VersioningOptions,
} from '@nestjs/common';
import { ApplicationConfig, NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import express from 'express';
import {
  WebhookPublisher,
  WebhookRoute,
  WebhookGuard,
  WebhookInbox,
  type WebhookModuleOptions,
  WebhookModule,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import { sendOver2 } from '../fixtures/http2-client.js';
import {
  ISSUER,
  PATH,
  SECRET,
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartOptions,
  type StartedApp,
} from '../fixtures/receiver-app.js';

const trusting = { issuers: [{ issuer: ISSUER, secret: SECRET }] };
const publisher = { issuer: ISSUER, secret: SECRET };

let started: StartedApp | undefined;
afterEach(async () => {
  await started?.app.close();
  started = undefined;
});
const start = async (
  adapter: Parameters<typeof startApp>[0],
  options: StartOptions = {},
): Promise<StartedApp> => (started = await startApp(adapter, options));

@Controller('neighbour')
class Neighbour {
  @Get()
  get(): string {
    return 'here';
  }
}

/** Of a server that starts to listen. */
async function originOf(server: Server): Promise<string> {
  await once(server, 'listening');
  return `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
}

/** A feature module with its own webhook module. */
function feature(options: WebhookModuleOptions, providers: Type[] = []): Type {
  class Feature {}
  Module({ imports: [WebhookModule.forRoot({ ...options, isGlobal: false })], providers })(Feature);
  return Feature;
}

describe.each(adapters)('webhook modules on %s', (_, createAdapter) => {
  it('log where their receivers are mounted', async () => {
    const { logger } = await start(createAdapter(), {
      configure: (app) => void app.setGlobalPrefix('api'),
    });

    expect(logger.at('log').join('\n')).toContain(
      'Mapped {/api/webhooks, HEAD and POST} to receiver "default"',
    );
  });

  it('cannot share a path', async () => {
    await expect(
      start(createAdapter(), { imports: [feature(receiverOptions({ name: 'second' }))] }),
    ).rejects.toThrow(
      /receiver "\w+"\.path: \/webhooks is taken by receiver "\w+"; choose another path/,
    );
  });

  it('each serve their own path', async () => {
    const { origin } = await start(createAdapter(), {
      imports: [feature(receiverOptions({ path: 'others' }))],
    });

    expect((await head(origin, signed())).status).toBe(204);
    expect((await head(origin, signed(), { path: '/others' })).status).toBe(204);
  });

  it.each([
    ['receiver, then publisher', receiverOptions(), { publisher }],
    ['publisher, then receiver', { publisher }, receiverOptions()],
  ])('cannot both be global: %s', async (_name, first, second) => {
    await expect(
      start(createAdapter(), { options: first, imports: [WebhookModule.forRoot(second)] }),
    ).rejects.toThrow(/WebhookModule: 2 instances are global.*to one forRoot.*isGlobal: false/);
  });

  it('give a feature the publisher of its own module', async () => {
    @Injectable()
    class Sales {
      constructor(readonly publisher: WebhookPublisher) {}
    }
    const { app } = await start(createAdapter(), { imports: [feature({ publisher }, [Sales])] });

    expect(app.get(Sales, { strict: false }).publisher).toBeInstanceOf(WebhookPublisher);
  });

  it('leave the adapter unchanged if there is only a publisher', async () => {
    const adapter = createAdapter();
    await start(adapter, { options: { publisher } });

    expect(Object.keys(adapter)).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/^(?:get|head|post|all|applyVersionFilter)$/)]),
    );
  });

  describe('fail start-up for an endpoint without a receiver', () => {
    @Controller('own')
    class Unnamed {
      @WebhookRoute()
      receive(): void {}
    }
    @Controller('own')
    class Misnamed {
      @WebhookRoute('a', { receiver: 'nope' })
      receive(): void {}
    }
    const two = ['shop', 'billing'].map((name) => ({ name, ...trusting }));

    it.each<[string, Type, WebhookModuleOptions, string]>([
      [
        'with an unknown name',
        Misnamed,
        { receiver: trusting },
        'Misnamed.receive: receiver "nope" is not configured (configured: "default")',
      ],
      [
        'without a name, of two receivers',
        Unnamed,
        { receiver: two },
        'Unnamed.receive: receiver "default" is not configured (configured: "shop", "billing")',
      ],
      [
        'without any receiver',
        Unnamed,
        { publisher },
        'Unnamed.receive: receiver "default" is not configured (configured: none)',
      ],
    ])('%s', async (_name, controller, options, message) => {
      const error = await start(createAdapter(), { options, controllers: [controller] }).catch(
        (thrown: unknown) => thrown,
      );

      expect(error).toMatchObject({
        name: 'WebhookConfigurationError',
        problems: [expect.anything()],
        message: expect.stringContaining(message),
      });
    });

    it('that only another webhook module has, which its module imports second', async () => {
      const [first, second] = ['shop', 'nope'].map((name) =>
        WebhookModule.forRoot({ receiver: { name, ...trusting }, isGlobal: false }),
      );
      class Feature {}
      Module({ imports: [first!, second!], controllers: [Misnamed] })(Feature);

      await expect(start(createAdapter(), { imports: [Feature] })).rejects.toThrow(
        /Misnamed\.receive: receiver "nope".*configured: "shop".*uses only the first webhook module/,
      );
    });

    it("but not if the application's own guard selects the receiver", async () => {
      @Injectable()
      class Choosing extends WebhookGuard {
        protected override receiverName(): string {
          return 'billing';
        }
      }
      @Controller('own')
      class Chosen {
        @UseGuards(Choosing)
        @Post()
        receive(): void {}
      }
      const { origin } = await start(createAdapter(), {
        options: { receiver: two },
        controllers: [Chosen],
      });

      expect((await post(origin, signedBody('{}'), { path: '/own' })).status).toBe(201);
    });

    it("in the webhook module of the controller's scope", async () => {
      class Feature {}
      Module({
        imports: [
          WebhookModule.forRoot({ receiver: { name: 'nope', ...trusting }, isGlobal: false }),
        ],
        controllers: [Misnamed],
      })(Feature);
      const { origin } = await start(createAdapter(), { imports: [Feature] });

      expect((await head(origin, signed(), { path: '/own/a' })).status).toBe(204);
    });
  });

  it('finds a mounted path under a prefix with a parameter', async () => {
    const { origin } = await start(createAdapter(), {
      configure: (app) => void app.setGlobalPrefix('api/:tenant'),
    });

    expect((await head(origin, signed(), { path: '/api/acme/webhooks' })).status).toBe(204);
    expect((await post(origin, signedBody('{}'), { path: '/api/b/webhooks' })).status).toBe(204);
    expect((await head(origin, signed(), { path: '/api/webhooks' })).status).toBe(404);
  });
});

describe('a mounted path on Express', () => {
  it.each<[string, Record<string, boolean>, string, number]>([
    ['ignoring case', {}, '/Webhooks', 204],
    ['ignoring a trailing slash', {}, '/webhooks/', 204],
    [
      'respecting case with case-sensitive routing',
      { 'case sensitive routing': true },
      '/Webhooks',
      404,
    ],
    [
      'respecting a trailing slash with strict routing',
      { 'strict routing': true },
      '/webhooks/',
      404,
    ],
  ])('is matched like a route, %s', async (_name, settings, path, status) => {
    const instance = express();
    for (const [name, value] of Object.entries(settings)) instance.set(name, value);
    const { origin } = await start(new ExpressAdapter(instance));

    expect((await head(origin, signed(), { path })).status).toBe(status);
    expect((await post(origin, signedBody('{}'), { path })).status).toBe(status);
    expect((await head(origin, signed())).status).toBe(204);
  });

  it('cannot differ from that of another receiver in case only', async () => {
    await expect(
      start(new ExpressAdapter(), {
        options: {
          receiver: [
            { name: 'a', path: 'hooks', ...trusting },
            { name: 'b', path: 'Hooks', ...trusting },
          ],
        },
      }),
    ).rejects.toThrow(/receiver "b"\.path: \/Hooks is taken by receiver "a"/);
  });
});

describe.each(adapters)('a mounted path on %s is answered ahead of', (name, createAdapter) => {
  const requests = async (origin: string): Promise<number[]> => [
    (await head(origin, signed())).status,
    (await post(origin, signedBody('{}'))).status,
  ];

  it('middleware of the application', async () => {
    const seen: string[] = [];
    const { origin } = await start(createAdapter(), {
      controllers: [Neighbour],
      configure: (app) => {
        app.use((request: { method: string }, _response: unknown, next: () => void) => {
          seen.push(request.method);
          next();
        });
      },
    });

    expect(await requests(origin)).toEqual([204, 204]);
    expect((await send(origin, { method: 'GET', path: '/neighbour' })).status).toBe(200);
    expect(seen).toEqual(['GET']);
  });

  it('no listener that only watches the requests of the server', async () => {
    const watched: (string | undefined)[] = [];
    const { origin } = await start(createAdapter(), {
      configure: (app) => {
        // As libraries do that close a connection once it has no request.
        (app.getHttpServer() as Server).on('request', ({ url }) => watched.push(url));
      },
    });

    expect(await requests(origin)).toEqual([204, 204]);
    expect(watched).toEqual([PATH, PATH]);
  });

  it("the middleware and hooks of the application's own instance", async () => {
    const seen: string[] = [];
    const adapter = createAdapter();
    const instance = adapter.getInstance();
    if (name === 'Express') {
      instance.use((request: { method: string }, _response: unknown, next: () => void) => {
        seen.push(request.method);
        next();
      });
    } else {
      instance.addHook('onRequest', async ({ method }: { method: string }) => seen.push(method));
    }
    const { origin } = await start(adapter, { controllers: [Neighbour] });

    expect(await requests(origin)).toEqual([204, 204]);
    expect((await send(origin, { method: 'GET', path: '/neighbour' })).status).toBe(200);
    expect(seen).toEqual(['GET']);
  });
});

describe('a mounted path on Fastify', () => {
  it('also answers requests that arrive on another server', async () => {
    const adapter = new FastifyAdapter();
    await start(adapter as never);
    const { routing } = adapter.getInstance();
    const server = createServer((request, response) => routing(request, response));
    const origin = await originOf(server.listen(0, '127.0.0.1'));
    try {
      const token = signed();
      expect((await head(origin, token)).status).toBe(204);
      expect((await head(origin, token)).headers['webhook-duplicate']).toBe('true');
      expect((await post(origin, signedBody('{}'))).status).toBe(204);
      expect((await send(origin, { method: 'GET' })).status).toBe(405);
    } finally {
      server.close();
    }
  });

  it('is answered over HTTP/2', async () => {
    const { origin } = await start(new FastifyAdapter({ http2: true } as object) as never);
    const headers = await sendOver2(origin, { method: 'HEAD', token: signed() });

    expect(headers[':status']).toBe(204);
  });
});

describe('a mounted path on Express', () => {
  it('may be an outer Express application with a mount path', async () => {
    const instance = express();
    await start(new ExpressAdapter(instance));
    const outer = express();
    outer.use('/inner', instance);
    const server = outer.listen(0, '127.0.0.1');
    const origin = await originOf(server);
    try {
      expect((await head(origin, signed(), { path: '/inner/webhooks' })).status).toBe(204);
      expect((await head(origin, signed(), { path: '/webhooks' })).status).toBe(404);
    } finally {
      server.close();
    }
  });

  it('refuses a body that an outer application has read', async () => {
    const instance = express();
    await start(new ExpressAdapter(instance));
    const server = express().use(express.json(), instance).listen(0, '127.0.0.1');
    const origin = await originOf(server);
    try {
      const answer = await post(origin, signedBody('{}'));
      expect([answer.status, answer.json?.['code']]).toEqual([500, 'payload_consumed']);
    } finally {
      server.close();
    }
  });

  it('takes the bytes that an outer application has kept', async () => {
    const instance = express();
    await start(new ExpressAdapter(instance));
    const verify = (request: object, _: unknown, rawBody: Buffer): void =>
      void Object.assign(request, { rawBody });
    const server = express().use(express.json({ verify }), instance).listen(0, '127.0.0.1');
    const origin = await originOf(server);
    try {
      expect((await post(origin, signedBody('{ "id": 1 }'))).status).toBe(204);
    } finally {
      server.close();
    }
  });

  it('takes a request of a serverless adapter, which sets headers but not rawHeaders', async () => {
    const instance = express();
    const { app } = await start(new ExpressAdapter(instance), {
      options: { ...receiverOptions(), inbox: { headers: true } },
    });
    const server = createServer((received, response) => {
      const { method, url, headers } = received;
      const request = new IncomingMessage(received.socket);
      Object.assign(request, { method, url, headers, complete: true });
      received.on('data', (chunk) => request.push(chunk)).on('end', () => request.push(null));
      instance(request as never, response as never);
    });
    const origin = await originOf(server.listen(0, '127.0.0.1'));
    try {
      expect((await head(origin, signed())).status).toBe(204);
      expect((await post(origin, signedBody('{}'))).status).toBe(204);
      const inbox = app.get(WebhookInbox);
      const [entry] = (await inbox.list()).entries;
      expect((await inbox.get(entry!.id))?.headers).toContainEqual([
        'content-type',
        'application/json',
      ]);
    } finally {
      server.close();
    }
  });
});

describe.each(adapters)(
  'a route without the guard, beside guarded ones on %s',
  (_, createAdapter) => {
    class OwnTenant implements CanActivate {
      canActivate(context: ExecutionContext): boolean {
        const { body } = context.switchToHttp().getRequest<{ body?: { tenant?: string } }>();
        return body?.tenant !== 'victim';
      }
    }

    @Controller()
    class Mixed {
      @UseGuards(OwnTenant)
      @Post('plain')
      @HttpCode(200)
      plain(@Body() body: unknown): unknown {
        return { got: body };
      }
      @UseGuards(OwnTenant)
      @Put('plain')
      replace(@Body() body: unknown): unknown {
        return { got: body };
      }
      @WebhookRoute('hook')
      hook(): void {}
    }

    const startMixed = async (): Promise<StartedApp> =>
      start(createAdapter(), { options: { receiver: trusting }, controllers: [Mixed] });

    it.each<[string, Type[], number]>([
      ['without the guard', [], 0],
      ['with it', [Mixed], 1],
    ])('runs an interceptor only in an application %s', async (_case, controllers, count) => {
      const options = { receiver: trusting };
      const imports = [feature({ receiver: { ...trusting, name: 'second' } }, [])];
      const { app } = await start(createAdapter(), { options, controllers, imports });

      expect(app.get(ApplicationConfig).getGlobalInterceptors()).toHaveLength(count);
    });

    it.each<[string, string]>([
      ['no token', ''],
      ['a forged token', `${signed().slice(0, -8)}AAAAAAAA`],
    ])('gets its JSON body with %s', async (_case, token) => {
      const { origin } = await startMixed();
      const answer = await send(origin, {
        path: '/plain',
        body: '{"a":1}',
        ...(token && { token }),
      });
      expect(answer).toMatchObject({ status: 200, json: { got: { a: 1 } } });
    });

    it('refuses a body that a token has hidden from the guards of the application', async () => {
      const { origin } = await startMixed();
      const body = '{"tenant":"victim"}';
      const { token } = signedBody(body);
      expect((await send(origin, { path: '/plain', body })).status).toBe(403);

      const { status, json } = await send(origin, { path: '/plain', body, token });

      expect(status).toBe(400);
      expect(json).toMatchObject({
        message: expect.stringContaining('needs a route for webhooks'),
      });
    });

    it('gets the body of a method that is none of a webhook, with a token too', async () => {
      const { origin } = await startMixed();
      const request = { method: 'PUT', path: '/plain', ...signedBody('{"a":1}') };

      expect(await send(origin, request)).toMatchObject({ status: 200, json: { got: { a: 1 } } });
    });

    it('takes a request with a token and without a body', async () => {
      const { origin } = await startMixed();
      const answer = await send(origin, { path: '/plain', body: '', token: signed() });
      expect(answer.status).toBe(200);
    });
  },
);

describe('versions that are not in the path, on Express', () => {
  const seen: unknown[] = [];
  const schemes: [string, VersioningOptions, (version: string) => Record<string, string>][] = [
    ['HEADER', { type: VersioningType.HEADER, header: 'X-Version' }, (v) => ({ 'x-version': v })],
    [
      'MEDIA_TYPE',
      { type: VersioningType.MEDIA_TYPE, key: 'v=' },
      (v) => ({ accept: `application/json;v=${v}` }),
    ],
    [
      'CUSTOM',
      {
        type: VersioningType.CUSTOM,
        extractor: (request) =>
          (request as { headers: Record<string, string> }).headers['x-custom'] ?? '',
      },
      (v) => ({ 'x-custom': v }),
    ],
  ];

  @Controller({ version: '1' })
  class Plain {
    @Post('shared')
    take(@Body() body: unknown): unknown {
      return { got: body };
    }
    @Get('shared')
    page(): string {
      return 'page';
    }
  }
  @Controller({ version: '2' })
  class Hooks {
    @WebhookRoute('shared')
    receive(@Body() data: unknown): void {
      seen.push(data);
    }
  }

  describe.each(schemes)('%s', (_, versioning, asking) => {
    it.each<[string, Type[]]>([
      ['the plain route first', [Plain, Hooks]],
      ['the webhook first', [Hooks, Plain]],
    ])(
      'select a plain route or a webhook route, each with its body: %s',
      async (_order, controllers) => {
        seen.length = 0;
        const { origin } = await start(new ExpressAdapter(), {
          options: { receiver: trusting },
          controllers,
          configure: (app) => void app.enableVersioning(versioning),
        });
        const path = '/shared';
        const webhook = { path, headers: asking('2') };

        const plain = await send(origin, { path, headers: asking('1'), body: '{"a":1}' });
        expect(plain.json).toEqual({ got: { a: 1 } });
        expect((await post(origin, signedBody('{ "b" : 2 }'), webhook)).status).toBe(204);
        expect((await head(origin, signed({ data: { c: 3 } }), webhook)).status).toBe(204);
        expect(seen).toEqual([{ b: 2 }, { c: 3 }]);
      },
    );
  });

  it('are not extracted if there is no webhook route', async () => {
    let extracted = 0;
    const { origin } = await start(new ExpressAdapter(), {
      controllers: [Plain],
      configure: (app) =>
        void app.enableVersioning({
          type: VersioningType.CUSTOM,
          extractor: () => String(++extracted),
        }),
    });

    await send(origin, { path: '/shared', body: '{}' });
    expect(extracted).toBe(1);
  });
});

describe('WebhookModule without forRoot', () => {
  it('throws an error that names the import', async () => {
    @Module({ imports: [WebhookModule] })
    class Root {}

    await expect(
      NestFactory.createApplicationContext(Root, { logger: false, abortOnError: false }),
    ).rejects.toThrow(/import WebhookModule\.forRoot\(\), not WebhookModule/);
  });
});
