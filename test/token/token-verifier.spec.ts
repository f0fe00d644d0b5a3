import { generateKeyPairSync } from 'node:crypto';
import { describe, expect, it } from '@jest/globals';
import {
  createTokenSigner,
  createTokenVerifier,
  signWebhookToken,
  verifyWebhookToken,
  WebhookConfigurationError,
  WebhookTokenError,
  type TokenVerifierOptions,
  type VerifiedWebhookToken,
} from '../../lib/token/index.js';
import { Mulberry32 } from './mulberry32.js';
import { forge, signHs256, type Mutation } from './token-mutations.js';

const NOW = 1_760_000_000;
const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-0123456789';
const CLAIMS = {
  iss: ISSUER,
  iat: NOW,
  exp: NOW + 300,
  jti: 'j-1',
  webhook: { event: 'order.created' },
};

const trusting = {
  issuers: [{ issuer: ISSUER, secret: SECRET }],
  now: () => NOW,
};

function token(
  claims: Record<string, unknown> = {},
  header: Record<string, unknown> = {},
  mutations: Mutation[] = [],
): string {
  return forge(
    { alg: 'HS256', typ: 'JWT', ...header },
    { ...CLAIMS, ...claims },
    signHs256(SECRET),
    mutations,
    new Mulberry32(1),
  );
}

function refusalOf(given: string, options: TokenVerifierOptions = trusting): WebhookTokenError {
  try {
    void createTokenVerifier(options).verify(given);
  } catch (error) {
    if (error instanceof WebhookTokenError) return error;
    throw error;
  }
  throw new Error('the token was accepted');
}

describe('a configuration', () => {
  it.each([
    ['a tolerance of 301 s', { clockTolerance: 301 }, 'clockTolerance', '0 to 300'],
    ['a negative tolerance', { clockTolerance: -1 }, 'clockTolerance', '0 to 300'],
    ['a tolerance that is NaN', { clockTolerance: NaN }, 'clockTolerance', '0 to 300'],
    ['a tolerance as a string', { clockTolerance: '60' as never }, 'clockTolerance', '0 to 300'],
    ['a lifetime of 0', { maxTokenLifetime: 0 }, 'maxTokenLifetime', 'positive'],
    ['an infinite lifetime', { maxTokenLifetime: Infinity }, 'maxTokenLifetime', 'positive'],
    ['a lifetime as a string', { maxTokenLifetime: '60' as never }, 'maxTokenLifetime', 'positive'],
    ['a limit of 0 JSON members', { maxJsonMembers: 0 }, 'maxJsonMembers', 'positive'],
    [
      'a limit of JSON members as a string',
      { maxJsonMembers: '9' as never },
      'maxJsonMembers',
      'positive',
    ],
    ['no profile', { profiles: [] }, 'profiles', 'at least one'],
    ['an unknown profile', { profiles: ['swt' as never] }, 'profiles', 'webhook-token'],
    ['an empty audience', { audience: '' }, 'audience', 'non-empty'],
    ['an empty audience in a list', { audience: ['a', ''] }, 'audience', 'non-empty'],
  ])('with %s is refused', (_, change, path, remedy) => {
    const make = () => createTokenVerifier({ ...trusting, ...change });

    expect(make).toThrow(WebhookConfigurationError);
    expect(make).toThrow(
      expect.objectContaining({
        code: 'invalid_configuration',
        problems: [{ path, message: expect.stringContaining(remedy) }],
      }),
    );
  });

  it.each([
    ['a tolerance of 0', { clockTolerance: 0 }],
    ['the largest tolerance', { clockTolerance: 300 }],
    [
      'only undefined options',
      { clockTolerance: undefined, audience: undefined, profiles: undefined },
    ],
  ])('with %s is accepted', (_, change) => {
    expect(createTokenVerifier({ ...trusting, ...change }).verify(token())).toMatchObject({
      claims: { jti: 'j-1' },
    });
  });

  it.each([
    ['a lifetime of 0', { lifetime: 0 }, 'lifetime'],
    ['half a second of lifetime', { lifetime: 0.5 }, 'lifetime'],
    ['a lifetime as a string', { lifetime: '300' as never }, 'lifetime'],
    ['no issuer', { issuer: '' }, 'issuer'],
    ['an issuer of 256 characters', { issuer: 'x'.repeat(256) }, 'issuer'],
  ])('of a signer with %s is refused', (_, change, path) => {
    expect(() => createTokenSigner({ issuer: ISSUER, key: SECRET, ...change })).toThrow(
      expect.objectContaining({ problems: [expect.objectContaining({ path })] }),
    );
  });

  it('is refused by verifyWebhookToken with a rejection', async () => {
    await expect(verifyWebhookToken(token(), { issuers: [] })).rejects.toBeInstanceOf(
      WebhookConfigurationError,
    );
  });
});

describe('the result', () => {
  it('is returned synchronously with a secret', () => {
    expect(createTokenVerifier(trusting).verify(token())).toEqual({
      header: { alg: 'HS256', typ: 'JWT' },
      claims: CLAIMS,
      key: { issuer: ISSUER, alg: 'HS256' },
      profile: 'webhook-token',
    });
  });

  it('is a promise with a key pair, also if the signature is invalid', async () => {
    const { privateKey, publicKey } = generateKeyPairSync('ed25519');
    const verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, keys: [{ kid: 'k', alg: 'EdDSA', key: publicKey }] }],
    });
    const right = await signWebhookToken(
      { event: 'order.created' },
      { issuer: ISSUER, key: { kid: 'k', alg: 'EdDSA', key: privateKey } },
    );
    const [header, claims] = right.split('.');
    const wrong = `${header}.${claims}.${Buffer.alloc(64).toString('base64url')}`;

    const verified = verifier.verify(right);
    const refused = verifier.verify(wrong) as Promise<VerifiedWebhookToken>;

    expect(verified).toBeInstanceOf(Promise);
    // Both have a handler from the start, so neither is an unhandled rejection.
    await Promise.all([
      expect(verified).resolves.toMatchObject({ key: { kid: 'k', alg: 'EdDSA' } }),
      expect(refused).rejects.toMatchObject({ code: 'bad_signature' }),
    ]);
  });

  it('cannot be changed for the next token', () => {
    const verifier = createTokenVerifier(trusting);
    const first = verifier.verify(token()) as VerifiedWebhookToken;

    Object.assign(first.header, { alg: 'none', kid: 'x' });
    expect(verifier.verify(token({ jti: 'j-2' }))).toMatchObject({
      header: { alg: 'HS256', typ: 'JWT' },
    });
  });

  it('is the same after the header cache has been full', () => {
    const verifier = createTokenVerifier(trusting);

    for (let i = 0; i < 600; i++) {
      expect(verifier.verify(token({}, { kid: `k${i % 300}` }))).toMatchObject({
        header: { kid: `k${i % 300}` },
      });
    }
  });
});

describe('a refusal', () => {
  it('suggests the trusted issuer if only a slash at the end differs, once the signature is verified', () => {
    const almost = { iss: `${ISSUER}/` };
    const two = {
      ...trusting,
      issuers: [...trusting.issuers, { issuer: 'x', secret: `${SECRET}x` }],
    };

    expect(refusalOf(token(almost)).message).toContain('did you mean "https://shop.example"?');
    expect(refusalOf(token({ iss: `${ISSUER}//` })).message).not.toContain(ISSUER);
    expect(refusalOf(`${token(almost)}A`).message).toBe('the token is invalid');
    expect(refusalOf(token(almost), two).message).toBe('the token is invalid');
  });

  it.each([undefined, null, 1, {}, [], Buffer.from('a.b.c')])('is thrown for %p', (given) => {
    expect(refusalOf(given as never).code).toBe('invalid_token');
  });

  it.each([
    ['exp', { exp: undefined }],
    ['jti', { jti: 1 }],
    ['iat', { iat: NOW + 100 }],
    ['nbf', { nbf: NOW + 100 }],
    ['exp', { exp: NOW + 4_000 }],
    ['aud', { aud: 'https://crm.example' }],
    ['sub', { sub: '' }],
    ['webhook', { webhook: [] }],
    ['webhook.event', { webhook: {} }],
    ['webhook.event', { webhook: { event: 'order' } }],
    ['webhook.data', { webhook: { event: 'order.created', data: [] } }],
    ['webhook.hash', { webhook: { event: 'order.created', hash: 1 } }],
  ])('names the claim %s', (claim, change) => {
    const error = refusalOf(token(change));

    expect(error.claim).toBe(claim);
    expect(error.message).not.toBe('the token is invalid');
  });

  it.each([
    ['the format', 'a.b'],
    ['alg', token({}, { alg: 'none' })],
    ['typ', token({}, { typ: 'at+jwt' })],
    ['crit', token({}, { crit: ['exp'] })],
    ['the signature', `${token().slice(0, -4)}AAAA`],
    ['the signature, with claims that are wrong too', `${token({ exp: 1 }).slice(0, -4)}AAAA`],
  ])('has an unspecific message before the signature is verified: %s', (_, given) => {
    const error = refusalOf(given);

    expect(error.message).toBe('the token is invalid');
    expect(error.claim).toBeUndefined();
  });

  it('has an unspecific message for an unknown issuer or key', () => {
    const keys = [{ kid: 'k', key: SECRET }];
    const others = [...trusting.issuers, { issuer: 'https://bank.example', secret: `${SECRET}2` }];

    expect(refusalOf(token({ iss: 'x' }), { ...trusting, issuers: others })).toMatchObject({
      code: 'wrong_issuer',
      message: 'the token is invalid',
    });
    expect(
      refusalOf(token({}, { kid: 'l' }), { ...trusting, issuers: [{ issuer: ISSUER, keys }] }),
    ).toMatchObject({ code: 'unknown_key', message: 'the token is invalid' });
  });

  it.each([
    ['NaN', () => NaN],
    ['an invalid Date', () => new Date(NaN)],
  ])('is thrown with a clock that returns %s', (_, now) => {
    expect(refusalOf(token(), { ...trusting, now }).code).toBe('token_expired');
  });
});

describe('the clock', () => {
  it.each([
    ['seconds', () => NOW + 359],
    ['milliseconds', () => (NOW + 359) * 1_000],
    ['a Date', () => new Date((NOW + 359) * 1_000)],
  ])('may return %s', (_, now) => {
    expect(createTokenVerifier({ ...trusting, now }).verify(token())).toBeDefined();
  });

  it('is read for each token', () => {
    let now = NOW;
    const verifier = createTokenVerifier({ ...trusting, now: () => now });
    expect(verifier.verify(token())).toBeDefined();

    now = NOW + 360;

    expect(() => verifier.verify(token())).toThrow(
      expect.objectContaining({ code: 'token_expired' }),
    );
  });

  it('is the system clock by default', () => {
    const fresh = createTokenSigner({ issuer: ISSUER, key: SECRET }).sign({ event: 'a.b' });

    expect(
      createTokenVerifier({ issuers: trusting.issuers }).verify(fresh as string),
    ).toBeDefined();
  });
});

describe('maxJsonMembers', () => {
  // Five claims, the members of `webhook`, and those of `data`.
  const withData = (data: object) => token({ webhook: { ...CLAIMS.webhook, data } });

  it.each([
    ['with one issuer', [{ issuer: ISSUER, secret: SECRET }]],
    [
      'with several issuers',
      [
        { issuer: ISSUER, secret: SECRET },
        { issuer: 'b', secret: SECRET },
      ],
    ],
  ])('limits the members of the claims, %s', (_, issuers) => {
    const options = { ...trusting, issuers, maxJsonMembers: 60 };
    const members = (count: number) =>
      Object.fromEntries(Array.from({ length: count }, (_unused, i) => [`m${i}`, i]));

    expect(refusalOf(withData(members(54)), options).code).toBe('invalid_token');
    expect(refusalOf(withData({ list: new Array(53).fill(0) }), options).code).toBe(
      'invalid_token',
    );
    expect(() => createTokenVerifier(options).verify(withData(members(53)))).not.toThrow();
  });
});
