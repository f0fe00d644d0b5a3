import { WebhookTokenError } from '../../errors/webhook-token.error.js';
import type { ClaimsJson } from './claims-json.js';
import { hasDuplicateMember } from './duplicate-member.js';
import { countNames, countSoundMembers } from './member-count.js';
import { structureFault, type StructureFault } from './strict-json.js';
import { MAX_DATA_DEPTH, MAX_TOKEN_DEPTH } from '../webhook-token.constants.js';

const MESSAGES: Readonly<Record<StructureFault, string>> = {
  'too deep': `the claims nest more than ${MAX_DATA_DEPTH} levels of data`,
  'prototype member': 'the claims have a member that would replace a prototype',
};

/**
 * Refuses claims that JSON.parse takes and another reader may take in another way.
 *
 * @throws {@link WebhookTokenError} `invalid_claim`
 */
export function requireSoundStructure(json: ClaimsJson): void {
  if (isEvidentlySound(json)) return;
  const { value, outline } = json;
  if (hasDuplicateMember(outline, value, 'webhook')) {
    throw new WebhookTokenError('invalid_claim', 'a member stands twice in the claims');
  }
  const fault = structureFault(value, MAX_TOKEN_DEPTH);
  if (fault !== undefined) throw new WebhookTokenError('invalid_claim', MESSAGES[fault]);
}

/**
 * Tells of most sound claims in one walk that they are (benchmark `token`, 300 B and 1 kB). Of others it does not tell
 * what is wrong with them, or whether anything is: data may have a member twice.
 */
export function isEvidentlySound({ value, outline, cut }: ClaimsJson): boolean {
  if (typeof value !== 'object' || value === null) return false;
  return countNames(outline) === countSoundMembers(value, MAX_TOKEN_DEPTH, cut);
}
