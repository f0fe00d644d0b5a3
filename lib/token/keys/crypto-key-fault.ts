import type { webcrypto } from 'node:crypto';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/** What a CryptoKey of each algorithm is made for. */
const MADE_FOR: Readonly<Record<SignatureAlgorithm, { name: string; detail?: string }>> = {
  HS256: { name: 'HMAC', detail: 'SHA-256' },
  HS384: { name: 'HMAC', detail: 'SHA-384' },
  HS512: { name: 'HMAC', detail: 'SHA-512' },
  RS256: { name: 'RSASSA-PKCS1-v1_5', detail: 'SHA-256' },
  PS256: { name: 'RSA-PSS', detail: 'SHA-256' },
  ES256: { name: 'ECDSA', detail: 'P-256' },
  ES384: { name: 'ECDSA', detail: 'P-384' },
  EdDSA: { name: 'Ed25519' },
};

/** A CryptoKey is bound to an algorithm already; another one would be a second use of one key. */
export function cryptoKeyFault(
  key: webcrypto.CryptoKey,
  alg: SignatureAlgorithm,
): string | undefined {
  const { name, hash, namedCurve } = key.algorithm as {
    name: string;
    hash?: { name: string };
    namedCurve?: string;
  };
  const wanted = MADE_FOR[alg];
  const detail = hash?.name ?? namedCurve;
  if (name === wanted.name && detail === wanted.detail) return undefined;
  const found = detail === undefined ? name : `${name} with ${detail}`;
  return `the CryptoKey was made for ${found}, and ${alg} wants ${[wanted.name, wanted.detail].filter(Boolean).join(' with ')}: a key serves one algorithm`;
}
