/** The framework-free core: sign and verify webhook tokens, digest payloads. */
export { createTokenSigner, signWebhookToken } from './token-signer.js';
export type { TokenSigner, TokenSignerOptions, WebhookTokenInput } from './token-signer.js';
export { WebhookSigner } from './webhook-signer.js';
export type { SigningKeyInput } from './keys/signing-key.js';
export { createTokenVerifier, verifyWebhookToken } from './verifier-options.js';
export type { TokenVerifierOptions } from './verifier-options.js';
export type { TokenVerifier } from './token-verifier.js';
export { createDigest, digest } from './payload-hash.js';
export type { WebhookDigest } from './payload-hash.js';
export { verifyWebhookPayload, type VerifiedPayload } from './payload.js';
export { isEventName, matchesEvent } from './event-name.js';
export type { TrustedIssuer } from './keys/trusted-issuers.js';
export type { WebhookKey } from './keys/key-material.js';
export type { VerifiedWebhookToken, WebhookTokenClaims } from './webhook-claims.interface.js';
export type {
  HashAlgorithm,
  SignatureAlgorithm,
  WebhookProfile,
} from './webhook-token.constants.js';
export {
  isWebhookError,
  WebhookConfigurationError,
  WebhookError,
  WebhookPayloadError,
  WebhookSigningError,
  WebhookTokenError,
} from '../errors/webhook.error.js';
