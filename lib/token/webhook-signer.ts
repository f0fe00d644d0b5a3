import type { KeyMaterial } from './keys/key-material.js';
import type { MaybePromise } from './maybe-promise.js';
import type { SignatureAlgorithm } from './webhook-token.constants.js';

/** Bytes of inline data that a {@link WebhookSigner} is given to sign, unless it says otherwise. */
export const DEFAULT_INLINE_LIMIT = 512;

/**
 * A key that does not live in this process: in a KMS, in an HSM, or behind a service of your own. It takes the
 * place of a key wherever a publisher or {@link createTokenSigner} is given one.
 *
 * It may fail and it may take its time: an attempt's timeout covers it, and a delivery that cannot be signed is
 * tried again by the schedule.
 *
 * @example
 * ```ts
 * class KmsSigner extends WebhookSigner {
 *   readonly alg = 'ES256';
 *   override readonly kid = 'kms-2026';
 *   sign(bytes: Uint8Array) {
 *     return kms.sign({ keyId: 'alias/webhooks', message: bytes });
 *   }
 * }
 * ```
 */
export abstract class WebhookSigner {
  abstract readonly alg: SignatureAlgorithm;
  /** Names the key in the token's header; 1 to 256 characters. */
  declare readonly kid?: string | undefined;
  /** The public half, for the publisher's JWKS; left out for HMAC. */
  declare readonly publicKey?: KeyMaterial | undefined;
  /** From when it signs, as {@link WebhookKey.notBefore}; for publishers with several keys. */
  declare readonly notBefore?: Date | string | undefined;
  /** From when it signs no more, as {@link WebhookKey.notAfter}. */
  declare readonly notAfter?: Date | string | undefined;
  /**
   * Bytes of JSON data that travel inside the token; more goes by POST, with a digest in the token. Default 512, so
   * that no more than a few hundred bytes of data ever leave for the signer.
   */
  declare readonly inlineLimit?: number | undefined;

  /**
   * Signs.
   *
   * @param bytes - the token's header and claims as they are signed, RFC 7515 section 5.1, step 5: some 400 bytes,
   *   and a third more than the inline data. Hash them where the service wants a digest
   * @returns the signature or MAC. For ES256 and ES384 as r‖s or in DER, as most services give it
   */
  abstract sign(bytes: Uint8Array): MaybePromise<Uint8Array>;
}

/** Tells a signer from key material by its shape: a second copy of the package has a class of its own. */
export function isWebhookSigner(value: unknown): value is WebhookSigner {
  return (
    typeof value === 'object' &&
    value !== null &&
    'alg' in value &&
    typeof (value as { sign?: unknown }).sign === 'function'
  );
}
