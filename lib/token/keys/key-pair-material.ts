import { createPrivateKey, createPublicKey, type JsonWebKey, type KeyObject } from 'node:crypto';
import { cryptoKeyFault } from './crypto-key-fault.js';
import { JoseKey } from './jose-key.js';
import { isObject } from '../json/json-object.js';
import { jwkFault } from './jwk-members.js';
import { asKeyObject, isCryptoKey } from './key-object.js';
import type { KeyUse, MadeKey } from './key-use.js';
import { pemFault } from './pem-text.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

const LEAST_RSA_BITS = 2_048;
/** A verification takes time with the square of the size, and whoever publishes a key decides it. */
const MOST_RSA_BITS = 8_192;
/** FIPS 186-5, appendix A.1.1: odd, and above 2^16 and below 2^256. Every tool makes 65537. */
const LEAST_RSA_EXPONENT = 65_537n;
const RSA_EXPONENT_LIMIT = 2n ** 256n;

/** Makes a key of one half of a key pair. */
export function parseKeyPairHalf(
  material: unknown,
  alg: SignatureAlgorithm,
  kid: string | undefined,
  use: KeyUse,
): MadeKey<JoseKey> {
  const fault = materialFault(material, alg, use);
  if (fault !== undefined) return { fault };
  const key = asKeyObject(material) ?? importHalf(material);
  if (key === undefined) {
    return {
      fault: `the key for ${alg} cannot be read: give PEM, a JWK, a KeyObject or a CryptoKey`,
    };
  }
  const mismatch = halfFault(key, alg, use) ?? keyTypeFault(key, alg);
  return mismatch === undefined ? { key: new JoseKey(alg, key, kid) } : { fault: mismatch };
}

/** What can be said of the form before the key is read. */
function materialFault(
  material: unknown,
  alg: SignatureAlgorithm,
  use: KeyUse,
): string | undefined {
  if (isCryptoKey(material)) return cryptoKeyFault(material, alg);
  if (asKeyObject(material) !== undefined) return undefined;
  if (typeof material === 'string' || material instanceof Uint8Array) {
    const text = textOf(material);
    if (text.trimStart().startsWith('{')) {
      return 'the key is the text of a JWK: give what JSON.parse makes of it';
    }
    return text.includes('-----BEGIN') ? pemFault(text) : undefined;
  }
  // Which half it is comes first: a private key with a receiver is worse than a wrong use.
  return isObject(material) && !('d' in material && use === 'verify')
    ? jwkFault(material, alg, use)
    : undefined;
}

function importHalf(material: unknown): KeyObject | undefined {
  // The error of a failed import may quote the key, so it ends here.
  try {
    if (typeof material === 'string' || material instanceof Uint8Array) {
      const pem = textOf(material);
      return pem.includes('PRIVATE KEY-----') ? createPrivateKey(pem) : createPublicKey(pem);
    }
    if (typeof material !== 'object' || material === null) return undefined;
    const jwk = { key: material as JsonWebKey, format: 'jwk' } as const;
    return 'd' in material ? createPrivateKey(jwk) : createPublicKey(jwk);
  } catch {
    return undefined;
  }
}

function textOf(material: string | Uint8Array): string {
  return Buffer.from(material as string).toString('latin1');
}

function halfFault(key: KeyObject, alg: SignatureAlgorithm, use: KeyUse): string | undefined {
  if (use === 'sign') {
    return key.type === 'private'
      ? undefined
      : `signing with ${alg} wants a private key, and this is a ${key.type} one`;
  }
  return key.type === 'public'
    ? undefined
    : `verifying ${alg} wants a public key, and this is a ${key.type} one: a receiver must never hold it`;
}

function keyTypeFault(key: KeyObject, alg: SignatureAlgorithm): string | undefined {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  switch (alg) {
    case 'RS256':
    case 'PS256':
      return rsaFault(key, alg);
    case 'ES256':
      return type === 'ec' && details?.namedCurve === 'prime256v1'
        ? undefined
        : 'ES256 wants an EC key on the curve P-256';
    case 'ES384':
      return type === 'ec' && details?.namedCurve === 'secp384r1'
        ? undefined
        : 'ES384 wants an EC key on the curve P-384';
    case 'EdDSA':
      return type === 'ed25519' ? undefined : `EdDSA wants an Ed25519 key, and this is ${type}`;
    default:
      return `no key pair serves ${alg}`;
  }
}

function rsaFault(key: KeyObject, alg: 'RS256' | 'PS256'): string | undefined {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === 'rsa-pss') {
    return `${alg} wants an RSA key of the plain kind (rsaEncryption), and this is one of the kind rsa-pss: make one with "openssl genpkey -algorithm RSA"`;
  }
  if (type !== 'rsa') return `${alg} wants an RSA key, and this is ${type}`;
  const { modulusLength: bits = 0, publicExponent: exponent = 0n } = details ?? {};
  if (bits < LEAST_RSA_BITS) {
    return `${alg} wants an RSA key of at least ${LEAST_RSA_BITS} bits, and this has ${bits}`;
  }
  if (bits > MOST_RSA_BITS) {
    return `${alg} wants an RSA key of at most ${MOST_RSA_BITS} bits, and this has ${bits}: it would slow down every verification`;
  }
  return exponent >= LEAST_RSA_EXPONENT && exponent < RSA_EXPONENT_LIMIT && exponent % 2n === 1n
    ? undefined
    : `${alg} wants an RSA key whose public exponent is odd, above 2^16 and below 2^256 (FIPS 186-5): make one with 65537, as every tool does unless told otherwise`;
}
