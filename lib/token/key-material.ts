import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  KeyObject,
  type JsonWebKey,
  type webcrypto,
} from 'node:crypto';
import { decodeBase64url } from './base64url.js';
import { HMAC_ALGORITHMS, HmacKey, type HmacAlgorithm } from './hmac-key.js';
import { isKeyId, KEY_ID_RULE } from './identifier.js';
import { JoseKey } from './jose-key.js';
import { isObject } from './json-object.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from './webhook-token.constants.js';

/**
 * What a key may be given as. A text is a shared secret (its UTF-8 bytes, or the bytes behind
 * `whsec_<base64>`, or those of a JWK of type `oct`), or PEM where the algorithm is one of key pairs.
 */
export type KeyMaterial = string | Uint8Array | KeyObject | webcrypto.CryptoKey | JsonWebKey;

/** A key with its name and its algorithm. */
export interface WebhookKey {
  /** Names the key in the token's header; 1 to 256 characters. */
  readonly kid?: string | undefined;
  /** Default `HS256`. A key serves one algorithm, whatever a token's header says. */
  readonly alg?: SignatureAlgorithm | undefined;
  readonly key: KeyMaterial;
  /**
   * From when the key is used: a Date, or ISO 8601 text with its offset (`'2026-01-31T00:00:00Z'`) or without a
   * time (`'2026-01-31'`, midnight UTC). A receiver takes it earlier by its clock tolerance. Default: always.
   */
  readonly notBefore?: Date | string | undefined;
  /**
   * From when the key is used no more, in the same form. Exact: no tolerance prolongs a key that was
   * revoked. Default: never.
   */
  readonly notAfter?: Date | string | undefined;
}

/** Key material alone is an HS256 secret. */
export type KeyInput = KeyMaterial | WebhookKey;

/** What the key is for. */
export type KeyUse = 'sign' | 'verify';

/** Switches for tests. */
export interface KeyPolicy {
  /** Take secrets that are too short to be safe, with a warning. Never in production. */
  readonly allowWeakSecrets?: boolean | undefined;
}

/** The parsed key, or what is wrong with it. */
export type ParsedKey<Key> =
  | { readonly key: Key; readonly fault?: undefined }
  | { readonly key?: undefined; readonly fault: string };

const LEAST_RSA_BITS = 2_048;

/** Parses a key once, binds it to its algorithm, and says what is wrong with it without quoting it. */
export function parseKey(
  input: KeyInput,
  use: KeyUse,
  policy: KeyPolicy = {},
): ParsedKey<HmacKey | JoseKey> {
  const { key: material, alg = 'HS256', kid } = isWebhookKey(input) ? input : { key: input };
  const fault = algorithmFault(alg) ?? keyIdFault(kid);
  if (fault !== undefined) return { fault };
  return isHmac(alg)
    ? parseSecret(material, alg, kid, policy)
    : parseKeyPairHalf(material, alg, kid, use);
}

function isWebhookKey(input: KeyInput): input is WebhookKey {
  return (
    typeof input === 'object' && input !== null && !(input instanceof KeyObject) && 'key' in input
  );
}

function isHmac(alg: SignatureAlgorithm): alg is HmacAlgorithm {
  return Object.hasOwn(HMAC_ALGORITHMS, alg);
}

function algorithmFault(alg: unknown): string | undefined {
  return SIGNATURE_ALGORITHMS.includes(alg as SignatureAlgorithm)
    ? undefined
    : `alg must be one of ${SIGNATURE_ALGORITHMS.join(', ')}`;
}

function keyIdFault(kid: unknown): string | undefined {
  if (kid === undefined) return undefined;
  return isKeyId(kid) ? undefined : KEY_ID_RULE;
}

function parseSecret(
  material: unknown,
  alg: HmacAlgorithm,
  kid: string | undefined,
  policy: KeyPolicy,
): ParsedKey<HmacKey> {
  const bytes = secretBytes(material);
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

function secretBytes(material: unknown): Buffer | string {
  if (typeof material === 'string') return textBytes(material);
  const keyObject = asKeyObject(material);
  if (keyObject !== undefined) {
    return keyObject.type === 'secret'
      ? refuseKeyText(keyObject.export())
      : `a ${keyObject.type} key cannot be a shared secret: set alg to RS256, ES256 or EdDSA`;
  }
  if (material instanceof Uint8Array) return refuseKeyText(Buffer.from(material));
  return isObject(material) && 'kty' in material
    ? jwkBytes(material)
    : 'the secret is missing: give a text or bytes';
}

/** RFC 7518, section 6.4. */
function jwkBytes({ kty, k }: JsonWebKey): Buffer | string {
  if (kty !== 'oct') {
    return 'a JWK that is not of type "oct" cannot be a shared secret: set alg to RS256, ES256 or EdDSA';
  }
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
  return text.startsWith('-----BEGIN') || /^\{.*"(?:kty|keys)"\s*:/s.test(text)
    ? "the secret is the text of a key (PEM or JWK), which anybody may know: set alg to the key's algorithm, or give a random secret"
    : bytes;
}

function parseKeyPairHalf(
  material: unknown,
  alg: SignatureAlgorithm,
  kid: string | undefined,
  use: KeyUse,
): ParsedKey<JoseKey> {
  const key = asKeyObject(material) ?? importKeyPairHalf(material);
  if (key === undefined) {
    return {
      fault: `the key for ${alg} cannot be read: give PEM, a JWK, a KeyObject or a CryptoKey`,
    };
  }
  const wanted = use === 'sign' ? 'private' : 'public';
  if (key.type !== wanted) {
    return {
      fault:
        use === 'sign'
          ? `signing with ${alg} wants a private key, and this is a ${key.type} one`
          : `verifying ${alg} wants a public key, and this is a ${key.type} one: a receiver must never hold it`,
    };
  }
  const fault = keyTypeFault(key, alg);
  return fault === undefined ? { key: new JoseKey(alg, key, kid) } : { fault };
}

function asKeyObject(material: unknown): KeyObject | undefined {
  if (material instanceof KeyObject) return material;
  if (Object.prototype.toString.call(material) !== '[object CryptoKey]') return undefined;
  try {
    return KeyObject.from(material as webcrypto.CryptoKey);
  } catch {
    return undefined;
  }
}

function importKeyPairHalf(material: unknown): KeyObject | undefined {
  // The error of a failed import may quote the key, so it ends here.
  try {
    if (typeof material === 'string' || material instanceof Uint8Array) {
      const pem = Buffer.from(material as string).toString('latin1');
      return pem.includes('PRIVATE KEY-----') ? createPrivateKey(pem) : createPublicKey(pem);
    }
    if (typeof material !== 'object' || material === null) return undefined;
    const jwk = { key: material as JsonWebKey, format: 'jwk' } as const;
    return 'd' in material ? createPrivateKey(jwk) : createPublicKey(jwk);
  } catch {
    return undefined;
  }
}

function keyTypeFault(key: KeyObject, alg: SignatureAlgorithm): string | undefined {
  const { asymmetricKeyType: type, asymmetricKeyDetails: details } = key;
  switch (alg) {
    case 'RS256':
      if (type !== 'rsa') return `RS256 wants an RSA key, and this is ${type}`;
      return (details?.modulusLength ?? 0) < LEAST_RSA_BITS
        ? `RS256 wants an RSA key of at least ${LEAST_RSA_BITS} bits, and this has ${details?.modulusLength}`
        : undefined;
    case 'ES256':
      return type === 'ec' && details?.namedCurve === 'prime256v1'
        ? undefined
        : 'ES256 wants an EC key on the curve P-256';
    case 'EdDSA':
      return type === 'ed25519' ? undefined : `EdDSA wants an Ed25519 key, and this is ${type}`;
    default:
      return `no key pair serves ${alg}`;
  }
}
