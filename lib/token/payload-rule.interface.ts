import type { PayloadHash } from './payload-hash.js';

/** What a verified token demands of the request's body. */
export type PayloadRule =
  /** HEAD: there is no body; the payload is the claim's data. */
  | { readonly kind: 'no-body' }
  | DigestRule
  /** Nothing authenticates a body, so there must be none. */
  | { readonly kind: 'empty' }
  /** Nothing authenticates a body, and the receiver was told to take it all the same. */
  | { readonly kind: 'unverified' };

/** The body must have these digests: one, or the two of a dual stamp. */
export interface DigestRule {
  readonly kind: 'digest';
  readonly hashes: readonly PayloadHash[];
  /** Bytes the body must have, and the request declare; where the wire format names them. */
  readonly size?: number;
  /** What an empty body with the right digest means: the payload is the claim's data, there is none, or a refusal. */
  readonly emptyBody: 'data' | 'none' | 'refused';
}
