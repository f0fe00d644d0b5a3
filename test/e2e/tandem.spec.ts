import { randomBytes } from 'node:crypto';
import { HttpModule, HttpService } from '@nestjs/axios';
import { Injectable } from '@nestjs/common';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { decodeProtectedHeader } from 'jose';
import {
  InProcessQueue,
  OnWebhookEvent,
  WebhookEndpoints,
  WebhookPublisher,
  WebhookVerifier,
  type SignedWebhookRequest,
  type WebhookEvent,
  type WebhookReceiverOptions,
} from '../../lib/index.js';
import { securityEvents, standardWebhooks } from '../../lib/senders/index.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { createTokenSigner, digest } from '../../lib/token/index.js';
import { adapters, createFastify } from '../fixtures/adapters.js';
import { startApp, type StartedApp } from '../fixtures/receiver-app.js';

const ISSUER = 'https://billing.example';
const OTHER = 'https://other.example';
const TANDEM = ['webhook-token', 'standard-webhooks'] as const;
const FORMATS = ['webhook-token', TANDEM, 'standard-webhooks'] as const;
const whsec = (): string => `whsec_${randomBytes(32).toString('base64')}`;
const [secret, other] = [whsec(), whsec()];

const small = { id: 7, note: 'ünï <&>' };
const medium = { text: 'x'.repeat(16_370) };
const large = { text: 'ü'.repeat(20_000) };

let clock: TestClock;
let seen: WebhookEvent[];
let failing: boolean;
const started: StartedApp[] = [];

@Injectable()
class Everything {
  @OnWebhookEvent('**')
  on(_data: unknown, event: WebhookEvent): void {
    if (failing) throw new Error('the handler fails');
    seen.push(event);
  }
}

beforeEach(() => {
  clock = new TestClock();
  seen = [];
  failing = false;
});
afterEach(async () => {
  for (const { app } of started.splice(0)) await app.close();
});

async function receiverOn(
  adapter: Parameters<typeof startApp>[0],
  change: Partial<WebhookReceiverOptions> = {},
): Promise<StartedApp> {
  const receiver = {
    path: 'webhooks',
    issuers: [{ issuer: ISSUER, secret }],
    sender: standardWebhooks({ secret }),
    ...change,
  };
  const app = await startApp(adapter, { options: { clock, receiver }, providers: [Everything] });
  started.push(app);
  return app;
}

/** A publisher whose endpoint `shop` can be sent to in any format. */
async function publisherTo(origin: string, options: object = {}): Promise<StartedApp> {
  const app = await startApp(createFastify(), {
    options: {
      clock,
      httpModule: HttpModule.register({}),
      publisher: {
        issuer: ISSUER,
        secret,
        allowHttp: true,
        allowedAddresses: ['127.0.0.1'],
        queue: new InProcessQueue({ clock, concurrencyPerDestination: 50 }),
        endpoints: [
          {
            id: 'shop',
            url: `${origin}/webhooks`,
            secret,
            standardWebhooks: { secret },
            ...options,
          },
        ],
      },
    },
  });
  started.push(app);
  return app;
}

const post = async ({ url, method, headers, body }: SignedWebhookRequest): Promise<Response> => {
  const { 'Content-Length': _length, ...sent } = headers;
  return fetch(url, { method, headers: sent, ...(body && { body: new Uint8Array(body) }) });
};

/** Removes one of two signatures, so that the other one is verified. */
function without(request: SignedWebhookRequest, ...names: string[]): SignedWebhookRequest {
  const headers = Object.entries(request.headers).filter(([name]) => !names.includes(name));
  return { ...request, headers: Object.fromEntries(headers) };
}

describe.each(adapters)('tandem on %s', (_, createAdapter) => {
  it.each([
    ['small data', small],
    ['data that is just above the limit with its envelope', medium],
    ['large data', large],
    ['no data', undefined],
  ])('recognises an event in every format as one, with %s', async (_, data) => {
    const { origin } = await receiverOn(createAdapter());
    const publisher = (await publisherTo(origin)).app.get(WebhookPublisher);
    for (const first of FORMATS) {
      seen = [];
      const id = `evt-${String(first)}`;
      for (const profile of [first, ...FORMATS]) {
        const request = await publisher.sign('shop', 'order.created', data, { id, profile });
        const { status, headers } = await post(request);
        expect([profile, status, headers.get('webhook-error')]).toEqual([profile, 204, null]);
      }
      expect(seen.map((event) => [event.id, event.event, event.data])).toEqual([
        [id, 'order.created', data],
      ]);
    }
  });

  it('has the same data and id whichever signature was verified', async () => {
    const { origin } = await receiverOn(createAdapter());
    const publisher = (await publisherTo(origin)).app.get(WebhookPublisher);
    for (const [id, name] of [
      ['a', 'webhook-signature'],
      ['b', 'Authorization'],
    ] as const) {
      const request = await publisher.sign('shop', 'order.created', small, { id, profile: TANDEM });
      expect((await post(without(request, name))).status).toBe(204);
      expect((await post(request)).headers.get('webhook-duplicate')).toBe('true');
    }
    expect(seen).toMatchObject([
      { id: 'a', event: 'order.created', data: small, profile: 'webhook-token', issuer: ISSUER },
      { id: 'b', event: 'order.created', data: small, profile: 'standard-webhooks' },
    ]);
  });

  it('has the data alone with envelope: false', async () => {
    const { origin } = await receiverOn(createAdapter(), {
      sender: standardWebhooks({ secret, envelope: false, event: () => 'order.created' }),
    });
    const app = await publisherTo(origin, { envelope: false });
    const publisher = app.app.get(WebhookPublisher);
    for (const profile of [TANDEM, 'standard-webhooks', 'webhook-token'] as const) {
      const request = await publisher.sign('shop', 'order.created', small, { id: 'c', profile });
      expect((await post(request)).status).toBe(204);
    }
    expect(seen.map(({ data }) => data)).toEqual([small]);
  });

  it('rejects other content under one id, in any format', async () => {
    const { origin } = await receiverOn(createAdapter());
    const publisher = (await publisherTo(origin)).app.get(WebhookPublisher);
    for (const [index, profile] of FORMATS.entries()) {
      const data = { ...small, index };
      const request = await publisher.sign('shop', 'order.created', data, { id: 'd', profile });
      const { status, headers } = await post(request);
      const expected = index === 0 ? [204, null] : [401, 'replayed'];
      expect([status, headers.get('webhook-error')]).toEqual(expected);
    }
  });

  it.each([
    ['is no envelope', 'application/json', '{"id":7}'],
    ['names another event', 'application/json', '{"type":"order.deleted","data":{}}'],
    ['is not JSON', 'text/plain', '{"type":"order.created","data":{}}'],
  ])('rejects a token with the claim of an envelope whose body %s', async (_, type, body) => {
    const { origin } = await receiverOn(createAdapter());
    const signer = createTokenSigner({ issuer: ISSUER, key: secret, now: () => clock.now() });
    const hash = digest('sha256', Buffer.from(body));
    const token = await signer.sign({ event: 'order.created', hash, envelope: true });
    const { status, headers } = await fetch(`${origin}/webhooks`, {
      method: 'POST',
      headers: { 'content-type': type, authorization: `Bearer ${token}` },
      body,
    });
    expect([status, headers.get('webhook-error')]).toEqual([400, 'invalid_payload']);
    expect(seen).toEqual([]);
  });
});

describe.each(adapters)('the rules of a partner on %s', (_, createAdapter) => {
  const rules = { events: ['order.*'], contentTypes: ['application/json'] };
  const issuers = [{ issuer: ISSUER, secret, ...rules }];

  it.each([
    ['an event', 'standard-webhooks', []],
    ['an event in tandem', TANDEM, []],
    ['an event whose token does not hold', TANDEM, ['Authorization']],
  ] as const)('refuse %s that it may not send', async (_case, profile, forged) => {
    const { app, origin } = await receiverOn(createAdapter(), { issuers });
    const publisher = (await publisherTo(origin)).app.get(WebhookPublisher);
    const outcomes: unknown[] = [];
    for (const name of ['admin.deleted', 'order.created']) {
      const signed = await publisher.sign('shop', name, small, { profile });
      const invalid = Object.fromEntries(forged.map((header) => [header, 'Bearer a.b.c']));
      const request = { ...signed, headers: { ...signed.headers, ...invalid } };
      const { status, headers } = await post(request);
      const { code } = await app.get(WebhookVerifier).explain(request);
      outcomes.push([status, headers.get('webhook-error'), code]);
    }

    expect(outcomes).toEqual([
      [403, 'event_forbidden', 'event_forbidden'],
      [204, null, undefined],
    ]);
    expect(seen.map(({ event }) => event)).toEqual(['order.created']);
  });

  it('refuse a body of another media type', async () => {
    const sender = standardWebhooks({ secret, envelope: false, event: () => 'order.created' });
    const { origin } = await receiverOn(createAdapter(), { issuers, sender });
    const outcomes: unknown[] = [];
    for (const type of ['application/xml', 'application/json']) {
      const signed = await sender.sign({ event: 'order.created', data: {}, now: clock.now() });
      const headers = { ...signed.headers, 'content-type': type };
      const answer = await fetch(`${origin}/webhooks`, { ...signed, method: 'POST', headers });
      outcomes.push([answer.status, answer.headers.get('webhook-error')]);
    }

    expect(outcomes).toEqual([
      [415, 'unsupported_content_type'],
      [204, null],
    ]);
    expect(seen).toHaveLength(1);
  });
});

describe.each(adapters)('tokens beside security events on %s', (_, createAdapter) => {
  const authorization = 'Bearer of-the-stream';
  const sender = securityEvents({
    issuer: 'https://idp.example',
    audience: 'https://shop.example',
    secret: other,
    authorization,
  });
  const pushed = async (
    origin: string,
    headers: Record<string, string> = {},
  ): Promise<Response> => {
    const message = { event: 'session-revoked', data: {}, now: clock.now() };
    const { headers: own, body } = await sender.sign(message);
    return fetch(`${origin}/webhooks`, { method: 'POST', headers: { ...own, ...headers }, body });
  };
  const token = async (key = secret): Promise<string> => {
    const signer = createTokenSigner({ issuer: ISSUER, key, now: () => clock.now() });
    return `Bearer ${await signer.sign({ event: 'order.created' })}`;
  };

  it('answers each in the form of the scheme that verified it', async () => {
    const { origin } = await receiverOn(createAdapter(), { sender });

    expect((await pushed(origin)).status).toBe(202);
    const refused = await pushed(origin, { authorization: 'Bearer of-another-stream' });
    expect([refused.status, await refused.json()]).toEqual([
      400,
      expect.objectContaining({ err: 'authentication_failed' }),
    ]);

    const url = `${origin}/webhooks`;
    const accepted = await fetch(url, {
      method: 'HEAD',
      headers: { authorization: await token() },
    });
    expect(accepted.status).toBe(204);
    const forged = await fetch(url, {
      method: 'POST',
      headers: { authorization: await token(other) },
    });
    expect([forged.status, await forged.json()]).toEqual([
      401,
      expect.objectContaining({ code: 'bad_signature' }),
    ]);
    expect(seen.map(({ profile }) => profile)).toEqual(['security-events', 'webhook-token']);
  });

  it('asks for a token if a HEAD has no credentials', async () => {
    const { origin } = await receiverOn(createAdapter(), { sender });

    const { status, headers } = await fetch(`${origin}/webhooks`, { method: 'HEAD' });

    expect([status, headers.get('webhook-error')]).toEqual([401, 'missing_token']);
  });
});

describe('identities of tandem', () => {
  it('keep the ids of several issuers apart from those of a sender', async () => {
    const app = await receiverOn(createFastify(), {
      issuers: [
        { issuer: ISSUER, secret },
        { issuer: OTHER, secret: other },
      ],
    });
    const publisher = (await publisherTo(app.origin)).app.get(WebhookPublisher);
    const signer = createTokenSigner({ issuer: OTHER, key: other, now: () => clock.now() });
    const forged = await signer.sign({ event: 'order.created', data: { forged: true }, txn: 'e1' });
    const authorization = `Bearer ${forged}`;
    await fetch(`${app.origin}/webhooks`, { method: 'HEAD', headers: { authorization } });
    for (const profile of ['standard-webhooks', 'webhook-token'] as const) {
      const request = await publisher.sign('shop', 'order.created', small, { id: 'e1', profile });
      expect((await post(request)).status).toBe(204);
    }

    expect(seen.map(({ issuer }) => issuer)).toEqual([OTHER, 'standard-webhooks', ISSUER]);
    expect(JSON.stringify(app.logger)).toContain('give each partner its own path');
  });

  it.each([
    ['tokens', FORMATS],
    ['tandem', [...FORMATS].toReversed()],
  ])('are the same in a queue that acknowledges first, %s first', async (_, formats) => {
    const { origin } = await receiverOn(createFastify(), {
      acknowledge: 'queued',
      queue: new InProcessQueue({ clock }),
    });
    const publisher = (await publisherTo(origin)).app.get(WebhookPublisher);
    const statuses: number[] = [];
    for (const profile of formats) {
      const request = await publisher.sign('shop', 'order.created', small, { id: 'f', profile });
      statuses.push((await post(request)).status);
    }
    expect(statuses).toEqual([202, 204, 204]);
    while (seen.length === 0) await new Promise((turn) => setImmediate(turn));
    expect(seen.map(({ id, data }) => [id, data])).toEqual([['f', small]]);
  });
});

describe('the report of formats', () => {
  it('says which format each endpoint gets, and which it acknowledged last and since when', async () => {
    const { origin } = await receiverOn(createFastify());
    const sender = await publisherTo(origin);
    const endpoints = sender.app.get(WebhookEndpoints);
    const publisher = sender.app.get(WebhookPublisher);
    const url = `${origin}/webhooks`;
    await endpoints.create({ id: 'acme', tenant: 'acme', url, secret, profile: TANDEM });
    const at = (): Date => new Date(clock.now());
    const acknowledged: unknown[] = [];
    const note = async (): Promise<void> => {
      const { endpoints: page } = await endpoints.report({ tenant: 'acme' });
      acknowledged.push(page[0]!.acknowledged);
    };
    await note();
    const start = at();
    await publisher.send('acme', 'order.created', small);
    await note();
    await clock.advance(60_000);
    await publisher.send('acme', 'order.created', small);
    await note();
    await endpoints.update('acme', { profile: 'standard-webhooks' });
    await note();
    failing = true;
    await publisher.send('acme', 'order.created', small);
    await note();
    failing = false;
    await publisher.send('acme', 'order.created', small);
    await note();

    const later = at();
    expect(acknowledged).toEqual([
      undefined,
      { profile: TANDEM, since: start, at: start },
      { profile: TANDEM, since: start, at: later },
      { profile: TANDEM, since: start, at: later },
      { profile: TANDEM, since: start, at: later },
      { profile: 'standard-webhooks', since: later, at: later },
    ]);
    expect(await endpoints.report({ limit: 1 })).toMatchObject({
      endpoints: [{ id: 'acme', tenant: 'acme', profile: 'standard-webhooks' }],
      next: 'acme',
    });
    expect((await endpoints.report({ tenant: null })).endpoints).toEqual([
      { id: 'shop', profile: 'webhook-token' },
    ]);
  });
});

describe.each(adapters)('tandem under load on %s', (_, createAdapter) => {
  /** More than are sent at once: when a key or format changes, some requests are in flight and others are not signed yet. */
  const BATCH = 60;

  it('refuses nothing and handles each event once while keys and formats change', async () => {
    const { origin } = await receiverOn(createAdapter(), {
      issuers: [{ issuer: ISSUER, secret: [secret, other] }],
      sender: standardWebhooks({ secret: [secret, other] }),
    });
    const sender = await publisherTo(origin, { events: ['order.*'] });
    const publisher = sender.app.get(WebhookPublisher);
    const endpoints = sender.app.get(WebhookEndpoints);
    const url = `${origin}/webhooks`;
    await endpoints.create({ id: 'partner', url, secret, events: ['stock.*'] });

    const answers: string[] = [];
    const formats = new Set<string>();
    const kids = new Set<unknown>();
    const signatures = new Set<number>();
    const load = { inFlight: 0, acknowledged: 0 };
    const numbers: number[] = [];
    const { interceptors } = sender.app.get(HttpService, { strict: false }).axiosRef;
    interceptors.request.use((request) => {
      load.inFlight++;
      return request;
    });
    interceptors.response.use((response) => {
      load.inFlight--;
      const { headers } = response.config;
      const [token, signed] = [headers.get('authorization'), headers.get('webhook-signature')];
      formats.add(`${Boolean(token)} ${Boolean(signed)}`);
      if (token) kids.add(decodeProtectedHeader(String(token).slice('Bearer '.length)).kid);
      if (signed) signatures.add(String(signed).split(' ').length);
      const isDuplicate = response.headers['webhook-duplicate'] === 'true';
      answers.push(`${response.status}${isDuplicate ? ' duplicate' : ''}`);
      // The event arrives again, perhaps with the next key or format.
      if (answers.length % 5 === 0) return { ...response, status: 503 };
      load.acknowledged++;
      return response;
    });
    const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve));
    const untilAcknowledged = async (): Promise<void> => {
      for (let idle = 0; load.acknowledged < numbers.length && idle < 500; idle++) {
        await turn();
        if (load.inFlight > 0) idle = 0;
        else if (idle % 5 === 4) await clock.advance(60_000);
      }
    };
    const changes = [
      () => endpoints.rotateKey('partner', { secret: other, overlap: '2m' }),
      () => endpoints.update('partner', { profile: TANDEM }),
      () => endpoints.update('partner', { profile: 'standard-webhooks' }),
      () => endpoints.rotateKey('partner', { secret, overlap: '2m' }),
      () => endpoints.update('partner', { profile: TANDEM }),
      () => endpoints.update('partner', { profile: null }),
    ];
    for (const change of changes) {
      const published = Array.from({ length: BATCH }, async () => {
        const number = numbers.push(numbers.length) - 1;
        const text = 'x'.repeat((number % 3) * 9_000);
        await publisher.publish('stock.changed', { number, text });
      });
      while (load.inFlight === 0) await turn();
      await change();
      await Promise.all(published);
      await untilAcknowledged();
      expect(new Set(answers)).toEqual(new Set(['204', '204 duplicate']));
      expect(load.acknowledged).toBe(numbers.length);
    }

    const handled = seen.map(({ data }) => (data as { number: number }).number);
    expect(handled.toSorted((a, b) => a - b)).toEqual(numbers);
    expect(formats).toEqual(new Set(['true false', 'true true', 'false true']));
    expect(kids.size).toBe(3);
    expect(signatures).toEqual(new Set([1, 2]));
  });
});
