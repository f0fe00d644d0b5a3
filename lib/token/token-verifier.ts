import { readOptions } from '../options/read-options.js';
import { object, unchecked } from '../options/rules.js';
import { type Duration, secondsOf } from '../clock/duration.js';
import {
  type ConfigurationProblem,
  WebhookConfigurationError,
  WebhookTokenError,
} from '../errors/webhook.error.js';
import {
  type ClaimsJson,
  type CompactToken,
  parseCompactToken,
  readClaims,
  readHeader,
  requireSoundStructure,
} from './compact-token.js';
import { isObject } from './json/strict-json.js';
import type { KeyPolicy } from './keys/key-material.js';
import { KeyRing, type TrustedIssuer } from './keys/key-ring.js';
import type { IssuerKeys, KeySource, TrustedIssuers, VerificationKey } from './keys/key-source.js';
import { after, type MaybePromise } from './maybe-promise.js';
import { ProfileChoice } from './profiles/profile-choice.js';
import { readSeconds, type TokenClock, validateClaims } from './validate-claims.js';
import { invalidToken } from './token-refusals.js';
import type { VerifiedWebhookToken, WebhookTokenHeader } from './webhook-claims.interface.js';
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
  return new TokenVerifier(options);
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

/** Verifies tokens of trusted issuers. Create one with {@link createTokenVerifier}. */
export class TokenVerifier {
  /** @hidden */
  readonly keys: KeySource;
  /** Seconds. @hidden */
  readonly clockTolerance: number;
  /** Seconds. @hidden */
  readonly maxTokenLifetime: number;
  /** @hidden */
  readonly audience: readonly string[];
  /** @hidden */
  readonly now: TokenClock;
  private readonly maxJsonMembers: number;
  private readonly profiles: ProfileChoice;

  /** @hidden */
  constructor(options: ChangingVerifierOptions) {
    const { keys, problems } = keySource(options);
    this.keys = keys;
    this.clockTolerance = secondsOf(options.clockTolerance, DEFAULT_CLOCK_TOLERANCE);
    this.maxTokenLifetime = secondsOf(options.maxTokenLifetime, DEFAULT_MAX_TOKEN_LIFETIME);
    this.maxJsonMembers = options.maxJsonMembers ?? DEFAULT_MAX_JSON_MEMBERS;
    this.audience = audiences(options.audience);
    this.now = options.now ?? Date.now;
    this.profiles = new ProfileChoice(options.profiles);
    problems.push(
      ...this.limitProblems(),
      ...profileProblems(options),
      ...audienceProblems(this.audience),
    );
    if (problems.length > 0) throw new WebhookConfigurationError(problems);
  }

  /**
   * Verifies a compact token: form, header, signature, then claims.
   *
   * Until the signature is verified, the message of an error says only that the token is invalid or too large, and names
   * no claim. The code tells which step failed (`invalid_token`, `unknown_key`, `wrong_issuer` or `bad_signature`), since
   * issuers and key ids are not secret.
   *
   * @returns the token itself for HMAC keys in the options, a promise for key pairs
   * @throws {@link WebhookTokenError}; a rejection if the result is a promise
   */
  verify(token: string): VerifiedWebhookToken | Promise<VerifiedWebhookToken> {
    const compact = parseCompactToken(token);
    const header = readCheckedHeader(compact, this.profiles);
    return after(this.keys.ring(), (trusted) => {
      const choice = this.choose(trusted, compact);
      return after(choice.issuer.candidates(header.kid, choice.now), (keys) =>
        after(keyThatSigned(compact, candidatesFor(header, keys)), (key) =>
          this.accept({ compact, header }, choice, key),
        ),
      );
    });
  }

  /**
   * The clock tolerance that applies to a token, which depends on its profile.
   *
   * @param typ - from the token's header
   * @param webhook - the claim, unchecked
   * @returns seconds
   * @hidden
   */
  toleranceFor(typ: string | undefined, webhook: unknown): number {
    return this.profiles.choose(typ, webhook).toleratesSkew ? this.clockTolerance : 0;
  }

  /** With a single issuer, the claims are not even parsed before the signature is verified. With several, `iss` selects the keys. */
  private choose(trusted: TrustedIssuers, compact: CompactToken): IssuerChoice {
    // A slow key must not make a token expire, so the time is read before the signature is verified.
    const now = readSeconds(this.now);
    if (trusted.sole !== undefined) return { issuer: trusted.sole, now };
    const claims = this.readClaims(compact);
    if (!isObject(claims?.value)) throw invalidToken();
    const { iss } = claims.value;
    const issuer = typeof iss === 'string' ? trusted.of(iss) : undefined;
    if (issuer === undefined) throw invalidToken('wrong_issuer');
    return { issuer, claims, now };
  }

  /** Checks the claims of a token that a key has verified. */
  private accept(
    { compact, header }: ReadToken,
    { issuer, claims, now }: IssuerChoice,
    key: VerificationKey | undefined,
  ): VerifiedWebhookToken {
    if (key === undefined) throw invalidToken('bad_signature');
    const json = claims ?? this.readClaims(compact);
    const value = json?.value;
    if (json === undefined || !isObject(value)) {
      throw new WebhookTokenError(
        'invalid_token',
        `the claims must be one JSON object in UTF-8 with at most ${this.maxJsonMembers} members`,
      );
    }
    requireSoundStructure(json);
    const rules = this.profiles.choose(header.typ, value['webhook']);
    if (!rules.algorithms.has(key.alg)) {
      throw new WebhookTokenError('invalid_token', `${rules.name} does not allow ${key.alg}`);
    }
    const verified = validateClaims(value, {
      rules,
      issuer: issuer.issuer,
      audience: this.audience,
      now,
      clockTolerance: this.clockTolerance,
      maxTokenLifetime: this.maxTokenLifetime,
      maxJsonMembers: this.maxJsonMembers,
    });
    return {
      header,
      claims: verified,
      key: describeKey(key, issuer.issuer),
      profile: rules.name,
    };
  }

  private readClaims(compact: CompactToken): ClaimsJson | undefined {
    return readClaims(compact.payload, this.maxJsonMembers);
  }

  private limitProblems(): ConfigurationProblem[] {
    const { clockTolerance, maxTokenLifetime, maxJsonMembers } = this;
    const problems: ConfigurationProblem[] = [];
    // Number.isFinite rejects the string '60', which compares like a number but makes `exp + '60'` a string.
    const isTolerance = Number.isFinite(clockTolerance) && clockTolerance >= 0;
    if (!isTolerance || clockTolerance > MAX_CLOCK_TOLERANCE) {
      problems.push({
        path: 'clockTolerance',
        message: `must be 0 to ${MAX_CLOCK_TOLERANCE} seconds: a wider tolerance keeps expired tokens alive`,
      });
    }
    if (!(Number.isFinite(maxTokenLifetime) && maxTokenLifetime > 0)) {
      problems.push({ path: 'maxTokenLifetime', message: 'must be a positive number of seconds' });
    }
    if (!(Number.isSafeInteger(maxJsonMembers) && maxJsonMembers > 0)) {
      problems.push({ path: 'maxJsonMembers', message: 'must be a positive whole number' });
    }
    return problems;
  }
}

/** A token whose form and header are valid. */
interface ReadToken {
  readonly compact: CompactToken;
  readonly header: WebhookTokenHeader;
}

/** The issuer whose keys verify a token. */
interface IssuerChoice {
  readonly issuer: IssuerKeys;
  /** If they were needed to find the issuer. */
  readonly claims?: ClaimsJson | undefined;
  /** Seconds since the epoch. */
  readonly now: number;
}

function readCheckedHeader(compact: CompactToken, profiles: ProfileChoice): WebhookTokenHeader {
  const { header, problem } = readHeader(compact.header);
  if (header === undefined || problem !== undefined) throw invalidToken();
  if (!profiles.admits(header['typ'])) throw invalidToken();
  return header as unknown as WebhookTokenHeader;
}

/** A key has one algorithm; a token that names another was not signed with this key. */
function candidatesFor(
  { alg }: WebhookTokenHeader,
  keys: readonly VerificationKey[],
): readonly VerificationKey[] {
  if (keys.length === 0) throw invalidToken('unknown_key');
  const candidates = keys.filter((key) => key.alg === alg);
  if (candidates.length === 0) throw invalidToken();
  return candidates;
}

/** Tries one key after another; without promises if they are secrets. */
function keyThatSigned(
  token: CompactToken,
  [key, ...others]: readonly VerificationKey[],
): MaybePromise<VerificationKey | undefined> {
  if (key === undefined) return undefined;
  return after(key.verify(token), (isValid) => (isValid ? key : keyThatSigned(token, others)));
}

function describeKey(key: VerificationKey, issuer: string): VerifiedWebhookToken['key'] {
  return key.kid === undefined ? { issuer, alg: key.alg } : { issuer, alg: key.alg, kid: key.kid };
}

function keySource(options: ChangingVerifierOptions): {
  keys: KeySource;
  problems: ConfigurationProblem[];
} {
  const { issuers, allowWeakSecrets } = options;
  if ('ring' in issuers) return { keys: issuers, problems: [] };
  const clockTolerance = secondsOf(options.clockTolerance, DEFAULT_CLOCK_TOLERANCE);
  const { ring, problems } = KeyRing.build(issuers, { allowWeakSecrets, clockTolerance });
  return { keys: ring, problems };
}

function audiences(audience: TokenVerifierOptions['audience']): readonly string[] {
  if (audience === undefined) return [];
  return typeof audience === 'string' ? [audience] : audience;
}

function profileProblems({ profiles }: ChangingVerifierOptions): ConfigurationProblem[] {
  if (profiles === undefined) return [];
  if (profiles.length > 0 && profiles.every((one) => WEBHOOK_PROFILES.includes(one))) return [];
  return [
    {
      path: 'profiles',
      message: `must name at least one of these profiles and no other: ${WEBHOOK_PROFILES.join(', ')}`,
    },
  ];
}

function audienceProblems(audience: readonly unknown[]): ConfigurationProblem[] {
  if (audience.every((one) => typeof one === 'string' && one !== '')) return [];
  return [{ path: 'audience', message: 'must be a non-empty string or a list of them' }];
}
