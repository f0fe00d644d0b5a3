import { createHmac, generateKeyPairSync, sign } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, it } from '@jest/globals';
import {
  createTokenSigner,
  createTokenVerifier,
  isWebhookError,
  WebhookConfigurationError,
  WebhookSigner,
  WebhookSigningError,
  type SignatureAlgorithm,
} from '../../lib/token/index.js';

const NOW = 1_760_000_000;
const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-0123456789';
const MARKER = 'WHAT-THE-SIGNER-SAID';
const ec = generateKeyPairSync('ec', { namedCurve: 'P-256' });
const rsa = generateKeyPairSync('rsa', { modulusLength: 2_048 });
const ed = generateKeyPairSync('ed25519');

interface Script {
  readonly kid?: unknown;
  readonly publicKey?: unknown;
  readonly inlineLimit?: unknown;
  readonly notBefore?: unknown;
  readonly notAfter?: unknown;
}

class ScriptedSigner extends WebhookSigner {
  constructor(
    readonly alg: SignatureAlgorithm,
    private readonly make: (bytes: Uint8Array) => unknown,
    more: Script = {},
  ) {
    super();
    Object.assign(this, more);
  }

  override sign(bytes: Uint8Array): Uint8Array {
    return this.make(bytes) as Uint8Array;
  }
}

function signerOf(key: WebhookSigner, now = () => NOW) {
  return createTokenSigner({ issuer: ISSUER, key, now });
}

/** The error of signing. */
async function signedBy(key: WebhookSigner): Promise<string> {
  return signerOf(key).sign({ event: 'order.created', data: { id: 1 } });
}

async function failureOf(key: WebhookSigner): Promise<WebhookSigningError> {
  const outcome = await signedBy(key).catch((error: unknown) => error);
  if (!isWebhookError(outcome, 'signing_failed')) throw new Error('it did not fail to sign');
  return outcome as WebhookSigningError;
}

describe('a token of a signer', () => {
  it.each<[string, SignatureAlgorithm, (bytes: Uint8Array) => unknown, object]>([
    [
      'ECDSA in DER',
      'ES256',
      (bytes) => sign('sha256', bytes, ec.privateKey),
      { key: ec.publicKey },
    ],
    [
      'ECDSA as r and s',
      'ES256',
      (bytes) => sign('sha256', bytes, { key: ec.privateKey, dsaEncoding: 'ieee-p1363' }),
      { key: ec.publicKey },
    ],
    ['RSA', 'RS256', (bytes) => sign('sha256', bytes, rsa.privateKey), { key: rsa.publicKey }],
    ['Ed25519', 'EdDSA', (bytes) => sign(null, bytes, ed.privateKey), { key: ed.publicKey }],
    [
      'HMAC',
      'HS256',
      (bytes) => createHmac('sha256', SECRET).update(bytes).digest(),
      { key: SECRET },
    ],
    [
      'a promise',
      'HS256',
      (bytes) => Promise.resolve(createHmac('sha256', SECRET).update(bytes).digest()),
      { key: SECRET },
    ],
    [
      'a view of a larger memory',
      'HS256',
      (bytes) => {
        const mac = createHmac('sha256', SECRET).update(bytes).digest();
        const memory = new Uint8Array(48).fill(0xff);
        memory.set(mac, 8);
        return memory.subarray(8, 40);
      },
      { key: SECRET },
    ],
  ])('verifies: %s', async (_, alg, make, { key }: any) => {
    const token = await signedBy(new ScriptedSigner(alg, make, { kid: 'k1' }));
    const verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, keys: [{ kid: 'k1', alg, key }] }],
      now: () => NOW,
    });

    const { header, claims } = await verifier.verify(token);

    expect(header).toEqual({ alg, typ: 'JWT', kid: 'k1' });
    expect(claims.webhook.data).toEqual({ id: 1 });
  });

  it('may be signed without a promise', async () => {
    const mac = (bytes: Uint8Array) => createHmac('sha256', SECRET).update(bytes).digest();

    expect(await signerOf(new ScriptedSigner('HS256', mac)).sign({ event: 'a.b' })).toMatch(
      /^[\w-]+\.[\w-]+\.[\w-]{43}$/,
    );
  });

  it('may be made by another copy of the class', async () => {
    const foreign = {
      alg: 'HS256',
      sign: (bytes: Uint8Array) => createHmac('sha256', SECRET).update(bytes).digest(),
    };

    expect(await signedBy(foreign as WebhookSigner)).toMatch(/^[\w-]+\.[\w-]+\.[\w-]{43}$/);
  });
});

describe('the result of a signer is refused if it is', () => {
  const long = Buffer.alloc(300, 7);
  it.each<[string, SignatureAlgorithm, unknown, RegExp]>([
    ['zero bytes', 'ES256', 'text', /must return a Uint8Array/],
    ['nothing', 'EdDSA', undefined, /must return a Uint8Array/],
    ['an ArrayBuffer', 'EdDSA', new ArrayBuffer(64), /must return a Uint8Array/],
    [
      'too short for ECDSA',
      'ES256',
      long.subarray(0, 63),
      /64 bytes .* 63 bytes from the signer are neither/,
    ],
    ['a signature of another curve', 'ES256', long.subarray(0, 96), /on the curve of ES256/],
    ['malformed DER', 'ES256', Buffer.alloc(70, 0x30), /or is their DER/],
    [
      'too long for HMAC',
      'HS256',
      long.subarray(0, 64),
      /HS256 signature has 32 bytes.* returned 64/,
    ],
    ['a short Ed25519 signature', 'EdDSA', long.subarray(0, 63), /EdDSA signature has 64 bytes/],
    [
      'an RSA signature that is too short',
      'RS256',
      long.subarray(0, 128),
      /RS256 signature has 256 to 1024 bytes.* returned 128/,
    ],
    ['an RSA signature that is too long', 'RS256', Buffer.alloc(1_025, 7), /256 to 1024/],
  ])('%s', async (_, alg, given, message) => {
    const error = await failureOf(new ScriptedSigner(alg, () => given));

    expect(error.message).toMatch(message);
    expect(inspect(error)).not.toContain(long.subarray(0, 8).toString('hex'));
  });

  it('RSA of another length than its public key', async () => {
    const signer = new ScriptedSigner('RS256', () => long, { publicKey: rsa.publicKey });

    expect((await failureOf(signer)).message).toMatch(/has 256 bytes, and the signer returned 300/);
  });
});

describe('a signer that fails', () => {
  it.each<[string, () => unknown]>([
    [
      'throws',
      () => {
        throw new Error(MARKER);
      },
    ],
    ['rejects', () => Promise.reject(new Error(MARKER))],
    // eslint-disable-next-line prefer-promise-reject-errors
    ['a rejection without an error', () => Promise.reject(MARKER)],
  ])('with %s has it as the cause, which is not printed', async (_, make) => {
    const error = await failureOf(new ScriptedSigner('ES256', make));

    const { cause } = error;
    expect(cause instanceof Error ? cause.message : cause).toBe(MARKER);
    const shown = [
      error.message,
      error.stack,
      String(error),
      JSON.stringify(error),
      inspect(error, { depth: Infinity, showHidden: true }),
      inspect(new AggregateError([error]), { depth: Infinity, showHidden: true }),
    ].join('\n');
    expect(shown).not.toContain(MARKER);
    expect(inspect(error)).toMatch(/^WebhookSigningError: the signer of ES256 failed/);
    expect(inspect(error)).toContain("code: 'signing_failed'");
  });
});

describe('a signer is refused at start-up with', () => {
  const good = () => Buffer.alloc(64);
  it.each<[string, SignatureAlgorithm, Script, RegExp]>([
    ['an unknown algorithm', 'none' as SignatureAlgorithm, {}, /alg must be one of HS256/],
    ['an invalid kid', 'ES256', { kid: '' }, /kid must be/],
    ['an invalid limit', 'ES256', { inlineLimit: -1 }, /inlineLimit/],
    ['a key of another algorithm', 'ES256', { publicKey: rsa.publicKey }, /publicKey: ES256/],
    ['a private key', 'ES256', { publicKey: ec.privateKey }, /publicKey: .*private/],
    ['a public key for HMAC', 'HS256', { publicKey: ec.publicKey }, /leave publicKey out/],
    ['an invalid time', 'ES256', { notAfter: 'soon' }, /notAfter must be a Date/],
  ])('%s', (_, alg, more, message) => {
    const create = () => signerOf(new ScriptedSigner(alg, good, more));

    expect(create).toThrow(WebhookConfigurationError);
    expect(create).toThrow(message);
  });
});

describe('a key with a window', () => {
  const from = NOW + 100;
  const until = NOW + 200;
  const key = {
    key: SECRET,
    notBefore: new Date(from * 1_000),
    notAfter: new Date(until * 1_000).toISOString(),
  };

  it.each([
    [from - 1, false],
    [from, true],
    [until - 1, true],
    [until, false],
  ])('at %d signs: %s', (now, signs) => {
    const signer = createTokenSigner({ issuer: ISSUER, key, now: () => now });

    const attempt = () => signer.sign({ event: 'order.created' });

    if (signs) expect(attempt()).toContain('.');
    else expect(attempt).toThrow(expect.objectContaining({ code: 'no_signing_key' }));
  });
});
