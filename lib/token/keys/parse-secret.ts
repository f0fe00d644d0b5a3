import { createPublicKey, createSecretKey, KeyObject } from 'node:crypto';
import { decodeBase64url, unpadded } from '../decoding.js';
import { isObject } from '../json.js';
import {
  asKeyObject,
  cryptoKeyProblem,
  isCryptoKey,
  type JsonWebKey,
  jwkProblem,
  type KeyUse,
  type Parsed,
} from './key-form.js';
import { HMAC_ALGORITHMS, type HmacAlgorithm, HmacKey } from './token-keys.js';

const OF_KEY_PAIRS = 'set alg to RS256, PS256, ES256, ES384 or EdDSA';

export function parseSecret(
  material: unknown,
  alg: HmacAlgorithm,
  kid: string | undefined,
  use: KeyUse,
  allowWeakSecrets: boolean,
): Parsed<{ readonly key: HmacKey }> {
  const bytes = secretBytes(material, alg, use);
  if (typeof bytes === 'string') return { problem: bytes };
  const minimum = HMAC_ALGORITHMS[alg].secretBytes;
  if (bytes.length < minimum) {
    if (!allowWeakSecrets || bytes.length === 0) {
      return {
        problem: `the secret has ${bytes.length} bytes and ${alg} needs at least ${minimum} (RFC 7518, section 3.2): generate one with "openssl rand -base64 ${minimum}"`,
      };
    }
    process.emitWarning(
      `A webhook secret has fewer than ${minimum} bytes and is accepted because allowWeakSecrets is set. Never set it in production.`,
      { code: 'WEBHOOK_WEAK_SECRET' },
    );
  }
  return { key: new HmacKey(alg, createSecretKey(bytes), kid) };
}

/** @returns the bytes of a shared secret, or what is wrong with it */
export function secretBytes(material: unknown, alg: HmacAlgorithm, use: KeyUse): Buffer | string {
  if (typeof material === 'string') return stringBytes(material);
  const keyObject = asKeyObject(material);
  if (keyObject !== undefined) {
    if (keyObject.type !== 'secret') {
      return `a ${keyObject.type} key cannot be a shared secret: ${OF_KEY_PAIRS}`;
    }
    const problem = isCryptoKey(material) ? cryptoKeyProblem(material, alg) : undefined;
    return problem ?? refusePublicKey(keyObject.export());
  }
  if (material instanceof Uint8Array) return refusePublicKey(Buffer.from(material));
  return isObject(material) && 'kty' in material
    ? jwkBytes(material, alg, use)
    : 'the secret is missing: pass a string or bytes';
}

/** RFC 7518, section 6.4. */
function jwkBytes(jwk: JsonWebKey, alg: HmacAlgorithm, use: KeyUse): Buffer | string {
  const { kty, k } = jwk;
  if (kty !== 'oct') {
    return `a JWK that is not of type "oct" cannot be a shared secret: ${OF_KEY_PAIRS}`;
  }
  const problem = jwkProblem(jwk, alg, use);
  if (problem !== undefined) return problem;
  const bytes = typeof k === 'string' ? decodeBase64url(k) : undefined;
  return bytes === undefined
    ? 'the member "k" of the JWK is not base64url without padding'
    : refusePublicKey(bytes);
}

function stringBytes(text: string): Buffer | string {
  if (text.trim() !== text) {
    return 'the secret begins or ends with white space, which the other side does not have: trim it';
  }
  if (text.startsWith('whsec_')) {
    const encoded = text.slice('whsec_'.length);
    const bytes = Buffer.from(encoded, 'base64');
    return unpadded(bytes.toString('base64')) === unpadded(encoded)
      ? refusePublicKey(bytes)
      : 'the part after "whsec_" is not base64';
  }
  return refusePublicKey(Buffer.from(text));
}

/** An HMAC secret that is a public key is the classic algorithm confusion (RFC 8725, section 2.1). */
function refusePublicKey(bytes: Buffer): Buffer | string {
  const text = bytes.toString('latin1').trimStart();
  if (
    text.startsWith('-----BEGIN') ||
    /^\{.*"(?:kty|keys)"\s*:/s.test(text) ||
    /^(?:ssh-|ecdsa-sha2-)\S+ AAAA/.test(text)
  ) {
    return 'this is a key (PEM, JWK or SSH), not a shared secret: set "alg" and pass it in "keys", or use a random secret';
  }
  return isPublicKeyDer(bytes) || isPublicKeyDer(Buffer.from(text, 'base64'))
    ? 'this is a public key (the contents of a PEM), not a shared secret: pass the whole PEM and set "alg", or use a random secret'
    : bytes;
}

/** SubjectPublicKeyInfo, the contents of a "BEGIN PUBLIC KEY" block. */
function isPublicKeyDer(der: Buffer): boolean {
  // An ASN.1 SEQUENCE; most random secrets begin with another byte and need no parsing.
  if (der[0] !== 0x30) return false;
  try {
    return createPublicKey({ key: der, format: 'der', type: 'spki' }) instanceof KeyObject;
  } catch {
    return false;
  }
}
