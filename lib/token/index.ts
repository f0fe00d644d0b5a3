/** The framework-free core: sign and verify webhook tokens, digest payloads. */
export { createTokenSigner, signWebhookToken } from './token-signer.js';
export type { TokenSigner, TokenSignerOptions, WebhookTokenInput } from './token-signer.js';
export { WebhookSigner } from './webhook-signer.js';
export type { SigningKeyInput } from './keys/signing-key.js';
export { createTokenVerifier, verifyWebhookToken } from './token-verifier.js';
export type { TokenVerifier, TokenVerifierOptions } from './token-verifier.js';
export { createDigest, digest } from './payload-hash.js';
export type { WebhookDigest } from './payload-hash.js';
export { verifyWebhookPayload } from './payload-rule.js';
export type { VerifiedPayload } from './payload-rule.js';
export { isEventName, matchesEvent } from './event-name.js';
export type { TrustedIssuer } from './keys/key-ring.js';
export type { KeyInput, KeyMaterial, KeyPolicy, WebhookKey } from './keys/key-material.js';
export type { TokenClock } from './validate-claims.js';
export type {
  VerifiedKey,
  VerifiedWebhookToken,
  WebhookClaim,
  WebhookTokenClaims,
  WebhookTokenHeader,
} from './webhook-claims.interface.js';
export type {
  HashAlgorithm,
  SignatureAlgorithm,
  WebhookProfile,
} from './webhook-token.constants.js';
export { isWebhookError, WebhookError } from '../errors/webhook.error.js';
export { WebhookTokenError } from '../errors/webhook.error.js';
export type { WebhookTokenErrorCode } from '../errors/webhook.error.js';
export { WebhookSigningError } from '../errors/webhook.error.js';
export type { WebhookSigningErrorCode } from '../errors/webhook.error.js';
export { WebhookPayloadError } from '../errors/webhook.error.js';
export type { WebhookPayloadErrorCode } from '../errors/webhook.error.js';
export { WebhookConfigurationError } from '../errors/webhook.error.js';
export type { ConfigurationProblem } from '../errors/webhook.error.js';
