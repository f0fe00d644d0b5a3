import { isAudience } from '../token/validate-claims.js';
import { FIRST_MILLISECOND_TIMESTAMP } from '../token/webhook-token.constants.js';
import { toleranceOf, type ObservedRequest } from './observed-request.js';
import { distance, expiry, quote, seconds } from './quote.js';
import type { Refusal } from './refusal.js';
import type { ExplanationHint } from './webhook-explanation.interface.js';

/** Patterns or audiences that a hint lists. */
const MAX_LISTED = 10;

/** Hints from the claims: times, audience and event. */
export function claimHints(
  observed: ObservedRequest,
  refusal: Refusal,
): readonly ExplanationHint[] {
  return [
    ...ageHints(observed, refusal),
    ...timeHints(observed, refusal),
    ...audienceHints(observed, refusal),
    ...eventHints(observed, refusal),
  ];
}

function ageHints(
  { anatomy, now }: ObservedRequest,
  { authenticated, step }: Refusal,
): ExplanationHint[] {
  // If the times are valid, their step shows them.
  if (authenticated && step !== 'times') return [];
  const { iat, exp } = anatomy.claims ?? {};
  if (!isTime(iat) || !isTime(exp)) return [];
  const unverified = authenticated ? '' : ' (unverified)';
  return [
    {
      code: 'token_age',
      detail: `at ${new Date(now * 1_000).toISOString()} by this receiver's clock: issued ${distance(now - iat)}, ${expiry(exp - now)}${unverified}`,
    },
  ];
}

function timeHints(observed: ObservedRequest, { step, code }: Refusal): ExplanationHint[] {
  const { anatomy, now, tokenRules } = observed;
  if (step !== 'times') return [];
  const { iat, exp, nbf } = anatomy.claims ?? {};
  if (
    [iat, exp, nbf].some((time) => typeof time === 'number' && time >= FIRST_MILLISECOND_TIMESTAMP)
  ) {
    return [
      {
        code: 'milliseconds',
        detail: 'a time in the claims is in milliseconds: use seconds',
      },
    ];
  }
  if (!isTime(iat) || !isTime(exp)) return [];
  const tolerance = toleranceOf(observed);
  switch (code) {
    case 'token_expired':
      return [
        {
          code: 'expired',
          detail: `expired ${seconds(now - exp)} ago; the clock tolerance is ${seconds(tolerance)}`,
        },
        {
          code: 'clock_behind',
          detail: `if the request was sent right after it was signed, the sender's clock is about ${seconds(now - iat)} behind; otherwise it arrived late, or an old request was sent again`,
        },
      ];
    case 'token_not_yet_valid': {
      const begins = Math.max(iat, isTime(nbf) ? nbf : iat);
      return [
        {
          code: 'clock_ahead',
          detail: `the sender's clock is about ${seconds(begins - now)} ahead of this receiver's; the clock tolerance is ${seconds(tolerance)}`,
        },
      ];
    }
    case 'token_too_old':
      return [
        {
          code: 'lifetime',
          detail: `the token is valid for ${seconds(exp - iat)}; this receiver allows at most ${seconds(tokenRules.maxTokenLifetime)}`,
        },
      ];
    default:
      return [];
  }
}

function audienceHints(
  { anatomy, tokenRules }: ObservedRequest,
  { code }: Refusal,
): ExplanationHint[] {
  if (code !== 'wrong_audience') return [];
  const aud = anatomy.claims?.['aud'];
  const named = isAudience(aud)
    ? [aud].flat().slice(0, MAX_LISTED).map(quote).join(', ')
    : 'no one';
  const own = tokenRules.audience.map(quote).join(', ');
  return [
    {
      code: 'audience',
      detail: `the token is for ${named}; this receiver ${own === '' ? 'has no audience: set its option "audience"' : `is ${own}`}`,
    },
  ];
}

function eventHints({ anatomy, rules }: ObservedRequest, { code }: Refusal): ExplanationHint[] {
  const patterns = rules.allowedEvents.get(String(anatomy.claims?.['iss']));
  if (code !== 'event_forbidden' || patterns === undefined) return [];
  const listed = patterns.slice(0, MAX_LISTED).map(quote).join(', ');
  return [
    {
      code: 'events_allowed',
      detail: `this issuer may send ${patterns.length === 0 ? 'no events' : listed}: check the issuer's option "events"`,
    },
  ];
}

function isTime(value: unknown): value is number {
  return (
    typeof value === 'number' &&
    Number.isFinite(value) &&
    value >= 0 &&
    value < FIRST_MILLISECOND_TIMESTAMP
  );
}
