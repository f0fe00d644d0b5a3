import { generateKeyPairSync, randomBytes, verify } from 'node:crypto';
import { inspect } from 'node:util';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { Webhook } from 'standardwebhooks';
import { Webhook as SvixWebhook } from 'svix';
import { WebhookDeliveries, WebhookEndpoints } from '../../lib/index.js';
import type { WebhookPublisherOptions } from '../../lib/publisher/publisher-options.js';
import { resolvePublisherOptions } from '../../lib/publisher/publisher-options.resolver.js';
import { TestClock } from 'nestjs-webhook-token/testing';
import { createTokenVerifier, digest, type VerifiedWebhookToken } from '../../lib/token/index.js';
import { PublisherBench, secret } from './publisher-bench.js';
import { WireReceiver, type WireRequest } from './wire-receiver.js';

const ISSUER = 'https://billing.example';
const HOUR = 3_600_000;
const whsec = (bytes = 32): string => `whsec_${randomBytes(bytes).toString('base64')}`;
const order = { id: 7, note: 'ünï <&>' };

let wire: WireReceiver;
let bench: PublisherBench;

beforeEach(async () => {
  wire = await WireReceiver.start();
});
afterEach(async () => {
  await bench.stop();
  await wire.stop();
});

/** The clock starts now: the libraries that verify compare the time with the system's. */
async function start(options: Partial<WebhookPublisherOptions> = {}): Promise<PublisherBench> {
  bench = await PublisherBench.start(options, undefined, new TestClock(Date.now()));
  return bench;
}

const endpointOf = (options: object): Partial<WebhookPublisherOptions> => ({
  endpoints: [{ id: 'crm', url: wire.url, ...options }],
});

function headersOf({ headers }: WireRequest): Record<string, string> {
  return Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value]));
}

/** Both reference libraries verify the request; returns its body. */
function verified(request: WireRequest, key: string): unknown {
  const headers = headersOf(request);
  const body = new Webhook(key).verify(request.body.toString(), headers);
  new SvixWebhook(key).verify(request.body.toString(), headers);
  return body;
}

const refused = (request: WireRequest, key: string): boolean => {
  try {
    new Webhook(key).verify(request.body.toString(), headersOf(request));
    return false;
  } catch {
    return true;
  }
};

describe('an endpoint with the profile standard-webhooks', () => {
  it('gets an envelope that the reference libraries verify', async () => {
    const key = whsec();
    const { publisher, clock } = await start(
      endpointOf({ secret: key, profile: 'standard-webhooks' }),
    );
    const at = new Date(clock.now()).toISOString();

    const result = await publisher.send('crm', 'order.created', order, { id: 'evt_1' });

    const [request] = wire.requests as [WireRequest];
    expect(result).toMatchObject({ status: 'delivered', id: 'evt_1' });
    expect(result.receipt).toBeUndefined();
    expect(request.method).toBe('POST');
    expect(verified(request, key)).toEqual({ type: 'order.created', timestamp: at, data: order });
    expect(headersOf(request)).toMatchObject({
      'webhook-id': 'evt_1',
      'webhook-timestamp': String(Math.floor(clock.now() / 1_000)),
      'content-type': 'application/json',
    });
    expect(headersOf(request)).not.toHaveProperty('authorization');
  });

  it.each([
    ['no data', [], { type: 'ping', timestamp: expect.any(String) }],
    ['null', [null], { type: 'ping', timestamp: expect.any(String), data: null }],
    ['a list', [[1, 'ü']], { type: 'ping', timestamp: expect.any(String), data: [1, 'ü'] }],
  ])('gets an event of one segment with %s', async (_, data, body) => {
    const key = whsec(24);
    const { publisher } = await start(endpointOf({ secret: key, profile: 'standard-webhooks' }));
    await publisher.send('crm', 'ping', ...(data as [unknown]));
    expect(verified(wire.requests[0]!, key)).toEqual(body);
  });

  it.each([
    ['the data alone', order, order],
    ['null for no data', undefined, null],
  ])('gets %s with envelope: false', async (_, data, body) => {
    const key = whsec(64);
    const { publisher } = await start(
      endpointOf({ secret: key, profile: 'standard-webhooks', envelope: false }),
    );
    await publisher.send('crm', 'order.created', data, {});
    expect(verified(wire.requests[0]!, key)).toEqual(body);
  });

  it('gets other content types as they are', async () => {
    const key = whsec();
    const { publisher } = await start(endpointOf({ secret: key, profile: 'standard-webhooks' }));
    const csv = Buffer.from('{"id":1}');
    await publisher.send('crm', 'report.ready', csv, { contentType: 'text/csv' });
    expect(wire.requests[0]!.body).toEqual(csv);
    expect(headersOf(wire.requests[0]!)['content-type']).toBe('text/csv');
    expect(verified(wire.requests[0]!, key)).toEqual({ id: 1 });
  });

  it.each(['application/json', 'application/vnd.acme+json; charset=utf-8'])(
    'gets bytes of JSON in the envelope, unchanged: %s',
    async (contentType) => {
      const key = whsec();
      const { publisher } = await start(endpointOf({ secret: key, profile: 'standard-webhooks' }));
      const json = '{ "price": 1.50, "id": 9007199254740993 }';
      await publisher.send('crm', 'order.created', Buffer.from(json), { contentType });

      const [request] = wire.requests as [WireRequest];
      expect(verified(request, key)).toMatchObject({ type: 'order.created', data: { price: 1.5 } });
      expect(request.body.toString()).toContain(`,"data":${json}}`);
      expect(headersOf(request)['content-type']).toBe('application/json');
    },
  );

  it('gets JSON in another charset as it is', async () => {
    const key = whsec();
    const { publisher } = await start(endpointOf({ secret: key, profile: 'standard-webhooks' }));
    const contentType = 'application/json; charset=utf-16le';
    const json = Buffer.from('{"id":1}', 'utf16le');
    await publisher.send('crm', 'order.created', json, { contentType });

    expect(wire.requests[0]!.body).toEqual(json);
    expect(headersOf(wire.requests[0]!)['content-type']).toBe(contentType);
  });

  it('gets the same id and body in every attempt and redelivery, with the time of the attempt', async () => {
    const key = whsec();
    const { publisher, clock } = await start(
      endpointOf({ secret: key, profile: 'standard-webhooks' }),
    );
    wire.script = (_, index) => ({ status: index === 0 ? 503 : 200 });
    await publisher.publish('order.created', order);
    await bench.reported(1);
    await clock.advance(60_000);
    await bench.reported(2);
    await clock.advance(60_000);
    const deliveries = bench.module.get(WebhookDeliveries);
    const [delivery] = (await deliveries.list({ status: 'delivered' })).deliveries;
    await deliveries.redeliver(delivery!.id);
    await bench.reported(3);

    const [first, second, third] = wire.requests.map(headersOf);
    expect(first!['webhook-id']).toBe(second!['webhook-id']);
    expect(first!['webhook-id']).toBe(third!['webhook-id']);
    expect(new Set(wire.requests.map(({ body }) => body.toString())).size).toBe(1);
    const [one, two, three] = [first, second, third].map((at) => Number(at!['webhook-timestamp']));
    expect(two!).toBeGreaterThan(one!);
    expect(three!).toBeGreaterThan(two!);
    for (const request of wire.requests) verified(request, key);
  });

  it.each([200, 201, 202, 204, 299])('acknowledges by %i', async (status) => {
    const { publisher } = await start(
      endpointOf({ secret: whsec(), profile: 'standard-webhooks' }),
    );
    wire.script = () => ({ status });
    expect((await publisher.send('crm', 'order.created', order)).status).toBe('delivered');
  });

  it.each([301, 400, 401, 404, 405, 429, 500, 502])('gets it again after %i', async (status) => {
    const { publisher } = await start(
      endpointOf({ secret: whsec(), profile: 'standard-webhooks' }),
    );
    wire.script = () => ({ status });
    expect((await publisher.send('crm', 'order.created', order)).status).toBe('scheduled');
    expect(wire.requests).toHaveLength(1);
  });

  it('is disabled by 410', async () => {
    const { publisher } = await start(
      endpointOf({ secret: whsec(), profile: 'standard-webhooks' }),
    );
    wire.script = () => ({ status: 410 });
    await publisher.send('crm', 'order.created', order);
    const endpoint = await bench.module.get(WebhookEndpoints).get('crm');
    expect(endpoint.disabled).toMatchObject({ reason: 'gone' });
  });

  it('gets a signature of every secret in the list', async () => {
    const [old, next, other] = [whsec(), whsec(24), whsec()];
    const { publisher } = await start(
      endpointOf({ profile: 'standard-webhooks', standardWebhooks: { secret: [old, next] } }),
    );
    await publisher.send('crm', 'order.created', order);
    expect(verified(wire.requests[0]!, old)).toMatchObject({ data: order });
    expect(verified(wire.requests[0]!, next)).toMatchObject({ data: order });
    expect(refused(wire.requests[0]!, other)).toBe(true);
  });

  it('gets a signature v1a of an Ed25519 key', async () => {
    const { publicKey, privateKey } = generateKeyPairSync('ed25519');
    const { d, x } = privateKey.export({ format: 'jwk' });
    const pair = Buffer.concat([Buffer.from(d!, 'base64url'), Buffer.from(x!, 'base64url')]);
    const { publisher } = await start(
      endpointOf({ secret: `whsk_${pair.toString('base64')}`, profile: 'standard-webhooks' }),
    );
    await publisher.send('crm', 'order.created', order);

    const [request] = wire.requests as [WireRequest];
    const headers = headersOf(request);
    const [version, signature] = headers['webhook-signature']!.split(',');
    const signed = `${headers['webhook-id']}.${headers['webhook-timestamp']}.${request.body.toString()}`;
    expect(version).toBe('v1a');
    expect(verify(null, Buffer.from(signed), publicKey, Buffer.from(signature!, 'base64'))).toBe(
      true,
    );
  });

  it('is chosen for one call, and signed without sending', async () => {
    const key = whsec();
    const { publisher } = await start(endpointOf({ standardWebhooks: { secret: key } }));
    const signed = await publisher.sign('crm', 'order.created', order, {
      profile: 'standard-webhooks',
    });
    expect(signed).toMatchObject({ method: 'POST', token: '' });
    expect(signed).not.toHaveProperty('receipt');
    const body = new Webhook(key).verify(signed.body!.toString(), { ...signed.headers });
    expect(body).toMatchObject({ type: 'order.created', data: order });
  });

  it('refuses ids that a header cannot carry, and HEAD', async () => {
    const { publisher } = await start(
      endpointOf({ secret: whsec(), profile: 'standard-webhooks' }),
    );
    await expect(publisher.publish('order.created', order, { id: 'ü 1' })).rejects.toThrow(
      /id must be visible ASCII/,
    );
    await expect(publisher.publish('order.created', order, { method: 'HEAD' })).rejects.toThrow(
      /standard-webhooks has no HEAD/,
    );
  });

  it('prints no secret and stores no signature that the answer repeats', async () => {
    const key = whsec();
    await start(endpointOf({ secret: key, profile: 'standard-webhooks' }));
    wire.script = (request) => ({ status: 500, body: JSON.stringify(headersOf(request)) });
    await bench.publisher.send('crm', 'order.created', order);

    const signature = headersOf(wire.requests[0]!)['webhook-signature']!;
    const deliveries = bench.module.get(WebhookDeliveries);
    const [delivery] = (await deliveries.list({})).deliveries;
    const { attempts } = (await deliveries.get(delivery!.id))!;
    expect(attempts[0]!.answer).toContain('[header]');
    expect(attempts[0]!.answer).not.toContain(signature.slice(3, 20));
    const { resolved } = resolvePublisherOptions(
      {
        issuer: ISSUER,
        secret,
        endpoints: [
          { id: 'a', url: 'https://a.example', secret: key, profile: 'standard-webhooks' },
        ],
      },
      { clock: bench.clock, production: false },
    );
    expect(inspect(resolved!.endpoints, { depth: 9 })).not.toContain(key.slice(6));
  });
});

describe('options of Standard Webhooks', () => {
  const problemsOf = (endpoint: object, publisher: object = {}): string[] =>
    resolvePublisherOptions(
      {
        issuer: ISSUER,
        secret,
        endpoints: [{ id: 'a', url: 'https://a.example/', ...endpoint }],
        ...publisher,
      },
      { clock: new TestClock(), production: false },
    ).problems.map(({ path, message }) => `${path}: ${message}`);
  const standard = { profile: 'standard-webhooks' };

  beforeEach(async () => {
    await start();
  });

  it.each([
    [
      'no secret',
      standard,
      /^publisher\.endpoints\[0\]\.profile: standard-webhooks needs a secret/,
    ],
    ['16 bytes', { ...standard, secret: whsec(16) }, /\.secret: has 16 bytes.*24 to 64/],
    ['65 bytes', { ...standard, secret: whsec(65) }, /\.secret: has 65 bytes/],
    ['no base64', { ...standard, secret: 'whsec_!' }, /\.secret: must be "whsec_" or "whsk_"/],
    [
      'a public key',
      { ...standard, secret: `whpk_${randomBytes(32).toString('base64')}` },
      /cannot sign/,
    ],
    ['HEAD', { ...standard, secret: whsec(), method: 'HEAD' }, /standard-webhooks has no HEAD/],
    [
      'another list',
      { secret: whsec(), profile: ['standard-webhooks'] },
      /\.profile: must be one of/,
    ],
    [
      'an empty list',
      { standardWebhooks: { secret: [] } },
      /standardWebhooks\.secret: must be a secret, or a list/,
    ],
    [
      'a token secret in tandem',
      { secret, profile: ['webhook-token', 'standard-webhooks'] },
      /\.standardWebhooks: must be "whsec_"/,
    ],
    ['its header', { headers: { 'Webhook-Id': 'x' } }, /is set by the library/],
  ])('are refused with %s', (_, options, problem) => {
    expect(problemsOf(options)).toEqual([expect.stringMatching(problem)]);
  });

  it('are accepted with a secret of 24 bytes, also from the publisher', () => {
    expect(problemsOf({ ...standard, secret: whsec(24) })).toEqual([]);
    expect(problemsOf(standard, { standardWebhooks: { secret: whsec(24) } })).toEqual([]);
    expect(problemsOf({}, { ...standard, secret: whsec(32) })).toEqual([]);
  });
});

describe('a managed endpoint with Standard Webhooks', () => {
  const tandem = ['webhook-token', 'standard-webhooks'] as const;

  it('is created with a whsec_ secret, and signed with both keys while one is rotated', async () => {
    const { module, publisher, clock } = await start();
    const endpoints = module.get(WebhookEndpoints);
    const made = await endpoints.create({
      id: 'acme',
      url: wire.url,
      profile: 'standard-webhooks',
    });
    await publisher.send('acme', 'order.created', order);
    const rotated = await endpoints.rotateKey('acme', { overlap: '1h' });
    await publisher.send('acme', 'order.created', order);
    await clock.advance(HOUR);
    const { body, headers } = await publisher.sign('acme', 'order.created', order);

    const [old, next] = [made.secret!, rotated.secret!];
    expect([old, next]).toEqual([
      expect.stringMatching(/^whsec_/),
      expect.stringMatching(/^whsec_/),
    ]);
    const [before, during] = wire.requests as [WireRequest, WireRequest];
    verified(before, old);
    expect(refused(before, next)).toBe(true);
    verified(during, old);
    verified(during, next);
    // The libraries compare with the system's clock, so the content is signed again with its time.
    const at = (key: string): string =>
      new Webhook(key).sign(
        headers['webhook-id']!,
        new Date(Number(headers['webhook-timestamp']) * 1_000),
        body!.toString(),
      );
    expect(headers['webhook-signature']).toBe(at(next));
  });

  it('accepts a secret of its partner, of 24 bytes or an Ed25519 key', async () => {
    const endpoints = (await start()).module.get(WebhookEndpoints);
    const profile = 'standard-webhooks';
    const key = whsec(24);
    expect(
      await endpoints.create({ id: 'a', url: wire.url, profile, secret: key }),
    ).not.toHaveProperty('secret', key);
    await bench.publisher.send('a', 'order.created', order);
    verified(wire.requests[0]!, key);
    await endpoints.rotateKey('a', {
      overlap: 0,
      secret: `whsk_${randomBytes(64).toString('base64')}`,
    });
    await bench.publisher.send('a', 'order.created', order);
    expect(headersOf(wire.requests[1]!)['webhook-signature']).toMatch(/^v1a,/);
    await expect(endpoints.create({ url: wire.url, profile, secret })).rejects.toThrow(
      /secret: must be "whsec_"/,
    );
    await expect(endpoints.create({ url: wire.url, profile: tandem, secret: key })).rejects.toThrow(
      /secret: .*32/,
    );
    await expect(endpoints.rotateKey('a', { secret: 'short' })).rejects.toThrow(/secret: /);
    await expect(
      endpoints.create({ url: wire.url, profile, signing: 'publisher' }),
    ).rejects.toThrow(/profile: standard-webhooks needs a secret/);
  });

  it('changes its format with the same secret, if both formats can use it', async () => {
    const endpoints = (await start()).module.get(WebhookEndpoints);
    const { secret: made } = await endpoints.create({ id: 'a', url: wire.url });
    for (const profile of [tandem, 'standard-webhooks'] as const) {
      await endpoints.update('a', { profile });
      await bench.publisher.send('a', 'order.created', order);
      expect(verified(wire.requests.at(-1)!, made!)).toMatchObject({ data: order });
    }
    await endpoints.rotateKey('a', { overlap: 0, secret: whsec(24) });
    await expect(endpoints.update('a', { profile: tandem })).rejects.toThrow(
      /profile: cannot be used with the endpoint's secret.*rotate the key first/,
    );
    await endpoints.create({ id: 'b', url: wire.url, secret });
    await expect(endpoints.update('b', { profile: tandem })).rejects.toThrow(
      /rotate the key first/,
    );
  });
});

describe('an endpoint in tandem', () => {
  const profile = ['webhook-token', 'standard-webhooks'] as const;
  const tokens = (key: string) =>
    createTokenVerifier({
      issuers: [{ issuer: ISSUER, secret: key }],
      now: () => bench.clock.now(),
    });

  it.each([
    ['one secret for both', (key: string) => ({ secret: key, profile }), (key: string) => key],
    [
      'two secrets',
      (key: string) => ({ profile, standardWebhooks: { secret: key } }),
      () => secret,
    ],
  ])('gets one POST that is signed both ways, with %s', async (_, options, tokenKey) => {
    const key = whsec();
    const { publisher } = await start(endpointOf(options(key)));
    const result = await publisher.send('crm', 'order.created', order);

    const [request] = wire.requests as [WireRequest];
    expect(wire.requests).toHaveLength(1);
    expect(verified(request, key)).toMatchObject({ type: 'order.created', data: order });
    const { claims } = tokens(tokenKey(key)).verify(request.token) as VerifiedWebhookToken;
    expect(claims.txn).toBe(headersOf(request)['webhook-id']);
    expect(claims.webhook).toEqual({
      event: 'order.created',
      hash: digest('sha256', request.body),
      envelope: true,
    });
    expect(result.receipt).toMatchObject({ id: result.id, profile: 'webhook-token' });
  });

  it('says in the token that there is no envelope', async () => {
    const { publisher } = await start(endpointOf({ secret: whsec(), profile, envelope: false }));
    await publisher.send('crm', 'order.created', order);
    await publisher.send('crm', 'order.created', Buffer.from('x'), { contentType: 'text/plain' });
    expect(wire.requests.map(({ claims }) => claims.webhook.envelope)).toEqual([false, false]);
  });
});
