import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import { calculateJwkThumbprint } from 'jose';
import { TestClock } from 'nestjs-webhook-token/testing';
import { KeyProvider } from 'nestjs-webhook-token';
import { configurationProblems } from '../fixtures/configuration-problems.js';

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

async function problemsOf(options: object): Promise<string[]> {
  return configurationProblems({ publisher: { issuer, ...options }, clock });
}

describe('the keys of a publisher', () => {
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
    ['a value that is not a list', { keys: pair }, /^publisher\.keys: must be a list/],
    ['an empty list', { keys: [] }, /^publisher\.keys: must contain at least one/],
    ['a weak secret', { keys: [secret, 'weak'] }, /^publisher\.keys\[1\]: .* at least 32/],
    [
      'an undefined key in the list',
      { keys: [undefined] },
      /^publisher\.keys\[0\]: the secret is missing/,
    ],
    [
      'a public key',
      { keys: [{ ...pair, key: ed.publicKey }] },
      /^publisher\.keys\[0\]: .*needs a private key/,
    ],
    [
      'an invalid time',
      { keys: [{ key: secret, notBefore: 1_767_225_600 }] },
      /^publisher\.keys\[0\]: notBefore must be a Date, or an ISO 8601/,
    ],
    [
      'one kid for two keys',
      { keys: [pair, { ...pair, key: secret, alg: 'HS256' }] },
      /keys\[1\]: its kid/,
    ],
    ['five keys without a kid', { keys: Array<string>(5).fill(secret) }, /keys: 5 .* at most 4/],
    ['only expired keys', { keys: [{ key: secret, notAfter: past }] }, /keys: the notAfter of/],
    ['one expired key', { key: { key: secret, notAfter: past } }, /\.key: the notAfter of/],
    [
      'a signer with an unknown algorithm',
      { keys: [{ ...signer, alg: 'x' }] },
      /keys\[0\]: the signer's/,
    ],
    [
      'a provider with an invalid ttl',
      { keys: new Provider('soon') },
      /keys: the provider's ttl must be a positive dur/,
    ],
    [
      'a secret beside keys at an endpoint',
      { secret, endpoints: [{ id: 'a', url: 'https://a.example', secret, keys: [pair] }] },
      /^publisher\.endpoints\[0\]\.keys: cannot be combined with secret/,
    ],
    [
      'a weak secret at an endpoint',
      { secret, endpoints: [{ id: 'a', url: 'https://a.example', keys: [pair, 'weak'] }] },
      /^publisher\.endpoints\[0\]\.keys\[1\]: .* at least 32/,
    ],
  ])('refuse %s', async (_, options, message) => {
    expect(await problemsOf(options)).toEqual([expect.stringMatching(message)]);
  });

  it.each<[string, object]>([
    ['an expired key beside a valid one', { keys: [pair, { key: secret, notAfter: past }] }],
    ['the kid of an expired key', { keys: [{ ...pair, notAfter: past }, { ...pair }] }],
    [
      'only keys that are not valid yet',
      { keys: [{ ...pair, notBefore: new Date(clock.now() + 1) }] },
    ],
    ['four keys without a kid', { keys: Array<string>(4).fill(secret) }],
  ])('accept %s', async (_, options) => {
    expect(await problemsOf(options)).toEqual([]);
  });
});

describe('the option jwks', () => {
  const own = (more: object): object => ({
    id: 'a',
    url: 'https://a.example',
    ...more,
  });
  it.each<[string, object, RegExp]>([
    [
      'a string instead of a boolean',
      { key: pair, jwks: 'true' },
      /^publisher\.jwks: must be true, or an/,
    ],
    ['an invalid path', { key: pair, jwks: { path: 'keys' } }, /jwks\.path: must be a path of/],
    [
      'a path with a parameter',
      { key: pair, jwks: { path: '/:a' } },
      /jwks\.path: must be a path of/,
    ],
    [
      'an invalid age',
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
      'a key without a kid',
      { keys: [pair, { alg: 'EdDSA', key: ed.privateKey }], jwks: true },
      /^publisher\.keys\[1\]: has no kid/,
    ],
    [
      'a key without a kid at an endpoint',
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
  ])('refuses %s', async (_, options, message) => {
    expect(await problemsOf(options)).toEqual([expect.stringMatching(message)]);
  });

  it.each([
    ['EdDSA', ed],
    ['ES256', ec],
    ['RS256', rsa],
  ] as const)(
    'suggests the thumbprint for a key without a kid: %s',
    async (alg, { privateKey, publicKey }) => {
      const [problem] = await problemsOf({ key: { alg, key: privateKey }, jwks: true });

      const thumbprint = await calculateJwkThumbprint(publicKey.export({ format: 'jwk' }));
      expect(problem).toContain(`"${thumbprint}"`);
    },
  );

  it('accepts a key of another issuer without a kid', async () => {
    const key = { alg: 'ES256', key: ec.privateKey };
    const endpoints = [own({ issuer: 'x', key })];

    expect(await problemsOf({ key: pair, jwks: true, endpoints })).toEqual([]);
  });

  it('accepts any key if it is false', async () => {
    expect(await problemsOf({ secret, jwks: false })).toEqual([]);
  });
});
