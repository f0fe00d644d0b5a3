import type { KeyMaterial } from './keys/key-material.js';
import type { SignatureAlgorithm } from './webhook-token.constants.js';

export const DEFAULT_INLINE_LIMIT = 512;

/**
 * A key outside this process: in a KMS, in an HSM, or behind a service of your own. Pass it to a publisher or to
 * {@link createTokenSigner} in place of a key.
 *
 * It may be slow and it may fail: the timeout of an attempt includes it, and a delivery that cannot be signed is
 * retried by the schedule.
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
  /** The `kid` of the token's header; 1 to 256 characters. */
  declare readonly kid?: string | undefined;
  /** The public key, for the publisher's JWKS; absent for HMAC. */
  declare readonly publicKey?: KeyMaterial | undefined;
  /** Start of its use, as {@link WebhookKey.notBefore}; for publishers with several keys. */
  declare readonly notBefore?: Date | string | undefined;
  /** End of its use, as {@link WebhookKey.notAfter}. */
  declare readonly notAfter?: Date | string | undefined;
  /**
   * Maximum bytes of JSON data in a token; more data is sent by POST, with its digest in the token. Default 512, so that
   * the signing service sees a few hundred bytes of data at most.
   */
  declare readonly inlineLimit?: number | undefined;

  /**
   * Signs a token.
   *
   * @param bytes - the JWS Signing Input (RFC 7515, section 5.1, step 5): about 400 bytes plus four thirds of the inline
   *   data. Hash them if the service expects a digest
   * @returns the signature or MAC; for ES256 and ES384 as r‖s or in DER, which most services return
   */
  abstract sign(bytes: Uint8Array): Uint8Array | Promise<Uint8Array>;
}

/** Recognises a signer by its shape, since a second copy of the package has its own class. */
export function isWebhookSigner(value: unknown): value is WebhookSigner {
  return (
    typeof value === 'object' &&
    value !== null &&
    'alg' in value &&
    typeof (value as { sign?: unknown }).sign === 'function'
  );
}
