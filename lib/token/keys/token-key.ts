import type { KeyObject } from 'node:crypto';
import type { CompactToken } from '../compact-token.js';
import type { MaybePromise } from '../maybe-promise.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/** A key that was parsed and bound to one algorithm, ready to sign. */
export interface SigningKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  /** Bytes of inline data that are worth signing; absent where the key is at hand. */
  readonly inlineLimit?: number;
  /** The half that may be published; absent for HMAC, and where it is not known. */
  publicKey?(): KeyObject | undefined;
  /**
   * @param header - the header's JSON text
   * @param claims - the claims' JSON text
   * @returns the compact token
   */
  sign(header: string, claims: string): MaybePromise<string>;
}

/** A key that was parsed and bound to one algorithm, ready to verify. */
export interface VerificationKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  /** Whether the token's signature is this key's; never rejects for a signature that is not. */
  verify(token: CompactToken): MaybePromise<boolean>;
}
