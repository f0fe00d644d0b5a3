import type { Duration } from '../clock/duration.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import { object, optional, type Rule, rule, secondsWithin, unchecked } from '../options/rules.js';
import type { KeyPolicy } from './keys/key-material.js';
import { buildKeyRing, type TrustedIssuer } from './keys/trusted-issuers.js';
import { ProfileChoice } from './profiles/profile.js';
import { TokenVerifier } from './token-verifier.js';
import type { TokenClock } from './validate-claims.js';
import type { VerifiedWebhookToken } from './webhook-claims.interface.js';
import {
  DEFAULT_CLOCK_TOLERANCE,
  DEFAULT_MAX_JSON_MEMBERS,
  DEFAULT_MAX_TOKEN_LIFETIME,
  MAX_CLOCK_TOLERANCE,
  WEBHOOK_PROFILES,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** Trusted issuers and limits of a verifier. */
export interface TokenVerifierOptions extends KeyPolicy {
  /** Trusted issuers with their keys. */
  readonly issuers: readonly TrustedIssuer[];
  /** Seconds by which two clocks may differ, or a string such as `'60s'`; 0 to 300 seconds, default 60. */
  readonly clockTolerance?: Duration | undefined;
  /** Maximum time between `iat` and `exp`: seconds, or a string such as `'1h'`; default 3600. */
  readonly maxTokenLifetime?: Duration | undefined;
  /**
   * Members of objects and elements of arrays that the claims may have, at all levels; default 100,000. They are
   * counted before the claims are parsed.
   */
  readonly maxJsonMembers?: number | undefined;
  /** Names of this receiver. If set, a token must name one of them; if not, a token with `aud` is refused. */
  readonly audience?: string | readonly string[] | undefined;
  /**
   * Accepted wire formats; default `['webhook-token']`. Each token is checked against the rules of exactly one of them,
   * chosen by `typ` and by the form of its data.
   */
  readonly profiles?: readonly WebhookProfile[] | undefined;
  /** The current time; default `Date.now`. */
  readonly now?: TokenClock | undefined;
}

/** Reads one name or several. */
const audience: Rule<readonly string[]> = (value, at, name) => {
  const names = [value].flat();
  const areNames = names.length > 0 && names.every((one) => typeof one === 'string' && one !== '');
  const message = 'must be a non-empty string or a list of them; omit it to have no audience';
  return areNames ? (names as string[]) : (at.add(name, message) as never);
};

/** Rules of the options that a receiver has too. */
export const VERIFICATION = {
  clockTolerance: optional(
    secondsWithin(
      0,
      MAX_CLOCK_TOLERANCE,
      `must be 0 to ${MAX_CLOCK_TOLERANCE} seconds: a wider tolerance keeps expired tokens alive`,
    ),
    DEFAULT_CLOCK_TOLERANCE,
  ),
  maxTokenLifetime: optional(
    secondsWithin(
      Number.MIN_VALUE,
      Infinity,
      "must be a positive number of seconds, or a duration with its unit, such as '60s'",
    ),
    DEFAULT_MAX_TOKEN_LIFETIME,
  ),
  maxJsonMembers: optional(
    rule<number>(
      (value) => Number.isSafeInteger(value) && (value as number) > 0,
      'must be a positive whole number',
    ),
    DEFAULT_MAX_JSON_MEMBERS,
  ),
  audience: optional(audience, []),
};

const profiles = rule<readonly WebhookProfile[]>(
  (value) =>
    Array.isArray(value) &&
    value.length > 0 &&
    value.every((one) => (WEBHOOK_PROFILES as readonly unknown[]).includes(one)),
  `must be a list of at least one of these profiles and no other: ${WEBHOOK_PROFILES.join(', ')}`,
);

/**
 * Creates a verifier. Keys are parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every problem and its remedy
 */
export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  readOptions(NAMES, options, 'createTokenVerifier');
  const problems = new Problems();
  const { issuers, allowWeakSecrets, now, profiles, ...settings } = VERIFIER(options, problems, '');
  const { clockTolerance } = settings;
  const { ring, problems: found } = buildKeyRing(issuers, { allowWeakSecrets, clockTolerance });
  problems.addOthers(found);
  problems.throwIfAny();
  return new TokenVerifier({
    ...settings,
    keys: ring,
    now: now ?? Date.now,
    profiles: new ProfileChoice(profiles),
  });
}

const UNCHECKED = {
  issuers: unchecked<TokenVerifierOptions['issuers']>(),
  now: unchecked<TokenVerifierOptions['now']>(),
  allowWeakSecrets: unchecked<TokenVerifierOptions['allowWeakSecrets']>(),
};

const VERIFIER = object<TokenVerifierOptions>()({
  ...VERIFICATION,
  ...UNCHECKED,
  profiles: optional(profiles),
});

/** For messages about a misspelt option, which begin with the name of the function. */
const NAMES = object<TokenVerifierOptions>()({
  ...UNCHECKED,
  clockTolerance: unchecked(),
  maxTokenLifetime: unchecked(),
  maxJsonMembers: unchecked(),
  audience: unchecked(),
  profiles: unchecked(),
});

/**
 * Verifies one token.
 *
 * @throws {@link WebhookTokenError}, {@link WebhookConfigurationError}
 */
export async function verifyWebhookToken(
  token: string,
  options: TokenVerifierOptions,
): Promise<VerifiedWebhookToken> {
  return createTokenVerifier(options).verify(token);
}
