import type { WebhookProfile } from './webhook-token.constants.js';

/**
 * What a sender and a receiver can compare about one request, as JSON: what the token says, but its data,
 * and how it travelled. Safe to log, to store and to send.
 */
export interface WebhookReceipt {
  /** The event's id: `txn`, else `jti`. */
  readonly id: string;
  /** The token's own id, another one at each attempt. */
  readonly jti: string;
  readonly txn?: string;
  readonly event: string;
  readonly issuer: string;
  readonly audience?: string | readonly string[];
  readonly subject?: string;
  readonly alg: string;
  readonly kid?: string;
  readonly profile: WebhookProfile;
  readonly method: string;
  /** ISO 8601. */
  readonly issuedAt: string;
  /** ISO 8601. */
  readonly expiresAt: string;
  /** Digest of the body as the token names it, in lower case. */
  readonly hash?: string;
  /** Bytes of the body; 0 for HEAD. */
  readonly bodyBytes: number;
  readonly contentType?: string;
  /** SHA-256 of the compact token, hex: tells whether both saw the same token, and reveals nothing of it. */
  readonly tokenSha256: string;
}

/** A receipt of what arrived: a token that is refused may lack anything, and its claims prove nothing. */
export interface ReceivedReceipt extends Partial<WebhookReceipt> {
  /** Whether the signature held. Without it, anybody may have written the rest. */
  readonly authenticated: boolean;
  readonly method: string;
  readonly bodyBytes: number;
  readonly tokenSha256: string;
}
