import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import { HeldSigningKeys } from './held-signing-keys.js';

/** The keys of one option, as they are now. While they do not change, they are the same object. */
export interface SigningKeySource {
  /** What was known last; for what must not wait. */
  readonly known: HeldSigningKeys;
  /** @returns at once, unless what is known is too old to be relied on */
  current(): MaybePromise<HeldSigningKeys>;
}

/** Keys that the options name one by one. */
export function listedKeys(keys: readonly SigningKeyInput[]): SigningKeySource {
  const known = new HeldSigningKeys(keys);
  return { known, current: () => known };
}
