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

/** Name of a signature algorithm, as the token's header spells it. */
export type SignatureAlgorithm = (typeof SIGNATURE_ALGORITHMS)[number];

/** Digest algorithms of the `hash` field, spelt as on the wire. */
export const HASH_ALGORITHMS = [
  'sha256',
  'sha384',
  'sha512',
  'sha3-256',
  'sha3-384',
  'sha3-512',
] as const;

/** Name of a digest algorithm, as the `hash` field spells it. */
export type HashAlgorithm = (typeof HASH_ALGORITHMS)[number];

/**
 * Wire formats this package speaks: the specification's, and those of the Internet-Drafts
 * draft-knauer-secure-webhook-token-00 (as its Go reference puts it on the wire) and -02.
 */
export const WEBHOOK_PROFILES = ['webhook-token', 'swt-draft-00', 'swt-draft-02'] as const;

/** Name of a wire format. */
export type WebhookProfile = (typeof WEBHOOK_PROFILES)[number];

/** The wire format of the specification: what is spoken unless another one is named. */
export const DEFAULT_PROFILE: WebhookProfile = 'webhook-token';

/** Bytes of a compact token; a longer one is refused before anything of it is looked at. */
export const MAX_TOKEN_BYTES = 16_384;

/** Bytes of UTF-8 JSON up to which the specification recommends HEAD ("6 kB"). */
export const MAX_INLINE_BYTES = 6_000;

/** Levels of objects and arrays that event data may nest. */
export const MAX_DATA_DEPTH = 64;

/** Levels that the claims of a token may nest: those of the data, of the claim `webhook` and their own. */
export const MAX_TOKEN_DEPTH = MAX_DATA_DEPTH + 2;

/** Members of objects and elements of arrays, at all levels, that JSON may have to be parsed. */
export const DEFAULT_MAX_JSON_MEMBERS = 100_000;

/** Characters of `iss`, `jti`, `sub` and `txn`. */
export const MAX_IDENTIFIER_LENGTH = 255;

/** Characters of `kid`. */
export const MAX_KEY_ID_LENGTH = 256;

/** Characters of an event's name. */
export const MAX_EVENT_NAME_LENGTH = 128;

/** Keys that are tried for a token without `kid`; more would be a lever for whoever sends forged ones. */
export const MAX_KEYS_TRIED = 4;

/** A time on the wire from here on is milliseconds by mistake: as seconds it lies after the year 5138. */
export const FIRST_MILLISECOND_TIMESTAMP = 1e11;

/** Seconds a token sent by this package lives. */
export const DEFAULT_TOKEN_LIFETIME = 300;

/** Seconds a token may live to be accepted. */
export const DEFAULT_MAX_TOKEN_LIFETIME = 3_600;

/** Seconds by which two clocks may differ. */
export const DEFAULT_CLOCK_TOLERANCE = 60;

/** Seconds of clock tolerance that may be configured. */
export const MAX_CLOCK_TOLERANCE = 300;
