import type { KeyProvider } from '../keys/key-provider.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { TokenSigner } from '../token/token-signer.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';

/** Keys to sign with in turn, or where they are loaded from. */
export type PublisherKeys = readonly SigningKeyInput[] | KeyProvider<readonly SigningKeyInput[]>;

/** What a destination needs of a signer. */
export interface DestinationSigner extends Pick<TokenSigner, 'inlineLimit' | 'sign'> {
  /** Of the keys it may sign with, as far as they are known: a provider is asked later. */
  readonly algorithms: readonly SignatureAlgorithm[];
}
