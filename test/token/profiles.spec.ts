import { createHash, createHmac, generateKeyPairSync } from 'node:crypto';
import { sha3_256 } from '@noble/hashes/sha3.js';
import { describe, expect, it } from '@jest/globals';
import {
  createTokenSigner,
  createTokenVerifier,
  digest,
  isWebhookError,
  verifyWebhookPayload,
  WebhookConfigurationError,
  type TokenSignerOptions,
  type TokenVerifierOptions,
  type VerifiedWebhookToken,
  type WebhookProfile,
  type WebhookTokenInput,
} from '../../lib/token/index.js';

const ISSUER = 'https://shop.example';
const SECRET = 'correct-horse-battery-staple-0001';
const NOW = 1_760_000_000;

const SPEC = 'webhook-token';
const OLD = 'swt-draft-00';
const NEW = 'swt-draft-02';

const body = Buffer.from('{"id":7,"note":"ünï"}');
const other = Buffer.from('{"id":8,"note":"ünï"}');
const nothing = Buffer.alloc(0);
const hex = (algorithm: string, bytes: Uint8Array): string =>
  createHash(algorithm).update(bytes).digest('hex');
/** An implementation independent of the one under test. */
const sha3 = (bytes: Uint8Array): string => Buffer.from(sha3_256(bytes)).toString('hex');
const base64 = (json: string): string => Buffer.from(json).toString('base64');

interface Case {
  readonly typ?: string | undefined;
  readonly claims?: Readonly<Record<string, unknown>>;
  readonly webhook?: Readonly<Record<string, unknown>>;
  readonly method?: 'HEAD' | 'POST';
  readonly body?: Buffer;
  readonly profiles: readonly WebhookProfile[];
  readonly options?: Partial<TokenVerifierOptions>;
  readonly requireHash?: boolean;
}

/** A token with a valid signature that the package's signer would refuse to create. */
function forge({ typ, claims, webhook }: Case): string {
  const header = { alg: 'HS256', ...(typ !== undefined && { typ }) };
  const whole = {
    iss: ISSUER,
    iat: NOW,
    nbf: NOW,
    exp: NOW + 300,
    jti: 'j-1',
    webhook: { event: 'order.created', ...webhook },
    ...claims,
  };
  const input = [header, whole]
    .map((part) => Buffer.from(JSON.stringify(part)).toString('base64url'))
    .join('.');
  return `${input}.${createHmac('sha256', SECRET).update(input).digest('base64url')}`;
}

function verified(test: Case, token = forge(test)): VerifiedWebhookToken {
  return createTokenVerifier({
    issuers: [{ issuer: ISSUER, secret: SECRET }],
    profiles: test.profiles,
    now: () => NOW,
    ...test.options,
  }).verify(token) as VerifiedWebhookToken;
}

/** Profile and source of the payload, or the code of the refusal. */
function outcome(test: Case): string {
  try {
    const { claims, profile } = verified(test);
    const { method = 'HEAD', requireHash } = test;
    const { source } = verifyWebhookPayload(claims, {
      method,
      body: test.body,
      profile,
      requireHash,
    });
    return `${profile} ${source}`;
  } catch (error) {
    if (!isWebhookError(error)) throw error;
    return error.code;
  }
}

describe('swt-draft-02', () => {
  const profiles = [NEW] as const;
  const post = (webhook: Case['webhook'], bytes?: Buffer, more?: Partial<Case>): Case => {
    return { profiles, typ: 'SWT', method: 'POST', webhook, body: bytes, ...more };
  };
  const hash = `sha-256:${hex('sha256', body)}`;

  it.each<[string, Case, string]>([
    [
      'hex in upper case',
      post({ hash: `sha-256:${hex('sha256', body).toUpperCase()}` }, body),
      'swt-draft-02 body',
    ],
    ['an empty body', post({}, nothing), 'swt-draft-02 none'],
    ['unknown members', post({ size: 3, hashAlg: 'x' }), 'swt-draft-02 none'],
    [
      'a clock 60 s behind',
      post({}, nothing, { claims: { iat: NOW + 60, nbf: NOW + 60 } }),
      'swt-draft-02 none',
    ],
    [
      'a body without a hash, whatever requireHash is',
      post({}, body, { requireHash: false }),
      'hash_required',
    ],
    ['the hash of a missing body', post({ hash }, nothing), 'hash_mismatch'],
    [
      'the hash of an empty body',
      post({ hash: `sha-256:${hex('sha256', nothing)}` }, nothing),
      'hash_unsupported',
    ],
    [
      'a hash name of swt-draft-00',
      post({ hash: `SHA-256:${hex('sha256', body)}` }, body),
      'hash_unsupported',
    ],
    [
      'a truncated hash',
      post({ hash: `sha-256-128:${hex('sha256', body).slice(0, 32)}` }, body),
      'hash_unsupported',
    ],
    ['a hash of the wrong length', post({ hash: `${hash}0` }, body), 'hash_unsupported'],
    ['a hash that is not a string', post({ hash: 7 }, body), 'invalid_claim'],
    ['data beside a correct hash', post({ data: { id: 7 }, hash }, body), 'invalid_claim'],
    ['data that is null', post({ data: null }), 'invalid_claim'],
    [
      'a reference to the body',
      post({ data: { hash: sha3(body), size: body.length } }, body),
      'invalid_claim',
    ],
    ['a retry count below 0', post({ retry_count: -1 }), 'invalid_claim'],
    ['a retry count that is not an integer', post({ retry_count: 0.5 }), 'invalid_claim'],
    ['a retry count as a string', post({ retry_count: '1' }), 'invalid_claim'],
    ['a retry count above the safe integers', post({ retry_count: 2 ** 53 }), 'invalid_claim'],
    [
      'a clock 61 s behind',
      post({}, nothing, { claims: { nbf: NOW + 61 } }),
      'token_not_yet_valid',
    ],
    ['typ swt in lower case', post({}, nothing, { typ: 'swt' }), 'invalid_token'],
    ['typ application/SWT', post({}, nothing, { typ: 'application/SWT' }), 'invalid_token'],
    [
      'a jti that is too long',
      post({}, nothing, { claims: { jti: 'j'.repeat(256) } }),
      'invalid_claim',
    ],
  ])('decides on %s', (_, test, expected) => {
    expect(outcome(test)).toBe(expected);
  });
});

describe('swt-draft-00', () => {
  const profiles = [OLD] as const;
  const head = (data: unknown, more?: Partial<Case>): Case => {
    return { profiles, typ: 'JWT', webhook: { data }, ...more };
  };
  const reference = { hash: sha3(body), size: body.length };
  const post = (data: unknown, bytes: Buffer = body, more?: Partial<Case>): Case => {
    return { profiles, typ: 'JWT', method: 'POST', webhook: { data }, body: bytes, ...more };
  };
  const named = (hashAlg: unknown, algorithm = 'sha256'): object => {
    return { hash: hex(algorithm, body), hashAlg, size: body.length };
  };
  const stamp = (hash: string): Partial<Case> => {
    return { webhook: { data: reference, hash } };
  };

  it.each<[string, Case, string]>([
    ['typ SWT, if swt-draft-02 is disabled', head({}, { typ: 'SWT' }), 'swt-draft-00 data'],
    [
      'POST, hex in upper case',
      post({ ...reference, hash: reference.hash.toUpperCase() }),
      'swt-draft-00 body',
    ],
    [
      'POST, unknown members in the reference',
      post({ ...reference, more: true }),
      'swt-draft-00 body',
    ],
    [
      'POST, two digests of one algorithm',
      post(0, body, stamp(`sha3-256:${sha3(body)}`)),
      'swt-draft-00 body',
    ],
    [
      'POST, two digests of one algorithm, one wrong',
      post(0, body, stamp(`sha3-256:${sha3(other)}`)),
      'hash_mismatch',
    ],
    [
      'POST, two digests, the hash of another profile',
      post(0, body, stamp(`sha-256:${hex('sha256', body)}`)),
      'hash_unsupported',
    ],
    ['POST, without a size', post({ hash: sha3(body) }), 'hash_unsupported'],
    [
      'POST, a size as a string',
      post({ ...reference, size: String(body.length) }),
      'hash_unsupported',
    ],
    ['POST, a negative size', post({ ...reference, size: -1 }), 'hash_unsupported'],
    ['POST, without a hash', post({ size: body.length }), 'hash_required'],
    ['POST, a hash that is not a string', post({ ...reference, hash: 7 }), 'hash_unsupported'],
    ['POST, a hash name of webhook-token', post(named('sha256')), 'hash_unsupported'],
    [
      'POST, a hash name that is only equal in another case',
      post(named('ſHA-256')),
      'hash_unsupported',
    ],
    ['POST, a hash name that is not a string', post(named(['SHA-256'])), 'hash_unsupported'],
    ['POST, an empty hash name', post(named('')), 'hash_unsupported'],
    ['POST, hex of another length', post({ ...named('SHA-512') }), 'hash_unsupported'],
    ['POST, neither data nor body', post(undefined, nothing), 'hash_required'],
    [
      'POST, no data, whatever requireHash is',
      post(undefined, body, { requireHash: false }),
      'hash_required',
    ],
    [
      'HEAD with a hash',
      head(0, { webhook: { hash: `sha256:${hex('sha256', body)}` } }),
      'hash_unsupported',
    ],
    ['HEAD with a hash that is not a string', head(0, { webhook: { hash: 7 } }), 'invalid_claim'],
    ['base64 with unused bits set', head('e31='), 'invalid_claim'],
    ['base64 with a byte order mark', head(base64('\ufeff{"id":7}')), 'invalid_claim'],
    [
      'base64 of a member that replaces a prototype',
      head(base64('{"a":{"__proto__":{}}}')),
      'invalid_claim',
    ],
    ['base64 nested 64 levels', head(base64(nested(64))), 'swt-draft-00 data'],
    ['base64 nested 65 levels', head(base64(nested(65))), 'invalid_claim'],
    ['a jti that is too long', head({}, { claims: { jti: 'j'.repeat(256) } }), 'invalid_claim'],
    ['nbf a second ahead', head({}, { claims: { nbf: NOW + 1 } }), 'token_not_yet_valid'],
    ['iat a second ahead', head({}, { claims: { iat: NOW + 1 } }), 'token_not_yet_valid'],
    [
      'exp now, whatever the tolerance',
      head({}, { claims: { iat: NOW - 300, exp: NOW }, options: { clockTolerance: 300 } }),
      'token_expired',
    ],
  ])('decides on %s', (_, test, expected) => {
    expect(outcome(test)).toBe(expected);
  });

  it.each([{ id: 7 }, [7], 'text', 7, false, null, reference])('decodes base64 of %j', (data) => {
    expect(verified(head(base64(JSON.stringify(data)))).claims.webhook).toEqual({
      event: 'order.created',
      data,
    });
  });

  it('reads null as no data', () => {
    expect(verified(head(null)).claims.webhook).toEqual({ event: 'order.created' });
  });

  it('limits the JSON members of base64 data', () => {
    const data = base64(JSON.stringify(new Array(30).fill(0)));

    expect(outcome(head(data, { options: { maxJsonMembers: 30 } }))).toBe('swt-draft-00 data');
    expect(outcome(head(data, { options: { maxJsonMembers: 29 } }))).toBe('invalid_claim');
  });

  it('quotes no data in a refusal', () => {
    const data = Buffer.from('{"card":"4111 1111"').toString('base64');

    expect(() => verified(head(data))).toThrow(
      expect.objectContaining({
        claim: 'webhook.data',
        message: expect.not.stringMatching(/4111|card|eyJ/),
      }),
    );
  });
});

describe('webhook-token', () => {
  const profiles = [SPEC] as const;
  const stamp = { hash: sha3(body), hashAlg: 'SHA3-256', size: body.length };
  const hash = `sha256:${hex('sha256', body)}`;

  it.each<[string, Omit<Case, 'profiles'>, string]>([
    ['typ SWT', { typ: 'SWT' }, 'invalid_token'],
    ['a missing typ', { typ: undefined }, 'invalid_token'],
    ['base64 data', { webhook: { data: base64('{"id":7}') } }, 'invalid_claim'],
    ['data that is null', { webhook: { data: null } }, 'invalid_claim'],
    [
      'the hash of swt-draft-02',
      { method: 'POST', body, webhook: { hash: `sha-256:${hex('sha256', body)}` } },
      'hash_unsupported',
    ],
    [
      'the body reference of swt-draft-00',
      { method: 'POST', body, webhook: { data: stamp } },
      'hash_required',
    ],
    [
      'both digests',
      { method: 'POST', body, webhook: { data: stamp, hash } },
      'webhook-token body',
    ],
    [
      'both digests, the reference wrong',
      { method: 'POST', body, webhook: { data: { ...stamp, size: 1 }, hash } },
      'webhook-token body',
    ],
    [
      'both digests, the hash wrong',
      { method: 'POST', body: other, webhook: { data: stamp, hash } },
      'hash_mismatch',
    ],
    [
      'a retry count, which the profile does not define',
      { webhook: { retry_count: 'x' } },
      'webhook-token none',
    ],
    ['a missing nbf', { claims: { nbf: undefined } }, 'webhook-token none'],
  ])('decides on %s', (_, test, expected) => {
    expect(outcome({ typ: 'JWT', ...test, profiles })).toBe(expected);
  });
});

describe('several profiles', () => {
  const both = [SPEC, OLD] as const;
  const all = [SPEC, OLD, NEW] as const;
  const hash = `sha256:${hex('sha256', body)}`;
  const reference = { hash: sha3(body), size: body.length };
  const ahead = { claims: { iat: NOW + 30, nbf: NOW + 30 } };

  it.each<[string, Case, string]>([
    [
      'an object as webhook-token',
      { profiles: all, typ: 'JWT', webhook: { data: {} } },
      'webhook-token data',
    ],
    [
      'an object as webhook-token, with the clock tolerance',
      { profiles: all, typ: 'JWT', webhook: { data: {} }, ...ahead },
      'webhook-token data',
    ],
    [
      'no data as webhook-token, without nbf',
      { profiles: all, typ: 'JWT', claims: { nbf: undefined } },
      'webhook-token none',
    ],
    [
      'base64 as swt-draft-00',
      { profiles: all, typ: 'JWT', webhook: { data: base64('{}') } },
      'swt-draft-00 data',
    ],
    [
      'base64 as swt-draft-00, without clock tolerance',
      { profiles: all, typ: 'JWT', webhook: { data: base64('{}') }, ...ahead },
      'token_not_yet_valid',
    ],
    [
      'base64 as swt-draft-00, which requires nbf',
      { profiles: all, typ: 'JWT', webhook: { data: base64('{}') }, claims: { nbf: undefined } },
      'missing_claim',
    ],
    [
      'a body reference as swt-draft-00',
      { profiles: both, typ: 'JWT', method: 'POST', body, webhook: { data: reference } },
      'swt-draft-00 body',
    ],
    [
      'both digests as swt-draft-00',
      { profiles: both, typ: 'JWT', method: 'POST', body, webhook: { data: reference, hash } },
      'swt-draft-00 body',
    ],
    [
      'both digests as swt-draft-00, one wrong',
      {
        profiles: both,
        typ: 'JWT',
        method: 'POST',
        body: other,
        webhook: { data: reference, hash: `sha256:${hex('sha256', other)}` },
      },
      'hash_mismatch',
    ],
    [
      'both digests as swt-draft-00, with a wrong size',
      {
        profiles: both,
        typ: 'JWT',
        method: 'POST',
        body,
        webhook: { data: { ...reference, size: 1 }, hash },
      },
      'hash_mismatch',
    ],
    [
      'a hash as webhook-token',
      { profiles: all, typ: 'JWT', method: 'POST', body, webhook: { hash } },
      'webhook-token body',
    ],
    [
      'typ SWT as swt-draft-02',
      {
        profiles: all,
        typ: 'SWT',
        method: 'POST',
        body,
        webhook: { hash: `sha-256:${hex('sha256', body)}` },
      },
      'swt-draft-02 body',
    ],
    [
      'typ SWT with a hash of webhook-token, as no profile',
      { profiles: all, typ: 'SWT', method: 'POST', body, webhook: { hash } },
      'hash_unsupported',
    ],
    [
      'typ SWT with base64, as no profile',
      { profiles: all, typ: 'SWT', webhook: { data: base64('{}') } },
      'invalid_claim',
    ],
    [
      'typ JWT with a hash of swt-draft-02, as no profile',
      {
        profiles: all,
        typ: 'JWT',
        method: 'POST',
        body,
        webhook: { hash: `sha-256:${hex('sha256', body)}` },
      },
      'hash_unsupported',
    ],
    [
      'typ swt in lower case, as no profile',
      { profiles: all, typ: 'swt', method: 'POST' },
      'invalid_token',
    ],
  ])('decides on %s', (_, test, expected) => {
    expect(outcome(test)).toBe(expected);
  });

  it('checks the profile again for a cached header', () => {
    const verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, secret: SECRET }],
      profiles: all,
      now: () => NOW,
    });
    const profileOf = (data: unknown): string => {
      const token = forge({ profiles: all, typ: 'JWT', webhook: { data } });
      return (verifier.verify(token) as VerifiedWebhookToken).profile;
    };

    expect([{}, base64('{}'), {}, null].map(profileOf)).toEqual([SPEC, OLD, SPEC, OLD]);
  });
});

describe('the algorithm', () => {
  const pair = generateKeyPairSync('ed25519');
  const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });

  it.each([
    ['EdDSA is refused by swt-draft-02', NEW, 'EdDSA', pair, 'SWT', 'invalid_token'],
    ['RS256 is refused by swt-draft-00', OLD, 'RS256', rsa, 'JWT', 'invalid_token'],
    ['RS256 is accepted by swt-draft-02', NEW, 'RS256', rsa, 'SWT', NEW],
    ['EdDSA is accepted by webhook-token', SPEC, 'EdDSA', pair, 'JWT', SPEC],
  ] as const)('%s', async (_, profile, alg, { privateKey, publicKey }, typ, expected) => {
    // Signed by the package, and read by a verifier with this profile.
    const sent = typ === 'SWT' && alg === 'RS256' ? NEW : SPEC;
    const key = { alg, key: privateKey };
    const token =
      sent === SPEC && typ === 'SWT'
        ? await resigned(key.key)
        : await createTokenSigner({ issuer: ISSUER, key, profile: sent }).sign({ event: 'a.b' });
    const verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, keys: [{ alg, key: publicKey }] }],
      profiles: [profile],
    });

    const result = await Promise.resolve(verifier.verify(token)).then(
      (verifiedToken) => verifiedToken.profile,
      (error: { code: string }) => error.code,
    );
    expect(result).toBe(expected);
  });

  /** A token with `typ` SWT that the signer refuses to create. */
  async function resigned(privateKey: (typeof pair)['privateKey']): Promise<string> {
    const { CompactSign } = await import('jose');
    const iat = Math.floor(Date.now() / 1_000);
    const claims = {
      iss: ISSUER,
      iat,
      nbf: iat,
      exp: iat + 60,
      jti: 'j',
      webhook: { event: 'a.b' },
    };
    return new CompactSign(Buffer.from(JSON.stringify(claims)))
      .setProtectedHeader({ alg: 'EdDSA', typ: 'SWT' })
      .sign(privateKey);
  }
});

describe('signing', () => {
  const signer = (options: Partial<TokenSignerOptions> = {}) =>
    createTokenSigner({ issuer: ISSUER, key: SECRET, now: () => NOW, ...options });
  const parts = (token: unknown): any =>
    (token as string)
      .split('.')
      .slice(0, 2)
      .map((part) => JSON.parse(Buffer.from(part, 'base64url').toString()) as unknown);
  const event = 'order.created';
  const hash = digest('sha256', body);

  it.each<[WebhookProfile, Partial<WebhookTokenInput>, string, object]>([
    [SPEC, { data: { id: 7 }, retryCount: 2 }, 'JWT', { event, data: { id: 7 } }],
    [SPEC, { hash, size: 3 }, 'JWT', { event, hash }],
    [OLD, {}, 'JWT', { event }],
    [OLD, { data: { id: 7 } }, 'JWT', { event, data: { id: 7 } }],
    [
      OLD,
      { hash, size: body.length },
      'JWT',
      { event, data: { hash: hash.slice(7), hashAlg: 'SHA-256', size: body.length }, hash },
    ],
    [NEW, {}, 'SWT', { event }],
    [NEW, { retryCount: 0 }, 'SWT', { event, retry_count: 0 }],
    [NEW, { hash }, 'SWT', { event, hash: hash.replace('sha256', 'sha-256') }],
    [
      NEW,
      { hash: digest('sha3-512', body), size: body.length },
      'SWT',
      { event, hash: digest('sha3-512', body) },
    ],
    [NEW, { hash: digest('sha256', nothing), size: 0 }, 'SWT', { event }],
  ])('encodes %s: %j', (profile, input, typ, webhook) => {
    const bySigner = signer({ profile }).sign({ event, ...input });
    const byToken = signer().sign({ event, ...input, profile });

    for (const [header, claims] of [parts(bySigner), parts(byToken)]) {
      expect(header).toEqual({ alg: 'HS256', typ });
      expect(claims).toMatchObject({ nbf: NOW, webhook });
      expect(claims.webhook).toEqual(webhook);
    }
  });

  it.each<[string, WebhookProfile, Partial<WebhookTokenInput>, string]>([
    ['inline data', NEW, { data: {} }, 'webhook.data'],
    ['a hash without a size', OLD, { hash }, 'webhook.data'],
    ['a hash and data', OLD, { hash, size: 3, data: {} }, 'webhook.data'],
    ['a size that is not an integer', OLD, { hash, size: 0.5 }, 'webhook.data.size'],
    ['a negative retry count', NEW, { retryCount: -1 }, 'webhook.retry_count'],
  ])('refuses %s', (_, profile, input, claim) => {
    expect(() => signer({ profile }).sign({ event, ...input })).toThrow(
      expect.objectContaining({ code: 'invalid_claim', claim }),
    );
  });

  it('refuses a key of another algorithm', () => {
    const key = { alg: 'EdDSA', key: generateKeyPairSync('ed25519').privateKey } as const;

    expect(() => signer({ key, profile: NEW })).toThrow(WebhookConfigurationError);
    expect(() => signer({ key, profile: NEW })).toThrow(/profile: swt-draft-02 has no EdDSA: pass/);
    expect(() => signer({ profile: 'swt' as never })).toThrow(/profile: must be one of webhook-t/);
    expect(() => signer({ key }).sign({ event, profile: OLD })).toThrow(
      /swt-draft-00 has no EdDSA/,
    );
  });
});

function nested(levels: number): string {
  return `${'{"a":'.repeat(levels - 1)}{}${'}'.repeat(levels - 1)}`;
}
