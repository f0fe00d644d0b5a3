import {
  createPrivateKey,
  createPublicKey,
  createSecretKey,
  type JsonWebKey,
  KeyObject,
  type webcrypto,
} from 'node:crypto';
import { isKeyId, KEY_ID_RULE } from '../identifier.js';
import { decodeBase64url } from '../json/base64url.js';
import { isObject } from '../json/strict-json.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from '../webhook-token.constants.js';
import { HMAC_ALGORITHMS, type HmacAlgorithm, HmacKey } from './hmac-key.js';
import { JoseKey } from './jose-key.js';
import { type KeyWindow, parseKeyWindow } from './key-window.js';

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
function cryptoKeyFault(key: webcrypto.CryptoKey, alg: SignatureAlgorithm): string | undefined {
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

/**
 * Holds what a JWK says of itself against what it is to be used for (RFC 7517, sections 4.2 to 4.4).
 *
 * @returns the contradiction and its remedy
 */
function jwkFault(jwk: JsonWebKey, alg: SignatureAlgorithm, use: KeyUse): string | undefined {
  if (jwk['use'] !== undefined && jwk['use'] !== 'sig') {
    return 'the JWK says that it is not for signatures ("use" is not "sig"): give the key that is';
  }
  const operations: unknown = jwk['key_ops'];
  if (operations !== undefined && !(Array.isArray(operations) && operations.includes(use))) {
    return `the JWK says what it is for ("key_ops"), and "${use}" is not among it: give the key that is for it`;
  }
  return jwk['alg'] === undefined || jwk['alg'] === alg
    ? undefined
    : `the JWK says that it is for another algorithm than ${alg}: a key serves one, so set alg to the JWK's`;
}

/** Tells a CryptoKey, also one of another realm. */
function isCryptoKey(material: unknown): material is webcrypto.CryptoKey {
  return Object.prototype.toString.call(material) === '[object CryptoKey]';
}

/** @returns `undefined` for material that must be read first, and for none */
function asKeyObject(material: unknown): KeyObject | undefined {
  if (material instanceof KeyObject) return material;
  if (!isCryptoKey(material)) return undefined;
  try {
    return KeyObject.from(material);
  } catch {
    return undefined;
  }
}

const OF_KEY_PAIRS = 'set alg to RS256, PS256, ES256, ES384 or EdDSA';

/** Makes a key of a shared secret. */
function parseSecret(
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

/** What a key's PEM is labelled, and may be read as. */
const KEY_LABELS: ReadonlySet<string> = new Set([
  'PUBLIC KEY',
  'RSA PUBLIC KEY',
  'PRIVATE KEY',
  'RSA PRIVATE KEY',
  'EC PRIVATE KEY',
]);

const BEGIN = /-----BEGIN ([A-Z0-9 ]{1,40})-----/g;

/**
 * Says how PEM was damaged on its way here, and how to repair that. Nothing is repaired silently: what
 * damages one key damages the next one, and the one that is read with luck today is not read tomorrow.
 *
 * @param text - that holds `-----BEGIN`
 * @returns what is wrong and the remedy, without quoting the key; `undefined` for PEM as RFC 7468 has it, CRLF included
 */
function pemFault(text: string): string | undefined {
  return encryption(text) ?? damage(text) ?? foreignContent(text);
}

function encryption(text: string): string | undefined {
  return /-----BEGIN ENCRYPTED PRIVATE KEY-----|Proc-Type: 4,ENCRYPTED/.test(text)
    ? 'the PEM is encrypted: decrypt it where it is read, with createPrivateKey({ key, passphrase }) of node:crypto, and give the KeyObject'
    : undefined;
}

function damage(text: string): string | undefined {
  if (/\\[nr]/.test(text)) {
    return 'the PEM has the two characters "\\n" where its lines should end, as environment files leave them: read it with value.replaceAll("\\\\n", "\\n")';
  }
  if (/^\s*["']/.test(text)) {
    return 'the PEM stands in quotation marks: remove them where it is read';
  }
  if (/^[ \t]+-----BEGIN /m.test(text) || /^[ \t]+\S/m.test(block(text))) {
    return 'the lines of the PEM begin with white space, as a block of YAML or a template literal leaves it: remove the indentation of every line';
  }
  if (!/-----END [A-Z0-9 ]+-----/.test(text)) {
    return 'the PEM has no END line: it was cut off, so copy the whole of it';
  }
  if (!/^-----BEGIN [A-Z0-9 ]+-----[ \t]*\r?\n/m.test(text) || /[^\n]-----END /.test(text)) {
    return 'the PEM has lost its line breaks, as a folded value or a single-line field leaves it: give the BEGIN line, the END line and each line between them a line of its own';
  }
  if (/\n[ \t]*\r?\n/.test(block(text))) {
    return 'the PEM has empty lines between its lines: remove them';
  }
  return undefined;
}

/** From the first BEGIN to the first END: text around it is allowed, and no part of the key. */
function block(text: string): string {
  const start = text.indexOf('-----BEGIN ');
  const end = text.indexOf('-----END ', start);
  return text.slice(start, end < 0 ? undefined : end);
}

/** PEM that is whole, and is not one key. */
function foreignContent(text: string): string | undefined {
  const labels = [...text.matchAll(BEGIN)].map(([, label]) => label!);
  if (labels.includes('CERTIFICATE')) {
    return 'the PEM is a certificate, whose dates and issuer nobody would check here: take its key, with "openssl x509 -pubkey -noout"';
  }
  if (labels.includes('OPENSSH PRIVATE KEY')) {
    return 'the PEM is in the format of OpenSSH: convert it with "ssh-keygen -p -m PKCS8"';
  }
  // `openssl ecparam -genkey` writes the curve's parameters ahead of the key.
  const keys = labels.filter((label) => label !== 'EC PARAMETERS');
  if (keys.length > 1) {
    return `the PEM holds ${keys.length} blocks: give one key, and each further one an entry of its own`;
  }
  return keys.every((label) => KEY_LABELS.has(label))
    ? undefined
    : 'the PEM is no key: give one that begins with "BEGIN PUBLIC KEY" or "BEGIN PRIVATE KEY"';
}

const LEAST_RSA_BITS = 2_048;
/** A verification takes time with the square of the size, and whoever publishes a key decides it. */
const MOST_RSA_BITS = 8_192;
/** FIPS 186-5, appendix A.1.1: odd, and above 2^16 and below 2^256. Every tool makes 65537. */
const LEAST_RSA_EXPONENT = 65_537n;
const RSA_EXPONENT_LIMIT = 2n ** 256n;

/** Makes a key of one half of a key pair. */
function parseKeyPairHalf(
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
      if (type !== 'ed25519') return `EdDSA wants an Ed25519 key, and this is ${type}`;
      return isOfSmallOrder(key)
        ? 'the Ed25519 key is a point of small order, so that anyone can make signatures that hold under it: generate a new key pair'
        : undefined;
    default:
      return `no key pair serves ${alg}`;
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

/** OpenSSL takes any 32 bytes for a public key. */
function isOfSmallOrder(key: KeyObject): boolean {
  const publicKey = key.type === 'private' ? createPublicKey(key) : key;
  const point = Buffer.from(publicKey.export({ format: 'jwk' }).x ?? '', 'base64url');
  point[31]! &= 0x7f;
  return SMALL_ORDER_Y.has(point.toString('hex'));
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

/** What a key is for. */
type KeyUse = 'sign' | 'verify';

/** Switches for tests. */
export interface KeyPolicy {
  /** Take secrets that are too short to be safe, with a warning. Never in production. */
  readonly allowWeakSecrets?: boolean | undefined;
}

/** The key that was made of some material, or what is wrong with it. */
type MadeKey<Key> =
  | { readonly key: Key; readonly fault?: undefined }
  | { readonly key?: undefined; readonly fault: string };

/**
 * What a key may be given as. A text is a shared secret (its UTF-8 bytes, or the bytes behind
 * `whsec_<base64>`, or those of a JWK of type `oct`), or PEM where the algorithm is one of key pairs.
 */
export type KeyMaterial = string | Uint8Array | KeyObject | webcrypto.CryptoKey | JsonWebKey;

/** A key with its name, its algorithm, and the time it is for. */
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

/** The parsed key with its window (none: it always holds), or what is wrong with it. */
type ParsedKey<Key> =
  | { readonly key: Key; readonly window: KeyWindow | undefined; readonly fault?: undefined }
  | { readonly key?: undefined; readonly window?: undefined; readonly fault: string };

const MEMBERS: readonly string[] = ['kid', 'alg', 'key', 'notBefore', 'notAfter'];

/** Parses a key once, binds it to its algorithm, and says what is wrong with it without quoting it. */
export function parseKey(
  input: KeyInput,
  use: KeyUse,
  policy: KeyPolicy = {},
): ParsedKey<HmacKey | JoseKey> {
  const entry: WebhookKey = isWebhookKey(input) ? input : { key: input };
  const { key: material, alg = 'HS256', kid } = entry;
  const fault = memberFault(entry) ?? algorithmFault(alg) ?? keyIdFault(kid);
  if (fault !== undefined) return { fault };
  const parsed = parseKeyWindow(entry);
  if (parsed.fault !== undefined) return parsed;
  const made = isHmac(alg)
    ? parseSecret(material, alg, kid, use, policy)
    : parseKeyPairHalf(material, alg, kid, use);
  return made.fault === undefined ? { key: made.key, window: parsed.window } : made;
}

function isWebhookKey(input: KeyInput): input is WebhookKey {
  return (
    typeof input === 'object' && input !== null && !(input instanceof KeyObject) && 'key' in input
  );
}

function isHmac(alg: SignatureAlgorithm): alg is HmacAlgorithm {
  return Object.hasOwn(HMAC_ALGORITHMS, alg);
}

/** A misspelt `notAfter` would be a key that is never revoked. */
function memberFault(entry: WebhookKey): string | undefined {
  // An instance of the application's own class may keep there what it likes.
  if (Object.getPrototypeOf(entry) !== Object.prototype) return undefined;
  return Object.keys(entry).every((name) => MEMBERS.includes(name))
    ? undefined
    : `the key has a member that is none of ${MEMBERS.join(', ')}: correct its name, or remove it`;
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
