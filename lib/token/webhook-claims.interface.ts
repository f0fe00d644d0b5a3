import type { SignatureAlgorithm, WebhookProfile } from './webhook-token.constants.js';

/** The protected header of a webhook token, after verification. */
export interface WebhookTokenHeader {
  readonly alg: SignatureAlgorithm;
  /** Absent only where the wire format does not check it: `swt-draft-00`. */
  readonly typ?: string;
  readonly kid?: string;
}

/** The custom claim: what happened, with the data or a digest of the body that carries it. */
export interface WebhookClaim {
  /** Dotted name, `<entity>.<action>`. */
  readonly event: string;
  /**
   * Inline event data: an object. In `swt-draft-00`, data that arrives as base64 is decoded and may be any JSON value,
   * and with a body it is the reference `{ hash, hashAlg?, size }`.
   */
  readonly data?: unknown;
  /** Digest of the body, `<algorithm>:<hex>`, with the algorithm as the wire format spells it. */
  readonly hash?: string;
  /** Of `swt-draft-02`: attempts made before this one. */
  readonly retry_count?: number;
}

/** The claims of a webhook token, after verification. Times are seconds since the epoch. */
export interface WebhookTokenClaims {
  readonly webhook: WebhookClaim;
  readonly iss: string;
  readonly exp: number;
  readonly iat: number;
  readonly jti: string;
  readonly nbf?: number;
  readonly aud?: string | readonly string[];
  readonly sub?: string;
  /** The event's id, the same over all attempts to deliver it (RFC 8417, section 2.2). */
  readonly txn?: string;
  /** Members this package does not know are ignored, and kept for the application. */
  readonly [claim: string]: unknown;
}

/** Which key a token verified under. Never the key itself. */
export interface VerifiedKey {
  readonly issuer: string;
  readonly alg: SignatureAlgorithm;
  readonly kid?: string;
}

/** A token whose signature and claims hold. */
export interface VerifiedWebhookToken {
  readonly header: WebhookTokenHeader;
  readonly claims: WebhookTokenClaims;
  readonly key: VerifiedKey;
  /** The wire format it is written in. */
  readonly profile: WebhookProfile;
}
