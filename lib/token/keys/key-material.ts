import { KeyObject, type webcrypto } from 'node:crypto';
import { isKeyId, KEY_ID_RULE } from '../identifier.js';
import { SIGNATURE_ALGORITHMS, type SignatureAlgorithm } from '../webhook-token.constants.js';
import { type HmacKey, isHmac, type JoseKey } from './token-keys.js';
import { parseSecret } from './parse-secret.js';
import type { JsonWebKey, KeyUse, Parsed } from './key-form.js';
import { parseKeyPairHalf } from './parse-key-pair.js';

/**
 * Key material. For HMAC, a string is a shared secret: its UTF-8 bytes, or the bytes of `whsec_<base64>`; a JWK has the
 * type `oct`. For key pairs, a string is PEM.
 */
export type KeyMaterial = string | Uint8Array | KeyObject | webcrypto.CryptoKey | JsonWebKey;

/** A key with its id, its algorithm and its period of use. */
export interface WebhookKey {
  /** Key id, the `kid` of the token's header; 1 to 256 characters. */
  readonly kid?: string | undefined;
  /** Default `HS256`. A key has one algorithm, regardless of a token's header. */
  readonly alg?: SignatureAlgorithm | undefined;
  readonly key: KeyMaterial;
  /**
   * Start of its use: a Date, or an ISO 8601 string with an offset (`'2026-01-31T00:00:00Z'`) or without a time
   * (`'2026-01-31'`, midnight UTC). A receiver accepts the key earlier by its clock tolerance. Default: no start.
   */
  readonly notBefore?: Date | string | undefined;
  /**
   * End of its use, in the same form. No tolerance applies, so that a revoked key stops working on time. Default: no
   * end.
   */
  readonly notAfter?: Date | string | undefined;
}

/** A key; key material alone is an HS256 secret. */
export type KeyInput = KeyMaterial | WebhookKey;

/** Options for tests. */
export interface KeyPolicy {
  /** Accept secrets that are too short to be safe, with a warning. Never use it in production. */
  readonly allowWeakSecrets?: boolean | undefined;
}

/** A key; without a window, it is always valid. */
export interface WindowedKey<Key> {
  readonly key: Key;
  readonly window: KeyWindow | undefined;
}

const MEMBERS: readonly string[] = ['kid', 'alg', 'key', 'notBefore', 'notAfter'];

/** Parses a key and binds it to its algorithm. A problem never quotes the key. */
export function parseKey(
  input: KeyInput,
  use: KeyUse,
  policy: KeyPolicy = {},
): Parsed<WindowedKey<HmacKey | JoseKey>> {
  const entry: WebhookKey = isWebhookKey(input) ? input : { key: input };
  const { key: material, alg = 'HS256', kid } = entry;
  const problem = memberProblem(entry) ?? algorithmProblem(alg) ?? keyIdProblem(kid);
  if (problem !== undefined) return { problem };
  const parsed = parseKeyWindow(entry);
  if (parsed.problem !== undefined) return parsed;
  const made = isHmac(alg)
    ? parseSecret(material, alg, kid, use, policy.allowWeakSecrets === true)
    : parseKeyPairHalf(material, alg, kid, use);
  return made.problem === undefined ? { key: made.key, window: parsed.window } : made;
}

/** Distinguishes a key with its settings from key material alone. */
export function isWebhookKey(input: KeyInput): input is WebhookKey {
  return (
    typeof input === 'object' && input !== null && !(input instanceof KeyObject) && 'key' in input
  );
}

/** A misspelt `notAfter` would be a key that never expires. */
function memberProblem(entry: WebhookKey): string | undefined {
  // An instance of an application's class may have other members.
  if (Object.getPrototypeOf(entry) !== Object.prototype) return undefined;
  return Object.keys(entry).every((name) => MEMBERS.includes(name))
    ? undefined
    : `the key has a member other than ${MEMBERS.join(', ')}: correct or remove it`;
}

function algorithmProblem(alg: unknown): string | undefined {
  return SIGNATURE_ALGORITHMS.includes(alg as SignatureAlgorithm)
    ? undefined
    : `alg must be one of ${SIGNATURE_ALGORITHMS.join(', ')}`;
}

function keyIdProblem(kid: unknown): string | undefined {
  if (kid === undefined) return undefined;
  return isKeyId(kid) ? undefined : KEY_ID_RULE;
}

/** When a key is valid, in seconds since the epoch: `opens <= now < closes`. */
export interface KeyWindow {
  readonly opens: number;
  readonly closes: number;
}

/** The window; `undefined` for a key that is always valid. */
export type ParsedKeyWindow = Parsed<Pick<WindowedKey<unknown>, 'window'>>;

/** A date, or a date and time with an offset: strings that mean the same instant on every machine. */
const MOMENT =
  /^(\d{4}-\d{2}-\d{2})(?:T\d{2}:\d{2}(?::\d{2}(?:\.\d{1,9})?)?(?:Z|[+-]\d{2}:\d{2}))?$/;

const FORM =
  'must be a Date, or an ISO 8601 string with an offset such as "2026-01-31T00:00:00Z"; a number could be seconds or milliseconds';

export function parseKeyWindow({
  notBefore,
  notAfter,
}: {
  readonly notBefore?: Date | string | undefined;
  readonly notAfter?: Date | string | undefined;
}): ParsedKeyWindow {
  if (notBefore === undefined && notAfter === undefined) return { window: undefined };
  const opens = notBefore === undefined ? -Infinity : secondsOf(notBefore);
  const closes = notAfter === undefined ? Infinity : secondsOf(notAfter);
  if (Number.isNaN(opens)) return { problem: `notBefore ${FORM}` };
  if (Number.isNaN(closes)) return { problem: `notAfter ${FORM}` };
  return opens < closes
    ? { window: { opens, closes } }
    : { problem: 'notAfter must be later than notBefore: otherwise the key is never valid' };
}

/** @returns NaN for anything but a Date or an ISO 8601 string */
function secondsOf(moment: unknown): number {
  if (moment instanceof Date) return moment.getTime() / 1_000;
  const [text, day] = typeof moment === 'string' ? (MOMENT.exec(moment) ?? []) : [];
  if (text === undefined || day === undefined) return NaN;
  return isOnCalendar(day) ? Date.parse(text) / 1_000 : NaN;
}

/** JavaScript reads the 30th of February as the 2nd of March. */
function isOnCalendar(day: string): boolean {
  const midnight = Date.parse(day);
  return !Number.isNaN(midnight) && new Date(midnight).toISOString().startsWith(day);
}
