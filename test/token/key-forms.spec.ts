import { describe, expect, it } from '@jest/globals';
import {
  createPublicKey,
  createSecretKey,
  generateKeyPairSync,
  webcrypto,
  type JsonWebKey,
  type KeyObject,
} from 'node:crypto';
import {
  createTokenSigner,
  createTokenVerifier,
  WebhookConfigurationError,
  type SignatureAlgorithm,
  type WebhookKey,
} from '../../lib/token/index.js';
import type { KeyMaterial } from '../../lib/token/keys/key-material.js';
import { targetCertificate } from '../egress/target-server.js';

const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-long-enough-for-each-of-the-three-!!';

const rsa = generateKeyPairSync('rsa', { modulusLength: 2048 });
const p256 = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const p384 = generateKeyPairSync('ec', { namedCurve: 'P-384' });

function pem(key: KeyObject): string {
  return key.export({ type: key.type === 'private' ? 'pkcs8' : 'spki', format: 'pem' }) as string;
}

function jwk(key: KeyObject): JsonWebKey {
  return key.export({ format: 'jwk' });
}

function messageOf(make: () => unknown): string | undefined {
  try {
    make();
    return undefined;
  } catch (error) {
    if (error instanceof WebhookConfigurationError) return error.problems[0]?.message;
    throw error;
  }
}

function keyProblem(alg: SignatureAlgorithm, key: KeyMaterial): string | undefined {
  return messageOf(() =>
    createTokenVerifier({ issuers: [{ issuer: ISSUER, keys: [{ alg, key }] }] }),
  );
}

function keysProblem(...keys: WebhookKey[]): string | undefined {
  return messageOf(() => createTokenVerifier({ issuers: [{ issuer: ISSUER, keys }] }));
}

function signingProblem(alg: SignatureAlgorithm, key: KeyMaterial): string | undefined {
  return messageOf(() => createTokenSigner({ issuer: ISSUER, key: { alg, key } }));
}

/** Checks that no line of the key is in a message. */
function expectUnquoted(message: string | undefined, text: string): void {
  for (const line of text.split(/\\n|\s+/)) {
    if (line.length > 30 && !line.startsWith('-----')) expect(message).not.toContain(line);
  }
}

describe('PS256 and ES384', () => {
  it.each([
    ['PS256', rsa, { name: 'RSA-PSS', hash: 'SHA-256' }],
    ['ES384', p384, { name: 'ECDSA', namedCurve: 'P-384' }],
  ] as const)('%s signs and verifies with every form of key', async (alg, pair, algorithm) => {
    const cryptoKey = await webcrypto.subtle.importKey(
      'jwk',
      jwk(pair.publicKey),
      algorithm,
      true,
      ['verify'],
    );
    const token = await createTokenSigner({
      issuer: ISSUER,
      key: { alg, key: pair.privateKey },
    }).sign({ event: 'order.created' });

    for (const key of [pair.publicKey, pem(pair.publicKey), jwk(pair.publicKey), cryptoKey]) {
      const verifier = createTokenVerifier({ issuers: [{ issuer: ISSUER, keys: [{ alg, key }] }] });
      expect(await verifier.verify(token)).toMatchObject({ header: { alg }, key: { alg } });
    }
  });

  it('are not interchangeable with RS256 and ES256', async () => {
    const key = { alg: 'PS256', key: rsa.privateKey } as const;
    const token = await createTokenSigner({ issuer: ISSUER, key }).sign({ event: 'order.created' });
    const verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, keys: [{ alg: 'RS256', key: rsa.publicKey }] }],
    });

    await expect(async () => verifier.verify(token)).rejects.toMatchObject({
      code: 'invalid_token',
    });
  });

  it.each([
    ['PS256', p256.publicKey, 'PS256 needs an RSA key, and this is ec'],
    [
      'PS256',
      generateKeyPairSync('rsa', { modulusLength: 1024 }).publicKey,
      'at least 2048 bits, and this has 1024',
    ],
    [
      'PS256',
      generateKeyPairSync('rsa-pss', { modulusLength: 2048 }).publicKey,
      'an rsa-pss key: generate one with "openssl genpkey',
    ],
    ['ES384', p256.publicKey, 'ES384 needs an EC key on the curve P-384'],
    ['ES384', rsa.publicKey, 'ES384 needs an EC key on the curve P-384'],
    ['ES256', p384.publicKey, 'ES256 needs an EC key on the curve P-256'],
  ] as const)('%s refuses a key of another type', (alg, key, remedy) => {
    expect(keyProblem(alg, key)).toContain(remedy);
  });
});

describe('an RSA key', () => {
  const { n } = jwk(rsa.publicKey);
  const exponent = (value: bigint): string => {
    const hex = value.toString(16);
    return Buffer.from(hex.padStart(hex.length + (hex.length % 2), '0'), 'hex').toString(
      'base64url',
    );
  };

  it.each([1n, 3n, 65_536n, 65_538n, 2n ** 256n + 1n])(
    'is refused with the public exponent %p',
    (value) => {
      const key = { kty: 'RSA', n: n!, e: exponent(value) };

      expect(keyProblem('RS256', key)).toMatch(/odd public exponent|cannot be read/);
      expect(keyProblem('PS256', key)).toMatch(/odd public exponent|cannot be read/);
    },
  );

  it('may have another secure exponent', () => {
    expect(
      keyProblem('RS256', { kty: 'RSA', n: n!, e: exponent(2n ** 255n + 1n) }),
    ).toBeUndefined();
  });

  it('is refused if it is so large that it slows down verification', () => {
    const key = {
      kty: 'RSA',
      n: Buffer.alloc(1_025, 0xff).toString('base64url'),
      e: exponent(65_537n),
    };

    expect(keyProblem('RS256', key)).toContain('at most 8192 bits');
  });
});

describe('PEM', () => {
  const good = pem(p256.publicKey);

  it.each<[string, string]>([
    ['unchanged', good],
    ['with CRLF, as RFC 7468 allows', good.replaceAll('\n', '\r\n')],
    ['without a newline at its end', good.trim()],
    ['after empty lines and text', `\n\nsigning key of 2026\n${good}`],
    ['with white space at line ends', good.replaceAll('\n', '  \n')],
  ])('is read %s', (_, text) => {
    expect(keyProblem('ES256', text)).toBeUndefined();
    expect(keyProblem('ES256', Buffer.from(text))).toBeUndefined();
  });

  it.each<[string, string, string]>([
    ['indented, as in YAML', good.replace(/^(?=.)/gm, '  '), 'remove the indentation'],
    [
      'indented except for its first line',
      good.replace(/\n(?=.)/g, '\n\t'),
      'remove the indentation',
    ],
    ['with "\\n" instead of newlines', good.replaceAll('\n', '\\n'), 'replaceAll("\\\\n", "\\n")'],
    ['in quotation marks', `"${good}"`, 'quotation marks'],
    ['without its END line', good.replace(/-----END.*/, ''), 'has no END line'],
    ['in one line', good.replaceAll('\n', ''), 'has lost its line breaks'],
    ['folded with spaces', good.replaceAll('\n', ' ').trim(), 'has lost its line breaks'],
    ['with CR line ends', good.replaceAll('\n', '\r'), 'has lost its line breaks'],
    ['with empty lines', good.replaceAll('\n', '\n\n'), 'has empty lines'],
    ['twice', good + pem(p384.publicKey), 'has 2 blocks'],
    ['of parameters', good.replaceAll('PUBLIC KEY', 'DH PARAMETERS'), 'is not a key'],
    ['of OpenSSH', good.replaceAll('PUBLIC KEY', 'OPENSSH PRIVATE KEY'), 'ssh-keygen -p -m PKCS8'],
    ['with a missing character', good.replace(/\n./, '\n'), 'cannot be read'],
  ])('is refused %s, with a remedy', (_, text, remedy) => {
    const message = keyProblem('ES256', text);

    expect(message).toContain(remedy);
    expect(keyProblem('ES256', Buffer.from(text))).toBe(message);
    expectUnquoted(message, text);
  });

  it('is refused if it is damaged in two ways', () => {
    expect(signingProblem('ES256', pem(p256.privateKey).replaceAll('\n', '\\n'))).toContain(
      'the two characters "\\n"',
    );
  });

  it.each([
    ['PKCS#8', { type: 'pkcs8', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' }],
    ['PKCS#1', { type: 'pkcs1', format: 'pem', cipher: 'aes-256-cbc', passphrase: 'x' }],
  ] as const)('is refused if it is encrypted, %s', (_, form) => {
    const text = rsa.privateKey.export(form as never) as unknown as string;

    expect(signingProblem('RS256', text)).toContain('createPrivateKey({ key, passphrase })');
    expect(keyProblem('RS256', text)).toContain('createPrivateKey({ key, passphrase })');
  });

  it('of a certificate is refused, since its dates would not be checked', () => {
    expect(keyProblem('RS256', targetCertificate())).toContain('openssl x509 -pubkey -noout');
  });

  it('of EC may start with parameters, as openssl writes it', () => {
    const key = p256.privateKey.export({ type: 'sec1', format: 'pem' }) as string;
    const parameters =
      '-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n-----END EC PARAMETERS-----\n';

    expect(signingProblem('ES256', parameters + key)).toBeUndefined();
  });
});

describe('a public key', () => {
  const der = p256.publicKey.export({ type: 'spki', format: 'der' });

  it.each<[string, KeyMaterial]>([
    ['the base64 of its PEM', der.toString('base64')],
    ['the base64 of its PEM, with line ends', der.toString('base64').replace(/.{64}/g, '$&\n')],
    ['DER', der],
    ['DER in a KeyObject', createSecretKey(der)],
    [
      'of Ed25519',
      generateKeyPairSync('ed25519').publicKey.export({ type: 'spki', format: 'der' }),
    ],
    ['of SSH', `ssh-ed25519 ${'A'.repeat(68)} me@example`],
  ])('is refused as a shared secret: %s', (_, key) => {
    expect(keyProblem('HS256', key)).toContain('not a shared secret');
  });

  it('is not mistaken for a secret that begins in the same way', () => {
    const random = Buffer.concat([Buffer.from([0x30, 0x59]), Buffer.alloc(62, 7)]);

    expect(keyProblem('HS256', random)).toBeUndefined();
    expect(keyProblem('HS256', random.toString('base64'))).toBeUndefined();
  });
});

describe('a JWK', () => {
  const key = jwk(p256.publicKey);
  const secret = { kty: 'oct', k: Buffer.from(SECRET).toString('base64url') };

  it.each<[string, SignatureAlgorithm, JsonWebKey, string]>([
    ['for encryption', 'ES256', { ...key, use: 'enc' }, '"use" is not "sig"'],
    [
      'for other operations',
      'ES256',
      { ...key, key_ops: ['deriveKey'] },
      'does not include "verify"',
    ],
    ['with invalid operations', 'ES256', { ...key, key_ops: 'verify' }, '"key_ops" of the JWK'],
    ['of another algorithm', 'ES256', { ...key, alg: 'ECDH-ES' }, 'set alg to that of the JWK'],
    ['for RS256', 'PS256', { ...jwk(rsa.publicKey), alg: 'RS256' }, 'set alg to that of the JWK'],
    ['a secret for encryption', 'HS256', { ...secret, use: 'enc' }, '"use" is not "sig"'],
    ['a secret of HS512', 'HS256', { ...secret, alg: 'HS512' }, 'set alg to that of the JWK'],
  ])('is refused %s', (_, alg, material, remedy) => {
    expect(keyProblem(alg, material)).toContain(remedy);
  });

  it.each<[SignatureAlgorithm, JsonWebKey]>([
    ['ES256', { ...key, use: 'sig', key_ops: ['verify'], alg: 'ES256' }],
    ['HS256', { ...secret, use: 'sig', alg: 'HS256' }],
  ])('of %s may have use, key_ops and alg', (alg, material) => {
    expect(keyProblem(alg, material)).toBeUndefined();
  });

  it('with a private key is refused for that reason first', () => {
    expect(keyProblem('ES256', { ...jwk(p256.privateKey), use: 'enc' })).toContain(
      'which a receiver must never have',
    );
  });

  it('is refused as a string', () => {
    expect(keyProblem('ES256', JSON.stringify(key))).toContain('pass the result of JSON.parse');
  });
});

describe('a CryptoKey', () => {
  const { subtle } = webcrypto;
  const rsaJwk = jwk(rsa.publicKey);
  const made = (algorithm: object, usages: string[], material: JsonWebKey = rsaJwk) =>
    subtle.importKey('jwk', material, algorithm as never, true, usages as never);

  it.each([
    ['PS256', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-256' }, ['verify'], 'RSASSA-PKCS1-v1_5 with'],
    ['RS256', { name: 'RSASSA-PKCS1-v1_5', hash: 'SHA-512' }, ['verify'], 'with SHA-512'],
    ['RS256', { name: 'RSA-OAEP', hash: 'SHA-256' }, ['encrypt'], 'is for RSA-OAEP'],
  ] as const)('of another algorithm is refused for %s', async (alg, algorithm, usages, found) => {
    expect(keyProblem(alg, await made(algorithm, [...usages]))).toContain(found);
  });

  it('for HMAC must have the digest of its algorithm', async () => {
    const hmac = (hash: string) =>
      subtle.importKey('raw', Buffer.from(SECRET), { name: 'HMAC', hash }, true, ['sign']);

    expect(keyProblem('HS256', await hmac('SHA-512'))).toContain('HMAC with SHA-512');
    expect(keyProblem('HS512', await hmac('SHA-512'))).toBeUndefined();
  });
});

describe('keys of one issuer', () => {
  it('must have different kids', () => {
    expect(keysProblem({ kid: 'a', key: SECRET }, { kid: 'a', key: `${SECRET}-2` })).toContain(
      'another key of the issuer has this kid',
    );
  });

  it('must not be used for two algorithms', () => {
    const { publicKey } = rsa;
    const twice = [
      { kid: 'a', alg: 'RS256', key: publicKey },
      { kid: 'b', alg: 'PS256', key: createPublicKey(pem(publicKey)) },
    ] as const;

    expect(keysProblem(...twice)).toContain('the same key is listed for RS256');
    expect(keysProblem({ key: SECRET }, { alg: 'HS512', key: SECRET })).toContain(
      'is listed for HS256',
    );
  });

  it('may be listed twice, as between rotations', () => {
    const secret = Array<string>(5).fill(SECRET);

    expect(
      messageOf(() => createTokenVerifier({ issuers: [{ issuer: ISSUER, secret }] })),
    ).toBeUndefined();
    expect(keysProblem({ kid: 'a', key: SECRET }, { key: SECRET }, { kid: 'a', key: SECRET })).toBe(
      undefined,
    );
  });

  it('must not have two windows for one key', () => {
    const message = messageOf(() =>
      createTokenVerifier({
        issuers: [
          { issuer: ISSUER, secret: SECRET, keys: [{ key: SECRET, notAfter: '2026-01-01' }] },
        ],
      }),
    );

    expect(message).toContain('the same key is listed with another notBefore');
  });

  it('must not have unknown members', () => {
    expect(keysProblem({ key: SECRET, notafter: '2026-01-01' } as WebhookKey)).toContain(
      'other than kid, alg, key, notBefore, notAfter',
    );
  });
});

it('createTokenVerifier refuses a jwksUri, which it would not fetch', () => {
  const issuers = [{ issuer: ISSUER, jwksUri: 'https://shop.example/keys' }] as never;

  expect(messageOf(() => createTokenVerifier({ issuers }))).toContain('use WebhookModule');
});
