import { afterEach, describe, expect, it } from '@jest/globals';
import { createServer } from 'node:http';
import { Controller, Post, VersioningType, type INestApplication } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { fastify, type FastifyInstance } from 'fastify';
import { SystemClock } from '../../lib/clock/webhook-clock.js';
import { MemoryReplayStore } from '../../lib/replay/memory-replay.store.js';
import type { ReplayClaim, ReplayVerdict } from '../../lib/replay/replay-store.js';
import { head, post, send } from '../fixtures/http-client.js';
import { sendOver2 } from '../fixtures/http2-client.js';
import {
  receiverOptions,
  signed,
  signedBody,
  startApp,
  type StartOptions,
  type StartedApp,
} from '../fixtures/receiver-app.js';

/** Records whether the requests that are handled came through Fastify's router. */
class WayRecorder extends MemoryReplayStore {
  readonly ways: string[] = [];
  way = 'unknown';

  override async reserve(claim: ReplayClaim): Promise<ReplayVerdict> {
    this.ways.push(this.way);
    return super.reserve(claim);
  }
}

/** The verifier reads the time before its first promise, so that the stack still shows where the request came from. */
class WayClock extends SystemClock {
  override now(): number {
    const limit = Error.stackTraceLimit;
    Error.stackTraceLimit = 100;
    const stack = new Error().stack ?? '';
    Error.stackTraceLimit = limit;
    if (stack.includes('token-verifier')) {
      store.way = /node_modules\/find-my-way/.test(stack) ? 'router' : 'direct';
    }
    return super.now();
  }
}

/** What saw a webhook request. */
let seen: string[] = [];
let started: StartedApp | undefined;
let store: WayRecorder;

async function start(
  options: Partial<ConstructorParameters<typeof FastifyAdapter>[0]> | AbstractHttpAdapter = {},
  more: StartOptions = {},
): Promise<StartedApp> {
  const adapter =
    options instanceof FastifyAdapter ? options : new FastifyAdapter(options as object);
  store = new WayRecorder();
  started = await startApp(adapter as never, {
    options: { ...receiverOptions({ replay: { store } }), clock: new WayClock() },
    ...more,
  });
  return started;
}

const fastifyOf = (app: INestApplication): FastifyInstance => app.getHttpAdapter().getInstance();

const see =
  (what: string) =>
  (_request: unknown, _reply: unknown, done: () => void): void => {
    seen.push(what);
    done();
  };

/** Like `fastify-plugin`: what the plugin adds applies to the whole application. */
const unencapsulated = (plugin: (instance: FastifyInstance) => Promise<void>) =>
  Object.assign(plugin, { [Symbol.for('skip-override')]: true });

describe('a mounted path on Fastify', () => {
  afterEach(async () => {
    await started?.app.close();
    started = undefined;
    seen = [];
  });

  it('is answered ahead of the router, with a query and with a body too', async () => {
    const { origin, logger } = await start();

    expect((await head(origin, signed())).status).toBe(204);
    expect((await head(origin, signed(), { path: '/webhooks?a=1' })).status).toBe(204);
    expect((await post(origin, signedBody('{}'))).status).toBe(204);
    expect(store.ways.slice(0, 2)).toEqual(['direct', 'direct']);
    expect(logger.lines.join('\n')).not.toContain('pass through');
  });

  it('is answered ahead of the router over HTTP/2', async () => {
    const { port } = await start({ http2: true } as object);
    const headers = await sendOver2(`http://127.0.0.1:${port}`, {
      method: 'HEAD',
      token: signed(),
    });

    expect(headers[':status']).toBe(204);
    expect(store.ways).toEqual(['direct']);
  });

  it('is answered ahead of the router if only other routes have hooks', async () => {
    const { origin } = await start(undefined, {
      configure: (app) => {
        fastifyOf(app).register(async (child) => {
          child.addHook('onRequest', see('child'));
          child.get('/child', () => 'child');
        });
      },
    });

    expect((await head(origin, signed())).status).toBe(204);
    expect(store.ways).toEqual(['direct']);
    await send(origin, { method: 'GET', path: '/child' });
    expect(seen).toEqual(['child']);
  });

  const addHook =
    (name: 'onRequest' | 'onResponse') =>
    (app: INestApplication): void =>
      void fastifyOf(app).addHook(name, see(name));

  it.each<[what: string, configure: (app: INestApplication) => unknown, sees: string | undefined]>([
    ['an onRequest hook', addHook('onRequest'), 'onRequest'],
    ['an onResponse hook', addHook('onResponse'), 'onResponse'],
    [
      'an onTimeout hook',
      (app) => fastifyOf(app).addHook('onTimeout', see('onTimeout')),
      undefined,
    ],
    [
      'an onRequestAbort hook',
      (app) => fastifyOf(app).addHook('onRequestAbort', (_request, done) => done()),
      undefined,
    ],
    [
      'a plugin with a hook',
      (app) =>
        fastifyOf(app).register(
          unencapsulated(async (instance) => void instance.addHook('onRequest', see('plugin'))),
        ),
      'plugin',
    ],
    [
      'a plugin that adds a hook to every route',
      (app) =>
        fastifyOf(app).addHook('onRoute', (route) => {
          route.onRequest = [see('route'), ...[route.onRequest ?? []].flat()];
        }),
      'route',
    ],
    ['middleware', (app) => app.use(see('middleware')), 'middleware'],
    ['CORS of Nest', (app) => app.enableCors(), undefined],
    [
      'a request hook of Nest',
      (app) => {
        const adapter = app.getHttpAdapter() as unknown as {
          setOnRequestHook(hook: unknown): void;
        };
        adapter.setOnRequestHook(see('adapter'));
      },
      'adapter',
    ],
    [
      'a generator of request ids',
      (app) => fastifyOf(app).setGenReqId(() => (seen.push('id'), 'id')),
      'id',
    ],
    [
      'a factory of child loggers',
      (app) =>
        fastifyOf(app).setChildLoggerFactory((logger) => {
          seen.push('logger');
          return logger;
        }),
      'logger',
    ],
  ])('goes through the router if the application has %s', async (_, configure, sees) => {
    const { origin } = await start(undefined, { configure: (app) => void configure(app) });

    expect((await head(origin, signed())).status).toBe(204);
    expect(store.ways).toEqual(['router']);
    if (sees !== undefined) expect(seen).toEqual([sees]);
  });

  it.each<[what: string, options: () => object, sees: string | undefined]>([
    [
      'rewriteUrl',
      () => ({ rewriteUrl: ({ url }: { url: string }) => (seen.push('rewrite'), url) }),
      'rewrite',
    ],
    ['logger', () => ({ logger: { stream: { write: () => seen.push('log') } } }), 'log'],
    ['genReqId', () => ({ genReqId: () => (seen.push('id'), 'id') }), 'id'],
    ['requestIdHeader', () => ({ requestIdHeader: 'x-request-id' }), undefined],
    [
      'serverFactory',
      () => ({
        serverFactory: (handler: (...args: unknown[]) => void) =>
          createServer((...args) => {
            seen.push('server');
            handler(...args);
          }),
      }),
      'server',
    ],
  ])('goes through the router with the option %s', async (_, options, sees) => {
    const { origin } = await start(options());

    expect((await head(origin, signed())).status).toBe(204);
    expect(store.ways).toEqual(['router']);
    if (sees !== undefined) expect(seen).toContain(sees);
  });

  it.each<[what: string, adapter: () => FastifyAdapter]>([
    [
      'has a hook from before Nest',
      () => {
        const adapter = new FastifyAdapter();
        adapter.getInstance().addHook('onRequest', see('early'));
        return adapter;
      },
    ],
    [
      'is an instance of the application',
      () => {
        const instance = fastify();
        instance.addHook('onRequest', see('early'));
        return new FastifyAdapter(instance as never);
      },
    ],
    [
      'has a listener of its own',
      () => {
        const adapter = new FastifyAdapter();
        adapter.getHttpServer().on('request', () => seen.push('early'));
        return adapter;
      },
    ],
  ])('goes through the router if Fastify %s', async (_, adapter) => {
    const { origin } = await start(adapter());

    expect((await head(origin, signed())).status).toBe(204);
    expect(store.ways).toEqual(['router']);
    expect(seen).toEqual(['early']);
  });

  it('leaves a request to middleware that is added while the application runs', async () => {
    const { app, origin } = await start();
    expect((await head(origin, signed())).status).toBe(204);

    app.use(see('late'));
    expect((await head(origin, signed())).status).toBe(204);
    expect(store.ways).toEqual(['direct', 'router']);
    expect(seen).toEqual(['late']);
  });

  it('leaves a request to a route of the same path with a version', async () => {
    class Versioned {
      receive(): void {
        seen.push('version 2');
      }
    }
    Controller({ path: 'webhooks', version: '2' })(Versioned);
    Post()(
      Versioned.prototype,
      'receive',
      Object.getOwnPropertyDescriptor(Versioned.prototype, 'receive')!,
    );
    const { origin } = await start(undefined, {
      controllers: [Versioned],
      configure: (app) =>
        void app.enableVersioning({ type: VersioningType.HEADER, header: 'x-version' }),
    });

    const headers = { 'x-version': '2' };
    expect((await send(origin, { headers, body: '{}' })).status).toBe(201);
    expect(seen).toEqual(['version 2']);
    expect((await head(origin, signed())).status).toBe(204);
    expect(store.ways).toEqual(['router']);
  });

  it('says in the log why requests go through the router', async () => {
    const { logger } = await start(undefined, { configure: addHook('onRequest') });

    expect(logger.lines.join('\n')).toContain('the application has an onRequest hook');
  });
});
