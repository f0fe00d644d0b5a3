import {
  createECDH,
  createHash,
  createHmac,
  createPrivateKey,
  createPublicKey,
  sign,
} from 'node:crypto';
import { readFileSync } from 'node:fs';

const { notice: _, ...privateJwks } = JSON.parse(
  readFileSync(new URL('./cases/test-keys.json', import.meta.url), 'utf8'),
);

/** Instant at which the cases are verified unless they say otherwise: 2025-10-09T08:53:20Z. */
export const NOW = 1_760_000_000;

export const ISSUER = 'https://shop.example';
export const OTHER_ISSUER = 'https://bank.example';
export const AUDIENCE = 'https://crm.example';

/** Secrets of 64 ASCII characters, long enough for every HMAC algorithm. */
export const SECRET = 'test-only-secret-of-the-shop-0001-do-not-use-it-anywhere-else-!!';
export const NEXT_SECRET = 'test-only-secret-of-the-shop-0002-do-not-use-it-anywhere-else-!!';
export const OTHER_SECRET = 'test-only-secret-of-the-bank-0001-do-not-use-it-anywhere-else-!!';

/** Signing keys: HMAC secrets and private keys. */
export const keys = {
  secret: hmac(SECRET),
  nextSecret: hmac(NEXT_SECRET),
  otherSecret: hmac(OTHER_SECRET),
  ...Object.fromEntries(
    Object.entries(privateJwks).map(([name, jwk]) => [
      name,
      {
        privateKey: createPrivateKey({ key: jwk, format: 'jwk' }),
        publicJwk: publicPart(jwk),
        jwk,
      },
    ]),
  ),
};

/** Keeps the order of members, which a Node.js export may change. */
function publicPart(jwk) {
  const secret = ['d', 'p', 'q', 'dp', 'dq', 'qi'];
  return Object.fromEntries(Object.entries(jwk).filter(([member]) => !secret.includes(member)));
}

/** The public half as PEM: what an attacker knows, and uses as an HMAC secret. */
export function publicPem(key) {
  return createPublicKey({ key: key.publicJwk, format: 'jwk' }).export({
    type: 'spki',
    format: 'pem',
  });
}

/** An HMAC key from a string or bytes. */
export function hmac(secret) {
  return { secret };
}

/** Base64url without padding, of a string, bytes, or a value's JSON. */
export function encode(part) {
  const bytes = Buffer.isBuffer(part)
    ? part
    : Buffer.from(typeof part === 'string' ? part : JSON.stringify(part));
  return bytes.toString('base64url');
}

/** A valid header with changes; members that are `undefined` are left out. */
export function header(change = {}) {
  return { alg: 'HS256', typ: 'JWT', ...change };
}

/** Valid claims with changes; members that are `undefined` are left out. */
export function claims(change = {}) {
  return {
    iss: ISSUER,
    iat: NOW,
    nbf: NOW,
    exp: NOW + 300,
    jti: '6f1c2a9e-0001',
    webhook: { event: 'order.created', data: { id: 'o-1', total: 42 } },
    ...change,
  };
}

/** Valid claims with another claim `webhook`. */
export function withWebhook(change) {
  return claims({ webhook: { event: 'order.created', ...change } });
}

/**
 * Signs parts that are already encoded, valid or not.
 *
 * @param input - the string to sign, as UTF-8
 */
export function signature(input, { alg = 'HS256', key = keys.secret } = {}) {
  return signBytes(Buffer.from(input), alg, key).toString('base64url');
}

/**
 * A compact token from a header and claims: objects, JSON strings or bytes, all unchecked.
 */
export function token(payload = claims(), head = header(), { alg, key } = {}) {
  const input = `${encode(head)}.${encode(payload)}`;
  return `${input}.${signature(input, { alg: alg ?? head.alg, key })}`;
}

function signBytes(bytes, alg, key) {
  switch (alg) {
    case 'HS256':
    case 'HS384':
    case 'HS512':
      return createHmac(`sha${alg.slice(2)}`, key.secret)
        .update(bytes)
        .digest();
    case 'RS256':
      return sign('sha256', bytes, key.privateKey);
    case 'ES256':
      return signEcdsa(bytes, key.jwk);
    case 'EdDSA':
      return sign(null, bytes, key.privateKey);
    default:
      return createHmac('sha256', key?.secret ?? SECRET)
        .update(bytes)
        .digest();
  }
}

const ORDER = 0xffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551n;

/**
 * ECDSA over P-256 and SHA-256 with a nonce derived from key and message, so that the vectors are the
 * same whenever they are made; any verifier takes it. Not constant-time: for test keys only.
 */
function signEcdsa(bytes, jwk) {
  const digest = createHash('sha256').update(bytes).digest();
  const d = number(Buffer.from(jwk.d, 'base64url'));
  const nonce = (number(createHmac('sha256', jwk.d).update(digest).digest()) % (ORDER - 1n)) + 1n;
  const point = createECDH('prime256v1');
  point.setPrivateKey(octets(nonce));
  const r = number(point.getPublicKey().subarray(1, 33)) % ORDER;
  const s = (inverse(nonce) * (number(digest) + r * d)) % ORDER;
  return Buffer.concat([octets(r), octets(s)]);
}

/** By Fermat: the order is a prime. */
function inverse(value) {
  let result = 1n;
  let base = value;
  for (let exponent = ORDER - 2n; exponent > 0n; exponent >>= 1n) {
    if (exponent & 1n) result = (result * base) % ORDER;
    base = (base * base) % ORDER;
  }
  return result;
}

function number(bytes) {
  return BigInt(`0x${bytes.toString('hex')}`);
}

function octets(value) {
  return Buffer.from(value.toString(16).padStart(64, '0'), 'hex');
}
