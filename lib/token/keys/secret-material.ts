import { createPublicKey, createSecretKey, KeyObject, type JsonWebKey } from 'node:crypto';
import { decodeBase64url } from '../json/base64url.js';
import { cryptoKeyFault } from './crypto-key-fault.js';
import { HMAC_ALGORITHMS, HmacKey, type HmacAlgorithm } from './hmac-key.js';
import { isObject } from '../json/json-object.js';
import { jwkFault } from './jwk-members.js';
import { asKeyObject, isCryptoKey } from './key-object.js';
import type { KeyPolicy, KeyUse, MadeKey } from './key-use.js';

const OF_KEY_PAIRS = 'set alg to RS256, PS256, ES256, ES384 or EdDSA';

/** Makes a key of a shared secret. */
export function parseSecret(
  material: unknown,
  alg: HmacAlgorithm,
  kid: string | undefined,
  use: KeyUse,
  policy: KeyPolicy,
): MadeKey<HmacKey> {
  const bytes = secretBytes(material, alg, use);
  if (typeof bytes === 'string') return { fault: bytes };
  const least = HMAC_ALGORITHMS[alg].secretBytes;
  if (bytes.length < least) {
    if (policy.allowWeakSecrets !== true || bytes.length === 0) {
      return {
        fault: `the secret has ${bytes.length} bytes and ${alg} wants at least ${least} (RFC 7518, section 3.2): make one with "openssl rand -base64 ${least}"`,
      };
    }
    process.emitWarning(
      `A webhook secret has fewer than ${least} bytes and is accepted because allowWeakSecrets is set. Never set it in production.`,
      { code: 'WEBHOOK_WEAK_SECRET' },
    );
  }
  return { key: new HmacKey(alg, createSecretKey(bytes), kid) };
}

function secretBytes(material: unknown, alg: HmacAlgorithm, use: KeyUse): Buffer | string {
  if (typeof material === 'string') return textBytes(material);
  const keyObject = asKeyObject(material);
  if (keyObject !== undefined) {
    if (keyObject.type !== 'secret') {
      return `a ${keyObject.type} key cannot be a shared secret: ${OF_KEY_PAIRS}`;
    }
    const fault = isCryptoKey(material) ? cryptoKeyFault(material, alg) : undefined;
    return fault ?? refuseKeyText(keyObject.export());
  }
  if (material instanceof Uint8Array) return refuseKeyText(Buffer.from(material));
  return isObject(material) && 'kty' in material
    ? jwkBytes(material, alg, use)
    : 'the secret is missing: give a text or bytes';
}

/** RFC 7518, section 6.4. */
function jwkBytes(jwk: JsonWebKey, alg: HmacAlgorithm, use: KeyUse): Buffer | string {
  const { kty, k } = jwk;
  if (kty !== 'oct') {
    return `a JWK that is not of type "oct" cannot be a shared secret: ${OF_KEY_PAIRS}`;
  }
  const fault = jwkFault(jwk, alg, use);
  if (fault !== undefined) return fault;
  const bytes = typeof k === 'string' ? decodeBase64url(k) : undefined;
  return bytes === undefined
    ? 'the member "k" of the JWK is not base64url without padding'
    : refuseKeyText(bytes);
}

function textBytes(text: string): Buffer | string {
  if (text.trim() !== text) {
    return 'the secret begins or ends with white space, which no sender would share: trim it where it is read';
  }
  if (text.startsWith('whsec_')) {
    const encoded = text.slice('whsec_'.length);
    const bytes = Buffer.from(encoded, 'base64');
    return bytes.toString('base64').replace(/=+$/, '') === encoded.replace(/=+$/, '')
      ? refuseKeyText(bytes)
      : 'the text behind "whsec_" is not base64';
  }
  return refuseKeyText(Buffer.from(text));
}

/** Key text as an HMAC secret is the classic algorithm confusion: a public key is no secret. */
function refuseKeyText(bytes: Buffer): Buffer | string {
  const text = bytes.toString('latin1').trimStart();
  if (
    text.startsWith('-----BEGIN') ||
    /^\{.*"(?:kty|keys)"\s*:/s.test(text) ||
    /^(?:ssh-|ecdsa-sha2-)\S+ AAAA/.test(text)
  ) {
    return `the secret is the text of a key (PEM, JWK or SSH), which anybody may know: set alg to the key's algorithm, or give a random secret`;
  }
  return isPublicKeyDer(bytes) || isPublicKeyDer(Buffer.from(text, 'base64'))
    ? 'the secret is a public key (the inside of a PEM), which anybody may know: give the whole PEM and set alg to its algorithm, or give a random secret'
    : bytes;
}

/** SubjectPublicKeyInfo, what stands between the lines of "BEGIN PUBLIC KEY". */
function isPublicKeyDer(der: Buffer): boolean {
  // An ASN.1 SEQUENCE; of random secrets, the other 255 of 256 are done here.
  if (der[0] !== 0x30) return false;
  try {
    return createPublicKey({ key: der, format: 'der', type: 'spki' }) instanceof KeyObject;
  } catch {
    return false;
  }
}
