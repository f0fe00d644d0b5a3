import type { SignatureAlgorithm, WebhookProfile } from './webhook-token.constants.js';

/** The claims of a verified token. Times are seconds since the epoch and may have fractions. */
export interface WebhookTokenClaims {
  /** The claim `webhook`: the event, with its data or the digest of a body that carries it. */
  readonly webhook: {
    /** `<entity>.<action>`; the drafts also allow a single word. */
    readonly event: string;
    /**
     * Inline event data: an object. In `swt-draft-00`, data that arrives as base64 is decoded and may be any JSON value,
     * and with a body it is the reference `{ hash, hashAlg?, size }`.
     */
    readonly data?: unknown;
    /** Digest of the body, `<algorithm>:<hex>`, with the algorithm name of the wire format. */
    readonly hash?: string;
    /** Whether the body is an envelope, `{ type, timestamp, data }` of Standard Webhooks, whose member `data` is the event's data. */
    readonly envelope?: boolean;
    /** The ordering key: events of one issuer and key are sent one at a time. An extension of `webhook-token`. */
    readonly key?: unknown;
    /** The number of the event among those of its key, one more than the one before. An extension of `webhook-token`. */
    readonly seq?: unknown;
    /** In `swt-draft-02`: attempts made before this one. */
    readonly retry_count?: number;
  };
  readonly iss: string;
  readonly exp: number;
  readonly iat: number;
  readonly jti: string;
  readonly nbf?: number;
  readonly aud?: string | readonly string[];
  readonly sub?: string;
  /** The event's id, the same for every attempt to deliver it (RFC 8417, section 2.2). */
  readonly txn?: string;
  /** Unknown members are ignored and kept for the application. */
  readonly [claim: string]: unknown;
}

export type WebhookClaim = WebhookTokenClaims['webhook'];

/** A token whose signature and claims are valid. */
export interface VerifiedWebhookToken {
  /** The protected header. */
  readonly header: {
    readonly alg: SignatureAlgorithm;
    /** Absent only in `swt-draft-00`, which does not check it. */
    readonly typ?: string;
    readonly kid?: string;
  };
  readonly claims: WebhookTokenClaims;
  /** The key that verified a token; never the key material. */
  readonly key: {
    readonly issuer: string;
    readonly alg: SignatureAlgorithm;
    readonly kid?: string | undefined;
  };
  /** Its wire format. */
  readonly profile: WebhookProfile;
}

/** The protected header of a verified token. */
export type WebhookTokenHeader = VerifiedWebhookToken['header'];
