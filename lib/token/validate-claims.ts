import { WebhookTokenError, type WebhookTokenErrorCode } from '../errors/webhook.error.js';
import { eventNameRule, isEventName } from './event-name.js';
import { identifierRule, isIdentifier } from './identifier.js';
import { isObject } from './json.js';
import type { Members, ProfileRules } from './profiles/profile.js';
import type { VerifierSettings } from './token-verifier.js';
import type { WebhookClaim, WebhookTokenClaims } from './webhook-claims.interface.js';
import { FIRST_MILLISECOND_TIMESTAMP } from './webhook-token.constants.js';

/**
 * Reports whether a value is a valid `aud`: one name, or a non-empty list of names.
 *
 * @see RFC 7519, section 4.1.3
 */
export function isAudience(value: unknown): value is string | readonly string[] {
  return Array.isArray(value) ? value.length > 0 && value.every(isIdentifier) : isIdentifier(value);
}

/** What the claims of a token are checked against. */
interface ClaimsExpectation {
  /** Of the token's wire format. */
  readonly rules: ProfileRules;
  /** The issuer whose key verified the token. */
  readonly issuer: string;
  /** Seconds since the epoch. */
  readonly now: number;
  readonly settings: VerifierSettings;
}

/**
 * Checks the claims of a token whose signature holds.
 *
 * @throws {@link WebhookTokenError} with the invalid claim
 */
export function validateClaims(claims: Members, expected: ClaimsExpectation): WebhookTokenClaims {
  // Literal names: a lookup by a name in a variable takes several times as long.
  const { webhook, iss, jti, sub, txn, aud } = claims;
  requirePresent('webhook', webhook);
  requirePresent('iss', iss);
  requirePresent('exp', claims['exp']);
  if (expected.rules.requiresNotBefore) requirePresent('nbf', claims['nbf']);
  requirePresent('iat', claims['iat']);
  requirePresent('jti', jti);
  if (!isIdentifier(iss)) throw invalidClaim('iss', identifierRule('iss'));
  if (iss !== expected.issuer) {
    throw claimError('wrong_issuer', 'iss', otherIssuer(iss, expected.issuer));
  }
  if (!isIdentifier(jti)) throw invalidClaim('jti', identifierRule('jti'));
  optionalIdentifier('sub', sub);
  optionalIdentifier('txn', txn);
  validateTimes(claims, expected);
  validateAudience(aud, expected.settings.audience);
  const claim = validateWebhook(webhook, expected);
  return (claim === webhook ? claims : { ...claims, webhook: claim }) as WebhookTokenClaims;
}

function otherIssuer(iss: string, expected: string): string {
  return iss === `${expected}/` || expected === `${iss}/`
    ? `iss differs from the trusted issuer by a slash at its end; did you mean "${expected}"?`
    : 'the token was signed with the key of another issuer';
}

function validateTimes(claims: Members, expected: ClaimsExpectation): void {
  const { now, rules, settings } = expected;
  const { maxTokenLifetime } = settings;
  const clockTolerance = rules.toleratesSkew ? settings.clockTolerance : 0;
  const exp = numericDate('exp', claims['exp']);
  const iat = numericDate('iat', claims['iat']);
  const nbf = claims['nbf'] === undefined ? undefined : numericDate('nbf', claims['nbf']);
  if (iat >= exp) throw invalidClaim('exp', 'exp must be later than iat');
  requireUnexpired(now, exp + clockTolerance);
  if (nbf !== undefined && nbf > now + clockTolerance) {
    throw claimError('token_not_yet_valid', 'nbf', 'the token is not valid yet');
  }
  if (iat > now + clockTolerance) {
    throw claimError('token_not_yet_valid', 'iat', 'the token was issued in the future');
  }
  if (exp - iat > maxTokenLifetime) {
    throw claimError(
      'token_too_old',
      'exp',
      `the lifetime of the token is longer than ${maxTokenLifetime} seconds`,
    );
  }
}

/** @param end - with the tolerance of the clock, in seconds */
export function requireUnexpired(now: number, end: number): void {
  // Negated, so that a clock that returns NaN refuses every token instead of accepting expired ones.
  if (!(now < end)) throw claimError('token_expired', 'exp', 'the token has expired');
}

/** @throws {@link WebhookTokenError} `wrong_audience`, `invalid_claim` */
export function validateAudience(aud: unknown, configured: readonly string[]): void {
  if (aud === undefined) {
    if (configured.length === 0) return;
    throw claimError(
      'wrong_audience',
      'aud',
      'the token has no audience, and this receiver requires one',
    );
  }
  const named: unknown[] = Array.isArray(aud) ? aud : [aud];
  if (named.length === 0 || !named.every((one) => typeof one === 'string')) {
    throw invalidClaim('aud', 'aud must be a string or a list of strings');
  }
  if (!named.some((one) => configured.includes(one))) {
    throw claimError('wrong_audience', 'aud', 'the token is for another audience');
  }
}

function validateWebhook(webhook: unknown, { rules, settings }: ClaimsExpectation): WebhookClaim {
  if (!isObject(webhook)) throw invalidClaim('webhook', 'webhook must be an object');
  requirePresent('webhook.event', webhook['event']);
  if (!isEventName(webhook['event'], rules.name)) {
    throw invalidClaim('webhook.event', `webhook.event must be ${eventNameRule(rules.name)}`);
  }
  return rules.readClaim(webhook, settings.maxJsonMembers);
}

export function requirePresent(name: string, value: unknown): void {
  if (value === undefined) throw claimError('missing_claim', name, `the claim ${name} is missing`);
}

function optionalIdentifier(name: string, value: unknown): void {
  if (value !== undefined && !isIdentifier(value)) throw invalidClaim(name, identifierRule(name));
}

/** A NumericDate of RFC 7519, section 2, which may have a fraction. */
export function numericDate(name: string, value: unknown): number {
  if (typeof value !== 'number' || !Number.isFinite(value) || value < 0) {
    throw invalidClaim(name, `${name} must be a number of seconds since the epoch`);
  }
  if (value >= FIRST_MILLISECOND_TIMESTAMP) {
    throw invalidClaim(name, `${name} must be in seconds, and looks like milliseconds`);
  }
  return value;
}

/** A claim of an authenticated token, or of one about to be signed, has a wrong value. */
export function invalidClaim(claim: string, message: string): WebhookTokenError {
  return new WebhookTokenError('invalid_claim', message, { claim });
}

/** A claim of an authenticated token is missing, or is not for this receiver or this time. */
export function claimError(
  code: WebhookTokenErrorCode,
  claim: string,
  message: string,
): WebhookTokenError {
  return new WebhookTokenError(code, message, { claim });
}

/**
 * The current time: a function like `Date.now`, or one that returns a Date. A number below 1e11 is read as seconds, the
 * unit of the claims; a larger one as milliseconds.
 */
export type TokenClock = () => number | Date;

/** Reads a clock as seconds since the epoch, with the fraction. */
export function readSeconds(clock: TokenClock): number {
  const time = clock();
  const value = typeof time === 'number' ? time : time.getTime();
  return value < FIRST_MILLISECOND_TIMESTAMP ? value : value / 1_000;
}
