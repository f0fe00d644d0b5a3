import type { TrustedIssuer } from '../token/keys/key-ring.js';

/** A trusted issuer, its keys and the events that it may send. */
export interface WebhookIssuer extends TrustedIssuer {
  /**
   * The `https:` URL of the issuer's JSON Web Key Set. If the entry has keys too, they verify tokens with their kid and
   * tokens without one.
   */
  readonly jwksUri?: string | undefined;
  /** Patterns of the events that this issuer may send; others are answered 403. Default: every event. */
  readonly events?: readonly string[] | undefined;
  /**
   * Media types that bodies of this issuer may have, such as `['application/json']` or `['text/*']`; others are answered
   * 415, before a declared body is read. JSON and text must then be UTF-8. The token does not sign the Content-Type header.
   * Default: every type.
   */
  readonly contentTypes?: readonly string[] | undefined;
}
