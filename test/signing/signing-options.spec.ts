import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { calculateJwkThumbprint } from 'jose';
import { KeyProvider } from '../../lib/keys/key-provider.js';
import { resolvePublisherOptions } from '../../lib/publisher/publisher-options.resolver.js';
import { TestClock } from '../../lib/testing/test-clock.js';

const clock = new TestClock();
const secret = 'a secret of the test that is long enough';
const issuer = 'https://billing.example';
const past = new Date(clock.now() - 1);
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const ed = generateKeyPairSync('ed25519');
const pair = { kid: 'ed-1', alg: 'EdDSA', key: ed.privateKey } as const;
const signer = { alg: 'ES256', kid: 'kms', sign: () => Buffer.alloc(64) };

class Provider extends KeyProvider<readonly []> {
  constructor(override readonly ttl: string) {
    super();
  }
  override load(): readonly [] {
    return [];
  }
}

function faultsOf(options: object): readonly string[] {
  const { faults } = resolvePublisherOptions(
    { issuer, ...options },
    {
      clock,
      production: false,
    },
  );
  return faults.map(({ path, message }) => `${path}: ${message}`);
}

describe('the keys of a publisher are refused with', () => {
  it.each<[string, object, string | RegExp]>([
    [
      'a secret beside a key',
      { secret, key: pair },
      /^publisher\.key: cannot be combined with secret/,
    ],
    [
      'a key beside keys',
      { key: pair, keys: [pair] },
      /^publisher\.keys: cannot be combined with key; set/,
    ],
    ['no list', { keys: pair }, /^publisher\.keys: must be a list/],
    ['an empty list', { keys: [] }, /^publisher\.keys: must hold at least one/],
    ['a weak secret', { keys: [secret, 'weak'] }, /^publisher\.keys\[1\]: .* at least 32/],
    ['nothing in the list', { keys: [undefined] }, /^publisher\.keys\[0\]: the secret is missing/],
    [
      'a public key',
      { keys: [{ ...pair, key: ed.publicKey }] },
      /^publisher\.keys\[0\]: .*needs a private key/,
    ],
    [
      'a time that is none',
      { keys: [{ key: secret, notBefore: 1_767_225_600 }] },
      /^publisher\.keys\[0\]: notBefore must be a Date, or an ISO 8601/,
    ],
    [
      'one kid for two',
      { keys: [pair, { ...pair, key: secret, alg: 'HS256' }] },
      /keys\[1\]: its kid/,
    ],
    ['five without kid', { keys: Array<string>(5).fill(secret) }, /keys: 5 .* at most 4/],
    [
      'only keys that are over',
      { keys: [{ key: secret, notAfter: past }] },
      /keys: the notAfter of/,
    ],
    ['one key that is over', { key: { key: secret, notAfter: past } }, /\.key: the notAfter of/],
    [
      'a signer that has no algorithm',
      { keys: [{ ...signer, alg: 'x' }] },
      /keys\[0\]: the signer's/,
    ],
    [
      'a provider of no ttl',
      { keys: new Provider('soon') },
      /keys: the provider's ttl must be a positive dur/,
    ],
    [
      'two of them at an endpoint',
      { secret, endpoints: [{ id: 'a', url: 'https://a.example', secret, keys: [pair] }] },
      /^publisher\.endpoints\[0\]\.keys: cannot be combined with secret/,
    ],
    [
      'a bad one at an endpoint',
      { secret, endpoints: [{ id: 'a', url: 'https://a.example', keys: [pair, 'weak'] }] },
      /^publisher\.endpoints\[0\]\.keys\[1\]: .* at least 32/,
    ],
  ])('%s', (_, options, message) => {
    expect(faultsOf(options)).toEqual([expect.stringMatching(message)]);
  });

  it.each<[string, object]>([
    [
      'a key that is over, beside one that is not',
      { keys: [pair, { key: secret, notAfter: past }] },
    ],
    ['the kid of a key that is over', { keys: [{ ...pair, notAfter: past }, { ...pair }] }],
    ['only keys to come', { keys: [{ ...pair, notBefore: new Date(clock.now() + 1) }] }],
    ['four without kid', { keys: Array<string>(4).fill(secret) }],
  ])('nothing for %s', (_, options) => {
    expect(faultsOf(options)).toEqual([]);
  });
});

describe('the jwks is refused with', () => {
  const own = (more: object): object => ({
    id: 'a',
    url: 'https://a.example',
    ...more,
  });
  it.each<[string, object, RegExp]>([
    ['a switch that is none', { key: pair, jwks: 'true' }, /^publisher\.jwks: must be true, or an/],
    ['a path that is none', { key: pair, jwks: { path: 'keys' } }, /jwks\.path: must be a path of/],
    [
      'a path with a parameter',
      { key: pair, jwks: { path: '/:a' } },
      /jwks\.path: must be a path of/,
    ],
    [
      'an age that is none',
      { key: pair, jwks: { maxAge: '-1s' } },
      /jwks\.maxAge: must be a positive duration/,
    ],
    ['a secret alone', { secret, jwks: true }, /^publisher\.jwks: there is no public key to serve/],
    [
      'keys of another issuer alone',
      { secret, jwks: true, endpoints: [own({ issuer: 'x', key: pair })] },
      /jwks: there is no/,
    ],
    [
      'a signer without its public key',
      { key: signer, jwks: true },
      /^publisher\.key: has no publicKey/,
    ],
    [
      'a key without kid',
      { keys: [pair, { alg: 'EdDSA', key: ed.privateKey }], jwks: true },
      /^publisher\.keys\[1\]: has no kid/,
    ],
    [
      'a key without kid at an endpoint',
      { key: pair, jwks: true, endpoints: [own({ key: { alg: 'ES256', key: ec.privateKey } })] },
      /^publisher\.endpoints\[0\]\.key: has no kid/,
    ],
    [
      'one kid for two keys',
      {
        key: pair,
        jwks: true,
        endpoints: [own({ key: { ...pair, alg: 'ES256', key: ec.privateKey } })],
      },
      /^publisher\.jwks: two different keys of the publisher have the same kid/,
    ],
  ])('%s', (_, options, message) => {
    expect(faultsOf(options)).toEqual([expect.stringMatching(message)]);
  });

  it.each([
    ['EdDSA', ed],
    ['ES256', ec],
    ['RS256', rsa],
  ] as const)(
    'the thumbprint of the key that has no kid: %s',
    async (alg, { privateKey, publicKey }) => {
      const [fault] = faultsOf({ key: { alg, key: privateKey }, jwks: true });

      const thumbprint = await calculateJwkThumbprint(publicKey.export({ format: 'jwk' }));
      expect(fault).toContain(`"${thumbprint}"`);
    },
  );

  it('nothing for a key of another issuer without kid', () => {
    const key = { alg: 'ES256', key: ec.privateKey };

    expect(faultsOf({ key: pair, jwks: true, endpoints: [own({ issuer: 'x', key })] })).toEqual([]);
  });

  it('nothing when it is switched off', () => {
    expect(faultsOf({ secret, jwks: false })).toEqual([]);
  });
});
