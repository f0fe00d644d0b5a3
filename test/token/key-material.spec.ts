import { describe, expect, it, jest } from '@jest/globals';
import {
  createPublicKey,
  createSecretKey,
  generateKeyPairSync,
  KeyObject,
  webcrypto,
  type JsonWebKey,
} from 'node:crypto';
import {
  createTokenSigner,
  createTokenVerifier,
  WebhookConfigurationError,
  type SignatureAlgorithm,
  type TrustedIssuer,
} from '../../lib/token/index.js';
import type { KeyMaterial } from '../../lib/token/keys/key-material.js';
import { smallOrderEncodings } from './small-order-points.js';

const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-long-enough-for-each-of-the-three-!!';
const INPUT = { event: 'order.created' };

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const weakRsa = generateKeyPairSync('rsa', { modulusLength: 1024 });
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' });
const ed = generateKeyPairSync('ed25519');

function pem(key: KeyObject): string {
  return key.export({ type: key.type === 'private' ? 'pkcs8' : 'spki', format: 'pem' }) as string;
}

function jwk(key: KeyObject): JsonWebKey {
  return key.export({ format: 'jwk' });
}

function problemsOf(make: () => unknown): WebhookConfigurationError['problems'] {
  try {
    make();
    return [];
  } catch (error) {
    if (error instanceof WebhookConfigurationError) return error.problems;
    throw error;
  }
}

function verifierProblems(...issuers: TrustedIssuer[]): WebhookConfigurationError['problems'] {
  return problemsOf(() => createTokenVerifier({ issuers }));
}

function secretProblem(secret: string | Uint8Array): string | undefined {
  return verifierProblems({ issuer: ISSUER, secret })[0]?.message;
}

function keyProblem(alg: SignatureAlgorithm, key: KeyMaterial): string | undefined {
  return verifierProblems({ issuer: ISSUER, keys: [{ alg, key }] })[0]?.message;
}

function signingProblem(alg: SignatureAlgorithm, key: KeyMaterial): string | undefined {
  return problemsOf(() => createTokenSigner({ issuer: ISSUER, key: { alg, key } }))[0]?.message;
}

describe('a secret', () => {
  it.each([
    ['31 bytes for HS256', 'HS256', 31, 'has 31 bytes and HS256 needs at least 32'],
    ['47 bytes for HS384', 'HS384', 47, 'has 47 bytes and HS384 needs at least 48'],
    ['63 bytes for HS512', 'HS512', 63, 'has 63 bytes and HS512 needs at least 64'],
    ['zero bytes', 'HS256', 0, 'openssl rand -base64 32'],
  ] as const)('of %s is refused as too short', (_, alg, length, remedy) => {
    expect(keyProblem(alg, Buffer.alloc(length, 7))).toContain(remedy);
    expect(signingProblem(alg, Buffer.alloc(length, 7))).toContain(remedy);
  });

  it.each([
    ['HS256', 32],
    ['HS384', 48],
    ['HS512', 64],
  ] as const)('of the minimum length is accepted for %s', (alg, length) => {
    expect(keyProblem(alg, Buffer.alloc(length, 7))).toBeUndefined();
  });

  it('is measured in bytes, not characters', () => {
    expect(secretProblem('é'.repeat(16))).toBeUndefined();
    expect(secretProblem('e'.repeat(16))).toContain('16 bytes');
  });

  it.each([
    ['PEM', pem(rsa.publicKey)],
    ['PEM of a private key', pem(ec.privateKey)],
    ['a JWK', JSON.stringify(jwk(ec.publicKey))],
    [
      'a JWK whose first member is not kty',
      JSON.stringify({ use: 'sig', kid: 'a', ...jwk(ec.publicKey) }),
    ],
    ['a JWK, indented', JSON.stringify(jwk(rsa.publicKey), null, 2)],
    ['a key set', JSON.stringify({ keys: [jwk(ec.publicKey)] })],
  ])('is refused if it is %s', (_, text) => {
    const remedy = 'not a shared secret';
    const bytes = Buffer.from(text);

    expect(secretProblem(text.trim())).toContain(remedy);
    expect(secretProblem(bytes)).toContain(remedy);
    expect(secretProblem(new Uint8Array(bytes))).toContain(remedy);
    expect(secretProblem(`whsec_${bytes.toString('base64')}`)).toContain(remedy);
    expect(keyProblem('HS256', createSecretKey(bytes))).toContain(remedy);
    expect(signingProblem('HS256', bytes)).toContain(remedy);
  });

  it.each([` ${SECRET}`, `${SECRET}\n`, `\t${SECRET} `])(
    'is refused with white space around it',
    (text) => {
      expect(secretProblem(text)).toContain('trim it');
    },
  );

  it('may be a JWK of type "oct"', () => {
    const bytes = Buffer.alloc(32, 0xfb);
    const key: JsonWebKey = { kty: 'oct', k: bytes.toString('base64url') };
    const token = createTokenSigner({ issuer: ISSUER, key: bytes }).sign(INPUT) as string;
    const verifier = createTokenVerifier({ issuers: [{ issuer: ISSUER, keys: [{ key }] }] });

    expect(verifier.verify(token)).toMatchObject({ claims: { iss: ISSUER } });
    expect(createTokenSigner({ issuer: ISSUER, key }).alg).toBe('HS256');
  });

  it.each([
    ['for a key pair', jwk(ec.publicKey), 'set alg to RS256, PS256, ES256, ES384 or EdDSA'],
    ['without k', { kty: 'oct' }, 'is not base64url'],
    ['with padding', { kty: 'oct', k: `${'A'.repeat(43)}=` }, 'is not base64url'],
    ['that is too short', { kty: 'oct', k: 'A'.repeat(40) }, 'has 30 bytes'],
    [
      'around a key as a string',
      { kty: 'oct', k: Buffer.from(pem(rsa.publicKey)).toString('base64url') },
      'not a shared secret',
    ],
  ])('is refused as a JWK %s', (_, key, remedy) => {
    expect(keyProblem('HS256', key)).toContain(remedy);
    expect(signingProblem('HS256', key)).toContain(remedy);
  });

  it('is decoded after "whsec_"', () => {
    const bytes = Buffer.alloc(32, 0xfb);
    const token = createTokenSigner({ issuer: ISSUER, key: bytes }).sign(INPUT) as string;

    for (const text of [bytes.toString('base64'), bytes.toString('base64').replace(/=+$/, '')]) {
      const verifier = createTokenVerifier({
        issuers: [{ issuer: ISSUER, secret: `whsec_${text}` }],
      });
      expect(verifier.verify(token)).toMatchObject({ claims: { iss: ISSUER } });
    }
  });

  it.each([
    ['whsec_!!!!', 'is not base64'],
    [`whsec_${Buffer.alloc(33, 0xfb).toString('base64url')}`, 'is not base64'],
    ['whsec_', 'has 0 bytes'],
    [`whsec_${Buffer.alloc(16).toString('base64')}`, 'has 16 bytes'],
  ])('after "whsec_" must be base64 and long enough: %s', (text, remedy) => {
    expect(secretProblem(text)).toContain(remedy);
  });

  it.each([
    ['a public key', ec.publicKey, 'public key cannot be a shared secret'],
    ['a private key', ec.privateKey, 'private key cannot be a shared secret'],
    ['missing', undefined as unknown as string, 'the secret is missing'],
    ['a number', 1 as unknown as string, 'the secret is missing'],
  ])('is refused if it is %s', (_, key, remedy) => {
    expect(keyProblem('HS256', key)).toContain(remedy);
  });

  it('may be a string, bytes, a KeyObject or a CryptoKey', async () => {
    const bytes = Buffer.from(SECRET);
    const cryptoKey = await webcrypto.subtle.importKey(
      'raw',
      bytes,
      { name: 'HMAC', hash: 'SHA-256' },
      true,
      ['sign', 'verify'],
    );
    const tokens = [SECRET, bytes, new Uint8Array(bytes), createSecretKey(bytes), cryptoKey].map(
      (key) =>
        createTokenSigner({ issuer: ISSUER, key, now: () => 1e9 }).sign({ ...INPUT, id: 'same' }),
    );

    expect(new Set(tokens).size).toBe(1);
  });
});

describe('a weak secret', () => {
  it('is accepted with allowWeakSecrets, with a warning that does not contain it', () => {
    const warn = jest.spyOn(process, 'emitWarning').mockImplementation(() => undefined);
    try {
      const policy = { allowWeakSecrets: true };
      const token = createTokenSigner({ issuer: ISSUER, key: 'weak-one', ...policy }).sign(INPUT);
      const verifier = createTokenVerifier({
        issuers: [{ issuer: ISSUER, secret: 'weak-one' }],
        ...policy,
      });

      expect(verifier.verify(token as string)).toMatchObject({ claims: { iss: ISSUER } });
      expect(warn).toHaveBeenCalledTimes(2);
      for (const [message, options] of warn.mock.calls) {
        expect(message).toContain('Never set it in production');
        expect(message).not.toContain('weak-one');
        expect(options).toEqual({ code: 'WEBHOOK_WEAK_SECRET' });
      }
    } finally {
      warn.mockRestore();
    }
  });

  it('must have at least one byte', () => {
    const problems = problemsOf(() =>
      createTokenSigner({ issuer: ISSUER, key: '', allowWeakSecrets: true }),
    );

    expect(problems).toMatchObject([{ message: expect.stringContaining('has 0 bytes') }]);
  });

  it('is refused with allowWeakSecrets false', () => {
    const problems = problemsOf(() =>
      createTokenSigner({ issuer: ISSUER, key: 'weak-one', allowWeakSecrets: false }),
    );

    expect(problems).toMatchObject([{ message: expect.stringContaining('has 8 bytes') }]);
  });
});

describe('a key pair', () => {
  it.each([
    ['RS256', rsa],
    ['ES256', ec],
    ['EdDSA', ed],
  ] as const)('of %s may be PEM, a JWK, a KeyObject or a CryptoKey', async (alg, pair) => {
    const algorithm = {
      RS256: { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' },
      ES256: { name: 'ECDSA', namedCurve: 'P-256' },
      EdDSA: { name: 'Ed25519' },
    }[alg];
    const { subtle } = webcrypto;
    const cryptoKey = await subtle.importKey('jwk', jwk(pair.publicKey), algorithm, true, [
      'verify',
    ]);
    const privateForms = [pair.privateKey, pem(pair.privateKey), jwk(pair.privateKey)];
    const publicForms = [
      pair.publicKey,
      pem(pair.publicKey),
      Buffer.from(pem(pair.publicKey)),
      jwk(pair.publicKey),
      cryptoKey,
    ];

    for (const key of privateForms) {
      const token = await createTokenSigner({ issuer: ISSUER, key: { alg, key } }).sign(INPUT);
      for (const form of publicForms) {
        const verifier = createTokenVerifier({
          issuers: [{ issuer: ISSUER, keys: [{ alg, key: form }] }],
        });
        expect(await verifier.verify(token)).toMatchObject({ key: { alg } });
      }
    }
  });

  it.each([
    ['RS256', rsa],
    ['ES256', ec],
    ['EdDSA', ed],
  ] as const)('of %s signs with its private and verifies with its public key only', (alg, pair) => {
    for (const key of [pair.privateKey, pem(pair.privateKey), jwk(pair.privateKey)]) {
      expect(keyProblem(alg, key)).toContain('which a receiver must never have');
    }
    for (const key of [pair.publicKey, pem(pair.publicKey), jwk(pair.publicKey)]) {
      expect(signingProblem(alg, key)).toContain('needs a private key');
    }
  });

  it.each([
    ['RS256', ec.publicKey, 'needs an RSA key, and this is ec'],
    ['RS256', weakRsa.publicKey, 'at least 2048 bits, and this has 1024'],
    ['ES256', rsa.publicKey, 'on the curve P-256'],
    ['ES256', p384.publicKey, 'on the curve P-256'],
    ['ES256', ed.publicKey, 'on the curve P-256'],
    ['EdDSA', ec.publicKey, 'needs an Ed25519 key, and this is ec'],
    ['EdDSA', generateKeyPairSync('ed448').publicKey, 'and this is ed448'],
    ['EdDSA', generateKeyPairSync('x25519').publicKey, 'and this is x25519'],
    ['RS256', createSecretKey(Buffer.alloc(32)), 'this is a secret key'],
    ['ES256', SECRET, 'cannot be read'],
    ['ES256', pem(ec.publicKey).replace(/[A-Z]/, ''), 'cannot be read'],
    ['ES256', { kty: 'EC', crv: 'P-256' }, 'cannot be read'],
    ['ES256', {}, 'cannot be read'],
    ['ES256', undefined as unknown as string, 'cannot be read'],
  ] as const)('of %s must fit its algorithm', (alg, key, remedy) => {
    expect(keyProblem(alg, key)).toContain(remedy);
  });
});

describe('an Ed25519 public key of small order', () => {
  const asJwk = (point: Buffer): JsonWebKey => ({
    kty: 'OKP',
    crv: 'Ed25519',
    x: point.toString('base64url'),
  });

  it('is refused in every encoding and every form', () => {
    const encodings = smallOrderEncodings();

    // Five y coordinates with either sign bit, and the unreduced forms of 0 and 1.
    expect(encodings).toHaveLength(14);
    for (const point of encodings) {
      const keyObject = createPublicKey({ key: asJwk(point), format: 'jwk' });
      for (const key of [asJwk(point), keyObject, pem(keyObject)]) {
        expect(keyProblem('EdDSA', key)).toContain('a point of small order');
      }
    }
  });

  it('is not confused with a key that differs in one bit', () => {
    for (const point of smallOrderEncodings()) {
      point[1]! ^= 1;
      expect(keyProblem('EdDSA', asJwk(point))).toBeUndefined();
    }
  });
});

describe('a key', () => {
  it.each(['none', 'PS512', 'hs256', '__proto__', null])(
    'is refused with the algorithm %p',
    (alg) => {
      expect(keyProblem(alg as 'HS256', SECRET)).toBe(
        'alg must be one of HS256, HS384, HS512, RS256, PS256, ES256, ES384, EdDSA',
      );
    },
  );

  it.each(['', 'k'.repeat(257), 'a\nb', 1, null])('is refused with the kid %p', (kid) => {
    const [problem] = verifierProblems({
      issuer: ISSUER,
      keys: [{ kid: kid as string, key: SECRET }],
    });

    expect(problem?.message).toContain('kid must be a string of 1 to 256 characters');
  });
});

describe('a list of issuers', () => {
  it('reports every error with its path', () => {
    const problems = verifierProblems(
      { issuer: ISSUER, secret: 'short' },
      { issuer: ISSUER, secret: SECRET },
      { issuer: '', secret: SECRET },
      { issuer: 'https://a.example' },
      { issuer: 'https://b.example', secret: [SECRET, 'short'] },
      {
        issuer: 'https://c.example',
        keys: [{ key: SECRET }, { alg: 'ES256', key: p384.publicKey }],
      },
      { issuer: 'https://d.example', secret: Array.from({ length: 5 }, (_, i) => `${i}${SECRET}`) },
    );

    expect(problems.map(({ path }) => path)).toEqual([
      'issuers[0].secret',
      'issuers[1].issuer',
      'issuers[2].issuer',
      'issuers[3]',
      'issuers[4].secret[1]',
      'issuers[5].keys[1]',
      'issuers[6]',
    ]);
    expect(problems.map(({ message }) => message)).toEqual([
      expect.stringContaining('HS256 needs at least 32'),
      expect.stringContaining('is listed twice'),
      expect.stringContaining('1 to 255 characters'),
      expect.stringContaining('has no key'),
      expect.stringContaining('HS256 needs at least 32'),
      expect.stringContaining('P-256'),
      expect.stringContaining('more than 4 keys without kid'),
    ]);
  });

  it('is refused if it is empty', () => {
    expect(verifierProblems()).toEqual([
      { path: 'issuers', message: expect.stringContaining('add at least one issuer') },
    ]);
  });

  it('may have four keys without a kid', () => {
    const secret = Array.from({ length: 4 }, (_, i) => `${i}${SECRET}`);

    expect(verifierProblems({ issuer: ISSUER, secret })).toEqual([]);
  });
});
