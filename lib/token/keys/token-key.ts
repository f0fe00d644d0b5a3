import type { KeyObject } from 'node:crypto';
import type { CompactToken } from '../compact-token.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/** A parsed key for signing, bound to one algorithm. */
export interface SigningKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  /** Maximum bytes of inline data; absent for a key in this process. */
  readonly inlineLimit?: number;
  /** The public key; absent for HMAC, and if a signer does not provide it. */
  publicKey?(): KeyObject | undefined;
  /**
   * @param header - the header as JSON
   * @param claims - the claims as JSON
   * @returns the compact token
   */
  sign(header: string, claims: string): string | Promise<string>;
}

/** A parsed key for verifying, bound to one algorithm. */
export interface VerificationKey {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  /** Whether this key signed the token; never throws or rejects for a wrong signature. */
  verify(token: CompactToken): boolean | Promise<boolean>;
}
