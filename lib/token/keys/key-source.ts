import type { MaybePromise } from '../maybe-promise.js';
import type { VerificationKey } from './token-key.js';

/** The keys of one issuer, wherever they come from. */
export interface IssuerKeys {
  readonly issuer: string;
  /**
   * The keys a token may have been signed with: those its `kid` names and those without a name.
   *
   * @param kid - of the token's header, unauthenticated
   * @param now - seconds since the epoch
   * @returns at once where the keys are at hand
   */
  candidates(kid: string | undefined, now: number): MaybePromise<readonly VerificationKey[]>;
  /** Every key at hand, where the source can list them: for explanations only. */
  known?(): readonly VerificationKey[];
}

/** The issuers that are trusted at one moment; finding one costs the same for one and for ten thousand. */
export interface TrustedIssuers {
  /** The only issuer, when there is just one. */
  readonly sole: IssuerKeys | undefined;
  /** @returns `undefined` for an issuer that is not trusted */
  of(issuer: string): IssuerKeys | undefined;
  /** Every issuer, where the source can list them: for explanations only. */
  all?(): Iterable<IssuerKeys>;
}

/** Where a verifier finds keys; they may change while it is in use. */
export interface KeySource {
  /** @returns at once unless what is known is too old to be relied on */
  ring(): MaybePromise<TrustedIssuers>;
  /** What is known last, where that can change; it is another object once it has. */
  latest?(): TrustedIssuers | undefined;
}
