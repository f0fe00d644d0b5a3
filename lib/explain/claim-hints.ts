import { isAudience } from '../token/validate-claims.js';
import { FIRST_MILLISECOND_TIMESTAMP } from '../token/webhook-token.constants.js';
import { toleranceOf, type ObservedRequest } from './observed-request.js';
import { distance, expiry, quote, seconds } from './quote.js';
import type { Refusal } from './refusal.js';
import type { AddHint } from './webhook-explanation.interface.js';

/** Patterns or audiences that a hint lists. */
const MAX_LISTED = 10;

/** Adds hints from the claims: times, audience and event. */
export function addClaimHints(observed: ObservedRequest, refusal: Refusal, add: AddHint): void {
  // If the times are valid, their step shows them.
  if (!refusal.authenticated || refusal.step === 'times') addAgeHint(observed, refusal, add);
  if (refusal.step === 'times') addTimeHints(observed, refusal, add);
  if (refusal.code === 'wrong_audience') {
    const { anatomy, rules } = observed;
    const missing = 'set its option "audience"';
    addAudienceHint(anatomy.claims?.['aud'], rules.tokens.settings.audience, missing, add);
  }
  if (refusal.code === 'event_forbidden') addEventHint(observed, add);
}

function addAgeHint(
  { anatomy, now }: ObservedRequest,
  { authenticated }: Refusal,
  add: AddHint,
): void {
  const { iat, exp } = anatomy.claims ?? {};
  if (!isTime(iat) || !isTime(exp)) return;
  const unverified = authenticated ? '' : ' (unverified)';
  add(
    'token_age',
    `at ${new Date(now * 1_000).toISOString()} by this receiver's clock: issued ${distance(now - iat)}, ${expiry(exp - now)}${unverified}`,
  );
}

function addTimeHints(observed: ObservedRequest, { code }: Refusal, add: AddHint): void {
  const { anatomy, now, rules } = observed;
  const { iat, exp, nbf } = anatomy.claims ?? {};
  const isTooLarge = (time: unknown): boolean =>
    typeof time === 'number' && time >= FIRST_MILLISECOND_TIMESTAMP;
  if ([iat, exp, nbf].some(isTooLarge)) {
    add('milliseconds', 'a time in the claims is in milliseconds: use seconds');
    return;
  }
  if (!isTime(iat) || !isTime(exp)) return;
  const tolerance = seconds(toleranceOf(observed));
  if (code === 'token_expired') {
    add('expired', `expired ${seconds(now - exp)} ago; the clock tolerance is ${tolerance}`);
    add(
      'clock_behind',
      `if the request was sent right after it was signed, the sender's clock is about ${seconds(now - iat)} behind; otherwise it arrived late, or an old request was sent again`,
    );
  } else if (code === 'token_not_yet_valid') {
    const begins = Math.max(iat, isTime(nbf) ? nbf : iat);
    add(
      'clock_ahead',
      `the sender's clock is about ${seconds(begins - now)} ahead of this receiver's; the clock tolerance is ${tolerance}`,
    );
  } else if (code === 'token_too_old') {
    const most = seconds(rules.tokens.settings.maxTokenLifetime);
    add(
      'lifetime',
      `the token is valid for ${seconds(exp - iat)}; this receiver allows at most ${most}`,
    );
  }
}

/** @param missing - what to do if the receiver has no audience */
export function addAudienceHint(
  aud: unknown,
  audience: readonly string[],
  missing: string,
  add: AddHint,
): void {
  const named = isAudience(aud)
    ? [aud].flat().slice(0, MAX_LISTED).map(quote).join(', ')
    : 'no one';
  const own = audience.map(quote).join(', ');
  add(
    'audience',
    `the token is for ${named}; this receiver ${own === '' ? `has no audience: ${missing}` : `is ${own}`}`,
  );
}

function addEventHint({ anatomy, rules }: ObservedRequest, add: AddHint): void {
  const patterns = rules.issuers?.eventsOf(String(anatomy.claims?.['iss']));
  if (patterns === undefined) return;
  const listed = patterns.slice(0, MAX_LISTED).map(quote).join(', ');
  add(
    'events_allowed',
    `this issuer may send ${listed === '' ? 'no events' : listed}: check the issuer's option "events"`,
  );
}

function isTime(value: unknown): value is number {
  return (
    typeof value === 'number' &&
    Number.isFinite(value) &&
    value >= 0 &&
    value < FIRST_MILLISECOND_TIMESTAMP
  );
}
