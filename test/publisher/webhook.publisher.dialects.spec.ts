import { generateKeyPairSync } from 'node:crypto';
import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import {
  createTokenVerifier,
  digest,
  verifyWebhookPayload,
  type VerifiedWebhookToken,
  type WebhookProfile,
} from 'nestjs-webhook-token/token';
import { TestClock } from 'nestjs-webhook-token/testing';
import type { WebhookPublisherOptions } from '../../lib/publisher/publisher-options.js';
import { resolvePublisherOptions } from '../../lib/publisher/publisher-options.resolver.js';
import { GoReceiver } from '../fixtures/go-reference.js';
import { PublisherBench, secret } from './publisher-bench.js';
import { WireReceiver, type WireRequest } from './wire-receiver.js';

const OLD = 'swt-draft-00';
const NEW = 'swt-draft-02';
const ISSUER = 'https://billing.example';
const small = { id: 7, note: 'ünï <&>' };
const large = { id: 7, text: 'ü'.repeat(9_000) };
const bytesOf = (data: unknown): Buffer => Buffer.from(JSON.stringify(data));
const hexOf = (algorithm: Parameters<typeof digest>[0], bytes: Buffer): string =>
  digest(algorithm, bytes).split(':')[1]!;

let wire: WireReceiver;
let bench: PublisherBench | undefined;

beforeEach(async () => {
  wire = await WireReceiver.start();
});

afterEach(async () => {
  await bench?.stop();
  bench = undefined;
  await wire.stop();
});

async function publisher(options: Partial<WebhookPublisherOptions> = {}) {
  bench = await PublisherBench.start(options);
  return bench.publisher;
}

function headersOf({ headers }: WireRequest): Record<string, string> {
  return Object.fromEntries(headers.map(([name, value]) => [name.toLowerCase(), value]));
}

function headerOf({ token }: WireRequest): unknown {
  return JSON.parse(Buffer.from(token.split('.')[0]!, 'base64url').toString());
}

/** The request as a receiver with these profiles reads it. */
function read(request: WireRequest, profiles: readonly WebhookProfile[]) {
  const { claims, profile } = createTokenVerifier({
    issuers: [{ issuer: ISSUER, secret }],
    profiles,
    now: () => bench!.clock.now(),
  }).verify(request.token) as VerifiedWebhookToken;
  const { method, body } = request as { method: 'HEAD' | 'POST'; body: Buffer };
  return { profile, claims, ...verifyWebhookPayload(claims, { method, body, profile }) };
}

describe('swt-draft-00', () => {
  it('sends a small object in the token of a HEAD', async () => {
    await (await publisher({ profile: OLD })).send(wire.url, 'order.created', small);

    const [request] = wire.requests as [WireRequest];
    expect(request.method).toBe('HEAD');
    expect(headerOf(request)).toEqual({ alg: 'HS256', typ: 'JWT' });
    expect(request.claims.webhook).toEqual({ event: 'order.created', data: small });
  });

  it.each<[string, Partial<WebhookPublisherOptions>, 'sha3-256' | 'sha512', string]>([
    ['SHA3-256', {}, 'sha3-256', 'SHA3-256'],
    ['the digest that is configured', { hash: 'sha512' }, 'sha512', 'SHA-512'],
  ])('signs two digests of a body, with %s', async (_, options, algorithm, hashAlg) => {
    await (await publisher({ profile: OLD, ...options })).send(wire.url, 'order.created', large);

    const [request] = wire.requests as [WireRequest];
    const body = bytesOf(large);
    const hash = hexOf(algorithm, body);
    expect(request.method).toBe('POST');
    expect(request.claims.webhook).toEqual({
      event: 'order.created',
      data: { hash, hashAlg, size: body.length },
      hash: `${algorithm}:${hash}`,
    });
    // With its length: the reference does not support chunks.
    expect(headersOf(request)).toMatchObject({ 'content-length': String(body.length) });
    expect(headersOf(request)).not.toHaveProperty('transfer-encoding');
    expect(request.body).toEqual(body);
  });

  it.each([
    [['webhook-token'], 'webhook-token'],
    [[OLD], OLD],
    [['webhook-token', OLD, NEW], OLD],
  ] as [WebhookProfile[], WebhookProfile][])(
    'is accepted by a receiver with %j',
    async (profiles, profile) => {
      await (await publisher({ profile: OLD })).send(wire.url, 'order.created', large);

      expect(read(wire.requests[0]!, profiles)).toMatchObject({
        profile,
        source: 'body',
        bodyVerified: true,
      });
    },
  );

  it.each<[WebhookProfile, readonly WebhookProfile[]]>([
    ['webhook-token', ['webhook-token', OLD]],
    [OLD, ['webhook-token', OLD, NEW]],
  ])(
    'sends data that looks like a reference to a body as the body, in %s for %j',
    async (profile, profiles) => {
      const data = { hash: '9f86d081', size: 3 };
      await (await publisher({ profile })).send(wire.url, 'file.stored', data);

      expect(wire.requests[0]).toMatchObject({ method: 'POST', body: bytesOf(data) });
      expect(read(wire.requests[0]!, profiles)).toMatchObject({ profile, bodyVerified: true });
    },
  );

  it('signs the digest of zero bytes for an event without data', async () => {
    await (await publisher({ profile: OLD, method: 'POST' })).send(wire.url, 'order.created');

    const [request] = wire.requests as [WireRequest];
    const hash = hexOf('sha3-256', Buffer.alloc(0));
    expect(request.claims.webhook.data).toEqual({ hash, hashAlg: 'SHA3-256', size: 0 });
    expect(headersOf(request)).toMatchObject({ 'content-length': '0' });
    expect(read(request, [OLD])).toMatchObject({ source: 'none' });
  });

  describe('against the Go reference', () => {
    let go: GoReceiver;

    afterEach(() => go.stop());

    it.each<[string, unknown, object]>([
      ['a small object', small, {}],
      ['no data', undefined, {}],
      ['no data by POST', undefined, { method: 'POST' }],
      ['a small object by POST', small, { method: 'POST' }],
      ['a large object', large, {}],
      ['a list', [1, 2], {}],
      ['bytes', Buffer.from([0, 255]), { contentType: 'application/octet-stream' }],
      ['zero bytes', Buffer.alloc(0), { contentType: 'application/octet-stream' }],
    ])('accepts %s, with every digest', async (_, data, options) => {
      const publish = await publisher();
      go = await GoReceiver.start(secret, () => bench!.clock.now());
      for (const hash of [
        undefined,
        'sha256',
        'sha384',
        'sha512',
        'sha3-256',
        'sha3-512',
      ] as const) {
        const one = hash === undefined ? publish : await anotherWith({ hash });

        const result = await one.send(go.url, 'order.created', data, { profile: OLD, ...options });
        expect([result.status, result.statusCode, go.log.at(-1)]).toEqual([
          'delivered',
          204,
          expect.objectContaining({ status: 204 }),
        ]);
      }
      const body = Buffer.isBuffer(data)
        ? data
        : data === undefined
          ? Buffer.alloc(0)
          : bytesOf(data);
      const inline = go.log.at(-1)!.method === 'HEAD';
      expect(go.events.at(-1)!.data).toEqual(inline ? data : body);
    });

    it('answers 400 to everything, after which an accepted retry delivers', async () => {
      const publish = await publisher({ profile: OLD, method: 'POST' });
      go = await GoReceiver.start(secret, () => bench!.clock.now());
      go.failures = 1;

      const result = await publish.send(go.url, 'order.created', small);
      expect(result).toMatchObject({ status: 'scheduled', statusCode: 400 });
      await bench!.clock.advance(10_000);
      await bench!.reported(2);
      expect(go.log.map(({ status }) => status)).toEqual([400, 204]);
    });

    it('refuses the body of another profile, so the test could fail', async () => {
      const publish = await publisher();
      go = await GoReceiver.start(secret, () => bench!.clock.now());

      await publish.send(go.url, 'order.created', large, { profile: 'webhook-token' });
      await publish.send(go.url, 'order.created', large, { profile: NEW });
      expect(go.log).toEqual([
        { method: 'POST', status: 400, reason: 'wrong body size' },
        { method: 'POST', status: 400, reason: 'wrong body size' },
      ]);
    });

    async function anotherWith(options: Partial<WebhookPublisherOptions>) {
      await bench!.stop();
      return publisher(options);
    }
  });
});

describe('swt-draft-02', () => {
  it('sends a small object as a body', async () => {
    await (await publisher({ profile: NEW })).send(wire.url, 'order.created', small);

    const [request] = wire.requests as [WireRequest];
    const body = bytesOf(small);
    expect(request.method).toBe('POST');
    expect(headerOf(request)).toEqual({ alg: 'HS256', typ: 'SWT' });
    expect(request.claims.webhook).toEqual({
      event: 'order.created',
      hash: `sha-256:${hexOf('sha256', body)}`,
      retry_count: 0,
    });
    expect(headersOf(request)).toMatchObject({ 'content-length': String(body.length) });
    expect(read(request, [NEW])).toMatchObject({ source: 'body', bodyVerified: true });
  });

  it.each([
    ['no data', undefined, {}],
    ['zero bytes', Buffer.alloc(0), { contentType: 'text/plain' }],
  ])('has no hash for %s', async (_, data, options) => {
    await (await publisher({ profile: NEW })).send(wire.url, 'order.created', data, options);

    const [request] = wire.requests as [WireRequest];
    expect(request.method).toBe('POST');
    expect(request.claims.webhook).toEqual({ event: 'order.created', retry_count: 0 });
    expect(read(request, [NEW])).toMatchObject({ source: 'none' });
  });

  it('carries the number of earlier attempts', async () => {
    const publish = await publisher({ profile: NEW });
    wire.script = (_request, index) => ({ status: index < 2 ? 500 : 204 });

    await publish.send(wire.url, 'order.created', small);
    await bench!.clock.advance(5_000);
    await bench!.reported(2);
    await bench!.clock.advance(300_000);
    await bench!.reported(3);
    expect(wire.requests.map(({ claims }) => claims.webhook.retry_count)).toEqual([0, 1, 2]);
    expect(new Set(wire.requests.map(({ claims }) => claims.txn)).size).toBe(1);
  });
});

describe('the profile of an event', () => {
  it('is that of the option, the endpoint or the publisher, in this order', async () => {
    const publish = await publisher({
      profile: NEW,
      endpoints: [
        { id: 'a', url: wire.url },
        { id: 'b', url: wire.url, profile: 'webhook-token', method: 'POST', hash: 'sha384' },
      ],
    });

    await publish.send('a', 'order.created', small);
    await publish.send('b', 'order.created', small);
    await publish.send('b', 'order.created', small, { profile: OLD });
    expect(wire.requests.map(({ claims }) => Object.keys(claims.webhook))).toEqual([
      ['event', 'hash', 'retry_count'],
      ['event', 'hash'],
      ['event', 'data', 'hash'],
    ]);
    expect(wire.requests.map(({ claims }) => claims.webhook.hash.split(':')[0])).toEqual([
      'sha-256',
      'sha384',
      'sha384',
    ]);
  });

  it('applies to sign too', async () => {
    const request = await (
      await publisher()
    ).sign(wire.url, 'order.created', small, { profile: NEW });

    expect(request).toMatchObject({ method: 'POST', body: bytesOf(small) });
    expect(Buffer.from(request.token.split('.')[1]!, 'base64url').toString()).toContain(
      '"sha-256:',
    );
  });

  it.each<[string, object, RegExp]>([
    [
      'HEAD, which it does not support',
      { profile: NEW, method: 'HEAD' },
      /swt-draft-02 has no HEAD/,
    ],
    [
      'an algorithm that it does not support',
      { profile: OLD },
      /endpoint "pair": swt-draft-00 has no EdDSA/,
    ],
  ])('is refused with %s, and nothing is recorded', async (_, options, message) => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const publish = await publisher({
      endpoints: [
        { id: 'good', url: wire.url },
        { id: 'pair', url: wire.url, key: { alg: 'EdDSA', key: privateKey } },
      ],
    });

    await expect(publish.publish('order.created', small, options)).rejects.toMatchObject({
      code: 'invalid_option',
      message: expect.stringMatching(message),
    });
    await expect(publish.sign('pair', 'order.created', small, options)).rejects.toMatchObject({
      code: 'invalid_option',
    });
    expect(wire.requests).toHaveLength(0);
  });

  it('decides whether an event may have a name of one word', async () => {
    const publish = await publisher({
      endpoints: [
        { id: 'draft', url: wire.url, events: ['ping'], profile: NEW },
        { id: 'spec', url: wire.url, events: ['order.*'] },
      ],
    });

    await publish.publish('ping', small);
    await bench!.reported(1);
    await publish.send(wire.url, 'ping', small, { profile: OLD });
    expect(wire.requests.map(({ claims }) => claims.webhook.event)).toEqual(['ping', 'ping']);
    for (const call of [publish.send('spec', 'ping', small), publish.sign('spec', 'ping', small)]) {
      await expect(call).rejects.toMatchObject({
        code: 'invalid_option',
        message: expect.stringMatching(/two or more segments.* for endpoint "spec"/),
      });
    }
    expect(wire.requests).toHaveLength(2);
  });

  it('reports combinations that do not fit at start-up', () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const key = { alg: 'EdDSA', key: privateKey } as const;
    const url = 'https://crm.example/webhooks';
    const problemsOf = (options: object): string[] =>
      resolvePublisherOptions(
        { issuer: ISSUER, secret, ...options },
        { clock: new TestClock(), production: false },
      ).problems.map(({ path, message }) => `${path}: ${message}`);

    expect(problemsOf({ profile: 'swt' })).toEqual([
      "publisher.profile: must be 'webhook-token', 'swt-draft-00', 'swt-draft-02' or 'standard-webhooks'",
    ]);
    expect(problemsOf({ profile: NEW, method: 'HEAD', endpoints: [{ id: 'a', url }] })).toEqual([
      "publisher.profile: swt-draft-02 has no HEAD: leave the method 'auto', or choose another profile",
    ]);
    expect(
      problemsOf({
        endpoints: [
          { id: 'a', url, profile: OLD, key },
          { id: 'b', url, profile: NEW, method: 'HEAD' },
          { id: 'c', url, profile: 'webhook-token', key },
        ],
      }),
    ).toEqual([
      'publisher.endpoints[0].profile: swt-draft-00 has no EdDSA: pass a key for one of HS256, HS384, HS512',
      "publisher.endpoints[1].profile: swt-draft-02 has no HEAD: leave the method 'auto', or choose another profile",
    ]);
    // Its key is invalid already, so what it could sign is not checked.
    expect(problemsOf({ profile: NEW, secret: 'short' })).toHaveLength(1);
  });
});
