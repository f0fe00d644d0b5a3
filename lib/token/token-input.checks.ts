import { isAudience } from './audience.js';
import { invalidClaim } from './claim-refusals.js';
import { EVENT_NAME_GRAMMAR, isEventName } from './event-name.js';
import { identifierRule, isIdentifier } from './identifier.js';
import { isObject } from './json/json-object.js';
import { parsePayloadHash, type PayloadHash } from './payload-hash.js';
import type { WebhookTokenInput } from './token-signer.interface.js';

/**
 * Holds what is to be signed against what receivers accept, its data aside.
 *
 * @returns the hash, taken apart
 * @throws {@link WebhookTokenError} `invalid_claim`, {@link WebhookPayloadError} `hash_unsupported`
 */
export function checkInput(input: WebhookTokenInput): PayloadHash | undefined {
  if (!isEventName(input.event)) {
    throw invalidClaim('webhook.event', `the event's name must be ${EVENT_NAME_GRAMMAR}`);
  }
  if (input.data !== undefined && !isObject(input.data)) {
    throw invalidClaim(
      'webhook.data',
      'inline data must be an object: send anything else in the body of a POST',
    );
  }
  if (input.audience !== undefined && !isAudience(input.audience)) {
    throw invalidClaim('aud', `${identifierRule('the audience')}, or a list of such texts`);
  }
  requireIdentifier('sub', input.subject);
  requireIdentifier('jti', input.id);
  requireIdentifier('txn', input.txn);
  requireCount('webhook.data.size', 'the size', input.size);
  requireCount('webhook.retry_count', 'the retry count', input.retryCount);
  return input.hash === undefined ? undefined : parsePayloadHash(input.hash);
}

function requireIdentifier(claim: string, value: string | undefined): void {
  if (value !== undefined && !isIdentifier(value)) throw invalidClaim(claim, identifierRule(claim));
}

function requireCount(claim: string, name: string, value: number | undefined): void {
  if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) {
    throw invalidClaim(claim, `${name} must be a whole number from 0`);
  }
}
