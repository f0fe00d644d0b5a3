import { afterEach, beforeEach, describe, expect, it } from '@jest/globals';
import { generateKeyPairSync, type JsonWebKey, type KeyObject } from 'node:crypto';
import { setImmediate } from 'node:timers/promises';
import { Injectable } from '@nestjs/common';
import type { AbstractHttpAdapter } from '@nestjs/core';
import { signWebhook, TestClock } from 'nestjs-webhook-token/testing';
import type { SignatureAlgorithm } from 'nestjs-webhook-token/token';
import {
  OnWebhookEvent,
  type SigningKeyInput,
  type WebhookIssuer,
  type WebhookReceiverOptions,
} from 'nestjs-webhook-token';
import type { JwksFetchOptions } from '../../lib/keys/jwks-options.js';
import { adapters, createExpress } from '../fixtures/adapters.js';
import { Gate } from '../fixtures/gate.js';
import { head, type Answer } from '../fixtures/http-client.js';
import { JWKS_CA, JwksServer } from '../fixtures/jwks-server.js';
import {
  ISSUER,
  receiverOptions,
  SECRET,
  startApp,
  type StartedApp,
} from '../fixtures/receiver-app.js';

interface Pair {
  readonly publicKey: KeyObject;
  readonly privateKey: KeyObject;
}

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const pairs: Partial<Record<SignatureAlgorithm, Pair>> = {
  RS256: rsa,
  PS256: rsa,
  ES256: generateKeyPairSync('ec', { namedCurve: 'P-256' }),
  ES384: generateKeyPairSync('ec', { namedCurve: 'P-384' }),
  EdDSA: generateKeyPairSync('ed25519'),
};
const algorithms = Object.keys(pairs) as SignatureAlgorithm[];
const other = generateKeyPairSync('ed25519');

function jwk({ publicKey }: Pair, more: object = {}): JsonWebKey {
  return { ...publicKey.export({ format: 'jwk' }), ...more };
}

const KEY = jwk(pairs.EdDSA!, { kid: 'a', alg: 'EdDSA', use: 'sig' });
const OTHER = jwk(other, { kid: 'b' });

@Injectable()
class Orders {
  @OnWebhookEvent('order.created')
  onCreated(): void {}
}

describe('an issuer with a jwksUri', () => {
  let clock: TestClock;
  let server: JwksServer;
  let started: StartedApp | undefined;

  beforeEach(async () => {
    clock = new TestClock();
    server = await JwksServer.start([KEY]);
  });
  afterEach(async () => {
    await started?.app.close();
    started = undefined;
    await server.close();
  });

  async function start(
    jwksFetch: JwksFetchOptions = {},
    issuer: Partial<WebhookIssuer> = {},
    adapter: AbstractHttpAdapter = createExpress(),
  ): Promise<StartedApp> {
    const receiver = receiverOptions({
      issuers: [{ issuer: ISSUER, jwksUri: server.uri, ...issuer }],
      jwksFetch: { allowPrivateNetworks: true, ca: JWKS_CA, ...jwksFetch },
    });
    started = await startApp(adapter, { options: { ...receiver, clock }, providers: [Orders] });
    return started;
  }

  async function token(kid: string | undefined, pair: Pair = pairs.EdDSA!, alg = 'EdDSA') {
    const key = { kid, alg: alg as SignatureAlgorithm, key: pair.privateKey };
    return (await signWebhook('order.created', undefined, { issuer: ISSUER, key, clock })).token;
  }

  async function deliver(kid?: string, pair?: Pair, alg?: string): Promise<Answer> {
    return head(started!.origin, await token(kid, pair, alg));
  }

  /** The status and the code: `204`, or `401 unknown_key`. */
  async function outcome(kid?: string, pair?: Pair, alg?: string): Promise<string> {
    const { status, headers } = await deliver(kid, pair, alg);
    return [status, headers['webhook-error'] ?? []].flat().join(' ');
  }

  it.each(algorithms)('is verified with published %s keys', async (alg) => {
    const pair = pairs[alg]!;
    server.publish([OTHER, jwk(pair, { kid: 'mine', alg, use: 'sig', key_ops: ['verify'] })]);
    await start();

    expect(server.hits).toBe(0);
    expect(await outcome('mine', pair, alg)).toBe('204');
    expect(await outcome('mine', pair, alg)).toBe('204');
    expect(await outcome(undefined, pair, alg)).toBe('204');
    // A key is not tried for a token of another algorithm.
    const refused = alg === 'EdDSA' ? '401 bad_signature' : '401 invalid_token';
    expect(await outcome('mine', other)).toBe(refused);
    expect(server.hits).toBe(1);
  });

  it.each([
    ['RSA', 'RS256'],
    ['EC on P-256', 'ES256'],
    ['EC on P-384', 'ES384'],
    ['Ed25519', 'EdDSA'],
  ] as const)('may publish a key of %s without its algorithm', async (_kind, alg) => {
    server.publish([jwk(pairs[alg]!, { kid: 'a' })]);
    await start();

    expect(await outcome('a', pairs[alg], alg)).toBe('204');
  });

  it('may be down at start-up', async () => {
    server.answer(500);
    await start();

    const answer = await deliver('a');

    expect(answer.status).toBe(503);
    expect(answer.headers).toMatchObject({
      'webhook-error': 'keys_unavailable',
      'retry-after': '5',
    });
  });

  it('gets one request for many unknown kids, and another after the cooldown', async () => {
    await start();
    const flood = async (): Promise<string[]> =>
      Promise.all(Array.from({ length: 20 }, (__, i) => outcome(`forged-${i}`, other)));

    expect(await outcome('a')).toBe('204');
    expect(new Set(await flood())).toEqual(new Set(['401 unknown_key']));
    expect(server.hits).toBe(1);
    await clock.advance(29_999);
    await flood();
    expect(server.hits).toBe(1);
    await clock.advance(1);
    await flood();
    await flood();
    expect(server.hits).toBe(2);
  });

  it('gets one request per cooldown while it is down, and its known keys stay in use', async () => {
    await start();
    await outcome('a');
    server.answer(503);
    await clock.advance(30_000);
    const flood = async (): Promise<void> => {
      const outcomes = Array.from({ length: 10 }, (__, i) => outcome(`forged-${i}`, other));
      expect(new Set(await Promise.all(outcomes))).toEqual(new Set(['503 keys_unavailable']));
      expect(await outcome('a')).toBe('204');
    };

    await flood();
    await flood();
    expect(server.hits).toBe(2);
    await clock.advance(30_000);
    await flood();
    expect(server.hits).toBe(3);
    expect(started!.logger.at('error')).toEqual([
      expect.stringMatching(
        /^error: The keys at 127\.0\.0\.1:\d+ cannot be refreshed.* status 503/,
      ),
    ]);
    server.publish([KEY]);
    await clock.advance(30_000);
    expect(await outcome('forged', other)).toBe('401 unknown_key');
    expect(started!.logger.at('log').join()).toContain('are refreshed again');
  });

  it('may be down for a day before its keys are dropped', async () => {
    await start();
    await outcome('a');
    server.answer(500);

    await clock.advance(23 * 3_600_000);
    expect(await outcome('a')).toBe('204');
    await clock.advance(3_600_000);
    expect(await outcome('a')).toBe('204');
    await clock.advance(30_000);
    expect(await outcome('a')).toBe('503 keys_unavailable');
    expect(await outcome('b', other)).toBe('503 keys_unavailable');
  });

  it('is unavailable, not without the key, if its keys are dropped during a failing fetch', async () => {
    await start();
    await outcome('a');
    const gate = new Gate();
    server.respond = (response) => void gate.pass().then(() => response.destroy());
    await clock.advance(24 * 3_600_000);
    const waiting = outcome('a');
    await gate.reached;
    await clock.advance(1);
    gate.open();

    expect(await waiting).toBe('503 keys_unavailable');
  });

  it('can add a key, which is fetched at its first use', async () => {
    await start();
    expect(await outcome('a')).toBe('204');
    server.publish([KEY, OTHER]);
    await clock.advance(30_000);

    expect(await outcome('b', other)).toBe('204');
    expect(await outcome('a')).toBe('204');
    expect(server.hits).toBe(2);
  });

  it('can remove a key, which is refused after the next fetch', async () => {
    await start();
    expect(await outcome('a')).toBe('204');
    server.publish([OTHER]);
    await clock.advance(600_000);
    expect(await outcome('a')).toBe('204');
    expect(server.hits).toBe(1);
    await clock.advance(1);

    // No longer fresh: used while the set is being fetched.
    expect(await outcome('a')).toBe('204');
    expect(await outcome('b', other)).toBe('204');
    expect(await outcome('a')).toBe('401 unknown_key');
    expect(server.hits).toBe(2);
  });

  it('can remove a key while idle: the next token waits for a fetch', async () => {
    await start();
    expect(await outcome('a')).toBe('204');
    server.publish([OTHER]);
    await clock.advance(20 * 60_000 + 1);

    const outcomes = await Promise.all([outcome('a'), outcome('a'), outcome('a')]);

    expect(outcomes).toEqual(Array(3).fill('401 unknown_key'));
    expect(server.hits).toBe(2);
  });

  it('does not delay tokens with a known key while it hangs', async () => {
    await start({ timeout: 60_000 });
    await outcome('a');
    const gate = new Gate();
    server.respond = (response) => void gate.pass().then(() => response.destroy());
    await clock.advance(600_001);

    expect(await outcome('a')).toBe('204');
    await gate.reached;
    expect(await outcome('a')).toBe('204');
    gate.open();
    while (started!.logger.at('error').length === 0) await setImmediate();
  });

  it.each<[string, (server: JwksServer) => void, RegExp]>([
    ['something other than JSON', (it) => it.answer(200, '<html>'), /is not JSON/],
    ['no list of keys', (it) => it.answer(200, '{"keys":{}}'), /not a key set/],
    ['an array', (it) => it.answer(200, '[]'), /not a key set/],
    ['another status', (it) => it.answer(404, JSON.stringify({ keys: [KEY] })), /has status 404/],
    ['no content', (it) => it.answer(204), /has status 204/],
    [
      'a declared length that is too large',
      (it) => it.answer(200, 'x'.repeat(65_537)),
      /more than 65536 bytes/,
    ],
    [
      'too many bytes in chunks',
      (it) =>
        (it.respond = (response) => {
          for (let i = 0; i < 70; i++) response.write(' '.repeat(1_000));
          response.end('{}');
        }),
      /more than 65536 bytes/,
    ],
    [
      'too many keys',
      (it) => it.publish(Array.from({ length: 101 }, () => ({ kty: 'EC' }))),
      /more than 100 keys/,
    ],
    [
      'another encoding',
      (it) => it.answer(200, '{"keys":[]}', { 'content-encoding': 'gzip' }),
      /is compressed/,
    ],
    [
      'an answer that changes the protocol',
      (it) => it.answer(101, '', { connection: 'upgrade', upgrade: 'h2c' }),
      /HPE_UNEXPECTED_UPGRADE/,
    ],
    ['an incomplete answer', breakOff, /the request failed/],
    ['nothing', (it) => (it.respond = (response) => response.destroy()), /failed, Error \(ECONN/],
  ])('has no usable keys if it publishes %s', async (_what, publish, reason) => {
    publish(server);
    await start();

    expect(await outcome('a')).toBe('503 keys_unavailable');
    expect(started!.logger.at('error')).toEqual([expect.stringMatching(reason)]);

    server.publish([KEY]);
    await clock.advance(30_000);
    expect(await outcome('a')).toBe('204');
    publish(server);
    await clock.advance(30_000);
    expect(await outcome('b', other)).toBe('503 keys_unavailable');
    expect(await outcome('a')).toBe('204');
  });

  it('cannot redirect to another address', async () => {
    const elsewhere = await JwksServer.start([KEY]);
    server.answer(302, '', { location: elsewhere.uri });
    await start();

    expect(await outcome('a')).toBe('503 keys_unavailable');
    expect(started!.logger.at('error').join()).toContain('redirects are not followed');
    expect(elsewhere.hits).toBe(0);
    await elsewhere.close();
  });

  it('must answer within the timeout', async () => {
    server.respond = (response) => void response.writeHead(200).write('{');
    await start({ timeout: 20 });

    expect(await outcome('a')).toBe('503 keys_unavailable');
    expect(started!.logger.at('error').join()).toContain('no complete answer arrived in time');
  });

  it('must have a trusted certificate', async () => {
    await start({ ca: undefined });

    expect(await outcome('a')).toBe('503 keys_unavailable');
    expect(server.hits).toBe(0);
  });

  it.each<[string, JsonWebKey, RegExp | undefined]>([
    ['a private key', { ...other.privateKey.export({ format: 'jwk' }), kid: 'b' }, /must replace/],
    ['a secret', { kty: 'oct', k: Buffer.from(SECRET).toString('base64url'), kid: 'b' }, /must re/],
    ['a key for encryption', { ...OTHER, use: 'enc' }, undefined],
    ['a key for other operations', { ...OTHER, key_ops: ['deriveBits'] }, undefined],
    ['a key of an unknown algorithm', { ...OTHER, alg: 'ES256K' }, undefined],
    ['a key of an unknown type', { kty: 'AKP', pub: 'AAAA', kid: 'b' }, undefined],
    ['an invalid kid', { ...OTHER, kid: '\n' }, /invalid kid/],
    ['half a key', { kty: 'OKP', crv: 'Ed25519', kid: 'b' }, /is not used: .* cannot be read/],
    ['a public key for HMAC', { ...OTHER, alg: 'HS256' }, /is not used: .*shared secret/],
    [
      'a key of small order',
      { kty: 'OKP', crv: 'Ed25519', kid: 'b', x: Buffer.alloc(32).toString('base64url') },
      /of small order/,
    ],
    [
      'a weak key',
      jwk(generateKeyPairSync('rsa', { modulusLength: 1024 }), { kid: 'b' }),
      /at least 2048 bits/,
    ],
  ])('may publish %s, which is skipped, beside a valid key', async (_what, bad, notice) => {
    server.publish([bad, KEY]);
    await start();

    expect(await outcome('a')).toBe('204');
    expect(await outcome('b', other)).toBe('401 unknown_key');
    await clock.advance(30_000);
    expect(await outcome('b', other)).toBe('401 unknown_key');
    expect(server.hits).toBe(2);
    const warned = started!.logger.at('warn').filter((line) => line.includes('The key set at'));
    expect(warned).toEqual(notice === undefined ? [] : [expect.stringMatching(notice)]);
    expect(warned.join()).not.toContain(bad.d ?? bad.k ?? SECRET);
  });

  it.each(['a', 1, null, []])(
    'may publish an entry that is not an object (%j), which is skipped, beside a valid key',
    async (entry) => {
      server.answer(200, JSON.stringify({ keys: [entry, KEY] }));
      await start();

      expect(await outcome('a')).toBe('204');
      expect(started!.logger.at('warn').join()).toContain('keys[0]: is not an object');
    },
  );

  it('revokes every key with an empty set', async () => {
    await start();
    await outcome('a');
    server.publish([]);
    await clock.advance(30_000);

    expect(await outcome('b', other)).toBe('401 unknown_key');
    expect(await outcome('a')).toBe('401 unknown_key');
    expect(started!.logger.at('warn').join()).toContain('no key of the set can verify');
  });

  it('may use one kid for several algorithms', async () => {
    const { ES256 } = pairs;
    server.publish([KEY, KEY, jwk(ES256!, { kid: 'a' })]);
    await start();

    expect(await outcome('a')).toBe('204');
    expect(await outcome('a', ES256, 'ES256')).toBe('204');
  });

  describe.each(adapters)('beside keys in its entry, on %s', (_, createAdapter) => {
    const { publicKey, privateKey } = other;

    async function signed(key: SigningKeyInput): Promise<string> {
      const sent = await signWebhook('order.created', undefined, { issuer: ISSUER, key, clock });
      const { status, headers } = await head(started!.origin, sent.token);
      return [status, headers['webhook-error'] ?? []].flat().join(' ');
    }

    it('can migrate from a secret to published keys without a gap', async () => {
      const keys = [{ kid: 'old', key: `${SECRET}-2` }];
      await start({}, { secret: SECRET, keys }, createAdapter());

      expect(await signed(SECRET)).toBe('204');
      expect(await signed({ kid: 'of-an-endpoint', key: SECRET })).toBe('204');
      expect(await signed({ kid: 'a', key: SECRET })).toBe('204');
      expect(await signed({ kid: 'old', key: `${SECRET}-2` })).toBe('204');
      expect(await signed({ kid: 'forged', key: `${SECRET}-3` })).toBe('401 bad_signature');
      expect(server.hits).toBe(0);
      expect(await outcome('a')).toBe('204');
      expect(await outcome()).toBe('204');
    });

    it('can migrate from a key without a kid, and fetches the set only if that key did not sign', async () => {
      await start({}, { keys: [{ alg: 'EdDSA', key: publicKey }] }, createAdapter());

      expect(await signed({ kid: 'any', alg: 'EdDSA', key: privateKey })).toBe('204');
      expect(await signed({ alg: 'EdDSA', key: privateKey })).toBe('204');
      expect(server.hits).toBe(0);
      server.answer(500);
      expect(await outcome('a')).toBe('503 keys_unavailable');
      expect(await signed({ kid: 'any', alg: 'EdDSA', key: privateKey })).toBe('204');
      server.publish([KEY]);
      await clock.advance(30_000);
      expect(await outcome('a')).toBe('204');
      expect(await outcome()).toBe('204');
      for (const kid of ['x', 'y', 'z']) {
        const forged = { kid, alg: 'EdDSA', key: generateKeyPairSync('ed25519').privateKey };
        expect(await signed(forged as SigningKeyInput)).toBe('401 bad_signature');
      }
      expect(server.hits).toBe(2);
    });

    it('uses the set after the keys in the entry have expired', async () => {
      const notAfter = new Date(clock.now() + 1_000);
      const keys = [{ kid: 'a', alg: 'EdDSA', key: publicKey, notAfter }] as const;
      await start({}, { keys }, createAdapter());

      expect(await signed({ kid: 'a', alg: 'EdDSA', key: privateKey })).toBe('204');
      await clock.advance(1_000);
      expect(await outcome('a')).toBe('204');
      expect(await outcome()).toBe('204');
      expect(await signed({ kid: 'a', alg: 'EdDSA', key: privateKey })).toBe('401 bad_signature');
    });
  });

  it('can share an address with others, which is fetched once', async () => {
    const issuers = ['https://a.example', 'https://b.example'].map((issuer) => ({
      issuer,
      jwksUri: server.uri,
    }));
    const { receiver } = receiverOptions({
      issuers,
      jwksFetch: { allowPrivateNetworks: true, ca: JWKS_CA },
    });
    started = await startApp(createExpress(), {
      options: { receiver, clock },
      providers: [Orders],
    });
    const key = { kid: 'a', alg: 'EdDSA', key: pairs.EdDSA!.privateKey } as const;

    for (const { issuer } of issuers) {
      const sent = await signWebhook('order.created', undefined, { issuer, key, clock });
      expect((await head(started.origin, sent.token)).status).toBe(204);
    }
    expect(server.hits).toBe(1);
  });

  it('has no key in logs or answers', async () => {
    const { d } = other.privateKey.export({ format: 'jwk' });
    server.publish([{ ...other.privateKey.export({ format: 'jwk' }), kid: 'b' }]);
    await start();
    const answers = [await deliver('b', other), await deliver('a')];
    server.answer(200, JSON.stringify({ keys: d }));
    await clock.advance(30_000);
    answers.push(await deliver('b', other));

    const printed = [...started!.logger.lines, ...answers.map((it) => JSON.stringify(it))].join();
    for (const text of [d!, OTHER.x!, KEY.x!]) expect(printed).not.toContain(text);
  });
});

describe('a jwksUri', () => {
  const start = (jwksUri: unknown, jwksFetch?: JwksFetchOptions): Promise<StartedApp> => {
    const receiver: Partial<WebhookReceiverOptions> = {
      issuers: [{ issuer: ISSUER, jwksUri: jwksUri as string }],
      jwksFetch,
    };
    return startApp(createExpress(), { options: receiverOptions(receiver) });
  };

  it.each<[string, unknown, JwksFetchOptions | undefined, RegExp]>([
    ['plain HTTP', 'http://keys.example/', undefined, /jwksUri: must be an https: URL/],
    ['something other than a URL', 'keys.example', undefined, /jwksUri: .*not an absolute URL/],
    ['a number', 1, undefined, /jwksUri: must be a string/],
    ['credentials', 'https://me:secret@keys.example/', undefined, /user name or password/],
    ['a file', 'file:///etc/keys', undefined, /its scheme is not https/],
    ['loopback', 'https://127.0.0.1/keys', undefined, /set allowPrivateNetworks/],
    ['metadata', 'https://169.254.169.254/', { allowPrivateNetworks: true }, /allowedAddresses/],
  ])('is refused if it is %s', async (_, uri, jwksFetch, problem) => {
    await expect(start(uri, jwksFetch)).rejects.toThrow(problem);
  });

  it.each<[JwksFetchOptions, RegExp]>([
    [{ timeout: 'soon' }, /receiver\.jwksFetch\.timeout: must be a positive duration/],
    [{ cooldown: '1h' }, /receiver\.jwksFetch\.cooldown: must be at most maxAge/],
    [{ maxStale: '1m' }, /receiver\.jwksFetch\.maxStale: must be at least maxAge/],
    [{ ca: '-----BEGIN CERTIFICATE-----\nAAAA' }, /receiver\.jwksFetch\.ca: cannot be read/],
    [{ allowedAddresses: ['everywhere'] }, /receiver\.jwksFetch\.allowedAddresses\[0\]/],
    [{ maxage: '1m' } as JwksFetchOptions, /receiver\.jwksFetch\.maxage: .* did you mean "maxAge"/],
  ])('is refused with the options %j', async (jwksFetch, problem) => {
    await expect(start('https://keys.example/', jwksFetch)).rejects.toThrow(problem);
  });

  it('that resolves to a private address is refused at the connection', async () => {
    const server = await JwksServer.start([KEY]);
    const uri = server.uri.replace('127.0.0.1', 'localhost');
    const options = receiverOptions({
      issuers: [{ issuer: ISSUER, jwksUri: uri }],
      // Allows the host name, but not the address it resolves to.
      jwksFetch: { allowedAddresses: ['::1'], ca: JWKS_CA },
    });
    const { app, origin, logger } = await startApp(createExpress(), { options });
    const key = { kid: 'a', alg: 'EdDSA', key: pairs.EdDSA!.privateKey } as const;
    const { token } = await signWebhook('order.created', undefined, { issuer: ISSUER, key });

    expect((await head(origin, token)).status).toBe(503);
    expect(server.hits).toBe(0);
    expect(logger.at('error').join()).toMatch(/resolves to an address|ECONNREFUSED/);
    await app.close();
    await server.close();
  });

  it('may be plain HTTP with allowHttp', async () => {
    const server = await JwksServer.start([KEY], false);
    const options = receiverOptions({
      issuers: [{ issuer: ISSUER, jwksUri: server.uri }],
      jwksFetch: { allowHttp: true, allowPrivateNetworks: true },
    });
    const { app, origin } = await startApp(createExpress(), { options });
    const key = { kid: 'a', alg: 'EdDSA', key: pairs.EdDSA!.privateKey } as const;
    const { token } = await signWebhook('order.created', undefined, { issuer: ISSUER, key });

    expect((await head(origin, token)).status).toBe(204);
    await app.close();
    await server.close();
  });
});

function breakOff(server: JwksServer): void {
  server.respond = (response) => {
    response.writeHead(200, { 'content-length': '100' });
    response.write('{"keys":', () => response.destroy());
  };
}
