import { generateKeyPairSync, type KeyObject } from 'node:crypto';
import { afterEach, describe, expect, it } from '@jest/globals';
import { Controller, Get, Injectable, Post, type CanActivate, type Type } from '@nestjs/common';
import { APP_GUARD, NestFactory } from '@nestjs/core';
import { compactVerify, createLocalJWKSet, type JSONWebKeySet } from 'jose';
import { TestClock } from 'nestjs-webhook-token/testing';
import {
  KeyProvider,
  WebhookJwks,
  WebhookModule,
  WebhookPublisher,
  type SigningKeyInput,
  type WebhookPublisherOptions,
} from 'nestjs-webhook-token';
import { adapters } from '../fixtures/adapters.js';
import { send, type Answer } from '../fixtures/http-client.js';
import { startApp, type StartedApp, type StartOptions } from '../fixtures/receiver-app.js';
import { RemoteSigner } from '../fixtures/remote-signer.js';

const ISSUER = 'https://billing.example';
const PATH = '/.well-known/webhook-keys';
const SECRET = 'a shared secret that must never be served';
const MINUTE = 60_000;

const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const ed = generateKeyPairSync('ed25519');
const spare = generateKeyPairSync('ed25519');
const PRIVATE_KEYS = [ec, rsa, ed, spare].map(({ privateKey }) => privateKey);

/** The private members of every key, as in a JWK and in PEM. */
function privateTexts(): string[] {
  return [
    SECRET,
    Buffer.from(SECRET).toString('base64url'),
    ...PRIVATE_KEYS.flatMap((key) => {
      const { d, p, q, dp, dq, qi } = key.export({ format: 'jwk' });
      const pem = key.export({ type: 'pkcs8', format: 'pem' }) as string;
      return [d, p, q, dp, dq, qi, ...pem.split('\n').slice(1, -2)].filter(
        (text): text is string => typeof text === 'string' && text.length > 8,
      );
    }),
  ];
}

function pair(kid: string, alg: 'ES256' | 'RS256' | 'EdDSA', key: KeyObject, more: object = {}) {
  return { kid, alg, key, ...more };
}

function publisherOptions(more: Partial<WebhookPublisherOptions>): WebhookPublisherOptions {
  return {
    issuer: ISSUER,
    key: pair('ed-1', 'EdDSA', ed.privateKey),
    jwks: true,
    ...more,
  };
}

@Injectable()
class DenyAll implements CanActivate {
  canActivate(): boolean {
    return false;
  }
}

@Controller('orders')
class Orders {
  @Get()
  list(): string {
    return 'orders';
  }
}

@Controller()
class Taken {
  @Get('keys')
  keys(): string {
    return 'taken';
  }

  @Post(PATH)
  post(): string {
    return 'own';
  }
}

describe.each(adapters)('the public keys on %s', (name, createAdapter) => {
  let started: StartedApp | undefined;
  let signer: RemoteSigner | undefined;

  afterEach(async () => {
    await started?.app.close();
    await signer?.stop();
    started = signer = undefined;
  });

  async function start(
    more: Partial<WebhookPublisherOptions> = {},
    app: StartOptions & { clock?: TestClock } = {},
  ): Promise<StartedApp> {
    const { clock, ...rest } = app;
    started = await startApp(createAdapter(), {
      options: { publisher: publisherOptions(more), clock },
      ...rest,
    });
    return started;
  }

  function get(path = PATH, headers: Record<string, string> = {}, method = 'GET'): Promise<Answer> {
    return send(started!.origin, { method, path, headers });
  }

  const kids = ({ json }: Answer): unknown[] =>
    (json as unknown as JSONWebKeySet).keys.map(({ kid }) => kid);

  it('are served with the headers that caches and receivers need', async () => {
    await start();
    const { status, headers, text } = await get();

    const { x } = ed.publicKey.export({ format: 'jwk' });
    expect(status).toBe(200);
    expect(JSON.parse(text)).toEqual({
      keys: [{ kty: 'OKP', crv: 'Ed25519', x, kid: 'ed-1', alg: 'EdDSA', use: 'sig' }],
    });
    expect(headers).toMatchObject({
      'content-type': 'application/jwk-set+json',
      'content-length': String(Buffer.byteLength(text)),
      'cache-control': 'public, max-age=300',
      etag: expect.stringMatching(/^"[\w-]{43}"$/),
    });
    expect(headers).not.toHaveProperty('set-cookie');
    expect(headers).not.toHaveProperty('vary');
  });

  it('contain only the public part of every key', async () => {
    signer = await RemoteSigner.start('ES256', { kid: 'kms-1' });
    await start({
      key: undefined,
      keys: [
        pair('ec-1', 'ES256', ec.privateKey),
        { kid: 'rsa-1', alg: 'RS256', key: rsa.privateKey.export({ format: 'jwk' }) },
        { kid: 'ed-1', alg: 'EdDSA', key: ed.privateKey.export({ type: 'pkcs8', format: 'pem' }) },
        { kid: 'hmac-1', key: SECRET },
        signer,
      ] as SigningKeyInput[],
      endpoints: [
        { id: 'a', url: 'https://a.example', key: pair('ed-2', 'EdDSA', spare.privateKey) },
        { id: 'b', url: 'https://b.example', key: pair('ed-1', 'EdDSA', ed.privateKey) },
        { id: 'c', url: 'https://c.example', secret: SECRET },
        {
          id: 'd',
          url: 'https://d.example',
          issuer: 'https://eu.example',
          key: pair('eu-1', 'EdDSA', spare.privateKey),
        },
      ],
    });
    const answer = await get();

    expect(kids(answer)).toEqual(['ec-1', 'rsa-1', 'ed-1', 'kms-1', 'ed-2']);
    const members = (answer.json as any).keys.map((key: object) => Object.keys(key).sort());
    expect(members).toEqual([
      ['alg', 'crv', 'kid', 'kty', 'use', 'x', 'y'],
      ['alg', 'e', 'kid', 'kty', 'n', 'use'],
      ['alg', 'crv', 'kid', 'kty', 'use', 'x'],
      ['alg', 'crv', 'kid', 'kty', 'use', 'x', 'y'],
      ['alg', 'crv', 'kid', 'kty', 'use', 'x'],
    ]);
    expect(privateTexts().length).toBeGreaterThan(20);
    for (const text of privateTexts()) expect(answer.text).not.toContain(text);
  });

  it('verify a token of the publisher with another library', async () => {
    signer = await RemoteSigner.start('RS256', { kid: 'kms-1' });
    const { app } = await start({ key: undefined, keys: [signer] });
    const { token } = await app.get(WebhookPublisher).sign('https://a.example/', 'order.created');
    const { json } = await get();

    const { protectedHeader } = await compactVerify(
      token,
      createLocalJWKSet(json as unknown as JSONWebKeySet),
    );

    expect(protectedHeader).toMatchObject({ kid: 'kms-1', alg: 'RS256' });
  });

  it('are answered with 304 if the client has them', async () => {
    await start();
    const { headers } = await get();
    const etag = headers.etag!;

    for (const known of [etag, `W/${etag}`, `"x", ${etag}`, '*']) {
      const answer = await get(PATH, { 'if-none-match': known });
      expect([answer.status, answer.text, answer.headers.etag]).toEqual([304, '', etag]);
      expect(answer.headers['cache-control']).toBe('public, max-age=300');
    }
    expect((await get(PATH, { 'if-none-match': '"other"' })).status).toBe(200);
  });

  it('answer HEAD as GET, without the body', async () => {
    await start();
    const [byGet, byHead] = [await get(), await get(PATH, {}, 'HEAD')];

    const names = ['content-type', 'content-length', 'cache-control', 'etag'];
    const of = ({ headers }: Answer) => names.map((header) => headers[header]);
    expect([byHead.status, byHead.text]).toEqual([200, '']);
    expect(of(byHead)).toEqual(of(byGet));
  });

  it.each(['POST', 'PUT', 'PATCH', 'DELETE'])('answer 405 to %s', async (method) => {
    await start();
    const answer = await get(PATH, {}, method);

    expect([answer.status, answer.headers.allow]).toEqual([405, 'GET, HEAD']);
  });

  it('are served outside prefix, versions and guards, and leave other routes unchanged', async () => {
    await start(
      { jwks: { path: '/keys/webhooks.json', maxAge: '1h' } },
      {
        controllers: [Orders] as Type[],
        providers: [{ provide: APP_GUARD, useClass: DenyAll }],
        configure: (app) => void app.setGlobalPrefix('api').enableVersioning(),
      },
    );
    const answer = await get('/keys/webhooks.json');

    expect([answer.status, answer.headers['cache-control']]).toEqual([200, 'public, max-age=3600']);
    expect((await get('/api/keys/webhooks.json')).status).toBe(404);
    expect((await get(PATH)).status).toBe(404);
    expect((await get('/api/orders')).status).toBe(403);
  });

  it('are published before their first use, and removed after their end', async () => {
    const clock = new TestClock();
    const at = (minutes: number): Date => new Date(clock.now() + minutes * MINUTE);
    await start(
      {
        key: undefined,
        keys: [
          pair('old', 'EdDSA', ed.privateKey, { notAfter: at(20) }),
          pair('next', 'EdDSA', spare.privateKey, { notBefore: at(10) }),
        ],
      },
      { clock },
    );
    const first = await get();
    clock.set(at(20).getTime());
    const later = await get();

    expect(kids(first)).toEqual(['old', 'next']);
    expect(kids(later)).toEqual(['next']);
    expect(later.headers.etag).not.toBe(first.headers.etag);
  });

  it('change with the provider', async () => {
    class Provider extends KeyProvider<readonly SigningKeyInput[]> {
      keys: readonly SigningKeyInput[] = [pair('ed-1', 'EdDSA', ed.privateKey)];
      override load(): readonly SigningKeyInput[] {
        return this.keys;
      }
    }
    const provider = new Provider();
    await start({ key: undefined, keys: provider });
    const before = kids(await get());
    provider.keys = [pair('ed-2', 'EdDSA', spare.privateKey)];
    await provider.refresh();
    const after = kids(await get());
    provider.keys = [{ alg: 'EdDSA', key: ed.privateKey }];

    expect([before, after]).toEqual([['ed-1'], ['ed-2']]);
    await expect(provider.refresh()).rejects.toThrow(/publisher\.keys\[0\]: has no kid/);
    expect(kids(await get())).toEqual(['ed-2']);
  });

  it('are answered with 503 if the provider has been unavailable for a day', async () => {
    const clock = new TestClock();
    class Provider extends KeyProvider<readonly SigningKeyInput[]> {
      isAway = false;
      override async load(): Promise<readonly SigningKeyInput[]> {
        if (this.isAway) throw new Error('what the database says');
        return [pair('ed-1', 'EdDSA', ed.privateKey)];
      }
    }
    const provider = new Provider();
    const { logger } = await start({ key: undefined, keys: provider }, { clock });
    provider.isAway = true;
    clock.set(clock.now() + 25 * 60 * MINUTE);
    const { status, headers, text } = await get();

    expect([status, text, headers['cache-control']]).toEqual([503, '', 'no-store']);
    expect(headers['retry-after']).toBe('5');
    await get();
    const logged = logger.at('error').filter((line) => line.includes('could not be served'));
    expect(logged).toEqual([expect.stringContaining('(WebhookStoreError)')]);
    expect(logger.lines.join()).not.toContain('what the database says');
  });

  it('can be served by the application if no path is mounted', async () => {
    const { app } = await start({ jwks: undefined });

    expect((await get()).status).toBe(404);
    expect(await app.get(WebhookJwks).document()).toEqual({
      keys: [expect.objectContaining({ kid: 'ed-1' })],
    });
  });

  it('are not available to the application if a key has no id', async () => {
    const { app } = await start({ jwks: undefined, key: { alg: 'EdDSA', key: ed.privateKey } });

    await expect(app.get(WebhookJwks).document()).rejects.toThrow(/has no kid/);
  });

  it('cannot be mounted at a path that is already used', async () => {
    const starting = start({ jwks: { path: '/keys' } }, { controllers: [Taken] as Type[] });
    if (name === 'Fastify') {
      await expect(starting).rejects.toThrow(/publisher\.jwks\.path: .*GET \/keys already/);
    } else {
      await starting;
      expect((await get('/keys')).text).toBe('taken');
    }
  });

  it('cannot be mounted at the path of another publisher', async () => {
    const other = { publisher: publisherOptions({}), isGlobal: false };
    const starting = start({}, { imports: [WebhookModule.forRoot(other)] });

    await expect(starting).rejects.toThrow(/publisher\.jwks\.path: .*GET \S+ already/);
  });

  it('leave the other methods of the path to the application', async () => {
    await start({}, { controllers: [Taken] as Type[] });

    expect((await get(PATH, {}, 'POST')).text).toBe('own');
    expect((await get()).status).toBe(200);
  });
});

it('an application without HTTP can publish too', async () => {
  class Worker {}
  const app = await NestFactory.createApplicationContext(
    { module: Worker, imports: [WebhookModule.forRoot({ publisher: publisherOptions({}) })] },
    { logger: false, abortOnError: false },
  );

  expect((await app.get(WebhookJwks).document()).keys).toHaveLength(1);
  await app.close();
});
