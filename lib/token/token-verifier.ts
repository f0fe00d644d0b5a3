import { KeyRingTokenVerifier } from './key-ring-token-verifier.js';
import type {
  TokenRules,
  TokenVerifier,
  TokenVerifierOptions,
} from './token-verifier.interface.js';
import type { VerifiedWebhookToken } from './webhook-claims.interface.js';

export type {
  TokenRules,
  TokenVerifier,
  TokenVerifierOptions,
} from './token-verifier.interface.js';

/**
 * Makes a verifier; keys are parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every fault and its remedy
 */
export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  return new KeyRingTokenVerifier(options);
}

/**
 * Verifies one token.
 *
 * @throws {@link WebhookTokenError}, {@link WebhookConfigurationError}
 */
export async function verifyWebhookToken(
  token: string,
  options: TokenVerifierOptions,
): Promise<VerifiedWebhookToken> {
  return createTokenVerifier(options).verify(token);
}

/** The rules of a verifier; `undefined` for one that is not this package's. */
export function rulesOf(verifier: TokenVerifier): TokenRules | undefined {
  return verifier instanceof KeyRingTokenVerifier ? verifier : undefined;
}
