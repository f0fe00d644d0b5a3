import { once } from 'node:events';
import { get, type IncomingMessage } from 'node:http';
import { afterEach, describe, expect, it, jest } from '@jest/globals';
import {
  type CanActivate,
  Controller,
  type ExecutionContext,
  Get,
  type INestApplication,
  Injectable,
  type NestInterceptor,
  UnauthorizedException,
  type VersioningOptions,
  VersioningType,
} from '@nestjs/common';
import { APP_GUARD, APP_INTERCEPTOR } from '@nestjs/core';
import { ExpressAdapter } from '@nestjs/platform-express';
import { FastifyAdapter } from '@nestjs/platform-fastify';
import { DocumentBuilder, SwaggerModule } from '@nestjs/swagger';
import { map } from 'rxjs';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  defineEvents,
  WebhookDeliveries,
  WebhookEndpoints,
  WebhookPublisher,
  WebhookStoreError,
} from 'nestjs-webhook-token';
import { WebhookConsoleModule, type ConsoleCapability } from 'nestjs-webhook-token/console';
import { adapters } from '../fixtures/adapters.js';
import { ALL_CAPABILITIES, call, type ConsoleApp, startConsole } from '../fixtures/console-app.js';
import { forged } from '../fixtures/forged-token.js';
import { type Answer, head, send } from '../fixtures/http-client.js';
import { sendOver2 } from '../fixtures/http2-client.js';
import { startApp } from '../fixtures/receiver-app.js';
import { until } from '../postgres/database.js';

const BASE = '/webhooks/console';
const API = `${BASE}/api`;

@Injectable()
class Deny implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

@Injectable()
class RequireLogin implements CanActivate {
  canActivate(): never {
    throw new UnauthorizedException();
  }
}

@Injectable()
class Allow implements CanActivate {
  canActivate(context: ExecutionContext): boolean {
    const request = context.switchToHttp().getRequest<{ headers: Record<string, string> }>();
    return request.headers['x-user'] !== undefined;
  }
}

/** Named like the guard of @nestjs/throttler, which lets every caller through. */
class ThrottlerGuard extends Allow {}
class OwnThrottler extends ThrottlerGuard {}
/** Named like the guard of nestjs-cls, which only opens a context. */
class ClsGuard extends Allow {}

@Injectable()
class Wrapping implements NestInterceptor {
  intercept: NestInterceptor['intercept'] = (_context, next) =>
    next.handle().pipe(map((data: unknown) => ({ wrapped: data })));
}

/** Every call that needs a capability. */
const CALLS: readonly [method: string, path: string, needs: ConsoleCapability[]][] = [
  ['GET', '/overview', ['view']],
  ['GET', '/stats', ['view']],
  ['GET', '/deliveries', ['view']],
  ['GET', '/deliveries/x', ['view']],
  ['GET', '/deliveries/x/payload', ['view', 'view-payload']],
  ['POST', '/deliveries/redeliver', ['redeliver']],
  ['GET', '/endpoints', ['view']],
  ['GET', '/endpoints/crm', ['view']],
  ['GET', '/event-types', ['view']],
  ['POST', '/endpoints', ['manage-endpoints', 'manage-secrets']],
  ['PATCH', '/endpoints/crm', ['manage-endpoints']],
  ['DELETE', '/endpoints/crm', ['manage-endpoints']],
  ['POST', '/endpoints/crm/enable', ['manage-endpoints']],
  ['POST', '/endpoints/crm/disable', ['manage-endpoints']],
  ['POST', '/endpoints/crm/pause', ['manage-endpoints']],
  ['POST', '/endpoints/crm/resume', ['manage-endpoints']],
  ['POST', '/endpoints/crm/test', ['manage-endpoints']],
  ['POST', '/endpoints/crm/rotate-key', ['manage-secrets']],
  ['GET', '/inbox', ['view']],
  ['GET', '/inbox/x', ['view']],
  ['GET', '/inbox/x/payload', ['view', 'view-payload']],
  ['POST', '/inbox/x/retry', ['redeliver']],
  ['GET', '/dead-letters', ['view']],
  ['GET', '/dead-letters/x/runs', ['view']],
  ['POST', '/dead-letters/retry', ['redeliver']],
  ['GET', '/activity', ['view']],
  // A stream.
  ['GET', '/events', ['view']],
  ['GET', '/endpoints/x/recovery', ['view']],
  ['POST', '/endpoints/x/recovery', ['redeliver']],
  ['DELETE', '/endpoints/x/recovery', ['redeliver']],
  ['POST', '/deliveries/x/skip', ['redeliver']],
  ['GET', '/events', ['view']],
];

interface Listed {
  readonly items: Record<string, unknown>[];
  readonly next?: string;
}

describe.each(adapters)('the console on %s', (_, create) => {
  let started: ConsoleApp;
  afterEach(() => started?.app.close());

  const json = async <T>(path: string): Promise<T> =>
    (await call(started.origin, 'GET', `${API}${path}`)).json as T;

  describe('with a guard that denies', () => {
    it.each([
      [401, 'APP_GUARD', RequireLogin],
      [403, 'the option guards', Deny],
    ] as const)('answers %d to everything: %s', async (denied, by, guard) => {
      const isGlobal = by === 'APP_GUARD';
      started = await startConsole(
        create(),
        {
          capabilities: ALL_CAPABILITIES,
          portal: { url: 'https://shop.example/p', secret: 's'.repeat(32) },
          ...(!isGlobal && { guards: [guard] }),
        },
        { providers: isGlobal ? [{ provide: APP_GUARD, useClass: guard }] : [] },
      );
      const paths = [BASE, `${BASE}/`, `${BASE}/index.html`, `${BASE}/assets/x.js`];
      const calls = [
        ...paths.map((path) => ['GET', path] as const),
        ...CALLS.map(([method, path]) => [method, `${API}${path}`] as const),
        ['GET', `${API}/session`] as const,
        ...(isGlobal ? [['GET', '/webhooks/portal/'] as const] : []),
        ...(isGlobal ? [['POST', '/webhooks/portal/api/session'] as const] : []),
      ];
      for (const [method, path] of calls) {
        const answer = await call(started.origin, method, path, method === 'GET' ? undefined : {});
        expect([method, path, answer.status]).toEqual([method, path, denied]);
        expect(answer.headers['content-type']).toMatch(/^application\/json/);
        expect(answer.text).not.toContain('Webhooks');
      }
    });
  });

  it('serves the page below a slash, with a strict policy', async () => {
    started = await startConsole(create(), { brand: { logo: 'https://cdn.example/logo.svg' } });
    const bare = await send(started.origin, { method: 'GET', path: `${BASE}?a=1` });
    const page = await send(started.origin, { method: 'GET', path: `${BASE}/?a=1` });
    const etag = page.headers.etag!;
    const again = await send(started.origin, {
      method: 'GET',
      path: `${BASE}/`,
      headers: { 'if-none-match': etag },
    });
    const missing = await send(started.origin, { method: 'GET', path: `${BASE}/../secret` });

    expect([bare.status, bare.headers.location]).toEqual([308, 'console/']);
    expect(page.status).toBe(200);
    expect(page.headers['content-type']).toMatch(/^text\/html/);
    expect(page.headers['x-content-type-options']).toBe('nosniff');
    expect(page.headers['content-security-policy']).toContain("script-src 'self'");
    expect(page.headers['content-security-policy']).toContain(
      "img-src 'self' data: https://cdn.example",
    );
    expect(page.text).toMatch(/^<!doctype html>/i);
    expect([again.status, again.text]).toEqual([304, '']);
    expect(missing.status).toBe(404);
  });

  it('compresses its page for browsers that accept gzip', async () => {
    started = await startConsole(create());
    const encodingFor = async (accepted: string): Promise<unknown> => {
      const headers = { 'accept-encoding': accepted };
      const page = await send(started!.origin, { method: 'GET', path: `${BASE}/`, headers });
      return page.headers['content-encoding'];
    };
    expect(await encodingFor('gzip, deflate, br')).toBe('gzip');
    expect(await encodingFor('gzip;q=0, br')).toBeUndefined();
    expect(await encodingFor('identity')).toBeUndefined();
  });

  it('answers whatever interceptors of the application do', async () => {
    started = await startConsole(
      create(),
      { brand: { name: 'Acme', color: '#0a66c2' } },
      { providers: [{ provide: APP_INTERCEPTOR, useClass: Wrapping }] },
    );

    expect(await json('/session')).toMatchObject({
      kind: 'console',
      capabilities: ['view'],
      brand: { name: 'Acme', color: '#0a66c2' },
      features: { endpoints: true, deliveries: true, inbox: true, deadLetters: false },
    });
  });

  it('lists deliveries with filters, page by page, and shows attempts', async () => {
    let status = 200;
    started = await startConsole(create(), {}, { status: () => status });
    const [first] = await started.publish('order.created', { n: 1 });
    status = 500;
    const [dead] = await started.publish('order.paid', { n: 2 });
    await started.publish('order.paid', { n: 3 }, 'acme');

    const all = await json<Listed>('/deliveries?limit=2');
    const rest = await json<Listed>(`/deliveries?limit=2&after=${all.next}`);
    expect([...all.items, ...rest.items]).toHaveLength(3);
    expect(rest.next).toBeUndefined();
    const idsOf = async (query: string): Promise<unknown[]> =>
      (await json<Listed>(`/deliveries?${query}`)).items.map(({ id }) => id);
    expect(await idsOf('status=delivered')).toEqual([first]);
    expect(await idsOf('endpoint=crm&event=order.paid')).toEqual([dead]);
    expect(await idsOf('tenant=acme')).toHaveLength(1);
    expect(await idsOf('since=2100-01-01T00:00:00Z')).toEqual([]);
    expect(await json(`/deliveries/${dead}`)).toMatchObject({
      status: 'dead',
      failureReason: 'http_500',
      // Its query may hold a credential.
      url: 'https://192.0.2.1/hooks',
      attempts: [
        {
          attempt: 1,
          statusCode: 500,
          failureReason: 'http_500',
          token: { alg: 'HS256', event: 'order.paid', jti: expect.any(String) },
        },
      ],
    });
    expect(await json('/overview')).toMatchObject({
      deliveries: { delivered: 1, dead: 2, pending: 0, held: 0, lag: 0 },
    });
  });

  it.each([
    ['GET', '/deliveries?stauts=dead', undefined],
    ['GET', '/deliveries?status=lost', undefined],
    ['GET', '/deliveries?limit=101', undefined],
    ['GET', '/deliveries?after=bogus', undefined],
    ['GET', '/deliveries?event=a&event=b', undefined],
    ['GET', '/deliveries?since=yesterday', undefined],
    ['GET', '/deliveries?since=-271821-04-20', undefined],
    ['POST', '/endpoints/crm/rotate-key', { overlap: '1e300' }],
    ['POST', '/endpoints/crm/rotate-key', { overlap: 1e300 }],
    ['GET', '/deliveries/%E0%A4%A', undefined],
    ['POST', '/deliveries/redeliver', { dryRun: true }],
    ['POST', '/deliveries/redeliver', { filter: {}, dryRun: true }],
    ['POST', '/deliveries/redeliver', { filter: { endpoint: 'crm' } }],
    ['POST', '/deliveries/redeliver', { filter: { endpiont: 'crm' }, dryRun: true }],
    ['POST', '/endpoints', { url: 5 }],
    ['POST', '/endpoints/crm/rotate-key', { overlap: {} }],
    ['POST', '/endpoints', []],
    ['POST', '/endpoints', { events: 'order.*' }],
    ['POST', '/deliveries/redeliver', { ids: [], dryRun: true }],
    ['POST', '/deliveries/redeliver', { ids: ['a'], dryRun: 1 }],
    ['POST', '/deliveries/redeliver', { ids: [5], dryRun: false }],
    ['POST', '/dead-letters/retry', {}],
    ['GET', `/deliveries?tenant=${'x'.repeat(256)}`, undefined],
    ['GET', '/stats?from=yesterday', undefined],
    ['GET', '/stats?step=1', undefined],
    ['GET', '/stats?from=2026-01-02T00:00:00Z&to=2026-01-01T00:00:00Z', undefined],
  ])('refuses a malformed call: %s %s %o', async (method, path, body) => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const answer = await call(started.origin, method, `${API}${path}`, body);

    expect(answer.status).toBe(400);
  });

  it('answers 404 to what it does not have', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const paths = [
      ['GET', `${BASE}/missing.js`],
      ['POST', `${BASE}/index.html`],
      ['GET', `${API}/nothing`],
      ['GET', '/webhooks/c%6Fnsole/api/session'],
      ['POST', `${API}/session`],
    ] as const;
    for (const [method, path] of paths) {
      const { status } = await call(
        started.origin,
        method,
        path,
        method === 'GET' ? undefined : {},
      );
      expect([method, path, status]).toEqual([method, path, 404]);
    }
  });

  it('answers 500 without details if code of the application throws, and logs its name', async () => {
    started = await startConsole(create(), {
      actor: () => {
        throw new TypeError('user 42');
      },
    });
    const answer = await call(started.origin, 'GET', `${API}/overview`);

    expect([answer.status, answer.json?.['code']]).toEqual([500, 'internal_error']);
    expect(answer.text).not.toContain('user 42');
    const logged = started.logger.lines.join('\n');
    expect(logged).toContain('A request of the page failed: TypeError');
    expect(logged).not.toContain('user 42');
  });

  it('names a user by a number too', async () => {
    started = await startConsole(create(), { actor: () => 42 as never });

    expect(await json('/session')).toMatchObject({ actor: '42' });
  });

  it.each([
    ['an object', { id: 'ada' }],
    ['a promise', Promise.resolve('ada')],
  ])('logs that the option actor must return a string, not %s', async (_kind, user) => {
    started = await startConsole(create(), { actor: () => user as never });
    const answer = await call(started.origin, 'GET', `${API}/session`);

    expect([answer.status, answer.json?.['detail']]).toEqual([500, 'An internal error occurred.']);
    expect(started.logger.at('error').join()).toMatch(
      /The option "actor" of WebhookConsoleModule returned a value of type object; .*a string/,
    );
  });

  it.each([42, {}, Promise.resolve('{}')])('hides what redact turns into %p', async (shown) => {
    started = await startConsole(create(), {
      capabilities: ['view', 'view-payload'],
      redact: () => shown as never,
    });
    const [id] = await started.publish('order.created', { card: '4111' });

    expect(await json(`/deliveries/${id}/payload`)).toEqual({
      contentType: 'application/json',
      size: 15,
      truncated: false,
      redacted: true,
    });
  });

  it('refuses each call without each capability that it needs', async () => {
    const seen: unknown[] = [];
    const expected: unknown[] = [];
    for (const missing of ALL_CAPABILITIES) {
      const capabilities = ALL_CAPABILITIES.filter((one) => one !== missing);
      const { app, origin } = await startConsole(create(), { capabilities });
      for (const [method, path, needs] of CALLS.filter(([, , all]) => all.includes(missing))) {
        const body = method === 'GET' ? undefined : {};
        const { status, json: problem } = await call(origin, method, `${API}${path}`, body);
        seen.push([missing, method, path, status, problem?.['code']]);
        expected.push([missing, method, path, 403, 'missing_capability']);
        expect(needs).toContain(missing);
      }
      await app.close();
    }
    expect(seen).toEqual(expected);
  });

  it('refuses a change that another site may have caused', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const path = `${API}/endpoints/crm/disable`;
    const attempt = async (headers: Record<string, string>, body = '{}'): Promise<number> =>
      (await send(started.origin, { method: 'POST', path, headers, body })).status;
    const own = { 'webhook-console': '1' };

    expect(await attempt({})).toBe(403);
    expect(await attempt({ ...own, 'sec-fetch-site': 'cross-site' })).toBe(403);
    expect(await attempt({ ...own, 'sec-fetch-site': 'same-site' })).toBe(403);
    expect(await attempt({ ...own, origin: 'https://evil.example' })).toBe(403);
    expect(await attempt({ ...own, origin: 'null' })).toBe(403);
    expect(await attempt({ ...own, 'content-type': 'text/plain' })).not.toBe(200);
    expect(await attempt({ ...own, origin: started.origin })).toBe(200);
    expect(await attempt({ ...own, 'sec-fetch-site': 'same-origin' })).toBe(200);
  });

  it('refuses a DELETE that another site may have caused', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    await call(started.origin, 'POST', `${API}/endpoints`, { id: 'own', url: 'https://192.0.2.1' });
    const path = `${API}/endpoints/own`;
    const attempt = async (headers: Record<string, string>): Promise<number> =>
      (await send(started.origin, { method: 'DELETE', path, headers })).status;
    const own = { 'webhook-console': '1' };

    expect(await attempt({})).toBe(403);
    expect(await attempt({ ...own, 'sec-fetch-site': 'cross-site' })).toBe(403);
    expect(await attempt({ ...own, 'sec-fetch-site': 'same-site' })).toBe(403);
    expect(await attempt({ ...own, origin: 'https://evil.example' })).toBe(403);
    expect(await attempt({ ...own, 'sec-fetch-site': 'same-origin' })).toBe(204);
  });

  it('refuses reads of other origins, whatever the application grants them', async () => {
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      { configure: (app) => app.enableCors({ origin: true, credentials: true }) },
    );
    const [id] = await started.publish('order.created', { card: '4111' });
    const origin = 'https://evil.example';
    const crossSite = { origin, 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'cors' };
    const read = async (headers: Record<string, string>, path = `${API}/deliveries`) =>
      send(started.origin, { method: 'GET', path, headers });
    const paths = ['session', 'deliveries', `deliveries/${id}/payload`, 'events', 'nothing'];

    for (const path of paths) {
      const { status, json: problem, headers } = await read(crossSite, `${API}/${path}`);
      expect([path, status, problem?.['code']]).toEqual([path, 403, 'cross_site_request']);
      expect(headers).not.toHaveProperty('access-control-allow-origin');
    }
    expect((await read({ 'sec-fetch-site': 'same-site' })).status).toBe(403);
    expect((await read({ origin })).status).toBe(403);
    expect((await read({ origin: 'null' })).status).toBe(403);
    // The page itself, a typed address, and a program.
    expect((await read({ 'sec-fetch-site': 'same-origin' })).status).toBe(200);
    expect((await read({ 'sec-fetch-site': 'none', 'sec-fetch-mode': 'navigate' })).status).toBe(
      200,
    );
    expect((await read({ origin: started.origin })).status).toBe(200);
    expect((await read({})).status).toBe(200);
  });

  it('opens its page from a link of another site, and grants no other origin to read an answer', async () => {
    started = await startConsole(create(), {}, { configure: (app) => app.enableCors() });
    const followed = { 'sec-fetch-site': 'cross-site', 'sec-fetch-mode': 'navigate' };
    const page = await send(started.origin, {
      method: 'GET',
      path: `${BASE}/`,
      headers: followed,
    });
    const read = await call(started.origin, 'GET', `${API}/session`);
    const stream = await new Promise<IncomingMessage>((resolve, reject) => {
      get(`${started.origin}${API}/events`, { agent: false }, resolve).on('error', reject);
    });
    stream.destroy();

    expect([page.status, read.status, stream.statusCode]).toEqual([200, 200, 200]);
    for (const { headers } of [page, read, stream]) {
      expect(headers).not.toHaveProperty('access-control-allow-origin');
    }
  });

  it('believes neither a forwarded host nor another scheme', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const path = `${API}/endpoints/crm/disable`;
    const attempt = async (headers: Record<string, string>): Promise<number> =>
      (await call(started.origin, 'POST', path, {}, headers)).status;
    const { host } = new URL(started.origin);

    expect(
      await attempt({ origin: 'http://evil.example', 'x-forwarded-host': 'evil.example' }),
    ).toBe(403);
    expect(await attempt({ origin: `https://${host}` })).toBe(403);
    expect(await attempt({ origin: `http://${host}` })).toBe(200);
  });

  it('accepts changes from the origins of its options only', async () => {
    started = await startConsole(create(), {
      capabilities: ALL_CAPABILITIES,
      origins: ['https://ops.example'],
    });
    const path = `${API}/endpoints/crm/disable`;
    const attempt = async (origin: string): Promise<number> =>
      (await call(started.origin, 'POST', path, {}, { origin })).status;

    expect(await attempt('https://ops.example')).toBe(200);
    expect(await attempt('http://ops.example')).toBe(403);
    expect(await attempt(started.origin)).toBe(403);
  });

  it('answers only loopback host names without a guard', async () => {
    started = await startConsole(create());
    const statusOf = async (host: string, path: string): Promise<number> =>
      (await call(started.origin, 'GET', path, undefined, { host })).status;

    for (const host of ['localhost:3000', 'app.localhost', '127.0.0.1', '[::1]:80']) {
      expect([host, await statusOf(host, `${API}/session`)]).toEqual([host, 200]);
    }
    for (const host of ['evil.example', '127.0.0.1.evil.example', 'localhost.evil.example']) {
      expect([host, await statusOf(host, `${API}/session`)]).toEqual([host, 403]);
      expect([host, await statusOf(host, `${BASE}/`)]).toEqual([host, 403]);
    }
    const forwarded = async (headers: Record<string, string>): Promise<number> =>
      (await call(started.origin, 'GET', `${API}/session`, undefined, headers)).status;
    expect(await forwarded({ 'x-forwarded-for': '127.0.0.1, ::1' })).toBe(200);
    expect(await forwarded({ 'x-forwarded-for': '203.0.113.7, 127.0.0.1' })).toBe(403);
    for (const [name, value] of [
      ['forwarded', 'for=203.0.113.7'],
      ['via', '1.1 proxy.example'],
      ['x-real-ip', '203.0.113.7'],
      ['x-client-ip', '203.0.113.7'],
      ['x-forwarded-host', 'shop.example'],
      ['x-forwarded-proto', 'https'],
      ['x-forwarded-server', 'proxy.example'],
      ['cf-connecting-ip', '203.0.113.7'],
      ['true-client-ip', '203.0.113.7'],
      ['fastly-client-ip', '203.0.113.7'],
      ['fly-client-ip', '203.0.113.7'],
    ] as const) {
      expect([name, await forwarded({ [name]: value })]).toEqual([name, 403]);
    }
    await started.app.close();
    started = await startConsole(create(), { guards: [Allow] });
    const headers = { host: 'ops.example', 'x-user': 'ada' };
    expect((await call(started.origin, 'GET', `${API}/session`, undefined, headers)).status).toBe(
      200,
    );
  });

  it('shows the answers of endpoints redacted, and only with view-payload', async () => {
    const echo = 'card 4111';
    const answersTo = async (
      options: Parameters<typeof startConsole>[1],
    ): Promise<(string | undefined)[]> => {
      started = await startConsole(create(), options);
      const deliveries = started.app.get(WebhookDeliveries);
      const found = deliveries.get.bind(deliveries);
      jest.spyOn(deliveries, 'get').mockImplementation(async (...asked) => {
        const delivery = await found(...asked);
        const attempts = delivery?.attempts.map((attempt) => ({ ...attempt, answer: echo }));
        return delivery && { ...delivery, attempts: attempts! };
      });
      const [id] = await started.publish('order.created', {});
      const { attempts } = await json<{ attempts: { answer?: string }[] }>(`/deliveries/${id}`);
      await started.app.close();
      return attempts.map(({ answer }) => answer);
    };

    expect(await answersTo({})).toEqual([undefined]);
    expect(await answersTo({ capabilities: ['view', 'view-payload'] })).toEqual([echo]);
    expect(
      await answersTo({
        capabilities: ['view', 'view-payload'],
        redact: ({ bytes, source }) =>
          `${source}: ${Buffer.from(bytes).toString().replace('4111', '****')}`,
      }),
    ).toEqual(['answer: card ****']);
  });

  it('limits test events and redeliveries, and says when to try again', async () => {
    const clock = new TestClock();
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES }, { clock });
    const statusesOf = async (times: number, path: string, body: object): Promise<Set<number>> => {
      const statuses = new Set<number>();
      for (let n = 0; n < times; n++) {
        statuses.add((await call(started.origin, 'POST', `${API}${path}`, body)).status);
      }
      return statuses;
    };
    const redelivery = { ids: ['x'], dryRun: false };

    expect(await statusesOf(10, '/endpoints/crm/test', {})).toEqual(new Set([200]));
    await clock.advance(20_000);
    const refused = await call(started.origin, 'POST', `${API}/endpoints/crm/test`, {});
    expect([refused.status, refused.json?.['code'], refused.headers['retry-after']]).toEqual([
      429,
      'too_many_requests',
      '40',
    ]);
    expect(await statusesOf(60, '/deliveries/redeliver', redelivery)).toEqual(new Set([200]));
    expect(await statusesOf(1, '/deliveries/redeliver', redelivery)).toEqual(new Set([429]));
    await clock.advance(60_000);
    expect(await statusesOf(1, '/endpoints/crm/test', {})).toEqual(new Set([200]));
  });

  it('counts deliveries once for all readers of about the same time', async () => {
    const clock = new TestClock();
    started = await startConsole(create(), {}, { clock });
    const stats = jest.spyOn(started.app.get(WebhookDeliveries), 'stats');
    await Promise.all([json('/overview'), json('/overview'), json('/endpoints')]);
    // Of all deliveries, and of those of the last day.
    expect(stats).toHaveBeenCalledTimes(2);

    await clock.advance(1_000);
    await json('/overview');
    expect(stats).toHaveBeenCalledTimes(4);
  });

  it('knows the health of an endpoint from its stored deliveries', async () => {
    const clock = new TestClock();
    let status = 200;
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      { clock, status: () => status },
    );
    const healthOf = async (id: string): Promise<unknown> => {
      await clock.advance(1_000);
      return (await json<{ health: unknown }>(`/endpoints/${id}`)).health;
    };
    expect(await healthOf('crm')).toMatchObject({ state: 'idle' });
    await started.publish('order.created', {});
    expect(await healthOf('crm')).toMatchObject({ state: 'healthy', successRate24h: 1 });

    status = 503;
    await clock.advance(60_000);
    const since = new Date(clock.now()).toISOString();
    await started.publish('order.created', {});
    await started.publish('order.created', {});
    await call(started.origin, 'POST', `${API}/endpoints/crm/test`, {});
    // What only this process knows is forgotten, as after a restart.
    await call(started.origin, 'POST', `${API}/endpoints/crm/disable`, {});
    await call(started.origin, 'POST', `${API}/endpoints/crm/enable`, {});
    const failing = { state: 'failing', since, reason: 'http_503', successRate24h: 1 / 3 };
    expect(await healthOf('crm')).toMatchObject(failing);
    expect(await json('/overview')).toMatchObject({ attention: [{ id: 'crm', health: failing }] });

    status = 200;
    for (let n = 0; n < 3; n++) await started.publish('order.created', {});
    expect(await healthOf('crm')).toMatchObject({ state: 'healthy' });
  });

  it('lists the events that the application has defined, and sends an example of one', async () => {
    const events = defineEvents<{ 'order.created': { id: string } }>({
      'order.created': {
        description: 'A customer has placed an order.',
        jsonSchema: { type: 'object' },
        examples: [{ id: 'o-1' }],
      },
    });
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES }, { events });

    expect(await json('/session')).toMatchObject({ features: { eventTypes: true } });
    expect(await json('/event-types')).toEqual({
      items: [
        {
          event: 'order.created',
          description: 'A customer has placed an order.',
          schema: { type: 'object' },
          example: { id: 'o-1' },
        },
      ],
    });
    const path = `${API}/endpoints/crm/test`;
    const sent = await call(started.origin, 'POST', path, { event: 'order.created' });
    const unknown = await call(started.origin, 'POST', path, { event: 'order.lost' });
    expect([sent.json?.['delivered'], unknown.status]).toEqual([true, 400]);
    expect(started.transport.sent.at(-1)).toMatchObject({
      event: 'order.created',
      data: { id: 'o-1' },
    });
  });

  it('counts deliveries step by step, with times to delivery', async () => {
    const clock = new TestClock();
    let status = 200;
    started = await startConsole(create(), {}, { clock, status: () => status });
    const from = clock.now();
    await started.publish('order.created', {});
    await started.publish('order.created', {});
    await clock.advance(10_000);
    status = 500;
    await started.publish('order.created', {}, 'acme');
    await clock.advance(10_000);
    const range = `from=${new Date(from).toISOString()}&to=${new Date(from + 30_000).toISOString()}`;
    const none = { failed: 0, pending: 0 };

    expect(await json(`/stats?${range}&step=10000`)).toEqual({
      buckets: [
        { at: new Date(from).toISOString(), delivered: 2, ...none, p50Ms: 0, p95Ms: 0 },
        { at: new Date(from + 10_000).toISOString(), delivered: 0, failed: 1, pending: 0 },
        { at: new Date(from + 20_000).toISOString(), delivered: 0, ...none },
      ],
      total: { delivered: 2, failed: 1, pending: 0, p50Ms: 0, p95Ms: 0 },
      endpoints: [
        {
          endpoint: 'acme',
          tenant: 'acme',
          delivered: [0, 0, 0],
          failed: [0, 1, 0],
          pending: [0, 0, 0],
        },
        { endpoint: 'crm', delivered: [2, 0, 0], failed: [0, 0, 0], pending: [0, 0, 0] },
      ],
    });
    expect(await json(`/stats?${range}&step=10000&endpoint=crm`)).toMatchObject({
      total: { delivered: 2, failed: 0 },
    });
    expect(await json(`/stats?${range}&step=10000&tenant=acme`)).toMatchObject({
      total: { delivered: 0, failed: 1 },
    });
  });

  it('records no action on what does not exist', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    await call(started.origin, 'GET', `${API}/deliveries/unknown/payload`);
    await call(started.origin, 'POST', `${API}/endpoints/unknown/disable`, {});
    const invalid = await call(started.origin, 'PATCH', `${API}/endpoints/unknown`, { retry: 1 });
    const again = { ids: ['unknown'], dryRun: false };
    await call(started.origin, 'POST', `${API}/deliveries/redeliver`, again);

    expect(invalid.status).toBe(400);
    expect((await json<Listed>('/activity')).items).toEqual([]);
  });

  /** Publishes two events that are missed; every later attempt succeeds. @returns the ids of their deliveries */
  const publishTwoDead = async (): Promise<string[]> => {
    let status = 500;
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      { status: () => status },
    );
    const [a] = await started.publish('order.created', { n: 1 });
    const [b] = await started.publish('order.created', { n: 2 });
    status = 200;
    return [a!, b!];
  };
  const redeliver = async (body: object): Promise<Listed & { more: boolean }> =>
    (await call(started.origin, 'POST', `${API}/deliveries/redeliver`, body))
      .json as unknown as Listed & { more: boolean };

  it('redelivers one, and many by a filter after a dry run', async () => {
    const [a, b] = await publishTwoDead();
    const dry = await redeliver({ filter: { endpoint: 'crm' }, dryRun: true });
    expect(new Set(dry.items.map(({ id }) => id))).toEqual(new Set([a, b]));
    expect((await json<Listed>('/deliveries?status=dead')).items).toHaveLength(2);
    expect(await redeliver({ ids: [a, 'unknown'], dryRun: false })).toMatchObject({
      items: [
        { id: a, redelivered: true },
        { id: 'unknown', redelivered: false, reason: 'unknown_delivery' },
      ],
    });
    expect(await redeliver({ filter: { endpoint: 'crm' }, dryRun: false })).toMatchObject({
      items: [{ id: b, redelivered: true }],
      more: false,
    });
    const { items } = await json<Listed>('/activity');
    expect(items).toMatchObject([
      { action: 'delivery.redeliver', count: 1, outcome: 'done' },
      { action: 'delivery.redeliver', count: 1, outcome: 'done' },
    ]);
  });

  it('sends nothing that was delivered after the page showed it in another state', async () => {
    const [a, b] = await publishTwoDead();
    const settled = async (id: string): Promise<void> => {
      await until(
        async () => (await json<{ status: string }>(`/deliveries/${id}`)).status !== 'pending',
      );
    };
    const shown = { ids: [a, b], statuses: ['dead', 'dead'] };

    await redeliver({ ids: [a], statuses: ['dead'], dryRun: false });
    await settled(a!);
    expect((await redeliver({ ...shown, dryRun: true })).items).toEqual([
      { id: a, redelivered: false, reason: 'delivered' },
      { id: b, redelivered: false },
    ]);
    expect((await redeliver({ ...shown, dryRun: false })).items).toEqual([
      { id: a, redelivered: false, reason: 'delivered' },
      { id: b, redelivered: true },
    ]);
    await settled(b!);
    await redeliver({ ...shown, dryRun: false });
    await redeliver({ ids: [a], statuses: ['pending'], dryRun: false });
    expect((await json<Listed>('/deliveries')).items).toHaveLength(2);
    expect((await json<Listed>('/activity')).items).toMatchObject([
      { action: 'delivery.redeliver', count: 1 },
      { action: 'delivery.redeliver', count: 1, target: a },
    ]);

    const answer = await redeliver({ ids: [a], statuses: ['delivered'], dryRun: false });
    expect(answer.items).toMatchObject([{ id: a, redelivered: true, as: expect.any(String) }]);
    expect((await redeliver({ ids: [b], dryRun: false })).items).toMatchObject([
      { id: b, redelivered: true, as: expect.any(String) },
    ]);
  });

  it.each([
    [{ ids: ['x', 'y'], statuses: ['dead'] }, 'statuses', /the status of each id/],
    [{ ids: ['x'], statuses: 'dead' }, 'statuses', /the status of each id/],
    [{ ids: ['x'], statuses: ['dad'] }, 'statuses[0]', /did you mean 'dead'/],
    [{ filter: { event: 'a.b' }, statuses: ['dead'] }, 'statuses', /the status of each id/],
  ])('refuses to redeliver %j', async (body, path, message) => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const answer = await call(started.origin, 'POST', `${API}/deliveries/redeliver`, {
      ...body,
      dryRun: false,
    });

    expect([answer.status, answer.json]).toEqual([
      400,
      expect.objectContaining({ errors: [{ path, message: expect.stringMatching(message) }] }),
    ]);
  });

  it('manages endpoints, shows a secret once, and records who did it', async () => {
    started = await startConsole(create(), {
      capabilities: ALL_CAPABILITIES,
      actor: (request: { headers: Record<string, string> }) => request.headers['x-user'],
    });
    const { origin, app, logger } = started;
    const as = { 'x-user': 'ada' };
    const body = { url: 'https://192.0.2.9/in', events: ['order.*'], tenant: 'acme', id: 'a/b c' };
    const created = await call(origin, 'POST', `${API}/endpoints`, body, as);
    const { secret, endpoint } = created.json as { secret: string; endpoint: { id: string } };
    expect(created.status).toBe(201);
    expect(created.headers['cache-control']).toBe('no-store');
    expect(endpoint).toMatchObject({ id: 'a/b c', tenant: 'acme', health: { state: 'idle' } });

    const path = `${API}/endpoints/${encodeURIComponent('a/b c')}`;
    const rotated = await call(origin, 'POST', `${path}/rotate-key`, { overlap: '1h' }, as);
    const patched = await call(origin, 'PATCH', path, { description: 'new' }, as);
    const disabled = await call(origin, 'POST', `${path}/disable`, {}, as);
    const enabled = await call(origin, 'POST', `${path}/enable`, {}, as);
    const paused = await call(origin, 'POST', `${path}/pause`, {}, as);
    const resumed = await call(origin, 'POST', `${path}/resume`, {}, as);
    const tested = await call(origin, 'POST', `${path}/test`, {}, as);
    const configured = await call(origin, 'DELETE', `${API}/endpoints/crm`, undefined, as);
    const removed = await call(origin, 'DELETE', path, undefined, as);
    const gone = await call(origin, 'GET', path);

    expect(rotated.json).toMatchObject({ secret: expect.any(String), kid: expect.any(String) });
    expect(patched.json).toMatchObject({ description: 'new', keys: [{}, {}] });
    expect(disabled.json).toMatchObject({ health: { state: 'disabled' } });
    expect(enabled.json).not.toHaveProperty('disabled');
    expect(paused.json).toMatchObject({
      health: { state: 'paused' },
      pausedAt: expect.any(String),
    });
    expect(resumed.json).not.toHaveProperty('pausedAt');
    expect(tested.json).toMatchObject({ delivered: true, statusCode: 200 });
    expect([configured.status, removed.status, gone.status]).toEqual([409, 204, 404]);
    const { items } = await json<Listed>('/activity');
    expect(items.map(({ action, outcome, actor }) => [action, outcome, actor])).toEqual([
      ['endpoint.delete', 'done', 'ada'],
      ['endpoint.delete', 'failed', 'ada'],
      ['endpoint.test', 'done', 'ada'],
      ['endpoint.resume', 'done', 'ada'],
      ['endpoint.pause', 'done', 'ada'],
      ['endpoint.enable', 'done', 'ada'],
      ['endpoint.disable', 'done', 'ada'],
      ['endpoint.update', 'done', 'ada'],
      ['endpoint.rotate-key', 'done', 'ada'],
      ['endpoint.create', 'done', 'ada'],
    ]);
    const said = JSON.stringify([logger, await app.get(WebhookEndpoints).list(), items]);
    expect(said).toContain('endpoint.create by');
    expect(said).not.toContain(secret);
  });

  it('answers a change whose health cannot be read, and records it as done', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const { origin, app } = started;
    const stats = jest
      .spyOn(app.get(WebhookDeliveries), 'stats')
      .mockRejectedValue(new WebhookStoreError('store_unavailable', 'gone'));
    const body = { id: 'new', url: 'https://192.0.2.9/in' };
    const created = await call(origin, 'POST', `${API}/endpoints`, body);
    const changes = [
      await call(origin, 'PATCH', `${API}/endpoints/new`, { description: 'new' }),
      await call(origin, 'POST', `${API}/endpoints/new/disable`, {}),
    ];
    const read = await call(origin, 'GET', `${API}/endpoints/new`);
    stats.mockRestore();

    expect([created, ...changes, read].map(({ status }) => status)).toEqual([201, 200, 200, 503]);
    expect(created.json).toMatchObject({ endpoint: { id: 'new' }, secret: expect.any(String) });
    expect(changes[1]!.json).toMatchObject({ disabled: { reason: 'requested' } });
    expect(changes[1]!.json).not.toHaveProperty('health');
    expect(await json('/activity')).toMatchObject({
      items: [
        { action: 'endpoint.disable', outcome: 'done' },
        { action: 'endpoint.update', outcome: 'done' },
        { action: 'endpoint.create', target: 'new', outcome: 'done' },
      ],
    });
  });

  it('shows the settings, keys and wire formats of endpoints', async () => {
    const clock = new TestClock();
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES }, { clock });
    const { origin, app } = started;
    const filter = { data: { total: { $gte: 100 } } };
    await app.get(WebhookEndpoints).create({
      id: 'shop',
      url: 'https://192.0.2.9/in',
      headers: { 'X-Api-Key': 'hidden' },
      retry: { attempts: 3 },
    });
    const limits = { concurrency: 2, rateLimit: { perSecond: 5, burst: 10 } };
    const path = `${API}/endpoints/shop`;
    const patched = await call(origin, 'PATCH', path, { filter });
    const wrong = await call(origin, 'PATCH', path, { filter: { data: { total: { $huh: 1 } } } });
    const change = { filter: null, onDead: 'block', retry: { attempts: 4 }, ...limits };
    const removed = await call(origin, 'PATCH', path, change);
    await call(origin, 'POST', `${path}/rotate-key`, { overlap: '1h' });
    const rotating = (await json<{ keys: object[] }>('/endpoints/shop')).keys;
    await clock.advance(3_600_000);
    const rotated = (await json<{ keys: object[] }>('/endpoints/shop')).keys;

    expect(patched.json).toMatchObject({
      settings: { filter, headers: ['X-Api-Key'], retry: { attempts: 3 } },
    });
    expect(patched.text).not.toContain('hidden');
    expect([wrong.status, wrong.json?.['code']]).toEqual([400, 'invalid_option']);
    expect(removed.json).not.toHaveProperty('settings.filter');
    expect(removed.json).toMatchObject({
      settings: { onDead: 'block', retry: { attempts: 4 }, ...limits },
    });
    expect(rotating).toMatchObject([{ state: 'signing' }, { state: 'next' }]);
    expect(rotated.at(-1)).toMatchObject({ state: 'signing' });
    await started.publish('order.created', {}, 'acme');
    expect(await json('/endpoints/acme/format')).toMatchObject({
      id: 'acme',
      profile: expect.anything(),
      acknowledged: { at: expect.any(String) },
    });
  });

  it('sets and removes the credentials of an endpoint, and shows their kinds only', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    const { origin, app, transport, logger } = started;
    await app.get(WebhookEndpoints).create({ id: 'shop', url: 'https://192.0.2.9/in' });
    const path = `${API}/endpoints/shop`;
    const credentials = { headers: { 'X-Api-Key': 'a-secret-key' } };
    const set = await call(origin, 'PATCH', path, { credentials });
    await started.publish('order.created', {});
    const kept = await call(origin, 'PATCH', path, { description: 'Shop' });
    const removed = await call(origin, 'PATCH', path, { credentials: null });
    const bad = await call(origin, 'PATCH', path, { credentials: { oauth2: { clientId: 'x' } } });

    expect([set.json, kept.json]).toMatchObject([
      { credentials: ['headers'] },
      { credentials: ['headers'] },
    ]);
    expect(JSON.stringify(transport.sent.map(({ headers }) => headers))).toContain('a-secret-key');
    expect(removed.json).not.toHaveProperty('credentials');
    expect([bad.status, bad.json?.['code']]).toEqual([400, 'invalid_option']);
    expect(JSON.stringify([set, kept, removed, bad, logger])).not.toContain('a-secret-key');
  });

  it('leaves credentials to those who may manage secrets', async () => {
    const capabilities = ['view', 'manage-endpoints'] as const;
    started = await startConsole(create(), { capabilities });
    await started.app
      .get(WebhookEndpoints)
      .create({ id: 'shop', url: 'https://192.0.2.9/in', credentials: { headers: { a: 'b' } } });
    const refused = await call(started.origin, 'PATCH', `${API}/endpoints/shop`, {
      credentials: null,
    });

    expect([refused.status, refused.json?.['code']]).toEqual([403, 'missing_capability']);
    expect(await json('/endpoints/shop')).toMatchObject({ credentials: ['headers'] });
  });

  it('erases the endpoints and deliveries of a tenant after a dry run, and records who did it', async () => {
    const capabilities = ['view', 'erase'] as const;
    started = await startConsole(create(), { capabilities, actor: () => 'ada' });
    const { origin, app } = started;
    await app.get(WebhookEndpoints).create({ tenant: 'leaving', url: 'https://192.0.2.9/in' });
    await started.publish('order.created', {}, 'leaving');
    await started.publish('order.created', {}, 'acme');
    const erase = async (dryRun?: boolean): Promise<Answer> =>
      call(origin, 'POST', `${API}/tenants/leaving/erase`, { dryRun });
    const unclear = await erase();
    const preview = await erase(true);
    const before = await json<Listed>('/deliveries?tenant=leaving');
    const erased = await erase(false);

    expect([unclear.status, unclear.json?.['code']]).toEqual([400, 'invalid_option']);
    expect(preview.json).toMatchObject({ dryRun: true, endpoints: 1, deliveries: 1 });
    expect(before.items).toHaveLength(1);
    expect(erased.json).toEqual({ dryRun: false, endpoints: 1, deliveries: 1, isComplete: true });
    expect(await json('/deliveries?tenant=leaving')).toMatchObject({ items: [] });
    expect(await json('/endpoints?tenant=leaving')).toMatchObject({ items: [] });
    expect((await json<Listed>('/deliveries?tenant=acme')).items).toHaveLength(1);
    expect(await json('/activity')).toMatchObject({
      items: [
        { action: 'tenant.erase', actor: 'ada', tenant: 'leaving', count: 1, outcome: 'done' },
        { action: 'tenant.erase', outcome: 'failed', code: 'invalid_option' },
      ],
    });
  });

  it('erases a tenant whose endpoint is deleted at the same time', async () => {
    started = await startConsole(create(), { capabilities: ['view', 'erase'] });
    const endpoints = started.app.get(WebhookEndpoints);
    await endpoints.create({ tenant: 'leaving', url: 'https://192.0.2.9/in' });
    await started.publish('order.created', {}, 'leaving');
    const remove = endpoints.delete.bind(endpoints);
    jest.spyOn(endpoints, 'delete').mockImplementationOnce(async (id, scope) => {
      await remove(id);
      return remove(id, scope);
    });
    const path = `${API}/tenants/leaving/erase`;
    const erased = await call(started.origin, 'POST', path, { dryRun: false });

    expect(erased.json).toMatchObject({ deliveries: 1, isComplete: true });
    expect(await json('/activity')).toMatchObject({
      items: [{ action: 'tenant.erase', count: 1, outcome: 'done' }],
    });
  });

  it('records an action on a tenant that fails because a part is missing', async () => {
    started = await startConsole(create(), { capabilities: ['view', 'share'] });
    const link = await call(started.origin, 'POST', `${API}/tenants/acme/link`, {});

    expect(link.status).toBe(404);
    expect(await json('/activity')).toMatchObject({
      items: [{ action: 'tenant.link', tenant: 'acme', outcome: 'failed', code: 'unavailable' }],
    });
  });

  it('erases nothing without the capability', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    await started.publish('order.created', {}, 'acme');
    const path = `${API}/tenants/acme/erase`;
    const refused = await call(started.origin, 'POST', path, { dryRun: false });

    expect([refused.status, refused.json?.['code']]).toEqual([403, 'missing_capability']);
    expect((await json<Listed>('/deliveries?tenant=acme')).items).toHaveLength(1);
  });

  it('lists the keys that missed deliveries block, and skips one of them', async () => {
    const clock = new TestClock();
    let status = 500;
    started = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      {
        clock,
        status: () => status,
        publisher: {
          endpoints: [{ id: 'crm', url: 'https://192.0.2.1/hooks', onDead: 'block' }],
        },
      },
    );
    const { origin, app } = started;
    const publish = async (): Promise<string> => {
      const publisher = app.get(WebhookPublisher);
      const { deliveries } = await publisher.publish('stock.changed', {}, { orderingKey: 'sku-1' });
      return deliveries[0]!.id;
    };
    const id = await publish();
    await until(
      async () => (await json<{ status: string }>(`/deliveries/${id}`)).status === 'dead',
    );
    const next = await publish();
    await clock.advance(3_600_000);
    const overview = await json('/overview');
    const ofState = async (state: string): Promise<unknown[]> =>
      (await json<Listed>(`/deliveries?keyState=${state}`)).items.map((one) => one.id);
    const held = [await ofState('waiting'), await ofState('blocking')];
    const blocked = await json('/endpoints/crm/blocked-keys');
    status = 200;
    const skipped = await call(origin, 'POST', `${API}/deliveries/${id}/skip`, {});
    const again = await call(origin, 'POST', `${API}/deliveries/${id}/skip`, {});

    expect(blocked).toMatchObject({
      items: [{ orderingKey: 'sku-1', deliveryId: id, failureReason: 'http_500' }],
    });
    // A delivery that waits for a missed one is not late.
    expect(overview).toMatchObject({ deliveries: { pending: 1, dead: 1, held: 1, lag: 0 } });
    expect(held).toEqual([[next], [id]]);
    expect([skipped.json, again.json]).toEqual([{ skipped: true }, { skipped: false }]);
    expect(await json('/endpoints/crm/blocked-keys')).toEqual({ items: [] });
    expect((await json<Listed>('/activity')).items).toMatchObject([
      { action: 'delivery.skip', target: id },
      { action: 'delivery.skip', target: id },
    ]);
  });

  it('widens long steps of its statistics to whole minutes', async () => {
    const clock = new TestClock(Date.UTC(2026, 0, 1, 12, 3));
    started = await startConsole(create(), {}, { clock });
    await started.publish('order.created', {});
    const day = await json<{ buckets: { at: string }[] }>('/stats');
    const part = await json<{ buckets: { at: string }[] }>(
      '/stats?from=2026-01-01T11:59:00Z&to=2026-01-01T12:04:00Z&step=400000',
    );

    expect(day).toMatchObject({ total: { delivered: 1 } });
    expect(day.buckets).toHaveLength(48);
    expect(day.buckets[0]!.at).toBe('2025-12-31T12:05:00.000Z');
    expect(part.buckets.map(({ at }) => at)).toEqual(['2026-01-01T11:55:00.000Z']);
  });

  it('shows the query of a URL only to those who may change it', async () => {
    started = await startConsole(create());
    expect(await json('/endpoints/crm')).toMatchObject({ url: 'https://192.0.2.1/hooks' });
    await started.app.close();
    started = await startConsole(create(), { capabilities: ['view', 'manage-endpoints'] });

    expect(await json('/endpoints/crm')).toMatchObject({ url: 'https://192.0.2.1/hooks?key=abc' });
  });

  it('shows a payload redacted and cut', async () => {
    started = await startConsole(create(), {
      capabilities: ['view', 'view-payload'],
      redact: ({ bytes, event }) => {
        if (event === 'order.secret') throw new Error('not for you');
        return Buffer.from(bytes)
          .toString()
          .replace(/\d{4,}/, '****');
      },
    });
    const [card] = await started.publish('order.created', { card: '4111' });
    const [large] = await started.publish('order.created', { text: 'x'.repeat(70_000) });
    const [hidden] = await started.publish('order.secret', { a: 1 });

    expect(await json(`/deliveries/${card}/payload`)).toEqual({
      contentType: 'application/json',
      size: 15,
      truncated: false,
      redacted: true,
      text: '{"card":"****"}',
    });
    const cut = await json<{ text: string; truncated: boolean }>(`/deliveries/${large}/payload`);
    expect([cut.text.length, cut.truncated]).toEqual([65_536, true]);
    const none = await json(`/deliveries/${hidden}/payload`);
    expect(none).toEqual({
      contentType: 'application/json',
      size: 7,
      truncated: false,
      redacted: true,
    });
  });

  it('reports a payload that is redacted in place', async () => {
    started = await startConsole(create(), {
      capabilities: ['view', 'view-payload'],
      redact: ({ bytes }) => bytes.fill(0x2a),
    });
    const [id] = await started.publish('order.created', { card: '4111' });

    expect(await json(`/deliveries/${id}/payload`)).toMatchObject({
      redacted: true,
      text: '*'.repeat(15),
    });
  });

  it('shows received requests, and why one was refused', async () => {
    started = await startConsole(create(), { capabilities: ['view', 'view-payload'] });
    await head(
      started.origin,
      forged({ claims: { webhook: { event: 'order.x', data: { a: 1 } } } }),
    );
    await head(started.origin, forged({ secret: 'a-secret-of-another-sender-000001' }));

    const { items } = await json<Listed>('/inbox?kind=refused');
    expect(items).toMatchObject([
      { outcome: 'refused', code: 'bad_signature', authenticated: false, event: 'order.created' },
    ]);
    const entry = await json<Record<string, unknown>>(`/inbox/${String(items[0]!['id'])}`);
    expect(entry).toMatchObject({ retryable: false, hasPayload: false });
    expect(entry['explanation']).toMatchObject({
      steps: expect.arrayContaining([
        expect.objectContaining({ step: 'signature', outcome: 'failed' }),
      ]),
    });
    const [handled] = (await json<Listed>('/inbox?outcome=handled')).items;
    expect(await json(`/inbox/${String(handled!['id'])}/payload`)).toMatchObject({
      text: '{"a":1}',
    });
    expect(await json(`/inbox/${String(items[0]!['id'])}/payload`)).toMatchObject({
      code: 'unknown_entry',
    });
  });

  it('retries neither an event that was handled nor an unknown one', async () => {
    started = await startConsole(create(), { capabilities: ALL_CAPABILITIES });
    await head(started.origin, forged({ claims: { webhook: { event: 'order.x' } } }));
    const [handled] = (await json<Listed>('/inbox')).items;
    const retry = async (id: unknown): Promise<unknown> =>
      (await call(started.origin, 'POST', `${API}/inbox/${String(id)}/retry`)).json?.['code'];

    expect(await retry(handled!['id'])).toBe('not_retryable');
    expect(await retry('unknown')).toBe('unknown_entry');
    expect(await json('/inbox/unknown')).toMatchObject({ code: 'unknown_entry' });
  });

  it('streams changes, and ends streams at shutdown', async () => {
    started = await startConsole(create());
    const chunks: string[] = [];
    let arrived = (): void => {};
    const change = new Promise<void>((resolve) => (arrived = resolve));
    const ended = new Promise<number>((resolve, reject) => {
      get(`${started.origin}${API}/events`, (response) => {
        response.setEncoding('utf8');
        response.on('data', (chunk: string) => {
          chunks.push(chunk);
          if (chunks.join('').includes('event: change')) arrived();
          else void started.publish('order.created', {});
        });
        response.on('end', () => resolve(response.statusCode!));
      }).on('error', reject);
    });
    await change;
    await started.app.close();

    expect(chunks.join('')).toMatch(/data: \{"topic":"deliveries","id":"[^"]+"/);
    expect(await ended).toBe(200);
  });

  it('counts no stream of a reader that has left before it started', async () => {
    const left = new Map<string, () => void>();
    @Injectable()
    class SlowGuard implements CanActivate {
      async canActivate(context: ExecutionContext): Promise<boolean> {
        const request = context.switchToHttp().getRequest<IncomingMessage>();
        const { socket, headers } = (request as { raw?: IncomingMessage }).raw ?? request;
        const reader = headers['x-reader'];
        if (typeof reader !== 'string') return true;
        setImmediate(() => left.get(reader)!());
        await once(socket, 'close');
        return true;
      }
    }
    started = await startConsole(create(), { guards: [SlowGuard] });
    const url = `${started.origin}${API}/events`;
    for (let reader = 1; reader <= 100; reader++) {
      const request = get(url, { headers: { 'x-reader': String(reader) }, agent: false });
      left.set(String(reader), () => request.destroy());
      request.on('error', () => undefined);
      await new Promise((resolve) => request.once('close', resolve));
    }
    // Answered after the guards of all readers have run.
    await json('/session');

    const status = await new Promise<number | undefined>((resolve, reject) => {
      get(url, (response) => {
        resolve(response.statusCode);
        response.destroy();
      }).on('error', reject);
    });
    expect(status).toBe(200);
  });

  it('works below a global prefix that is its own path', async () => {
    const configure = (app: INestApplication): void => void app.setGlobalPrefix('admin');
    started = await startConsole(create(), { path: 'admin' }, { configure });

    expect((await call(started.origin, 'GET', '/admin/admin/api/session')).status).toBe(200);
  });

  it('follows the global prefix, its exclusions and versions', async () => {
    started = await startConsole(
      create(),
      {},
      {
        configure: (app) => {
          app.setGlobalPrefix('api');
          app.enableVersioning({ type: VersioningType.URI, defaultVersion: '1' });
        },
      },
    );
    const path = `/api/v1${BASE}`;
    expect((await send(started.origin, { method: 'GET', path: `${path}/` })).status).toBe(200);
    expect((await call(started.origin, 'GET', `${path}/api/session`)).status).toBe(200);
    expect((await call(started.origin, 'GET', `${API}/session`)).status).toBe(404);
    await started.app.close();
    started = await startConsole(
      create(),
      {},
      {
        configure: (app) => {
          app.setGlobalPrefix('api', { exclude: ['webhooks/console', 'webhooks/console/*path'] });
        },
      },
    );

    expect((await send(started.origin, { method: 'GET', path: `${BASE}/` })).status).toBe(200);
    expect((await call(started.origin, 'GET', `${API}/session`)).status).toBe(200);
  });

  it.each<[string, VersioningOptions]>([
    ['a header', { type: VersioningType.HEADER, header: 'X-Version', defaultVersion: '1' }],
    ['the media type', { type: VersioningType.MEDIA_TYPE, key: 'v=', defaultVersion: '1' }],
    [
      'a header that the application reads',
      {
        type: VersioningType.CUSTOM,
        extractor: (request) => String(Object(request).headers['x-version']),
        defaultVersion: '1',
      },
    ],
  ])('has no version if versions are in %s, which no browser sends', async (_, versioning) => {
    started = await startConsole(
      create(),
      { portal: { url: 'https://shop.example/p', secret: 'p'.repeat(32) } },
      { configure: (app) => void app.enableVersioning(versioning) },
    );
    const paths = [`${BASE}/`, `${API}/session`, '/webhooks/portal/'];
    const answers = paths.map(async (path) => send(started!.origin, { method: 'GET', path }));

    expect((await Promise.all(answers)).map(({ status }) => status)).toEqual([200, 200, 200]);
  });

  it('takes its options, including the path, from a factory', async () => {
    const { app, origin } = await startApp(create(), {
      imports: [
        WebhookConsoleModule.forRootAsync({
          useFactory: async () => ({ path: 'ops/hooks', brand: { name: 'Ops' } }),
        }),
      ],
    });
    const answer = await call(origin, 'GET', '/ops/hooks/api/session');
    const none = await call(origin, 'GET', '/webhooks/portal/api/session');
    await app.close();

    expect(answer.json).toMatchObject({
      brand: { name: 'Ops' },
      features: { endpoints: false, deliveries: false, inbox: true },
    });
    expect(none.status).toBe(404);
  });
});

describe('WebhookConsoleModule', () => {
  const create = adapters[0]![1];
  const start = (
    options: Parameters<typeof startConsole>[1],
    providers: unknown[] = [],
  ): Promise<ConsoleApp> => startConsole(create(), options, { providers });

  describe('in production', () => {
    const before = process.env['NODE_ENV'];
    afterEach(() => {
      process.env['NODE_ENV'] = before;
    });
    /** Starts only the console and a receiver, since a publisher needs a durable queue in production. */
    async function starts(
      options: Parameters<typeof startConsole>[1],
      providers: unknown[] = [],
    ): Promise<true> {
      process.env['NODE_ENV'] = 'production';
      const imports = [WebhookConsoleModule.forRoot(options)];
      const { app } = await startApp(create(), { imports, providers });
      await app.close();
      return true;
    }

    it('does not start without a guard', async () => {
      await expect(starts({})).rejects.toThrow('no guard protects the console');
    });

    it.each([undefined, 'staging', ''])(
      'does not start unguarded with NODE_ENV %o',
      async (env) => {
        if (env === undefined) delete process.env['NODE_ENV'];
        else process.env['NODE_ENV'] = env;
        const imports = [WebhookConsoleModule.forRoot()];

        await expect(startApp(create(), { imports })).rejects.toThrow(
          'no guard protects the console',
        );
      },
    );

    it.each([OwnThrottler, ClsGuard])('does not take %p for protection', async (useClass) => {
      const guard = { provide: APP_GUARD, useClass };

      await expect(starts({}, [guard])).rejects.toThrow('no guard protects the console');
    });

    it('starts with a guard, a global one, or allowUnguarded', async () => {
      expect(await starts({ guards: [Allow] })).toBe(true);
      expect(await starts({}, [{ provide: APP_GUARD, useClass: Allow }])).toBe(true);
      expect(await starts({ allowUnguarded: true })).toBe(true);
    });
  });

  it.each([
    [{ capabilities: ['see'] }, 'capabilities'],
    [{ path: 'a/:b' }, 'path'],
    [{ capabilites: ['view'] }, 'did you mean "capabilities"'],
    [{ brand: { color: 'red; }' } }, 'brand.color'],
    [{ origins: ['https://ops.example/console'] }, 'origins'],
    [{ brand: { logo: 'javascript:alert(1)' } }, 'brand.logo'],
    [{ portal: { url: 'http://shop.example/p', secret: 's'.repeat(32) } }, 'portal.url'],
    [{ portal: { url: 'https://shop.example/p', secret: 'short' } }, 'portal.secret'],
    [
      { path: 'Webhooks', portal: { url: 'https://shop.example/p', secret: 's'.repeat(32) } },
      'portal.path',
    ],
  ])('refuses the options %o', async (options, message) => {
    await expect(start(options as object)).rejects.toThrow(message);
  });

  it('keeps its routes out of the OpenAPI document of @nestjs/swagger', async () => {
    @Controller('orders')
    class OrdersController {
      @Get()
      list(): void {}
    }
    const portal = { url: 'https://shop.example/p', secret: 's'.repeat(32) };
    const { app } = await startConsole(create(), { portal }, { controllers: [OrdersController] });
    const document = SwaggerModule.createDocument(app, new DocumentBuilder().build());
    await app.close();

    expect(Object.keys(document.paths)).toEqual(['/orders']);
    expect(JSON.stringify(document)).not.toMatch(/console|portal/i);
  });
});

// Fastify has a parser of its own.
describe('the console over HTTP/2', () => {
  it('answers only loopback host names without a guard, and only its own origin', async () => {
    const adapter = new FastifyAdapter({ http2: true } as object) as never;
    const { app, origin } = await startConsole(adapter, { capabilities: ALL_CAPABILITIES });
    const statusOf = async (headers: Record<string, string>): Promise<unknown> => {
      const answer = await sendOver2(origin, {
        method: 'POST',
        path: `${API}/endpoints/crm/disable`,
        headers: { 'webhook-console': '1', ...headers },
        body: Buffer.from('{}'),
      });
      return answer[':status'];
    };
    try {
      expect(await statusOf({})).toBe(200);
      expect(await statusOf({ origin })).toBe(200);
      expect(await statusOf({ origin: 'https://evil.example' })).toBe(403);
      expect(await statusOf({ ':authority': 'evil.example' })).toBe(403);
      expect(await statusOf({ ':authority': 'evil.example', host: 'localhost' })).toBe(403);
    } finally {
      await app.close();
    }
  });
});

type ParserDone = (error: null, body: unknown) => void;
interface FastifyParsers {
  addContentTypeParser(
    type: string,
    options: { parseAs: 'buffer' | 'string' },
    parser: (request: unknown, body: unknown, done: ParserDone) => void,
  ): void;
}

const keptByFastify =
  (parseAs: 'buffer' | 'string') =>
  (app: INestApplication): void =>
    (app.getHttpAdapter().getInstance() as FastifyParsers).addContentTypeParser(
      'application/json',
      { parseAs },
      (_request, body, done) => done(null, body),
    );

const keptByExpress =
  (parser: 'raw' | 'text') =>
  (app: INestApplication): void => {
    type WithParsers = INestApplication & { useBodyParser(type: string, options: object): void };
    (app as WithParsers).useBodyParser(parser, { type: () => true });
  };

describe.each([
  ['Express without a body parser', () => new ExpressAdapter(), undefined],
  ['Express with a parser of bytes', () => new ExpressAdapter(), keptByExpress('raw')],
  ['Express with a parser of strings', () => new ExpressAdapter(), keptByExpress('text')],
  ['Fastify with a parser of bytes', () => new FastifyAdapter(), keptByFastify('buffer')],
  ['Fastify with a parser of strings', () => new FastifyAdapter(), keptByFastify('string')],
])('the console on %s', (_, create, configure) => {
  it('reads bodies up to a limit', async () => {
    const { app, origin } = await startConsole(
      create(),
      { capabilities: ALL_CAPABILITIES },
      { nest: { bodyParser: false }, ...(configure && { configure }) },
    );
    const path = `${API}/endpoints/crm/disable`;
    const headers = { 'webhook-console': '1', 'content-type': 'application/json' };
    const attempt = async (body: string): Promise<number> =>
      (await send(origin, { method: 'POST', path, headers, body })).status;

    const again = { ids: ['x'], dryRun: true };
    const read = await call(origin, 'POST', `${API}/deliveries/redeliver`, again);
    expect(read.json).toMatchObject({ items: [{ id: 'x', reason: 'unknown_delivery' }] });
    expect(await attempt('{"reason":')).toBe(400);
    expect(await attempt(`{"reason":"${'x'.repeat(70_000)}"}`)).toBe(400);
    expect(await attempt('')).toBe(200);
    expect(await attempt('{}')).toBe(200);
    await app.close();
  });
});
