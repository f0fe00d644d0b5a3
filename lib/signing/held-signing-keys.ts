import type { SigningKeyInput } from '../token/keys/signing-key.js';

/**
 * Keys that are held as long as the publisher lives. They are as they were given, secrets in plain text among
 * them: whoever prints the publisher, or what it is made of, must not print them.
 */
export class HeldSigningKeys {
  readonly #keys: readonly SigningKeyInput[];

  /** @param keys - copied: whoever gave the list may go on changing it */
  constructor(keys: readonly SigningKeyInput[]) {
    this.#keys = [...keys];
  }

  get keys(): readonly SigningKeyInput[] {
    return this.#keys;
  }
}
