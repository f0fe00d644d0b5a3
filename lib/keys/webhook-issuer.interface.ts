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
}
