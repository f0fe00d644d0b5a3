import { type Duration, secondsOf } from '../clock/duration.js';
import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import { object, unchecked } from '../options/rules.js';
import type { KeyPolicy } from './keys/key-material.js';
import type { KeySource } from './keys/token-keys.js';
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

/** The options of a verifier whose issuers and keys may change while it is in use. */
interface ChangingVerifierOptions extends Omit<TokenVerifierOptions, 'issuers'> {
  readonly issuers: readonly TrustedIssuer[] | KeySource;
}

/**
 * Creates a verifier. Keys are parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every problem and its remedy
 */
export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  readOptions(VERIFIER_OPTIONS, options, 'createTokenVerifier');
  return resolveVerifier(options);
}

/** The names only: the verifier checks the values. */
const VERIFIER_OPTIONS = object<TokenVerifierOptions>()({
  issuers: unchecked(),
  clockTolerance: unchecked(),
  maxTokenLifetime: unchecked(),
  maxJsonMembers: unchecked(),
  audience: unchecked(),
  profiles: unchecked(),
  now: unchecked(),
  allowWeakSecrets: unchecked(),
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

/**
 * Creates a verifier from options whose names are known.
 *
 * @throws {@link WebhookConfigurationError} with every problem and its remedy
 */
export function resolveVerifier(options: ChangingVerifierOptions): TokenVerifier {
  const { issuers, allowWeakSecrets, profiles } = options;
  const clockTolerance = secondsOf(options.clockTolerance, DEFAULT_CLOCK_TOLERANCE);
  const maxTokenLifetime = secondsOf(options.maxTokenLifetime, DEFAULT_MAX_TOKEN_LIFETIME);
  const maxJsonMembers = options.maxJsonMembers ?? DEFAULT_MAX_JSON_MEMBERS;
  const audience = options.audience === undefined ? [] : [options.audience].flat();
  const problems = new Problems();
  let keys: KeySource;
  if ('ring' in issuers) {
    keys = issuers;
  } else {
    const built = buildKeyRing(issuers, { allowWeakSecrets, clockTolerance });
    problems.addOthers(built.problems);
    keys = built.ring;
  }
  // Number.isFinite rejects the string '60', which compares like a number but makes `exp + '60'` a string.
  problems.require(
    Number.isFinite(clockTolerance) && clockTolerance >= 0 && clockTolerance <= MAX_CLOCK_TOLERANCE,
    'clockTolerance',
    `must be 0 to ${MAX_CLOCK_TOLERANCE} seconds: a wider tolerance keeps expired tokens alive`,
  );
  problems.require(
    Number.isFinite(maxTokenLifetime) && maxTokenLifetime > 0,
    'maxTokenLifetime',
    'must be a positive number of seconds',
  );
  problems.require(
    Number.isSafeInteger(maxJsonMembers) && maxJsonMembers > 0,
    'maxJsonMembers',
    'must be a positive whole number',
  );
  problems.require(
    profiles === undefined ||
      (profiles.length > 0 && profiles.every((one) => WEBHOOK_PROFILES.includes(one))),
    'profiles',
    `must name at least one of these profiles and no other: ${WEBHOOK_PROFILES.join(', ')}`,
  );
  problems.require(
    audience.every((one) => typeof one === 'string' && one !== ''),
    'audience',
    'must be a non-empty string or a list of them',
  );
  problems.throwIfAny();
  return new TokenVerifier({
    keys,
    clockTolerance,
    maxTokenLifetime,
    maxJsonMembers,
    audience,
    now: options.now ?? Date.now,
    profiles: new ProfileChoice(profiles),
  });
}
