import { WebhookTokenError } from '../errors/webhook-token.error.js';
import type { ClaimsJson } from './claims-json.js';
import { hasDuplicateMember } from './duplicate-member.js';
import { structureFault, type StructureFault } from './strict-json.js';
import { MAX_DATA_DEPTH, MAX_TOKEN_DEPTH } from './webhook-token.constants.js';

const MESSAGES: Readonly<Record<StructureFault, string>> = {
  'too deep': `the claims nest more than ${MAX_DATA_DEPTH} levels of data`,
  'prototype member': 'the claims have a member that would replace a prototype',
};

/**
 * Refuses claims that JSON.parse takes and another reader may take in another way.
 *
 * @throws {@link WebhookTokenError} `invalid_claim`
 */
export function requireSoundStructure({ value, outline, cut }: ClaimsJson): void {
  if (hasDuplicateMember(outline, value, 'webhook', cut)) {
    throw new WebhookTokenError('invalid_claim', 'a member stands twice in the claims');
  }
  const fault = structureFault(value, MAX_TOKEN_DEPTH);
  if (fault !== undefined) throw new WebhookTokenError('invalid_claim', MESSAGES[fault]);
}
