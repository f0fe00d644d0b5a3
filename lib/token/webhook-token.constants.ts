/** Signature algorithms, RFC 7518 section 3.1 and RFC 8037. */
export const SIGNATURE_ALGORITHMS = [
  'HS256',
  'HS384',
  'HS512',
  'RS256',
  'PS256',
  'ES256',
  'ES384',
  'EdDSA',
] as const;

/** A signature algorithm, named as in the token's header. */
export type SignatureAlgorithm = (typeof SIGNATURE_ALGORITHMS)[number];

/** Digest algorithms of the `hash` field. */
export const HASH_ALGORITHMS = [
  'sha256',
  'sha384',
  'sha512',
  'sha3-256',
  'sha3-384',
  'sha3-512',
] as const;

/** A digest algorithm, named as in the `hash` field. */
export type HashAlgorithm = (typeof HASH_ALGORITHMS)[number];

/**
 * Supported wire formats: that of the specification, and those of the Internet-Drafts
 * draft-knauer-secure-webhook-token-00 (as implemented by its Go reference) and -02.
 */
export const WEBHOOK_PROFILES = ['webhook-token', 'swt-draft-00', 'swt-draft-02'] as const;

/** A wire format. */
export type WebhookProfile = (typeof WEBHOOK_PROFILES)[number];

/** The wire format of Standard Webhooks, which has no token. */
export const STANDARD_WEBHOOKS = 'standard-webhooks';

/**
 * How a publisher signs: by a token in a wire format, as Standard Webhooks, or one request in both ways:
 * `['webhook-token', 'standard-webhooks']`.
 */
export type SentProfile =
  | WebhookProfile
  | typeof STANDARD_WEBHOOKS
  | readonly ('webhook-token' | typeof STANDARD_WEBHOOKS)[];

/** How a received request was signed: by a token in a wire format, or as another sender signs, whose name it is. */
export type ReceivedProfile = WebhookProfile | (string & {});

/** Whether a request was signed by a token. */
export function isTokenProfile(profile: ReceivedProfile): profile is WebhookProfile {
  return (WEBHOOK_PROFILES as readonly string[]).includes(profile);
}

/** The wire format of the specification. */
export const DEFAULT_PROFILE: WebhookProfile = 'webhook-token';

/** Maximum bytes of a compact token; a longer one is refused before it is parsed. */
export const MAX_TOKEN_BYTES = 16_384;

/** Bytes of UTF-8 JSON up to which the specification recommends HEAD ("6 kB"). */
export const MAX_INLINE_BYTES = 6_000;

/** Maximum nesting of objects and arrays in event data. */
export const MAX_DATA_DEPTH = 64;

/** Maximum nesting of a token's claims: the data, the claim `webhook` and the claims themselves. */
export const MAX_TOKEN_DEPTH = MAX_DATA_DEPTH + 2;

/** Maximum members of objects and elements of arrays, at all levels, in JSON that is parsed. */
export const DEFAULT_MAX_JSON_MEMBERS = 100_000;

/** Maximum characters of `iss`, `jti`, `sub` and `txn`. */
export const MAX_IDENTIFIER_LENGTH = 255;

export const MAX_KEY_ID_LENGTH = 256;

export const MAX_EVENT_NAME_LENGTH = 128;

/** Maximum keys tried for a token without `kid`; each one is work that a forged token can cause. */
export const MAX_KEYS_TRIED = 4;

/** Times from here on are milliseconds by mistake; as seconds, this is the year 5138. */
export const FIRST_MILLISECOND_TIMESTAMP = 1e11;

/** Default seconds from `iat` to `exp` of a signed token. */
export const DEFAULT_TOKEN_LIFETIME = 300;

/** Default maximum seconds from `iat` to `exp` of a received token. */
export const DEFAULT_MAX_TOKEN_LIFETIME = 3_600;

/** Default seconds by which two clocks may differ. */
export const DEFAULT_CLOCK_TOLERANCE = 60;

/** Maximum seconds of clock tolerance that can be configured. */
export const MAX_CLOCK_TOLERANCE = 300;
