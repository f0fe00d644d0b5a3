import { describe, expect, it } from '@jest/globals';
import { generateKeyPairSync } from 'node:crypto';
import * as fc from 'fast-check';
import { decodeJwt, decodeProtectedHeader, jwtVerify } from 'jose';
import {
  createTokenSigner,
  createTokenVerifier,
  digest,
  signWebhookToken,
  verifyWebhookToken,
  type TokenSignerOptions,
  type WebhookTokenInput,
} from '../../lib/token/index.js';

const NOW = 1_760_000_000;
const ISSUER = 'https://shop.example';
const SECRET = 'a-secret-of-this-test-alone-long-enough-for-each-of-the-three-!!';

const defaults: TokenSignerOptions = { issuer: ISSUER, key: SECRET, now: () => NOW };

function signed(input: Partial<WebhookTokenInput> = {}, change: Partial<TokenSignerOptions> = {}) {
  const token = createTokenSigner({ ...defaults, ...change }).sign({
    event: 'order.created',
    ...input,
  });
  if (typeof token !== 'string') throw new Error('an HMAC is made at once');
  return token;
}

const identifier = fc
  .string({ unit: 'binary', minLength: 1, maxLength: 100 })
  .filter((text) => text.length <= 255 && !/[\p{Cc}\p{Bidi_Control}\u2028\u2029]/u.test(text));

const data = fc
  .dictionary(fc.string(), fc.jsonValue({ maxDepth: 3 }), { maxKeys: 4 })
  .filter((value) => !/__proto__|constructor/.test(JSON.stringify(value)));

describe('a signed token', () => {
  it('contains the claims of its input', () => {
    const input = fc.record(
      {
        event: fc.constantFrom('order.created', 'a.b-c.D_9'),
        data,
        hash: fc.uint8Array().map((bytes) => digest('sha3-256', bytes)),
        subject: identifier,
        id: identifier,
        txn: identifier,
      },
      { requiredKeys: ['event'] },
    );
    const audience = fc.option(fc.array(identifier, { minLength: 1, maxLength: 3 }), {
      nil: undefined,
    });
    const kid = fc.option(identifier, { nil: undefined });
    fc.assert(
      fc.property(
        input,
        audience,
        kid,
        fc.constantFrom('HS256', 'HS384', 'HS512'),
        (announced, aud, name, alg) => {
          const key = { alg, kid: name, key: SECRET } as const;
          const token = createTokenSigner({ ...defaults, key }).sign({
            ...announced,
            audience: aud,
          });
          const verified = createTokenVerifier({
            issuers: [{ issuer: ISSUER, keys: [key] }],
            audience: aud?.[0],
            now: () => NOW,
          }).verify(token as string);

          const { event, data: inline, hash, subject, id, txn } = announced;
          expect(verified).toEqual({
            header: asWritten({ alg, typ: 'JWT', kid: name }),
            key: asWritten({ issuer: ISSUER, alg, kid: name }),
            profile: 'webhook-token',
            claims: asWritten({
              iss: ISSUER,
              sub: subject,
              aud,
              iat: NOW,
              nbf: NOW,
              exp: NOW + 300,
              jti: id ?? decodeJwt(token as string).jti,
              txn,
              webhook: { event, data: inline, hash },
            }),
          });
        },
      ),
      { numRuns: 500 },
    );
  });

  it.each([
    ['RS256', () => generateKeyPairSync('rsa', { modulusLength: 2048 })],
    ['ES256', () => generateKeyPairSync('ec', { namedCurve: 'P-256' })],
    ['EdDSA', () => generateKeyPairSync('ed25519')],
  ] as const)('is verified by jose and by this package under %s', async (alg, generate) => {
    const { privateKey, publicKey } = generate();
    const key = { alg, kid: 'pair', key: privateKey };
    const token = await signWebhookToken({ event: 'order.created' }, { ...defaults, key });

    const { payload } = await jwtVerify(token, publicKey, { currentDate: new Date(NOW * 1_000) });
    const verified = await verifyWebhookToken(token, {
      issuers: [{ issuer: ISSUER, keys: [{ alg, key: publicKey }] }],
      now: () => NOW,
    });

    expect(verified.claims).toEqual(payload);
    expect(verified.header).toEqual({ alg, typ: 'JWT', kid: 'pair' });
    expect(verified.key).toEqual({ issuer: ISSUER, alg });
  });

  it('is returned synchronously with a secret, as a promise with a key pair', async () => {
    const { privateKey } = generateKeyPairSync('ed25519');
    const pair = createTokenSigner({ ...defaults, key: { alg: 'EdDSA', key: privateKey } });

    expect(typeof createTokenSigner(defaults).sign({ event: 'order.created' })).toBe('string');
    expect(pair.sign({ event: 'order.created' })).toBeInstanceOf(Promise);
  });

  it('has only typ, alg and kid in its header', () => {
    expect(decodeProtectedHeader(signed())).toEqual({ alg: 'HS256', typ: 'JWT' });
    expect(
      decodeProtectedHeader(signed({}, { key: { kid: 'k1', alg: 'HS512', key: SECRET } })),
    ).toEqual({ alg: 'HS512', typ: 'JWT', kid: 'k1' });
  });

  it('has a unique id', () => {
    const signer = createTokenSigner(defaults);
    const ids = Array.from(
      { length: 100 },
      () => decodeJwt(signer.sign({ event: 'order.created' }) as string).jti,
    );

    expect(new Set(ids).size).toBe(100);
  });

  it.each([
    ['seconds', () => NOW + 0.9],
    ['milliseconds', () => NOW * 1_000 + 900],
    ['a Date', () => new Date(NOW * 1_000 + 900)],
  ])('has times in whole seconds with a clock that returns %s', (_, now) => {
    const { iat, nbf, exp } = decodeJwt(signed({}, { now, lifetime: 10 }));

    expect({ iat, nbf, exp }).toEqual({ iat: NOW, nbf: NOW, exp: NOW + 10 });
  });

  it('contains the hash in lower case', () => {
    const hash = digest('sha256', Buffer.from('body'));
    const upper = hash.replace(/[^:]*$/, (hex) => hex.toUpperCase());

    expect(decodeJwt(signed({ hash: upper }))).toMatchObject({ webhook: { hash } });
  });
});

describe('the signer accepts what the verifier accepts', () => {
  const verifier = createTokenVerifier({
    issuers: [{ issuer: ISSUER, secret: SECRET }],
    now: () => NOW,
  });

  it.each([
    ['64 levels of objects', nested(64, '{"a":', '}')],
    ['64 levels of both kinds', nested(32, '{"a":[', ']}')],
    ['many objects side by side', { list: Array.from({ length: 200 }, (_, n) => ({ n })) }],
    ['brackets in a string', { text: '{['.repeat(200) }],
    ['strings that resemble a prototype', { text: '__proto__ of a constructor', b: '\u0001' }],
    ['an object with toJSON', { toJSON: () => ({ a: 1 }) }],
    ['an empty object', {}],
  ])('%s', (_, inline) => {
    expect(verifier.verify(signed({ data: inline }))).toMatchObject({
      claims: { webhook: { data: asWritten(inline) } },
    });
  });
});

describe('the signer refuses', () => {
  it.each([
    ['an event without a dot', { event: 'order' }, 'invalid_claim', 'webhook.event'],
    ['an event with a wildcard', { event: 'order.*' }, 'invalid_claim', 'webhook.event'],
    ['data that is a list', { data: [] }, 'invalid_claim', 'webhook.data'],
    ['data that is null', { data: null as never }, 'invalid_claim', 'webhook.data'],
    ['data that is a string', { data: 'x' as never }, 'invalid_claim', 'webhook.data'],
    ['an empty id', { id: '' }, 'invalid_claim', 'jti'],
    ['an id of 256 characters', { id: 'x'.repeat(256) }, 'invalid_claim', 'jti'],
    ['an id with a newline', { id: 'a\nb' }, 'invalid_claim', 'jti'],
    ['an empty subject', { subject: '' }, 'invalid_claim', 'sub'],
    ['a txn with a null character', { txn: 'a\u0000' }, 'invalid_claim', 'txn'],
    ['an empty audience', { audience: '' }, 'invalid_claim', 'aud'],
    ['no audience at all', { audience: [] }, 'invalid_claim', 'aud'],
    ['a list with an empty audience', { audience: ['a', ''] }, 'invalid_claim', 'aud'],
    ['a hash without algorithm', { hash: 'abc' }, 'hash_unsupported', undefined],
    [
      'a hash in another format',
      { hash: `sha-256:${'0'.repeat(64)}` },
      'hash_unsupported',
      undefined,
    ],
    ['an id with a C1 control character', { id: 'a\u009b' }, 'invalid_claim', 'jti'],
    ['a txn with a right-to-left override', { txn: 'a\u202eb' }, 'invalid_claim', 'txn'],
    ['a subject with an isolate', { subject: '\u2067a' }, 'invalid_claim', 'sub'],
    ['a txn with a line separator', { txn: 'a\u2028' }, 'invalid_claim', 'txn'],
    ['a txn with a lone surrogate', { txn: 'a\ud800' }, 'invalid_claim', 'txn'],
    ['an audience of 256 characters', { audience: 'x'.repeat(256) }, 'invalid_claim', 'aud'],
    ['an audience with a newline', { audience: ['a\nb'] }, 'invalid_claim', 'aud'],
    ['data that is a string as JSON', { data: new Date(0) }, 'invalid_claim', 'webhook.data'],
    [
      'data that is a list as JSON',
      { data: { toJSON: () => [1] } },
      'invalid_claim',
      'webhook.data',
    ],
    [
      'data whose JSON is undefined',
      { data: { toJSON: () => undefined } },
      'invalid_claim',
      'webhook.data',
    ],
    ['a function as data', { data: () => 1 }, 'invalid_claim', 'webhook.data'],
    [
      'data with a member __proto__',
      { data: JSON.parse('{"a":[{"__proto__":{"admin":true}}]}') as object },
      'invalid_claim',
      'webhook.data',
    ],
    [
      'data with a member constructor.prototype',
      { data: { constructor: { prototype: 1 } } },
      'invalid_claim',
      'webhook.data',
    ],
    ['65 levels of objects', { data: nested(65, '{"a":', '}') }, 'invalid_claim', 'webhook.data'],
    ['65 levels of arrays', { data: { a: nested(64, '[', ']') } }, 'invalid_claim', 'webhook.data'],
    [
      '65 levels of both kinds',
      { data: nested(33, '{"a":[', ']}') },
      'invalid_claim',
      'webhook.data',
    ],
    ['data with a cycle', { data: cyclic() }, 'invalid_claim', 'webhook.data'],
    ['data with a BigInt', { data: { n: 1n } }, 'invalid_claim', 'webhook.data'],
    [
      'more data than a token may hold',
      { data: { x: 'x'.repeat(12_100) } },
      'token_too_large',
      undefined,
    ],
  ])('%s', (_, input, code, claim) => {
    expect(() => signed(input)).toThrow(
      expect.objectContaining(claim === undefined ? { code } : { code, claim }),
    );
  });

  it('with a rejection from signWebhookToken', async () => {
    await expect(signWebhookToken({ event: 'order' }, defaults)).rejects.toMatchObject({
      code: 'invalid_claim',
    });
  });
});

function nested(levels: number, open: string, close: string): object {
  const innermost = open.endsWith(':') ? '1' : '';
  return JSON.parse(`${open.repeat(levels)}${innermost}${close.repeat(levels)}`) as object;
}

function cyclic(): object {
  const data: { self?: object } = {};
  data.self = data;
  return data;
}

/** Drops members that are undefined, as JSON does. */
function asWritten(value: object): unknown {
  return JSON.parse(JSON.stringify(value));
}
