import { Buffer } from 'node:buffer';
import {
  createPrivateKey,
  createPublicKey,
  type JsonWebKeyInput,
  type KeyObject,
} from 'node:crypto';
import { isObject } from '../json.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';
import {
  asKeyObject,
  cryptoKeyProblem,
  isCryptoKey,
  jwkProblem,
  type KeyUse,
  type Parsed,
} from './key-form.js';
import { pemProblem } from './pem.js';
import { JoseKey } from './token-keys.js';

const MIN_RSA_BITS = 2_048;
/** The time of a verification grows with the square of the size, which the publisher of a key chooses. */
const MAX_RSA_BITS = 8_192;
/** FIPS 186-5, appendix A.1.1: odd, above 2^16 and below 2^256. */
const MIN_RSA_EXPONENT = 65_537n;
const RSA_EXPONENT_LIMIT = 2n ** 256n;

export function parseKeyPairHalf(
  material: unknown,
  alg: SignatureAlgorithm,
  kid: string | undefined,
  use: KeyUse,
): Parsed<{ readonly key: JoseKey }> {
  const problem = materialProblem(material, alg, use);
  if (problem !== undefined) return { problem };
  const key = asKeyObject(material) ?? importHalf(material);
  if (key === undefined) {
    return {
      problem: `the key for ${alg} cannot be read: pass PEM, a JWK, a KeyObject or a CryptoKey`,
    };
  }
  const mismatch = halfProblem(key, alg, use) ?? keyTypeProblem(key, alg);
  return mismatch === undefined ? { key: new JoseKey(alg, key, kid) } : { problem: mismatch };
}

/** Checks that need no parsed key. */
function materialProblem(
  material: unknown,
  alg: SignatureAlgorithm,
  use: KeyUse,
): string | undefined {
  if (isCryptoKey(material)) return cryptoKeyProblem(material, alg);
  if (asKeyObject(material) !== undefined) return undefined;
  if (typeof material === 'string' || material instanceof Uint8Array) {
    const text = textOf(material);
    if (text.trimStart().startsWith('{')) {
      return 'the key is a JWK as a string: pass the result of JSON.parse';
    }
    return text.includes('-----BEGIN') ? pemProblem(text) : undefined;
  }
  // A private key in a receiver is reported first, since it is worse than a wrong use.
  return isObject(material) && !('d' in material && use === 'verify')
    ? jwkProblem(material, alg, use)
    : undefined;
}

function importHalf(material: unknown): KeyObject | undefined {
  // The error of a failed import may quote the key, so it is dropped.
  try {
    if (typeof material === 'string' || material instanceof Uint8Array) {
      const pem = textOf(material);
      return pem.includes('PRIVATE KEY-----') ? createPrivateKey(pem) : createPublicKey(pem);
    }
    if (typeof material !== 'object' || material === null) return undefined;
    const jwk = { key: material, format: 'jwk' } as JsonWebKeyInput;
    return 'd' in material ? createPrivateKey(jwk) : createPublicKey(jwk);
  } catch {
    return undefined;
  }
}

function textOf(material: string | Uint8Array): string {
  return Buffer.from(material as string).toString('latin1');
}

function halfProblem(key: KeyObject, alg: SignatureAlgorithm, use: KeyUse): string | undefined {
  if (use === 'sign') {
    return key.type === 'private'
      ? undefined
      : `signing with ${alg} needs a private key, and this is a ${key.type} key`;
  }
  return key.type === 'public'
    ? undefined
    : `verifying ${alg} needs a public key, and this is a ${key.type} key, which a receiver must never have`;
}

function keyTypeProblem(key: KeyObject, alg: SignatureAlgorithm): string | undefined {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  switch (alg) {
    case 'RS256':
    case 'PS256':
      return rsaProblem(key, alg);
    case 'ES256':
      return type === 'ec' && details?.namedCurve === 'prime256v1'
        ? undefined
        : 'ES256 needs an EC key on the curve P-256';
    case 'ES384':
      return type === 'ec' && details?.namedCurve === 'secp384r1'
        ? undefined
        : 'ES384 needs an EC key on the curve P-384';
    case 'EdDSA':
      if (type !== 'ed25519') return `EdDSA needs an Ed25519 key, and this is ${type}`;
      return isOfSmallOrder(key)
        ? 'the Ed25519 key is a point of small order, so anyone can make signatures that are valid for it: generate a new key pair'
        : undefined;
    default:
      return `${alg} has no key pairs`;
  }
}

/**
 * The y coordinates of the eight points whose order divides the cofactor (RFC 8032, section 5.1), little-endian with the
 * sign bit cleared. 0 and 1 have a second encoding that is not reduced modulo 2^255 - 19.
 */
const SMALL_ORDER_Y: ReadonlySet<string> = new Set([
  '0000000000000000000000000000000000000000000000000000000000000000',
  'edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '0100000000000000000000000000000000000000000000000000000000000000',
  'eeffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  'ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f',
  '26e8958fc2b227b045c3f489f2ef98f0d5dfac05d3c63339b13802886d53fc05',
  'c7176a703d4dd84fba3c0b760d10670f2a2053fa2c39ccc64ec7fd7792ac037a',
]);

/** OpenSSL imports any 32 bytes as a public key. */
function isOfSmallOrder(key: KeyObject): boolean {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  const point = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url');
  point[31]! &= 0x7f;
  return SMALL_ORDER_Y.has(point.toString('hex'));
}

function rsaProblem(key: KeyObject, alg: 'RS256' | 'PS256'): string | undefined {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  if (type === 'rsa-pss') {
    return `${alg} needs a plain RSA key (rsaEncryption), and this is an rsa-pss key: generate one with "openssl genpkey -algorithm RSA"`;
  }
  if (type !== 'rsa') return `${alg} needs an RSA key, and this is ${type}`;
  const { modulusLength: bits = 0, publicExponent: exponent = 0n } = details ?? {};
  if (bits < MIN_RSA_BITS) {
    return `${alg} needs an RSA key of at least ${MIN_RSA_BITS} bits, and this has ${bits}`;
  }
  if (bits > MAX_RSA_BITS) {
    return `${alg} needs an RSA key of at most ${MAX_RSA_BITS} bits, and this has ${bits}: it would slow down every verification`;
  }
  return exponent >= MIN_RSA_EXPONENT && exponent < RSA_EXPONENT_LIMIT && exponent % 2n === 1n
    ? undefined
    : `${alg} needs an RSA key with an odd public exponent above 2^16 and below 2^256 (FIPS 186-5): generate one with the usual 65537`;
}
