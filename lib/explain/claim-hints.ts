import { isAudience } from '../token/validate-claims.js';
import { FIRST_MILLISECOND_TIMESTAMP } from '../token/webhook-token.constants.js';
import { toleranceOf, type ObservedRequest } from './observed-request.js';
import { distance, expiry, quote, seconds } from './quote.js';
import type { Refusal } from './refusal.js';
import type { ExplanationHint } from './webhook-explanation.interface.js';

/** Patterns that are listed; an issuer may have hundreds. */
const MOST_LISTED = 10;

/** What can be measured of the claims: the clocks, the audience, the events. */
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
  // Where the times have held, their step says it.
  if (authenticated && step !== 'times') return [];
  const { iat, exp } = anatomy.claims ?? {};
  if (!isTime(iat) || !isTime(exp)) return [];
  const unproven = authenticated ? '' : ' (as the token says, which is not authenticated)';
  return [
    {
      code: 'token_age',
      detail: `by the clock of this receiver, ${new Date(now * 1_000).toISOString()}, the token was issued ${distance(now - iat)} and ${expiry(exp - now)}${unproven}`,
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
        detail: 'a time in the claims is in milliseconds: divide it by 1000, and drop the fraction',
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
          detail: `expired ${seconds(now - exp)} ago, and the tolerance is ${seconds(tolerance)}`,
        },
        {
          code: 'clock_behind',
          detail: `if the request was sent as soon as it was signed, the sender's clock is about ${seconds(now - iat)} behind; else it came late, or is an old one sent again`,
        },
      ];
    case 'token_not_yet_valid': {
      const begins = Math.max(iat, isTime(nbf) ? nbf : iat);
      return [
        {
          code: 'clock_ahead',
          detail: `the sender's clock is about ${seconds(begins - now)} ahead of this one, and the tolerance is ${seconds(tolerance)}`,
        },
      ];
    }
    case 'token_too_old':
      return [
        {
          code: 'lifetime',
          detail: `the token lives ${seconds(exp - iat)}, and the most is ${seconds(tokenRules?.maxTokenLifetime ?? 0)}`,
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
    ? [aud].flat().slice(0, MOST_LISTED).map(quote).join(', ')
    : 'nobody';
  const own = tokenRules?.audience.map(quote).join(', ') ?? '';
  return [
    {
      code: 'audience',
      detail: `the token is for ${named}; this receiver is ${own === '' ? 'nobody by name: set its option audience' : own}`,
    },
  ];
}

function eventHints({ anatomy, rules }: ObservedRequest, { code }: Refusal): ExplanationHint[] {
  const patterns = rules.allowedEvents.get(String(anatomy.claims?.['iss']));
  if (code !== 'event_forbidden' || patterns === undefined) return [];
  const listed = patterns.slice(0, MOST_LISTED).map(quote).join(', ');
  return [
    {
      code: 'events_allowed',
      detail: `this issuer may send ${patterns.length === 0 ? 'nothing' : listed}: see the option events of the issuer`,
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
