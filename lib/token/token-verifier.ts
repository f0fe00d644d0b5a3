import {
  type ConfigurationFault,
  WebhookConfigurationError,
  WebhookTokenError,
} from '../errors/webhook.error.js';
import { type CompactToken, invalidToken, parseCompactToken } from './compact-token.js';
import { isKeyId } from './identifier.js';
import { decodeBase64urlText } from './json/base64url.js';
import { type ClaimsJson, readClaims, requireSoundStructure } from './json/claims-json.js';
import { hasDuplicateMember, isObject, parseJson } from './json/strict-json.js';
import type { KeyPolicy } from './keys/key-material.js';
import { KeyRing, type TrustedIssuer } from './keys/key-ring.js';
import type { IssuerKeys, KeySource, TrustedIssuers } from './keys/key-source.js';
import type { VerificationKey } from './keys/token-key.js';
import { after, type MaybePromise } from './maybe-promise.js';
import { ProfileChoice } from './profiles/profile-choice.js';
import { readSeconds, type TokenClock } from './token-clock.js';
import { validateClaims } from './validate-claims.js';
import type { VerifiedWebhookToken, WebhookTokenHeader } from './webhook-claims.interface.js';
import {
  DEFAULT_CLOCK_TOLERANCE,
  DEFAULT_MAX_JSON_MEMBERS,
  DEFAULT_MAX_TOKEN_LIFETIME,
  MAX_CLOCK_TOLERANCE,
  WEBHOOK_PROFILES,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** Header texts that are remembered; a key's owner decides what its header says, so there is a bound. */
const REMEMBERED_HEADERS = 256;

/**
 * Reads the headers of tokens, and remembers those that were authenticated: a sender's next token has the
 * same one, and need not have it parsed again (benchmark `token`).
 */
class TokenHeaders {
  private readonly authentic = new Map<string, WebhookTokenHeader>();
  /** Of the last authentic token: comparing two texts takes a third of finding one in a map, which hashes it. */
  private latest: { readonly segment: string; readonly header: WebhookTokenHeader } | undefined;

  constructor(private readonly profiles: ProfileChoice) {}

  /**
   * @param segment - the header as it stands in the token
   * @throws {@link WebhookTokenError} `invalid_token`
   */
  read(segment: string): WebhookTokenHeader {
    if (segment === this.latest?.segment) return this.latest.header;
    return this.authentic.get(segment) ?? parseHeader(segment, this.profiles);
  }

  /** Remembers a header; its token's signature must hold. */
  remember(segment: string, header: WebhookTokenHeader): void {
    if (header === this.latest?.header) return;
    this.latest = { segment, header };
    // What is remembered is frozen, since every token of this header gets the same object.
    if (Object.isFrozen(header)) return;
    if (this.authentic.size >= REMEMBERED_HEADERS) this.authentic.clear();
    this.authentic.set(segment, Object.freeze(header));
  }
}

function parseHeader(segment: string, profiles: ProfileChoice): WebhookTokenHeader {
  const text = decodeBase64urlText(segment);
  const header = text === undefined ? undefined : parseJson(text);
  if (text === undefined || !isObject(header) || hasDuplicateMember(text, header))
    throw invalidToken();
  const { alg, typ, kid } = header;
  if (typeof alg !== 'string' || !profiles.admits(typ)) throw invalidToken();
  if (kid !== undefined && !isKeyId(kid)) throw invalidToken();
  // Extensions this package does not implement, RFC 7515 section 4.1.11, RFC 7797 and JWE's `zip`.
  if ('crit' in header || 'b64' in header || 'zip' in header) throw invalidToken();
  return header as unknown as WebhookTokenHeader;
}

/** Whom a verifier trusts, and how strict it is. */
export interface TokenVerifierOptions extends KeyPolicy {
  /** Everybody whose tokens are taken, with their keys; or where to find both. */
  readonly issuers: readonly TrustedIssuer[] | KeySource;
  /** Seconds by which two clocks may differ, 0 to 300; default 60. */
  readonly clockTolerance?: number | undefined;
  /** Seconds between `iat` and `exp` at the most; default 3600. */
  readonly maxTokenLifetime?: number | undefined;
  /**
   * Members of objects and elements of arrays that the claims may have, at all levels; default 100,000. They are
   * counted before the claims are parsed.
   */
  readonly maxJsonMembers?: number | undefined;
  /** Who this receiver is. With one, a token must name it; without, a token that names any is refused. */
  readonly audience?: string | readonly string[] | undefined;
  /**
   * Wire formats to accept; default `['webhook-token']`. Each token is held against the rules of one of them,
   * chosen by `typ` and by the form of its data.
   */
  readonly profiles?: readonly WebhookProfile[] | undefined;
  /** Where the time comes from; default `Date.now`. */
  readonly now?: TokenClock | undefined;
}

/** Verifies tokens against a fixed set of issuers. */
export interface TokenVerifier {
  /**
   * Verifies a compact token: form, header, signature, then claims. Until the signature holds, an
   * error's message says no more than that the token is invalid (or too large), and names no claim. Its
   * code still tells which step refused the token: `invalid_token`, `unknown_key`, `wrong_issuer` or
   * `bad_signature`, since issuers and the names of keys are no secrets.
   *
   * @returns at once for HMAC keys, a promise for key pairs
   * @throws {@link WebhookTokenError}, as a rejection where the result is a promise
   */
  verify(token: string): MaybePromise<VerifiedWebhookToken>;
}

/** What a verifier holds a token against, for whoever explains its refusals. */
export interface TokenRules {
  readonly keys: KeySource;
  /** Seconds. */
  readonly clockTolerance: number;
  /** Seconds. */
  readonly maxTokenLifetime: number;
  readonly audience: readonly string[];
  readonly now: TokenClock;
  /**
   * Seconds by which clocks may differ for a token, which its wire format decides.
   *
   * @param typ - of its header
   * @param webhook - its claim, unchecked
   */
  toleranceFor(typ: string | undefined, webhook: unknown): number;
}

/** The audiences of a receiver; none where none is configured. */
function audiences(audience: TokenVerifierOptions['audience']): readonly string[] {
  if (audience === undefined) return [];
  return typeof audience === 'string' ? [audience] : audience;
}

/** What is wrong with the options, the issuers and their keys aside. */
function optionFaults(
  options: TokenVerifierOptions,
  clockTolerance: number,
  maxTokenLifetime: number,
): ConfigurationFault[] {
  const faults: ConfigurationFault[] = [];
  // Finite first: the text '60' compares like a number, and then `exp + '60'` never expires.
  if (!(
    Number.isFinite(clockTolerance) &&
    clockTolerance >= 0 &&
    clockTolerance <= MAX_CLOCK_TOLERANCE
  )) {
    faults.push({
      path: 'clockTolerance',
      message: `must be 0 to ${MAX_CLOCK_TOLERANCE} seconds: a wider tolerance keeps expired tokens alive`,
    });
  }
  if (!(Number.isFinite(maxTokenLifetime) && maxTokenLifetime > 0)) {
    faults.push({ path: 'maxTokenLifetime', message: 'must be a positive number of seconds' });
  }
  const { maxJsonMembers = DEFAULT_MAX_JSON_MEMBERS } = options;
  if (!(Number.isSafeInteger(maxJsonMembers) && maxJsonMembers > 0)) {
    faults.push({ path: 'maxJsonMembers', message: 'must be a positive whole number' });
  }
  const unknown = options.profiles?.filter((profile) => !WEBHOOK_PROFILES.includes(profile)) ?? [];
  if (options.profiles?.length === 0 || unknown.length > 0) {
    faults.push({
      path: 'profiles',
      message: `must name at least one of the profiles this version has: ${WEBHOOK_PROFILES.join(', ')}`,
    });
  }
  if (audiences(options.audience).some((one) => typeof one !== 'string' || one === '')) {
    faults.push({ path: 'audience', message: 'must be a non-empty text, or a list of them' });
  }
  return faults;
}

/** Verifies by the keys of a ring, which may change. Synchronous as long as ring and key are. */
class KeyRingTokenVerifier implements TokenVerifier, TokenRules {
  readonly keys: KeySource;
  readonly clockTolerance: number;
  readonly maxTokenLifetime: number;
  readonly audience: readonly string[];
  readonly now: TokenClock;
  private readonly maxJsonMembers: number;
  private readonly profiles: ProfileChoice;
  private readonly headers: TokenHeaders;

  constructor(options: TokenVerifierOptions) {
    const { keys, faults } = keySource(options);
    this.keys = keys;
    this.clockTolerance = options.clockTolerance ?? DEFAULT_CLOCK_TOLERANCE;
    this.maxTokenLifetime = options.maxTokenLifetime ?? DEFAULT_MAX_TOKEN_LIFETIME;
    this.audience = audiences(options.audience);
    this.now = options.now ?? Date.now;
    this.maxJsonMembers = options.maxJsonMembers ?? DEFAULT_MAX_JSON_MEMBERS;
    this.profiles = new ProfileChoice(options.profiles);
    this.headers = new TokenHeaders(this.profiles);
    faults.push(...optionFaults(options, this.clockTolerance, this.maxTokenLifetime));
    if (faults.length > 0) throw new WebhookConfigurationError(faults);
  }

  toleranceFor(typ: string | undefined, webhook: unknown): number {
    return this.profiles.choose(typ, webhook).toleratesSkew ? this.clockTolerance : 0;
  }

  verify(token: string): MaybePromise<VerifiedWebhookToken> {
    const compact = parseCompactToken(token);
    const header = this.headers.read(compact.header);
    return after(this.keys.ring(), (trusted) => this.verifyWith(trusted, compact, header));
  }

  private verifyWith(
    trusted: TrustedIssuers,
    compact: CompactToken,
    header: WebhookTokenHeader,
  ): MaybePromise<VerifiedWebhookToken> {
    // With one issuer the key is known before a byte of the claims is parsed. With several, `iss`
    // must be read to find it; nothing else of the claims is looked at before the signature holds.
    const { sole } = trusted;
    const read = sole === undefined ? readClaims(compact.payload, this.maxJsonMembers) : undefined;
    const issuer = sole ?? issuerOf(read, trusted);
    const now = readSeconds(this.now);
    const verified = after(issuer.candidates(header.kid, now), (keys) =>
      firstThatVerifies(keys, header, compact),
    );
    // The times hold or not at the moment the token came; a key that takes a while changes nothing.
    return after(verified, (key) => this.accept(compact, header, issuer, key, now, read));
  }

  private accept(
    compact: CompactToken,
    header: WebhookTokenHeader,
    issuer: IssuerKeys,
    key: VerificationKey,
    now: number,
    read: ClaimsJson | undefined,
  ): VerifiedWebhookToken {
    this.headers.remember(compact.header, header);
    const json = read ?? readClaims(compact.payload, this.maxJsonMembers);
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
      throw new WebhookTokenError(
        'invalid_token',
        `a token of ${rules.name} is not signed by ${key.alg}`,
      );
    }
    const claims = validateClaims(value, {
      rules,
      issuer: issuer.issuer,
      audience: this.audience,
      now,
      clockTolerance: this.clockTolerance,
      maxTokenLifetime: this.maxTokenLifetime,
      maxJsonMembers: this.maxJsonMembers,
    });
    return { header, claims, key: describeKey(key, issuer.issuer), profile: rules.name };
  }
}

function keySource(options: TokenVerifierOptions): {
  keys: KeySource;
  faults: ConfigurationFault[];
} {
  const { issuers } = options;
  if ('ring' in issuers) return { keys: issuers, faults: [] };
  const { ring, faults } = KeyRing.build(issuers, options);
  return { keys: ring, faults };
}

function issuerOf(read: ClaimsJson | undefined, trusted: TrustedIssuers): IssuerKeys {
  const claims = read?.value;
  if (!isObject(claims)) throw invalidToken();
  const iss = claims['iss'];
  const issuer = typeof iss === 'string' ? trusted.of(iss) : undefined;
  if (issuer === undefined) throw new WebhookTokenError('wrong_issuer', 'the token is invalid');
  return issuer;
}

function firstThatVerifies(
  candidates: readonly VerificationKey[],
  header: WebhookTokenHeader,
  compact: CompactToken,
  from = 0,
): MaybePromise<VerificationKey> {
  if (candidates.length === 0) throw new WebhookTokenError('unknown_key', 'the token is invalid');
  let algorithmServed = false;
  for (let i = from; i < candidates.length; i++) {
    const key = candidates[i]!;
    // The algorithm is the key's; a token that names another one was not signed with this key.
    if (key.alg !== header.alg) continue;
    algorithmServed = true;
    const holds = key.verify(compact);
    if (holds === true) return key;
    if (holds !== false) {
      return holds.then((held) =>
        held ? key : firstThatVerifies(candidates, header, compact, i + 1),
      );
    }
  }
  if (!algorithmServed && from === 0) throw invalidToken();
  throw new WebhookTokenError('bad_signature', 'the token is invalid');
}

function describeKey(key: VerificationKey, issuer: string): VerifiedWebhookToken['key'] {
  return key.kid === undefined ? { issuer, alg: key.alg } : { issuer, alg: key.alg, kid: key.kid };
}

/**
 * Makes a verifier; keys are parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every fault and its remedy
 */
export function createTokenVerifier(options: TokenVerifierOptions): TokenVerifier {
  return new KeyRingTokenVerifier(options);
}

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

/** The rules of a verifier; `undefined` for one that is not this package's. */
export function rulesOf(verifier: TokenVerifier): TokenRules | undefined {
  return verifier instanceof KeyRingTokenVerifier ? verifier : undefined;
}
