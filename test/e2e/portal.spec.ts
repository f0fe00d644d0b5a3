import { afterAll, afterEach, beforeAll, describe, expect, it, jest } from '@jest/globals';
import { createHmac } from 'node:crypto';
import { get } from 'node:http';
import { inspect } from 'node:util';
import { TestClock } from 'nestjs-webhook-token/testing';
import { createTokenSigner } from 'nestjs-webhook-token/token';
import { WebhookDeliveries, WebhookEndpoints } from 'nestjs-webhook-token';
import { WebhookPortal } from 'nestjs-webhook-token/console';
import { adapters } from '../fixtures/adapters.js';
import { ALL_CAPABILITIES, call, type ConsoleApp, startConsole } from '../fixtures/console-app.js';
import type { Answer } from '../fixtures/http-client.js';

type PortalLink = Parameters<WebhookPortal['link']>[0];

const PORTAL = '/webhooks/portal';
const API = `${PORTAL}/api`;
const SECRET = 'a-secret-of-the-partner-portal-01';
const OPTIONS = {
  capabilities: ALL_CAPABILITIES,
  portal: { url: 'https://shop.example/sub/webhooks/portal', secret: SECRET },
};

/** Opens a link; returns the answer and the cookie to send. */
async function open(
  { app, origin }: ConsoleApp,
  link: PortalLink,
): Promise<{ answer: Answer; cookie: string }> {
  const token = new URLSearchParams(app.get(WebhookPortal).link(link).hash.slice(1)).get('token');
  const answer = await call(origin, 'POST', `${API}/session`, { token });
  return { answer, cookie: String(answer.headers['set-cookie']).split(';')[0]! };
}

/** Opens a stream of changes; `ended` resolves when the server ends it. */
function openStream(
  url: string,
  cookie: string,
): Promise<{ status: number; ended: Promise<void>; leave: () => void }> {
  return new Promise((resolve, reject) => {
    const request = get(url, { headers: { cookie }, agent: false }, (response) => {
      response.resume();
      const ended = new Promise<void>((end) => response.once('end', end));
      resolve({ status: response.statusCode!, ended, leave: () => request.destroy() });
    }).on('error', reject);
  });
}

describe.each(adapters)('the partner portal on %s', (_, create) => {
  let started: ConsoleApp;
  afterEach(() => started?.app.close());

  it('exchanges a link for a cookie that scripts and other sites cannot use', async () => {
    started = await startConsole(create(), OPTIONS);
    const link = started.app.get(WebhookPortal).link({ tenant: 'acme' });
    const { answer } = await open(started, { tenant: 'acme' });

    expect(link.href).toMatch(/^https:\/\/shop\.example\/sub\/webhooks\/portal\/#token=/);
    expect(answer.json).toMatchObject({
      kind: 'portal',
      tenant: 'acme',
      capabilities: ['view'],
      actor: 'portal:acme',
      expiresAt: expect.any(String),
      features: { endpoints: true, deliveries: true, inbox: false },
    });
    expect(answer.headers['set-cookie']).toEqual([
      expect.stringMatching(
        /^__Secure-webhook-portal-[0-9a-f]{8}=[^;]+; Path=\/sub\/webhooks\/portal\/; Max-Age=3600; HttpOnly; SameSite=Strict; Secure$/,
      ),
    ]);
  });

  it('prints neither its secret nor a key made from it', async () => {
    started = await startConsole(create(), OPTIONS);
    const keys = ['link', 'session'].map((purpose) =>
      createHmac('sha256', SECRET).update(`nestjs-webhook-token portal ${purpose}`).digest('hex'),
    );
    const printed = inspect(started.app.get(WebhookPortal), { depth: 12, showHidden: true });

    for (const secret of [SECRET, ...keys]) expect(printed).not.toContain(secret);
    expect(printed).toContain('[keys]');
  });

  it('is shown in a frame of the allowed origins only', async () => {
    const frameAncestors = ['https://app.example', 'https://beta.example'];
    const portal = { ...OPTIONS.portal, frameAncestors };
    started = await startConsole(create(), { ...OPTIONS, portal });
    const { headers } = await call(started.origin, 'GET', `${PORTAL}/`);
    const own = await call(started.origin, 'GET', '/webhooks/console/');
    const { answer } = await open(started, { tenant: 'acme' });

    expect(headers['content-security-policy']).toContain(
      'frame-ancestors https://app.example https://beta.example',
    );
    expect(headers).not.toHaveProperty('x-frame-options');
    expect(own.headers['content-security-policy']).toContain("frame-ancestors 'none'");
    expect(own.headers['x-frame-options']).toBe('DENY');
    expect(String(answer.headers['set-cookie'])).toMatch(
      /; HttpOnly; SameSite=None; Secure; Partitioned$/,
    );
  });

  it('passes the name, the way back and the language of a link to the page', async () => {
    const portal = { ...OPTIONS.portal, returnOrigins: ['https://app.example'] };
    started = await startConsole(create(), { ...OPTIONS, language: 'en-GB', portal });
    const { origin, app } = started;
    const returnUrl = 'https://app.example/settings?tab=webhooks';
    const look = { displayName: 'Acme GmbH', returnUrl, language: 'de' };
    const { answer, cookie } = await open(started, { tenant: 'acme', ...look });
    const session = await call(origin, 'GET', `${API}/session`, undefined, { cookie });
    const plain = await open(started, { tenant: 'acme' });
    const link = (url: string): URL =>
      app.get(WebhookPortal).link({ tenant: 'acme', returnUrl: url });

    expect(answer.json).toMatchObject(look);
    expect(session.json).toMatchObject(look);
    expect(plain.answer.json).toMatchObject({ language: 'en-GB' });
    expect(plain.answer.json).not.toHaveProperty('displayName');
    for (const url of [
      'https://evil.example/',
      'https://app.example.evil.example',
      'https://ada@app.example/',
      'blob:https://app.example/1',
      '/settings',
      // Three bytes each, and nine when it is percent-encoded: its cookie would be too long for browsers.
      `https://app.example/?name=${'漢'.repeat(400)}`,
    ]) {
      expect(() => link(url)).toThrow('returnUrl');
    }
    expect(() => link('javascript:alert(1)')).toThrow('portal.returnOrigins');
  });

  it('shows a tenant what was done to its endpoints, without the names of operators', async () => {
    started = await startConsole(create(), { ...OPTIONS, actor: () => 'ada' });
    const { origin } = started;
    for (const id of ['acme', 'globex', 'crm']) {
      await call(origin, 'POST', `/webhooks/console/api/endpoints/${id}/disable`, {});
    }
    const { cookie } = await open(started, {
      tenant: 'acme',
      capabilities: ['view', 'manage-endpoints'],
    });
    await call(origin, 'POST', `${API}/endpoints/acme/enable`, {}, { cookie });
    const { json } = await call(origin, 'GET', `${API}/activity`, undefined, { cookie });
    const other = await call(origin, 'GET', `${API}/activity?tenant=globex`, undefined, { cookie });
    const { items } = json as unknown as { items: { action: string }[] };

    expect(items).toMatchObject([
      { action: 'endpoint.enable', by: 'partner', actor: 'portal:acme' },
      { action: 'session.start', by: 'partner' },
      { action: 'endpoint.disable', by: 'operator', target: 'acme' },
    ]);
    expect(items).toHaveLength(3);
    expect(items[2]).not.toHaveProperty('actor');
    expect(other.status).toBe(403);
  });

  it('is opened by a link from the console, which grants no more than the operator may do', async () => {
    const capabilities = ['view', 'redeliver', 'share'] as const;
    started = await startConsole(create(), { ...OPTIONS, capabilities, actor: () => 'ada' });
    const { origin } = started;
    const link = async (granted: readonly string[]): Promise<Answer> =>
      call(origin, 'POST', '/webhooks/console/api/tenants/acme/link', { capabilities: granted });
    const refused = await link(['view', 'manage-secrets']);
    const unknown = await link(['share']);
    const granted = await link(['view', 'redeliver']);
    const token = new URLSearchParams(new URL(String(granted.json?.['url'])).hash.slice(1));
    const session = await call(origin, 'POST', `${API}/session`, { token: token.get('token') });
    const { text: activity } = await call(origin, 'GET', '/webhooks/console/api/activity');

    expect([refused.status, refused.json?.['code']]).toEqual([403, 'missing_capability']);
    expect([unknown.status, unknown.json?.['code']]).toEqual([400, 'invalid_option']);
    expect(session.json).toMatchObject({ tenant: 'acme', capabilities: ['view', 'redeliver'] });
    expect(activity).toContain('tenant.link');
    expect(activity + started.logger.lines.join()).not.toContain(token.get('token'));
  });

  it('needs a session for every call, and none for the page', async () => {
    started = await startConsole(create(), OPTIONS);
    const { origin } = started;
    const { cookie } = await open(started, { tenant: 'acme' });
    const statusOf = async (headers: Record<string, string>): Promise<unknown> => {
      const { status, json } = await call(origin, 'GET', `${API}/deliveries`, undefined, headers);
      return json?.['code'] ?? status;
    };

    expect((await call(origin, 'GET', `${PORTAL}/`)).status).toBe(200);
    expect(await statusOf({})).toBe('session_required');
    expect(await statusOf({ cookie })).toBe(200);
    expect(await statusOf({ cookie: `other=1; ${cookie}` })).toBe(200);
    expect(await statusOf({ cookie: `${cookie.slice(0, -4)}AAAA` })).toBe('session_required');
    const closed = await call(origin, 'DELETE', `${API}/session`, undefined, { cookie });
    expect([closed.status, String(closed.headers['set-cookie'])]).toEqual([
      204,
      expect.stringContaining('Max-Age=0'),
    ]);
  });

  it('refuses a token of another purpose, key or time', async () => {
    const clock = new TestClock();
    started = await startConsole(create(), OPTIONS, { clock });
    const { origin, app } = started;
    const { cookie } = await open(started, { tenant: 'acme' });
    const link = new URLSearchParams(
      app.get(WebhookPortal).link({ tenant: 'acme', expiresIn: '1s' }).hash.slice(1),
    ).get('token')!;
    const data = { tenant: 'acme', capabilities: ALL_CAPABILITIES };
    const own = createTokenSigner({
      issuer: 'urn:nestjs-webhook-token:portal',
      key: SECRET,
      now: () => clock.now(),
    });
    const forged = own.sign({ event: 'portal.session', data }) as string;
    const exchange = async (token: unknown): Promise<unknown> =>
      (await call(origin, 'POST', `${API}/session`, { token })).json?.['code'];
    const asCookie = async (token: string): Promise<unknown> => {
      const headers = { cookie: `${cookie.split('=')[0]}=${token}` };
      return (await call(origin, 'GET', `${API}/session`, undefined, headers)).json?.['code'];
    };

    expect(await exchange(cookie.split('=')[1])).toBe('link_invalid');
    expect(await exchange(forged)).toBe('link_invalid');
    expect(await exchange('')).toBe('link_invalid');
    expect(await exchange(5)).toBe('invalid_option');
    expect(await asCookie(link)).toBe('session_required');
    expect(await asCookie(forged)).toBe('session_required');
    expect(await exchange(link)).toBeUndefined();
    await clock.advance(1_000);
    expect(await exchange(link)).toBe('link_invalid');
  });

  it('accepts a session of an instance whose clock is ahead, and ends it when it expires', async () => {
    const now = Date.UTC(2026, 0, 1);
    const clock = new TestClock(now);
    started = await startConsole(create(), OPTIONS, { clock });
    const ahead = await startConsole(create(), OPTIONS, { clock: new TestClock(now + 60_000) });
    const { cookie } = await open(ahead, { tenant: 'acme' });
    await ahead.app.close();
    const statusOf = async (): Promise<number> =>
      (await call(started.origin, 'GET', `${API}/session`, undefined, { cookie })).status;

    expect(await statusOf()).toBe(200);
    await clock.advance(3_660_000 - 1);
    expect(await statusOf()).toBe(200);
    await clock.advance(1);
    expect(await statusOf()).toBe(401);
  });

  it('ends a session and its streams when it expires', async () => {
    const clock = new TestClock();
    const portal = { ...OPTIONS.portal, sessionLifetime: '1m' };
    started = await startConsole(create(), { ...OPTIONS, portal }, { clock });
    const { origin } = started;
    const { cookie } = await open(started, { tenant: 'acme' });
    const seen: string[] = [];
    const ended = new Promise<void>((resolve, reject) => {
      get(`${origin}${API}/events`, { headers: { cookie } }, (response) => {
        response.on('data', (chunk: Buffer) => seen.push(chunk.toString()));
        response.on('end', resolve);
        void clock.advance(60_000);
      }).on('error', reject);
    });
    await ended;

    expect(seen.join('')).toContain('event: ping');
    expect((await call(origin, 'GET', `${API}/session`, undefined, { cookie })).json).toMatchObject(
      { code: 'session_required' },
    );
  });

  it('ends a session and its streams at logout, also for a copy of its cookie', async () => {
    started = await startConsole(create(), OPTIONS);
    const { origin } = started;
    const { cookie } = await open(started, { tenant: 'acme' });
    const { cookie: other } = await open(started, { tenant: 'acme' });
    const stream = await openStream(`${origin}${API}/events`, cookie);
    await call(origin, 'DELETE', `${API}/session`, undefined, { cookie });
    await stream.ended;
    const codeOf = async (sent: string): Promise<unknown> =>
      (await call(origin, 'GET', `${API}/session`, undefined, { cookie: sent })).json?.['code'];

    expect(await codeOf(cookie)).toBe('session_required');
    expect(await codeOf(other)).toBeUndefined();
  });

  it('keeps the sessions of a tenant ended, however many another one ends', async () => {
    started = await startConsole(create(), OPTIONS);
    const { app, origin } = started;
    const { cookie } = await open(started, { tenant: 'acme' });
    await call(origin, 'DELETE', `${API}/session`, undefined, { cookie });
    const portal = app.get(WebhookPortal);
    const token = new URLSearchParams(portal.link({ tenant: 'globex' }).hash.slice(1)).get('token');
    const { grant } = portal.open(token!)!;
    for (let n = 0; n < 10_000; n++) portal.end({ ...grant, id: `session-${n}` });
    const { json } = await call(origin, 'GET', `${API}/session`, undefined, { cookie });

    expect(json).toMatchObject({ code: 'session_required' });
  });

  it('refuses two session cookies', async () => {
    started = await startConsole(create(), OPTIONS);
    const [{ cookie }, { cookie: planted }] = [
      await open(started, { tenant: 'acme' }),
      await open(started, { tenant: 'globex' }),
    ];
    const headers = { cookie: `${planted}; ${cookie}` };
    const { json } = await call(started.origin, 'GET', `${API}/session`, undefined, headers);

    expect(json).toMatchObject({ code: 'session_required' });
  });

  it('keeps a session of its own below the path of another portal', async () => {
    const optionsOf = (path: string): typeof OPTIONS => ({
      ...OPTIONS,
      portal: { ...OPTIONS.portal, url: `https://shop.example/${path}webhooks/portal` },
    });
    started = await startConsole(create(), optionsOf(''));
    const outer = await open(started, { tenant: 'acme' });
    await started.app.close();
    started = await startConsole(create(), optionsOf('webhooks/portal/eu/'));
    const inner = await open(started, { tenant: 'globex' });
    const headers = { cookie: `${inner.cookie}; ${outer.cookie}` };
    const { json } = await call(started.origin, 'GET', `${API}/session`, undefined, headers);

    expect(json).toMatchObject({ tenant: 'globex' });
  });

  it('leaves event streams to others', async () => {
    started = await startConsole(create(), OPTIONS);
    const { origin } = started;
    const acme = (await open(started, { tenant: 'acme' })).cookie;
    const globex = (await open(started, { tenant: 'globex' })).cookie;
    const url = `${origin}${API}/events`;
    const streams = [];
    for (let n = 1; n <= 10; n++) streams.push(await openStream(url, acme));
    const statuses = [];
    for (const cookie of [acme, (await open(started, { tenant: 'acme' })).cookie, globex]) {
      const stream = await openStream(url, cookie);
      statuses.push(stream.status);
      streams.push(stream);
    }
    for (const { leave } of streams) leave();

    expect(statuses).toEqual([503, 503, 200]);
  });

  it('keeps the record of operators, of other partners and of other actions, however often one opens a link', async () => {
    const clock = new TestClock();
    started = await startConsole(create(), OPTIONS, { clock });
    const { origin } = started;
    await open(started, { tenant: 'globex' });
    await call(origin, 'POST', '/webhooks/console/api/endpoints/crm/disable', {});
    const { cookie } = await open(started, { tenant: 'acme', capabilities: ALL_CAPABILITIES });
    await call(origin, 'POST', `${API}/endpoints/acme/pause`, {}, { cookie });
    const link = started.app.get(WebhookPortal).link({ tenant: 'acme', expiresIn: '24h' });
    const token = new URLSearchParams(link.hash.slice(1)).get('token');
    for (let opened = 0; opened < 1_010;) {
      const { status } = await call(origin, 'POST', `${API}/session`, { token });
      if (status === 200) opened++;
      else await clock.advance(60_000);
    }
    const kept = async (query: string): Promise<unknown> =>
      (await call(origin, 'GET', `/webhooks/console/api/activity?${query}`)).json?.['items'];

    expect(await kept('action=endpoint.disable')).toMatchObject([{ target: 'crm' }]);
    expect(await kept('tenant=globex&action=session.start')).toMatchObject([
      { actor: 'portal:globex' },
    ]);
    expect(await kept('tenant=acme&action=endpoint.pause')).toMatchObject([
      { actor: 'portal:acme' },
    ]);
  });

  it('limits how often the links of a tenant are opened, and leaves others alone', async () => {
    const clock = new TestClock();
    started = await startConsole(create(), OPTIONS, { clock });
    const statusOf = async (tenant: string): Promise<number> =>
      (await open(started, { tenant })).answer.status;
    const statuses = new Set<number>();
    for (let n = 0; n < 60; n++) statuses.add(await statusOf('acme'));
    await clock.advance(20_000);
    const { answer } = await open(started, { tenant: 'acme' });

    expect(statuses).toEqual(new Set([200]));
    expect([answer.status, answer.json?.['code'], answer.headers['retry-after']]).toEqual([
      429,
      'too_many_requests',
      '40',
    ]);
    expect(answer.headers).not.toHaveProperty('set-cookie');
    expect(await statusOf('globex')).toBe(200);
    await clock.advance(40_000);
    expect(await statusOf('acme')).toBe(200);
  });

  it('runs few reads of a tenant at the same time, and leaves those of others alone', async () => {
    started = await startConsole(create(), OPTIONS);
    const { origin, app } = started;
    const acme = (await open(started, { tenant: 'acme', capabilities: ['view'] })).cookie;
    const globex = (await open(started, { tenant: 'globex', capabilities: ['view'] })).cookie;
    const list = jest.spyOn(app.get(WebhookDeliveries), 'list');
    let release = (): void => {};
    const released = new Promise<void>((resolve) => (release = resolve));
    let [running, most] = [0, 0];
    list.mockImplementation(async (_filter, scope) => {
      if (scope?.tenant === 'acme') {
        most = Math.max(most, ++running);
        await released;
        running--;
      }
      return { deliveries: [] };
    });
    const read = (cookie: string): Promise<Answer> =>
      call(origin, 'GET', `${API}/deliveries`, undefined, { cookie });
    const waiting = Array.from({ length: 60 }, () => read(acme));
    // 4 run and 50 wait: the others are refused first.
    const refused = await Promise.race(waiting);
    const other = await read(globex);
    release();
    const statuses = (await Promise.all(waiting)).map(({ status }) => status);

    expect([refused.status, refused.headers['retry-after']]).toEqual([429, '1']);
    expect(other.status).toBe(200);
    expect(most).toBe(4);
    expect(statuses.filter((status) => status === 429)).toHaveLength(6);
  });

  it('runs few reads of all tenants together, in turn, and leaves those of operators alone', async () => {
    started = await startConsole(create(), OPTIONS);
    const { origin, app } = started;
    const tenants = ['acme', 'globex', 'initech'];
    const cookies = await Promise.all(
      tenants.map(
        async (tenant) => (await open(started, { tenant, capabilities: ['view'] })).cookie,
      ),
    );
    const list = jest.spyOn(app.get(WebhookDeliveries), 'list');
    const running: { readonly tenant: string; readonly end: () => void }[] = [];
    const turns: string[] = [];
    let most = 0;
    list.mockImplementation(async (_filter, { tenant } = {}) => {
      if (tenant !== undefined) {
        turns.push(tenant);
        await new Promise<void>((end) => {
          running.push({ tenant, end });
          most = Math.max(most, running.length);
        });
      }
      return { deliveries: [] };
    });
    const read = (cookie: string): Promise<Answer> =>
      call(origin, 'GET', `${API}/deliveries`, undefined, { cookie });
    const until = async (condition: () => boolean): Promise<void> => {
      while (!condition()) await new Promise((resolve) => setImmediate(resolve));
    };
    const [acme, globex, initech] = cookies as [string, string, string];
    const reads = Array.from({ length: 4 }, () => read(acme));
    await until(() => running.length === 4);
    reads.push(...Array.from({ length: 4 }, () => read(globex)), read(initech));
    await until(() => running.length === 6);
    const operator = await call(origin, 'GET', '/webhooks/console/api/deliveries');
    for (let answered = 0; answered < reads.length; answered++) {
      await until(() => running.length > 0);
      running.shift()!.end();
    }
    const statuses = (await Promise.all(reads)).map(({ status }) => status);

    expect(operator.status).toBe(200);
    expect(new Set(statuses)).toEqual(new Set([200]));
    expect(most).toBe(6);
    expect(turns.toSorted()).toEqual([
      ...Array.from({ length: 4 }, () => 'acme'),
      ...Array.from({ length: 4 }, () => 'globex'),
      'initech',
    ]);
  });

  it('grants what the link says, whatever the console may do', async () => {
    started = await startConsole(create(), OPTIONS);
    const { cookie } = await open(started, { tenant: 'acme' });
    const { status, json } = await call(
      started.origin,
      'POST',
      `${API}/endpoints/acme/disable`,
      {},
      { cookie },
    );

    expect([status, json?.['code']]).toEqual([403, 'missing_capability']);
  });

  it('reports what it has sent again before a limit, and records it', async () => {
    let status = 500;
    started = await startConsole(create(), OPTIONS, {
      status: () => status,
      publisher: { endpointLimits: { redeliveriesPerMinute: 2 } },
    });
    const ids: string[] = [];
    for (const n of [1, 2, 3]) ids.push(...(await started.publish('order.paid', { n }, 'acme')));
    status = 200;
    const link = { tenant: 'acme', capabilities: ['view', 'redeliver'] as const };
    const { cookie } = await open(started, link);
    const ask = async (method: string, path: string, body?: unknown): Promise<Answer> =>
      call(started.origin, method, `${API}${path}`, body, { cookie });
    const redeliver = async (some: string[]): Promise<Answer> =>
      ask('POST', '/deliveries/redeliver', { ids: some, dryRun: false });

    const part = await redeliver(ids);
    expect([part.status, part.json]).toEqual([
      200,
      {
        dryRun: false,
        items: [
          { id: ids[0], redelivered: true },
          { id: ids[1], redelivered: true },
        ],
        more: true,
      },
    ]);
    const rest = await redeliver(ids.slice(2));
    expect([rest.status, rest.json?.['code']]).toEqual([429, 'limit_reached']);
    expect((await ask('GET', '/activity?action=delivery.redeliver')).json).toMatchObject({
      items: [
        { target: ids[2], outcome: 'failed', code: 'limit_reached' },
        { count: 2, outcome: 'done' },
      ],
    });
  });

  describe('for one tenant', () => {
    let acme: string[];
    let globex: string[];
    let cookie: string;
    let own: ConsoleApp;
    beforeAll(async () => {
      let status = 200;
      own = await startConsole(create(), OPTIONS, { status: () => status });
      status = 500;
      acme = await own.publish('order.created', { of: 'acme' }, 'acme');
      globex = await own.publish('order.created', { of: 'globex' }, 'globex');
      await own.publish('order.created', { of: 'none' });
      status = 200;
      const session = await open(own, { tenant: 'acme', capabilities: ALL_CAPABILITIES });
      ({ cookie } = session);
    });
    afterAll(() => own.app.close());

    const ask = (method: string, path: string, body?: unknown): Promise<Answer> =>
      call(own.origin, method, `${API}${path}`, body, { cookie });
    const idsIn = ({ json }: Answer): unknown[] =>
      (json as unknown as { items: { id: string }[] }).items.map(({ id }) => id);

    it('lists its own deliveries and endpoints', async () => {
      expect(idsIn(await ask('GET', '/deliveries'))).toEqual(acme);
      expect(idsIn(await ask('GET', '/deliveries?tenant=acme'))).toEqual(acme);
      expect(idsIn(await ask('GET', '/endpoints'))).toEqual(['acme']);
      expect((await ask('GET', '/overview')).json).toEqual({
        deliveries: { pending: 0, delivered: 0, dead: 1, held: 0, lag: 0 },
        attention: [expect.objectContaining({ id: 'acme', tenant: 'acme' })],
      });
      expect((await ask('GET', '/stats')).json).toMatchObject({
        total: { delivered: 0, failed: 1, pending: 0 },
        endpoints: [{ endpoint: 'acme', tenant: 'acme' }],
      });
      expect((await ask('GET', '/stats?endpoint=globex')).json).toMatchObject({
        total: { delivered: 0, failed: 0, pending: 0 },
        endpoints: [],
      });
    });

    it('refuses the scope of another tenant', async () => {
      const calls: [string, string, unknown?][] = [
        ['GET', '/deliveries?tenant=globex'],
        ['GET', '/overview?tenant=globex'],
        ['GET', '/endpoints?tenant=globex'],
        ['POST', '/endpoints', { url: 'https://192.0.2.9/', tenant: 'globex' }],
        ['POST', '/deliveries/redeliver', { filter: { tenant: 'globex' }, dryRun: true }],
      ];
      for (const [method, path, body] of calls) {
        const { status, json } = await ask(method, path, body);
        expect([path, status, json?.['code']]).toEqual([path, 403, 'wrong_tenant']);
      }
    });

    it('refuses a crafted scope', async () => {
      const calls: [string, string, unknown?][] = [
        ['GET', '/deliveries?tenant=acme&tenant=globex'],
        ['GET', '/deliveries?tenant[]=globex'],
        ['GET', '/deliveries?scope=globex'],
        ['GET', '/endpoints?tenant=null'],
        ['GET', '/deliveries?tenant=%00'],
        ['POST', '/deliveries/redeliver', { filter: { tenant: null }, dryRun: true }],
        ['POST', '/deliveries/redeliver', { filter: {}, dryRun: true }],
        ['POST', '/deliveries/redeliver', { ids: [globex[0]], tenant: 'globex', dryRun: true }],
        ['POST', '/endpoints', { url: 'https://192.0.2.9/', tenant: null }],
        ['POST', '/endpoints', { url: 'https://192.0.2.9/', id: 'globex' }],
        ['PATCH', '/endpoints/acme', { tenant: 'globex' }],
      ];
      for (const [method, path, body] of calls) {
        const { status } = await ask(method, path, body);
        expect([path, status >= 400 && status < 500]).toEqual([path, true]);
      }
    });

    it('finds nothing of another tenant by a filter or a cursor', async () => {
      const all = await call(own.origin, 'GET', '/webhooks/console/api/deliveries?limit=1');
      const { next } = all.json as unknown as { next: string };
      const cursor = (at: number, id: string): string =>
        Buffer.from(JSON.stringify([at, id])).toString('base64url');
      const filters = [
        'endpoint=globex',
        'endpoint=crm',
        `after=${next}&endpoint=globex`,
        `after=${cursor(2e14, globex[0]!)}&endpoint=globex`,
      ];
      for (const filter of filters) {
        expect([filter, idsIn(await ask('GET', `/deliveries?${filter}`))]).toEqual([filter, []]);
      }
      for (const after of [next, cursor(2e14, 'zzzz'), cursor(Date.now() + 9, globex[0]!)]) {
        const ids = idsIn(await ask('GET', `/deliveries?after=${after}`));
        expect(acme).toEqual(expect.arrayContaining(ids));
      }
      for (const after of ['a', 'crm', 'acmf', '']) {
        const ids = idsIn(await ask('GET', `/endpoints?after=${after}`));
        expect(['acme']).toEqual(expect.arrayContaining(ids));
      }
    });

    it('answers an id of another tenant like an unknown id', async () => {
      const { deliveries, endpoints } = { deliveries: globex[0]!, endpoints: ['globex', 'crm'] };
      const paths = (delivery: string, endpoint: string): [string, string, unknown?][] => [
        ['GET', `/deliveries/${delivery}`],
        ['GET', `/deliveries/${delivery}/payload`],
        ['POST', `/deliveries/${delivery}/skip`, {}],
        ['GET', `/endpoints/${endpoint}`],
        ['GET', `/endpoints/${endpoint}/blocked-keys`],
        ['GET', `/endpoints/${endpoint}/format`],
        ['GET', `/endpoints/${endpoint}/recovery`],
        ['POST', `/endpoints/${endpoint}/recovery`, { dryRun: true }],
        ['DELETE', `/endpoints/${endpoint}/recovery`],
        ['PATCH', `/endpoints/${endpoint}`, { description: 'x' }],
        ['DELETE', `/endpoints/${endpoint}`],
        ['POST', `/endpoints/${endpoint}/enable`, {}],
        ['POST', `/endpoints/${endpoint}/disable`, {}],
        ['POST', `/endpoints/${endpoint}/pause`, {}],
        ['POST', `/endpoints/${endpoint}/resume`, {}],
        ['POST', `/endpoints/${endpoint}/test`, {}],
        ['POST', `/endpoints/${endpoint}/rotate-key`, {}],
      ];
      const answersTo = async (calls: [string, string, unknown?][]): Promise<unknown[]> => {
        const answers: unknown[] = [];
        for (const [method, path, body] of calls) {
          const { status, json } = await ask(method, path, body);
          answers.push([method, status, json]);
        }
        return answers;
      };
      const unknown = await answersTo(paths('no-such-delivery', 'no-such-endpoint'));
      for (const endpoint of endpoints) {
        expect(await answersTo(paths(deliveries, endpoint))).toEqual(unknown);
      }
      expect(unknown.every((answer) => (answer as unknown[])[1] === 404)).toBe(true);
    });

    it('does not show the URL of an endpoint that another tenant has under the same id', async () => {
      const endpoints = own.app.get(WebhookEndpoints);
      const url = 'https://192.0.2.9/of-globex';
      await endpoints.create({ id: 'reused', url: 'https://192.0.2.8/of-acme', tenant: 'acme' });
      const sent = await own.publish('order.shipped', { of: 'acme' }, 'acme');
      const urls = async (): Promise<unknown[]> => {
        const answers = await Promise.all(sent.map(async (id) => ask('GET', `/deliveries/${id}`)));
        return answers.map(({ json }) => json!['url']);
      };
      const before = await urls();
      await endpoints.delete('reused');
      await endpoints.create({ id: 'reused', url, tenant: 'globex' });
      const after = await urls();
      await endpoints.delete('reused');

      expect(before).toContain('https://192.0.2.8/of-acme');
      expect(after).toHaveLength(2);
      expect(after).toEqual(expect.arrayContaining(['https://192.0.2.2/hooks', undefined]));
    });

    it('redelivers nothing of another tenant', async () => {
      const named = { ids: [...globex, ...acme], dryRun: false };
      const answer = await ask('POST', '/deliveries/redeliver', named);
      const everything = { filter: { since: '2000-01-01T00:00:00Z' }, dryRun: true };
      const found = await ask('POST', '/deliveries/redeliver', everything);

      expect(answer.json).toMatchObject({
        items: [
          { id: globex[0], redelivered: false, reason: 'unknown_delivery' },
          { id: acme[0], redelivered: true },
        ],
      });
      expect(acme).toEqual(expect.arrayContaining(idsIn(found)));
    });

    it('has neither inbox nor dead letters', async () => {
      const calls: [string, string][] = [
        ['GET', '/inbox'],
        ['GET', '/inbox/x'],
        ['GET', '/inbox/x/payload'],
        ['POST', '/inbox/x/retry'],
        ['GET', '/dead-letters'],
        ['POST', '/dead-letters/retry'],
      ];
      for (const [method, path] of calls) {
        const { status, json } = await ask(method, path, method === 'POST' ? {} : undefined);
        expect([path, status, json?.['code']]).toEqual([path, 404, 'unknown_route']);
      }
    });

    it('is notified of its own changes only', async () => {
      const text = await new Promise<string>((resolve, reject) => {
        const options = { headers: { cookie } };
        const request = get(`${own.origin}${API}/events`, options, (response) => {
          let seen = '';
          response.setEncoding('utf8');
          response.on('data', (chunk: string) => {
            seen += chunk;
            if (seen.includes('event: change')) {
              request.destroy();
              resolve(seen);
            } else {
              void own
                .publish('order.created', {}, 'globex')
                .then(() => own.publish('order.created', {}, 'acme'));
            }
          });
        }).on('error', reject);
      });
      const listed = idsIn(await ask('GET', '/deliveries'));

      const streamed = [...text.matchAll(/"id":"([^"]+)"/g)].map(([, id]) => id);
      expect(streamed).toHaveLength(1);
      expect(listed).toContain(streamed[0]);
    });

    it('creates endpoints of its tenant, and of no other', async () => {
      const { json } = await ask('POST', '/endpoints', { url: 'https://192.0.2.8/in' });
      const { endpoint } = json as { endpoint: { id: string; tenant: string } };
      const stored = await own.app.get(WebhookEndpoints).get(endpoint.id);

      expect([endpoint.tenant, stored.tenant]).toEqual(['acme', 'acme']);
    });

    it('sets the limits and the credentials of its endpoints, and not how often they are tried', async () => {
      const { id } = await own.app
        .get(WebhookEndpoints)
        .create({ tenant: 'acme', url: 'https://192.0.2.8/in' })
        .then(({ endpoint }) => endpoint);
      const limits = { concurrency: 1, rateLimit: { perSecond: 0.5 } };
      const credentials = { headers: { 'X-Api-Key': 'a-secret-key' } };
      const set = await ask('PATCH', `/endpoints/${id}`, { ...limits, credentials });
      const refused = await ask('PATCH', `/endpoints/${id}`, { retry: { attempts: 50 } });

      expect(set.json).toMatchObject({ settings: limits, credentials: ['headers'] });
      expect(set.text).not.toContain('a-secret-key');
      expect([refused.status, refused.json?.['code']]).toEqual([400, 'invalid_option']);
    });
  });
});

describe('WebhookPortal.link', () => {
  it.each([
    [{}, 'tenant'],
    [{ tenant: undefined }, 'tenant'],
    [{ tenant: 'a', capabilities: ['all'] }, 'capabilities'],
    [{ tenant: 'a', expiresIn: '8d' }, 'expiresIn'],
    [{ tenant: 'a', tennant: 'b' }, 'tennant'],
  ])('refuses %o', async (link, message) => {
    const { app } = await startConsole(adapters[0]![1](), OPTIONS);
    try {
      expect(() => app.get(WebhookPortal).link(link as unknown as PortalLink)).toThrow(message);
    } finally {
      await app.close();
    }
  });

  it('says what is missing without the option portal', async () => {
    const { app } = await startConsole(adapters[0]![1]());
    try {
      expect(() => app.get(WebhookPortal).link({ tenant: 'acme' })).toThrow('portal: is not set');
    } finally {
      await app.close();
    }
  });
});
