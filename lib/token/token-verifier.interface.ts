import type { KeyPolicy } from './keys/key-material.js';
import type { TrustedIssuer } from './keys/key-ring.js';
import type { KeySource } from './keys/key-source.js';
import type { TokenClock } from './token-clock.js';
import type { MaybePromise } from './maybe-promise.js';
import type { VerifiedWebhookToken } from './webhook-claims.interface.js';
import type { WebhookProfile } from './webhook-token.constants.js';

/** Whom a verifier trusts, and how strict it is. */
export interface TokenVerifierOptions extends KeyPolicy {
  /** Everybody whose tokens are taken, with their keys; or where to find both. */
  readonly issuers: readonly TrustedIssuer[] | KeySource;
  /** Seconds by which two clocks may differ, 0 to 300; default 60. */
  readonly clockTolerance?: number | undefined;
  /** Seconds between `iat` and `exp` at the most; default 3600. */
  readonly maxTokenLifetime?: number | undefined;
  /** Who this receiver is. With one, a token must name it; without, a token that names any is refused. */
  readonly audience?: string | readonly string[] | undefined;
  /**
   * Wire formats to accept; default `['webhook-token']`. Each token is held against the rules of one of them,
   * chosen by `typ` and by the form of its data.
   */
  readonly profiles?: readonly WebhookProfile[] | undefined;
  /** Where the time comes from; default `Date.now`. */
  readonly now?: TokenClock | undefined;
}

/** Verifies tokens against a fixed set of issuers. */
export interface TokenVerifier {
  /**
   * Verifies a compact token: form, header, signature, then claims. Until the signature holds, an
   * error's message says no more than that the token is invalid (or too large), and names no claim. Its
   * code still tells which step refused the token: `invalid_token`, `unknown_key`, `wrong_issuer` or
   * `bad_signature`, since issuers and the names of keys are no secrets.
   *
   * @returns at once for HMAC keys, a promise for key pairs
   * @throws {@link WebhookTokenError}, as a rejection where the result is a promise
   */
  verify(token: string): MaybePromise<VerifiedWebhookToken>;
}

/** What a verifier holds a token against, for whoever explains its refusals. */
export interface TokenRules {
  readonly keys: KeySource;
  /** Seconds. */
  readonly clockTolerance: number;
  /** Seconds. */
  readonly maxTokenLifetime: number;
  readonly audience: readonly string[];
  readonly now: TokenClock;
  /**
   * Seconds by which clocks may differ for a token, which its wire format decides.
   *
   * @param typ - of its header
   * @param webhook - its claim, unchecked
   */
  toleranceFor(typ: string | undefined, webhook: unknown): number;
}
