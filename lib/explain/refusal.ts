import { isWebhookError, type WebhookError } from '../errors/webhook.error.js';
import { constraintsOf, type WebhookEventCatalog } from '../events/event-catalog.js';
import { WEBHOOK_ANSWERS } from '../request/webhook-answers.js';
import type { VerifiedRequest } from '../request/webhook-scheme.js';
import type { ObservedRequest } from './observed-request.js';
import { EXPLANATION_STEPS, type ExplanationStepName } from './webhook-explanation.interface.js';

/** Why a request was refused, and at which step. */
export interface Refusal {
  readonly code: string;
  readonly status: number;
  readonly message: string;
  readonly step: ExplanationStepName;
  /** Whether the signature is verified. */
  readonly authenticated: boolean;
}

export const STEP_OF_CODE: Readonly<Record<string, ExplanationStepName>> = {
  missing_token: 'authorization',
  missing_signature: 'authorization',
  malformed_signature: 'authorization',
  invalid_signature: 'signature',
  timestamp_out_of_tolerance: 'times',
  malformed_authorization: 'authorization',
  token_too_large: 'token-form',
  wrong_issuer: 'issuer',
  unknown_key: 'key',
  bad_signature: 'signature',
  missing_claim: 'claims',
  token_expired: 'times',
  token_not_yet_valid: 'times',
  token_too_old: 'times',
  wrong_audience: 'audience',
  event_forbidden: 'event',
  method_not_allowed: 'method',
  payload_too_large: 'body-length',
  payload_incomplete: 'body-length',
  payload_consumed: 'body-length',
  hash_required: 'body-digest',
  hash_mismatch: 'body-digest',
  hash_unsupported: 'body-digest',
  unsupported_encoding: 'body-digest',
  unsupported_content_type: 'body-digest',
  invalid_payload: 'payload',
};

/** The step of a wrong claim; that of others is `claims`. */
export const STEP_OF_CLAIM: Readonly<Record<string, ExplanationStepName>> = {
  exp: 'times',
  iat: 'times',
  nbf: 'times',
  aud: 'audience',
  'webhook.event': 'event',
};

/**
 * Derives the step of a refusal from the error of the verifier.
 *
 * @throws the error itself if it is not an error of this package: the receiver has failed, not the request
 */
export function refusalOf(error: unknown, observed: ObservedRequest): Refusal {
  if (!isWebhookError(error)) throw error;
  const claim = (error as { claim?: string }).claim;
  const step = stepOf(error, claim, observed);
  return {
    code: error.code,
    status: statusOf(error.code),
    message: error.message,
    step,
    authenticated: claim !== undefined || isAfterSignature(step, observed),
  };
}

function stepOf(
  error: WebhookError,
  claim: string | undefined,
  observed: ObservedRequest,
): ExplanationStepName {
  if (error.code === 'invalid_token') return stepOfInvalidToken(observed);
  if (error.code === 'invalid_claim') return STEP_OF_CLAIM[claim ?? ''] ?? 'claims';
  if (error.code === 'missing_claim' && claim === 'webhook.event') return 'event';
  if (error.code === 'unsupported_encoding' && !hasContentEncoding(observed)) return 'payload';
  // Any other code is that of a key source without a usable key.
  return STEP_OF_CODE[error.code] ?? 'key';
}

/** `invalid_token` covers several steps before the signature; the parts of the token show which one failed. */
function stepOfInvalidToken({
  anatomy,
  candidates,
  trusted,
}: ObservedRequest): ExplanationStepName {
  if (anatomy.compact === undefined) return 'token-form';
  if (anatomy.headerProblem !== undefined) return 'header';
  const alg = anatomy.header?.['alg'];
  if (candidates.length > 0 && candidates.every((key) => key.alg !== alg)) return 'key';
  // With one issuer, the claims are parsed after the signature is verified; with several, to find the key.
  if (anatomy.claims === undefined) return trusted?.sole === undefined ? 'issuer' : 'claims';
  return 'header';
}

function hasContentEncoding({ incoming }: ObservedRequest): boolean {
  const encoding = incoming.headers.get('content-encoding')?.trim().toLowerCase() ?? '';
  return encoding !== '' && encoding !== 'identity';
}

function isAfterSignature(step: ExplanationStepName, { incoming }: ObservedRequest): boolean {
  if (step === 'method') return incoming.method === 'HEAD' || incoming.method === 'POST';
  return EXPLANATION_STEPS.indexOf(step) > EXPLANATION_STEPS.indexOf('signature');
}

export function statusOf(code: string): number {
  const rows: Readonly<Record<string, { readonly status: number }>> = WEBHOOK_ANSWERS;
  return (rows[code] ?? WEBHOOK_ANSWERS.handler_failed).status;
}

/** The refusal of data that the definition of its event does not accept. */
export async function refusalByDefinition(
  opened: VerifiedRequest | undefined,
  { events }: { readonly events?: WebhookEventCatalog | undefined },
): Promise<Refusal | undefined> {
  if (opened === undefined || events === undefined) return undefined;
  const { event } = opened.claims.webhook;
  const issues = await events.check(event, opened.data);
  if (issues.length === 0) return undefined;
  const { code, status } = WEBHOOK_ANSWERS.validation_failed;
  return {
    code,
    status,
    message: `the data is not valid data of ${event}: ${constraintsOf(issues)}`,
    step: 'definition',
    authenticated: true,
  };
}
