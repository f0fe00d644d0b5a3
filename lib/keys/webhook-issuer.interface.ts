import type { TrustedIssuer } from '../token/keys/key-ring.js';

/** An issuer whose events are received. */
export interface WebhookIssuer extends TrustedIssuer {
  /**
   * Where the issuer publishes its public keys, as a JSON Web Key Set: an `https:` URL. Keys that stand in
   * the entry besides serve the tokens that name them, and those without `kid`.
   */
  readonly jwksUri?: string | undefined;
  /** Patterns of the events this issuer may send; another one is answered 403. Default: every event. */
  readonly events?: readonly string[] | undefined;
  /**
   * Media types that bodies of this issuer may have, such as `['application/json']` or `['text/*']`; another one is answered 415
   * before the body is read. JSON and text must then be UTF-8. The token does not sign the Content-Type header. Default: every type.
   */
  readonly contentTypes?: readonly string[] | undefined;
}
