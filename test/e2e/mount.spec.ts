import { afterEach, describe, expect, it } from '@jest/globals';
import { once } from 'node:events';
import type { AddressInfo } from 'node:net';
import {
  Body,
  Controller,
  Get,
  Injectable,
  Module,
  Post,
  UseGuards,
  VERSION_NEUTRAL,
  VersioningType,
  type Type,
  type VersioningOptions,
} from '@nestjs/common';
import { NestFactory } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import express from 'express';
import { WebhookPublisher } from '../../lib/publisher/webhook.publisher.js';
import { WebhookRoute } from '../../lib/receiver/decorators/webhook-route.decorator.js';
import { WebhookGuard } from '../../lib/receiver/webhook.guard.js';
import type { WebhookModuleOptions } from '../../lib/webhook-module-options.interface.js';
import { WebhookModule } from '../../lib/webhook.module.js';
import { adapters } from '../fixtures/adapters.js';
import { head, post, send } from '../fixtures/http-client.js';
import {
  ISSUER,
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

/** A feature module with a webhook module of its own. */
function feature(options: WebhookModuleOptions, providers: Type[] = []): Type {
  class Feature {}
  Module({ imports: [WebhookModule.forRoot({ ...options, isGlobal: false })], providers })(Feature);
  return Feature;
}

describe.each(adapters)('webhook modules on %s', (_, createAdapter) => {
  it('say where their receivers are mounted', async () => {
    const { logger } = await start(createAdapter(), {
      configure: (app) => void app.setGlobalPrefix('api'),
    });

    expect(logger.at('log').join('\n')).toContain(
      'Mapped {/api/webhooks, HEAD and POST} to receiver "default"',
    );
  });

  it('refuse to share a path', async () => {
    await expect(
      start(createAdapter(), { imports: [feature(receiverOptions({ name: 'second' }))] }),
    ).rejects.toThrow(
      /receiver "\w+"\.path: \/webhooks is taken by receiver "\w+" of another webhook module/,
    );
  });

  it('serve a path each', async () => {
    const { origin } = await start(createAdapter(), {
      imports: [feature(receiverOptions({ path: 'others' }))],
    });

    expect((await head(origin, signed())).status).toBe(204);
    expect((await head(origin, signed(), { path: '/others' })).status).toBe(204);
  });

  it.each([
    ['receiver, then publisher', receiverOptions(), { publisher }],
    ['publisher, then receiver', { publisher }, receiverOptions()],
  ])('refuse to be global twice: %s', async (_name, first, second) => {
    await expect(
      start(createAdapter(), { options: first, imports: [WebhookModule.forRoot(second)] }),
    ).rejects.toThrow(/WebhookModule: 2 of them are global.*to one forRoot.*isGlobal: false/);
  });

  it('give a feature the publisher of its own module', async () => {
    @Injectable()
    class Sales {
      constructor(readonly publisher: WebhookPublisher) {}
    }
    const { app } = await start(createAdapter(), { imports: [feature({ publisher }, [Sales])] });

    expect(app.get(Sales, { strict: false }).publisher).toBeInstanceOf(WebhookPublisher);
  });

  it('leave the adapter as it was, with nothing but a publisher', async () => {
    const adapter = createAdapter();
    await start(adapter, { options: { publisher } });

    expect(Object.keys(adapter)).not.toEqual(
      expect.arrayContaining([expect.stringMatching(/^(?:get|head|post|all|applyVersionFilter)$/)]),
    );
  });

  describe('refuse an endpoint without a receiver', () => {
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
    @UseGuards(WebhookGuard)
    @Controller('own')
    class Guarded {
      @Post()
      receive(): void {}
      notARoute(): void {}
    }
    const two = ['shop', 'billing'].map((name) => ({ name, ...trusting }));

    it.each<[string, Type, WebhookModuleOptions, string]>([
      [
        'an unknown name',
        Misnamed,
        { receiver: trusting },
        'Misnamed.receive: receiver "nope" is not configured (configured: "default")',
      ],
      [
        'none named, of two',
        Unnamed,
        { receiver: two },
        'Unnamed.receive: receiver "default" is not configured (configured: "shop", "billing")',
      ],
      [
        'no receiver at all',
        Unnamed,
        { publisher },
        'Unnamed.receive: receiver "default" is not configured (configured: none)',
      ],
      [
        'a guarded route, none named, of two',
        Guarded,
        { receiver: two },
        'Guarded.receive: receiver "default" is not configured',
      ],
    ])('%s', async (_name, controller, options, message) => {
      const error = await start(createAdapter(), { options, controllers: [controller] }).catch(
        (thrown: unknown) => thrown,
      );

      expect(error).toMatchObject({
        name: 'WebhookConfigurationError',
        faults: [expect.anything()],
        message: expect.stringContaining(message),
      });
    });

    it('but not where a guard of the application chooses', async () => {
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

    it('of the module that the controller sees', async () => {
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
    ['without case', {}, '/Webhooks', 204],
    ['with a slash at the end', {}, '/webhooks/', 204],
    ['with case, where the router has it', { 'case sensitive routing': true }, '/Webhooks', 404],
    ['without a slash, where the router is strict', { 'strict routing': true }, '/webhooks/', 404],
  ])('is compared as routes are: %s', async (_name, settings, path, status) => {
    const instance = express();
    for (const [name, value] of Object.entries(settings)) instance.set(name, value);
    const { origin } = await start(new ExpressAdapter(instance));

    expect((await head(origin, signed(), { path })).status).toBe(status);
    expect((await post(origin, signedBody('{}'), { path })).status).toBe(status);
    expect((await head(origin, signed())).status).toBe(204);
  });

  it('is one path for two receivers that differ in case', async () => {
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

describe('middleware before a mounted path on Express', () => {
  const requests = async (origin: string): Promise<Awaited<ReturnType<typeof head>>[]> => [
    await head(origin, signed()),
    await post(origin, signedBody('{}')),
  ];

  it('is nothing, not even Express', async () => {
    const { origin } = await start(new ExpressAdapter());

    for (const { status, headers } of await requests(origin)) {
      expect(status).toBe(204);
      expect(headers).not.toHaveProperty('x-powered-by');
    }
  });

  it('is the middleware of an instance that the application made', async () => {
    const seen: string[] = [];
    const instance = express();
    instance.use((request, response, next) => {
      seen.push(request.method);
      if (request.headers['x-blocked'] === undefined) next();
      else response.status(403).end();
    });
    const { origin } = await start(new ExpressAdapter(instance));

    expect((await requests(origin)).map(({ status }) => status)).toEqual([204, 204]);
    const blocked = await head(origin, signed(), { headers: { 'x-blocked': '1' } });
    expect(blocked.status).toBe(403);
    expect(seen).toEqual(['HEAD', 'POST', 'HEAD']);
  });

  it("are the hooks of Nest's adapter", async () => {
    const seen: string[] = [];
    const adapter = new ExpressAdapter();
    adapter.setOnRequestHook((request, _response, next) => {
      seen.push(`${request.method} comes`);
      next();
    });
    adapter.setOnResponseHook((request, response) => {
      seen.push(`${request.method} ${response.statusCode}`);
    });
    const { origin } = await start(adapter);
    const statuses = (await requests(origin)).map(({ status }) => status);

    expect(statuses).toEqual([204, 204]);
    expect(seen).toEqual(['HEAD comes', 'HEAD 204', 'POST comes', 'POST 204']);
  });

  it('is the path of an application that Express is mounted in', async () => {
    const instance = express();
    await start(new ExpressAdapter(instance));
    const outer = express();
    outer.use('/inner', instance);
    const server = outer.listen(0, '127.0.0.1');
    await once(server, 'listening');
    const origin = `http://127.0.0.1:${(server.address() as AddressInfo).port}`;
    try {
      expect((await head(origin, signed(), { path: '/inner/webhooks' })).status).toBe(204);
      expect((await head(origin, signed(), { path: '/webhooks' })).status).toBe(404);
    } finally {
      server.close();
    }
  });
});

describe('versions that the path does not tell, on Express', () => {
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
    ])('lead to a route and to a webhook, each with its body: %s', async (_order, controllers) => {
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
    });
  });

  it.each<[string, string | string[] | typeof VERSION_NEUTRAL]>([
    ['the same', '2'],
    ['one in common', ['1', '2']],
    ['every one', VERSION_NEUTRAL],
  ])('do not hide that a route would take the requests: %s', async (_name, version) => {
    @Controller({ version })
    class Earlier {
      @Post('shared')
      take(): void {}
    }
    await expect(
      start(new ExpressAdapter(), {
        options: { receiver: trusting },
        controllers: [Earlier, Hooks],
        configure: (app) => void app.enableVersioning(schemes[0]![1]),
      }),
    ).rejects.toThrow(/POST \/shared: the route POST \/shared is registered earlier/);
  });

  it('are not asked for where there is no webhook route', async () => {
    let asked = 0;
    const { origin } = await start(new ExpressAdapter(), {
      controllers: [Plain],
      configure: (app) =>
        void app.enableVersioning({
          type: VersioningType.CUSTOM,
          extractor: () => String(++asked),
        }),
    });

    await send(origin, { path: '/shared', body: '{}' });
    expect(asked).toBe(1);
  });
});

describe('WebhookModule without forRoot', () => {
  it('says what to import', async () => {
    @Module({ imports: [WebhookModule] })
    class Root {}

    await expect(
      NestFactory.createApplicationContext(Root, { logger: false, abortOnError: false }),
    ).rejects.toThrow(/import WebhookModule\.forRoot\(\), not WebhookModule/);
  });
});
