import type { KeyObject } from 'node:crypto';
import type { CompactToken } from '../compact-token.js';
import type { SignatureAlgorithm } from '../webhook-token.constants.js';

/** The keys of one issuer. */
export interface IssuerKeys {
  readonly issuer: string;
  /**
   * The keys that may have signed a token: those with its `kid` and those without one.
   *
   * @param kid - from the token's header, unauthenticated
   * @param now - seconds since the epoch
   * @returns a promise only if the keys must be loaded
   */
  candidates(
    kid: string | undefined,
    now: number,
  ): readonly VerificationKey[] | Promise<readonly VerificationKey[]>;
  /** All keys in memory, if the source can list them; used only to explain refusals. */
  known?(): readonly VerificationKey[];
}

/** The issuers that are trusted at one time. A lookup takes the same time for one and for ten thousand. */
export interface TrustedIssuers {
  /** The issuer, if there is exactly one. */
  readonly sole: IssuerKeys | undefined;
  /** @returns `undefined` for an issuer that is not trusted */
  of(issuer: string): IssuerKeys | undefined;
  /** All issuers, if the source can list them; used only to explain refusals. */
  all?(): Iterable<IssuerKeys>;
}

/** The source of a verifier's keys, which may change while it is in use. */
export interface KeySource {
  /** @returns a promise only if the last known issuers are too old to be used */
  ring(): TrustedIssuers | Promise<TrustedIssuers>;
  /** The last known issuers, if they can change; a change is a new object. */
  latest?(): TrustedIssuers | undefined;
}

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
