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
    return { profiles, typ: 'SWT', method: 'POST', webhook, body: bytes, ...more } as Case;
  };
  const hash = `sha-256:${hex('sha256', body)}`;

  it.each<[string, Case, string]>([
    [
      'hex in upper case',
      post({ hash: `sha-256:${hex('sha256', body).toUpperCase()}` }, body),
      'swt-draft-02 body',
    ],
    ['a body that is there and empty', post({}, nothing), 'swt-draft-02 none'],
    ['unknown members', post({ size: 3, hashAlg: 'x' }), 'swt-draft-02 none'],
    [
      'a clock 60 s behind',
      post({}, nothing, { claims: { iat: NOW + 60, nbf: NOW + 60 } }),
      'swt-draft-02 none',
    ],
    [
      'a body without a hash, whatever the option says',
      post({}, body, { requireHash: false }),
      'hash_required',
    ],
    ['the hash of a body that is away', post({ hash }, nothing), 'hash_mismatch'],
    [
      'the hash of nothing',
      post({ hash: `sha-256:${hex('sha256', nothing)}` }, nothing),
      'hash_unsupported',
    ],
    [
      'the name of swt-draft-00',
      post({ hash: `SHA-256:${hex('sha256', body)}` }, body),
      'hash_unsupported',
    ],
    [
      'a truncated hash',
      post({ hash: `sha-256-128:${hex('sha256', body).slice(0, 32)}` }, body),
      'hash_unsupported',
    ],
    ['a hash of the wrong length', post({ hash: `${hash}0` }, body), 'hash_unsupported'],
    ['a hash that is no text', post({ hash: 7 }, body), 'invalid_claim'],
    ['data and a hash that holds', post({ data: { id: 7 }, hash }, body), 'invalid_claim'],
    ['data that is null', post({ data: null }), 'invalid_claim'],
    [
      'a reference to the body',
      post({ data: { hash: sha3(body), size: body.length } }, body),
      'invalid_claim',
    ],
    ['a retry count below 0', post({ retry_count: -1 }), 'invalid_claim'],
    ['half a retry', post({ retry_count: 0.5 }), 'invalid_claim'],
    ['a retry count in words', post({ retry_count: '1' }), 'invalid_claim'],
    ['a retry count beyond counting', post({ retry_count: 2 ** 53 }), 'invalid_claim'],
    [
      'a clock 61 s behind',
      post({}, nothing, { claims: { nbf: NOW + 61 } }),
      'token_not_yet_valid',
    ],
    ['typ swt', post({}, nothing, { typ: 'swt' }), 'invalid_token'],
    ['typ application/SWT', post({}, nothing, { typ: 'application/SWT' }), 'invalid_token'],
    ['a jti too long', post({}, nothing, { claims: { jti: 'j'.repeat(256) } }), 'invalid_claim'],
  ])('%s', (_, test, expected) => {
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
    ['typ SWT, while swt-draft-02 is off', head({}, { typ: 'SWT' }), 'swt-draft-00 data'],
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
      'POST, dual stamp of one algorithm',
      post(0, body, stamp(`sha3-256:${sha3(body)}`)),
      'swt-draft-00 body',
    ],
    [
      'POST, dual stamp of one algorithm, one wrong',
      post(0, body, stamp(`sha3-256:${sha3(other)}`)),
      'hash_mismatch',
    ],
    [
      'POST, dual stamp, its hash of another profile',
      post(0, body, stamp(`sha-256:${hex('sha256', body)}`)),
      'hash_unsupported',
    ],
    ['POST, size away', post({ hash: sha3(body) }), 'hash_unsupported'],
    ['POST, size in words', post({ ...reference, size: String(body.length) }), 'hash_unsupported'],
    ['POST, size below 0', post({ ...reference, size: -1 }), 'hash_unsupported'],
    ['POST, no hash', post({ size: body.length }), 'hash_required'],
    ['POST, a hash that is no text', post({ ...reference, hash: 7 }), 'hash_unsupported'],
    ['POST, the name of the specification', post(named('sha256')), 'hash_unsupported'],
    ['POST, a name that folds onto one', post(named('ſHA-256')), 'hash_unsupported'],
    ['POST, a name that is no text', post(named(['SHA-256'])), 'hash_unsupported'],
    ['POST, an empty name', post(named('')), 'hash_unsupported'],
    ['POST, hex of another length', post({ ...named('SHA-512') }), 'hash_unsupported'],
    ['POST, no data, no body', post(undefined, nothing), 'hash_required'],
    [
      'POST, no data, whatever the option says',
      post(undefined, body, { requireHash: false }),
      'hash_required',
    ],
    [
      'HEAD with a hash',
      head(0, { webhook: { hash: `sha256:${hex('sha256', body)}` } }),
      'hash_unsupported',
    ],
    ['HEAD with a hash that is no text', head(0, { webhook: { hash: 7 } }), 'invalid_claim'],
    ['base64 with unused bits set', head('e31='), 'invalid_claim'],
    ['base64 with a byte order mark', head(base64('\ufeff{"id":7}')), 'invalid_claim'],
    [
      'base64 of a member that replaces a prototype',
      head(base64('{"a":{"__proto__":{}}}')),
      'invalid_claim',
    ],
    ['base64 nested 64 levels', head(base64(nested(64))), 'swt-draft-00 data'],
    ['base64 nested 65 levels', head(base64(nested(65))), 'invalid_claim'],
    ['a jti too long', head({}, { claims: { jti: 'j'.repeat(256) } }), 'invalid_claim'],
    ['nbf a second ahead', head({}, { claims: { nbf: NOW + 1 } }), 'token_not_yet_valid'],
    ['iat a second ahead', head({}, { claims: { iat: NOW + 1 } }), 'token_not_yet_valid'],
    [
      'exp now, whatever the tolerance',
      head({}, { claims: { iat: NOW - 300, exp: NOW }, options: { clockTolerance: 300 } }),
      'token_expired',
    ],
  ])('%s', (_, test, expected) => {
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

  it('has no part of the data in a refusal', () => {
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
    ['no typ', { typ: undefined }, 'invalid_token'],
    ['base64 data', { webhook: { data: base64('{"id":7}') } }, 'invalid_claim'],
    ['data that is null', { webhook: { data: null } }, 'invalid_claim'],
    [
      'the hash of swt-draft-02',
      { method: 'POST', body, webhook: { hash: `sha-256:${hex('sha256', body)}` } },
      'hash_unsupported',
    ],
    [
      'the reference of swt-draft-00',
      { method: 'POST', body, webhook: { data: stamp } },
      'hash_required',
    ],
    [
      'the dual stamp',
      { method: 'POST', body, webhook: { data: stamp, hash } },
      'webhook-token body',
    ],
    [
      'the dual stamp, its reference wrong',
      { method: 'POST', body, webhook: { data: { ...stamp, size: 1 }, hash } },
      'webhook-token body',
    ],
    [
      'the dual stamp, its hash wrong',
      { method: 'POST', body: other, webhook: { data: stamp, hash } },
      'hash_mismatch',
    ],
    [
      'a retry count, which it does not know',
      { webhook: { retry_count: 'x' } },
      'webhook-token none',
    ],
    ['no nbf', { claims: { nbf: undefined } }, 'webhook-token none'],
  ])('%s', (_, test, expected) => {
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
      'an object is the specification’s',
      { profiles: all, typ: 'JWT', webhook: { data: {} } },
      'webhook-token data',
    ],
    [
      'and has its tolerance',
      { profiles: all, typ: 'JWT', webhook: { data: {} }, ...ahead },
      'webhook-token data',
    ],
    [
      'and needs no nbf',
      { profiles: all, typ: 'JWT', claims: { nbf: undefined } },
      'webhook-token none',
    ],
    [
      'base64 is -00',
      { profiles: all, typ: 'JWT', webhook: { data: base64('{}') } },
      'swt-draft-00 data',
    ],
    [
      'and has no tolerance',
      { profiles: all, typ: 'JWT', webhook: { data: base64('{}') }, ...ahead },
      'token_not_yet_valid',
    ],
    [
      'and needs nbf',
      { profiles: all, typ: 'JWT', webhook: { data: base64('{}') }, claims: { nbf: undefined } },
      'missing_claim',
    ],
    [
      'a reference is -00',
      { profiles: both, typ: 'JWT', method: 'POST', body, webhook: { data: reference } },
      'swt-draft-00 body',
    ],
    [
      'a stamp is -00',
      { profiles: both, typ: 'JWT', method: 'POST', body, webhook: { data: reference, hash } },
      'swt-draft-00 body',
    ],
    [
      'of which both must hold',
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
      'and the size',
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
      'a hash is the specification’s',
      { profiles: all, typ: 'JWT', method: 'POST', body, webhook: { hash } },
      'webhook-token body',
    ],
    [
      'SWT is -02',
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
      'SWT with a hash of the specification is none',
      { profiles: all, typ: 'SWT', method: 'POST', body, webhook: { hash } },
      'hash_unsupported',
    ],
    [
      'SWT with base64 is none',
      { profiles: all, typ: 'SWT', webhook: { data: base64('{}') } },
      'invalid_claim',
    ],
    [
      'JWT with a hash of -02 is none',
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
      'swt, spelt almost right, is none',
      { profiles: all, typ: 'swt', method: 'POST' },
      'invalid_token',
    ],
  ])('%s', (_, test, expected) => {
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
    ['EdDSA is none of swt-draft-02', NEW, 'EdDSA', pair, 'SWT', 'invalid_token'],
    ['RS256 is none of swt-draft-00', OLD, 'RS256', rsa, 'JWT', 'invalid_token'],
    ['RS256 is one of swt-draft-02', NEW, 'RS256', rsa, 'SWT', NEW],
    ['EdDSA is one of webhook-token', SPEC, 'EdDSA', pair, 'JWT', SPEC],
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
  ])('%s writes %j', (profile, input, typ, webhook) => {
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
    ['half a byte', OLD, { hash, size: 0.5 }, 'webhook.data.size'],
    ['a retry before the first', NEW, { retryCount: -1 }, 'webhook.retry_count'],
  ])('%s is refused', (_, profile, input, claim) => {
    expect(() => signer({ profile }).sign({ event, ...input })).toThrow(
      expect.objectContaining({ code: 'invalid_claim', claim }),
    );
  });

  it('is refused with a key of another algorithm', () => {
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
