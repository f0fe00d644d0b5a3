import { type JsonWebKeyInput, KeyObject, type webcrypto } from 'node:crypto';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/** Node's type, which its declarations export by this name in some versions only. */
export type JsonWebKey = JsonWebKeyInput['key'];

export type KeyUse = 'sign' | 'verify';

/** What was parsed, or what is wrong with it and how to correct it. */
export type Parsed<Parts extends object> =
  | (Parts & { readonly problem?: undefined })
  | ({ readonly [Name in keyof Parts]?: undefined } & { readonly problem: string });

/** The algorithm that a CryptoKey must have for each signature algorithm. */
const CRYPTO_KEY_ALGORITHMS: Readonly<
  Record<SignatureAlgorithm, { name: string; detail?: string }>
> = {
  HS256: { name: 'HMAC', detail: 'SHA-256' },
  HS384: { name: 'HMAC', detail: 'SHA-384' },
  HS512: { name: 'HMAC', detail: 'SHA-512' },
  RS256: { name: 'RSASSA-PKCS1-v1_5', detail: 'SHA-256' },
  PS256: { name: 'RSA-PSS', detail: 'SHA-256' },
  ES256: { name: 'ECDSA', detail: 'P-256' },
  ES384: { name: 'ECDSA', detail: 'P-384' },
  EdDSA: { name: 'Ed25519' },
};

/** A CryptoKey is bound to one algorithm and must not be used for another. */
export function cryptoKeyProblem(
  key: webcrypto.CryptoKey,
  alg: SignatureAlgorithm,
): string | undefined {
  const { name, hash, namedCurve } = key.algorithm as {
    name: string;
    hash?: { name: string };
    namedCurve?: string;
  };
  const wanted = CRYPTO_KEY_ALGORITHMS[alg];
  const detail = hash?.name ?? namedCurve;
  if (name === wanted.name && detail === wanted.detail) return undefined;
  const found = detail === undefined ? name : `${name} with ${detail}`;
  return `the CryptoKey is for ${found}, and ${alg} needs ${[wanted.name, wanted.detail].filter(Boolean).join(' with ')}: use a key for one algorithm only`;
}

/**
 * Checks `use`, `key_ops` and `alg` of a JWK against its intended use (RFC 7517, sections 4.2 to 4.4).
 *
 * @returns the problem and its remedy, or `undefined`
 */
export function jwkProblem(
  jwk: JsonWebKey,
  alg: SignatureAlgorithm,
  use: KeyUse,
): string | undefined {
  if (jwk['use'] !== undefined && jwk['use'] !== 'sig') {
    return 'the JWK is not for signatures ("use" is not "sig"): pass a key that is';
  }
  const operations: unknown = jwk['key_ops'];
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes(use))) {
    return `"key_ops" of the JWK does not include "${use}": pass a key that does`;
  }
  return jwk['alg'] === undefined || jwk['alg'] === alg
    ? undefined
    : `the JWK is for another algorithm than ${alg}: set alg to that of the JWK`;
}

/** Recognises a CryptoKey, also one from another realm. */
export function isCryptoKey(material: unknown): material is webcrypto.CryptoKey {
  return Object.prototype.toString.call(material) === '[object CryptoKey]';
}

/** @returns `undefined` for material that is not a key object yet */
export function asKeyObject(material: unknown): KeyObject | undefined {
  if (material instanceof KeyObject) return material;
  if (!isCryptoKey(material)) return undefined;
  try {
    return KeyObject.from(material);
  } catch {
    return undefined;
  }
}
