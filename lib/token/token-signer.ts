import { KeyTokenSigner } from './key-token-signer.js';
import type {
  TokenSigner,
  TokenSignerOptions,
  WebhookTokenInput,
} from './token-signer.interface.js';

export type {
  TokenSigner,
  TokenSignerOptions,
  WebhookTokenInput,
} from './token-signer.interface.js';

/**
 * Makes a signer; the key is parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every fault and its remedy
 */
export function createTokenSigner(options: TokenSignerOptions): TokenSigner {
  return new KeyTokenSigner(options);
}

/**
 * Signs one token.
 *
 * @throws {@link WebhookTokenError}, {@link WebhookConfigurationError}
 */
export async function signWebhookToken(
  input: WebhookTokenInput,
  options: TokenSignerOptions,
): Promise<string> {
  return createTokenSigner(options).sign(input);
}
