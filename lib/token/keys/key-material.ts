import { KeyObject, type JsonWebKey, type webcrypto } from 'node:crypto';
import { HMAC_ALGORITHMS, type HmacAlgorithm, type HmacKey } from './hmac-key.js';
import { isKeyId, KEY_ID_RULE } from '../identifier.js';
import type { JoseKey } from './jose-key.js';
import { parseKeyPairHalf } from './key-pair-material.js';
import type { KeyPolicy, KeyUse } from './key-use.js';
import { parseKeyWindow, type KeyWindow } from './key-window.js';
import { parseSecret } from './secret-material.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from '../webhook-token.constants.js';

export type { KeyPolicy, KeyUse } from './key-use.js';

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
export type ParsedKey<Key> =
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
