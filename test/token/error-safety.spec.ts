import { generateKeyPairSync } from 'node:crypto';
import { inspect } from 'node:util';
import { describe, expect, it, jest } from '@jest/globals';
import {
  createDigest,
  createTokenSigner,
  createTokenVerifier,
  isWebhookError,
  verifyWebhookPayload,
  verifyWebhookToken,
} from '../../lib/token/index.js';
import { withoutTokens } from '../../lib/token/decoding.js';
import { Mulberry32 } from './mulberry32.js';
import { forge, SIGNED, signHs256, UNSIGNED } from './token-mutations.js';

const NOW = 1_760_000_000;
const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-0123456789';
const MARKER = 'CUSTOMER-4711';

async function errorOf(run: () => unknown): Promise<Error> {
  try {
    await run();
  } catch (error) {
    if (error instanceof Error) return error;
    throw error;
  }
  throw new Error('nothing was thrown');
}

/** Everything of an error that could reach a log. */
function shown(error: Error): string {
  return [
    String(error),
    error.message,
    error.stack,
    JSON.stringify(error),
    inspect(error, { depth: Infinity, showHidden: true }),
    JSON.stringify(Object.values(error)),
  ].join('\n');
}

function segments(token: string): string[] {
  return token.split('.').filter((segment) => segment.length >= 16);
}

describe('an error does not contain the payload', () => {
  it('of a mutated token', () => {
    const random = new Mulberry32(5);
    const verifier = createTokenVerifier({
      issuers: [{ issuer: ISSUER, secret: SECRET }],
      now: () => NOW,
    });
    const claims = {
      iss: ISSUER,
      iat: NOW,
      exp: NOW + 300,
      jti: MARKER,
      sub: MARKER,
      [MARKER]: MARKER,
      webhook: { event: 'order.created', data: { [MARKER]: MARKER }, [MARKER]: MARKER },
    };
    let refused = 0;

    for (const mutation of [...SIGNED, ...UNSIGNED]) {
      for (let i = 0; i < 20; i++) {
        const header = { alg: 'HS256', typ: 'JWT', [MARKER]: MARKER };
        const token = forge(header, claims, signHs256(SECRET), [mutation], random);
        try {
          void verifier.verify(token);
        } catch (error) {
          refused++;
          expect(shown(error as Error)).not.toContain(MARKER);
          for (const segment of segments(token)) {
            expect(shown(error as Error)).not.toContain(segment);
          }
        }
      }
    }
    expect(refused).toBeGreaterThan(500);
  });

  it.each([
    ['another issuer', { iss: MARKER }],
    ['another audience', { aud: MARKER }],
    ['a wrong event', { webhook: { event: MARKER } }],
    ['a wrong type', { webhook: { event: 'a.b', data: [MARKER] } }],
    ['a wrong time', { exp: MARKER }],
  ])('of a token with %s', async (_, change) => {
    const claims = { iss: ISSUER, iat: NOW, exp: NOW + 1, jti: 'j', webhook: { event: 'a.b' } };
    const token = forge(
      { alg: 'HS256', typ: 'JWT' },
      { ...claims, ...change },
      signHs256(SECRET),
      [],
      new Mulberry32(1),
    );
    const error = await errorOf(() =>
      verifyWebhookToken(token, {
        issuers: [{ issuer: ISSUER, secret: SECRET }],
        now: () => NOW,
      }),
    );

    expect(isWebhookError(error)).toBe(true);
    expect(shown(error)).not.toContain(MARKER);
  });

  it.each([
    ['an event', { event: MARKER }],
    ['data', { event: 'a.b', data: [MARKER] }],
    ['a hash', { event: 'a.b', hash: MARKER }],
    ['an id', { event: 'a.b', id: `${MARKER}\n` }],
  ])('of a token that cannot be signed: %s', async (_, input) => {
    const signer = createTokenSigner({ issuer: ISSUER, key: SECRET });
    const error = await errorOf(() => signer.sign(input));

    expect(isWebhookError(error)).toBe(true);
    expect(shown(error)).not.toContain(MARKER);
  });

  it.each([
    ['hash_mismatch', `sha256:${'0'.repeat(64)}`],
    ['hash_unsupported', `sha256:${MARKER}`],
    ['hash_required', undefined],
  ])('of a refused body: %s', async (code, hash) => {
    const webhook = hash === undefined ? { event: 'a.b' } : { event: 'a.b', hash };
    const body = Buffer.from(MARKER);
    const error = await errorOf(() => verifyWebhookPayload({ webhook }, { method: 'POST', body }));

    expect(isWebhookError(error, code)).toBe(true);
    expect(shown(error)).not.toContain(MARKER);
  });
});

describe('a key is not printed', () => {
  const { privateKey } = generateKeyPairSync('ec', { namedCurve: 'P-256' });
  const jwk = privateKey.export({ format: 'jwk' });
  const pem = privateKey.export({ type: 'pkcs8', format: 'pem' }) as string;
  const pemLines = pem.split('\n').filter((line) => line.length > 20 && !line.startsWith('-'));

  it.each([
    ['a short secret', { key: `short-${MARKER}` }, [MARKER]],
    ['a secret with white space', { key: ` ${SECRET} ` }, [SECRET]],
    ['a secret that is not base64', { key: `whsec_!${SECRET}` }, [SECRET]],
    ['PEM as a secret', { key: pem.trim() }, pemLines],
    ['a JWK as a secret', { key: JSON.stringify(jwk) }, [jwk.d!]],
    ['invalid PEM', { alg: 'RS256', key: pem.replace('MI', 'Ml') }, pemLines.slice(1)],
    ['a JWK of another algorithm', { alg: 'RS256', key: jwk }, [jwk.d!, jwk.x!]],
    ['an invalid JWK', { alg: 'ES256', key: { ...jwk, x: 'AA' } }, [jwk.d!, jwk.y!]],
    ['a wrong algorithm', { alg: MARKER, key: SECRET }, [MARKER, SECRET]],
    ['a wrong name', { kid: `${MARKER}\n`, key: SECRET }, [MARKER, SECRET]],
  ])('by a configuration error: %s', async (_, key, secrets) => {
    const errors = [
      await errorOf(() => createTokenSigner({ issuer: ISSUER, key })),
      await errorOf(() =>
        createTokenVerifier({ issuers: [{ issuer: ISSUER, keys: [key as never] }] }),
      ),
    ];

    for (const error of errors) {
      expect(isWebhookError(error, 'invalid_configuration')).toBe(true);
      for (const secret of secrets) expect(shown(error)).not.toContain(secret);
    }
  });

  it('by a signer or verifier that is logged', () => {
    const logged = inspect(
      [
        createTokenSigner({ issuer: ISSUER, key: SECRET }),
        createTokenVerifier({ issuers: [{ issuer: ISSUER, secret: SECRET }] }),
      ],
      { depth: Infinity, showHidden: true },
    );

    expect(logged).not.toContain(SECRET);
    expect(logged).not.toContain(Buffer.from(SECRET).toString('hex'));
    expect(logged).not.toContain(inspect(Buffer.from(SECRET)).slice(8, 60));
  });
});

describe('isWebhookError', () => {
  async function oneError() {
    return errorOf(() => createDigest('md5' as never));
  }

  it('recognises an error by its code', async () => {
    const error = await oneError();

    expect(isWebhookError(error)).toBe(true);
    expect(isWebhookError(error, 'hash_unsupported')).toBe(true);
    expect(isWebhookError(error, 'hash_mismatch')).toBe(false);
  });

  it('recognises an error of another copy of the package', async () => {
    const ours = await oneError();
    jest.resetModules();
    const copy = await import('../../lib/token/index.js');
    const theirs = await errorOf(() => copy.createDigest('md5' as never));

    expect(copy.isWebhookError).not.toBe(isWebhookError);
    expect(theirs).not.toBeInstanceOf(ours.constructor);
    expect(isWebhookError(theirs, 'hash_unsupported')).toBe(true);
    expect(copy.isWebhookError(ours, 'hash_unsupported')).toBe(true);
  });

  it.each([
    undefined,
    null,
    'hash_unsupported',
    new Error('x'),
    Object.assign(new Error('x'), { code: 'hash_unsupported' }),
    { name: 'WebhookTokenError', code: 'invalid_token', message: 'x' },
  ])('rejects %p', (value) => {
    expect(isWebhookError(value)).toBe(false);
  });

  it('reports name, code and message as JSON', async () => {
    expect(JSON.parse(JSON.stringify(await oneError()))).toEqual({
      name: 'WebhookPayloadError',
      code: 'hash_unsupported',
      message: expect.any(String),
    });
  });
});

describe('a text that may repeat a token', () => {
  it.each([
    ['a short token', 'Bearer eyJhbGciOiJ4In0.eyJhIjoxfQ.', 'Bearer [token]'],
    ['a short header with white space', 'ewoiYSI6MX0.eyJhIjoxfQ.c2ln!', '[token]!'],
    ['any three long parts', `${'a'.repeat(16)}.${'b'.repeat(16)}.c`, '[token]'],
    ['a host name', 'connect customers.shop-example.com', 'connect customers.shop-example.com'],
  ])('shows %s as it should', (_, text, shown) => {
    expect(withoutTokens(text)).toBe(shown);
  });
});
