import type { SigningKeyInput } from '../../token/signing-key.js';
import type { MaybePromise } from '../../token/token-key.js';

/** The keys of one option, as they are now. A list that has not changed is the same list. */
export interface SigningKeySource {
  /** What was known last; for what must not wait. */
  readonly known: readonly SigningKeyInput[];
  /** @returns at once, unless what is known is too old to be relied on */
  current(): MaybePromise<readonly SigningKeyInput[]>;
}

/** Keys that the options name one by one. A copy: the application may go on changing its list. */
export function listedKeys(keys: readonly SigningKeyInput[]): SigningKeySource {
  const known = [...keys];
  return { known, current: () => known };
}
