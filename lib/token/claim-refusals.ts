import { WebhookTokenError } from '../errors/webhook.error.js';

/** The refusal of a claim's value, in a token whose signature holds or in what is to be signed. */
export function invalidClaim(claim: string, message: string): WebhookTokenError {
  return new WebhookTokenError('invalid_claim', message, { claim });
}
