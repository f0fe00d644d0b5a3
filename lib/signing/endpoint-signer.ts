import type { KeyProvider } from '../keys/key-provider.js';
import type { SigningKeyInput } from '../token/keys/signing-key.js';
import type { TokenSigner } from '../token/token-signer.js';
import type { SignatureAlgorithm } from '../token/webhook-token.constants.js';

/** Rotating keys, or the provider that loads them. */
export type PublisherKeys = readonly SigningKeyInput[] | KeyProvider<readonly SigningKeyInput[]>;

/** Signs the requests to an endpoint. */
export interface EndpointSigner extends Pick<TokenSigner, 'inlineLimit' | 'sign'> {
  /** Of all known keys; those of a provider are known once it has loaded them. */
  readonly algorithms: readonly SignatureAlgorithm[];
}
