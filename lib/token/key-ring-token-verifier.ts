import {
  WebhookConfigurationError,
  type ConfigurationFault,
} from '../errors/webhook-configuration.error.js';
import { WebhookTokenError } from '../errors/webhook-token.error.js';
import { readClaims, type ClaimsJson } from './json/claims-json.js';
import { requireSoundStructure } from './json/claims-structure.js';
import { invalidToken, parseCompactToken, type CompactToken } from './compact-token.js';
import { isObject } from './json/json-object.js';
import { KeyRing } from './keys/key-ring.js';
import type { IssuerKeys, KeySource, TrustedIssuers } from './keys/key-source.js';
import { ProfileChoice } from './profiles/profile-choice.js';
import { readSeconds, type TokenClock } from './token-clock.js';
import { TokenHeaders } from './token-header.js';
import { after, type MaybePromise } from './maybe-promise.js';
import type { VerificationKey } from './keys/token-key.js';
import { audiences, optionFaults } from './token-verifier.checks.js';
import type {
  TokenRules,
  TokenVerifier,
  TokenVerifierOptions,
} from './token-verifier.interface.js';
import { validateClaims } from './validate-claims.js';
import type { VerifiedWebhookToken, WebhookTokenHeader } from './webhook-claims.interface.js';
import { DEFAULT_CLOCK_TOLERANCE, DEFAULT_MAX_TOKEN_LIFETIME } from './webhook-token.constants.js';

/** Verifies by the keys of a ring, which may change. Synchronous as long as ring and key are. */
export class KeyRingTokenVerifier implements TokenVerifier, TokenRules {
  readonly keys: KeySource;
  readonly clockTolerance: number;
  readonly maxTokenLifetime: number;
  readonly audience: readonly string[];
  readonly now: TokenClock;
  private readonly profiles: ProfileChoice;
  private readonly headers: TokenHeaders;

  constructor(options: TokenVerifierOptions) {
    const { keys, faults } = keySource(options);
    this.keys = keys;
    this.clockTolerance = options.clockTolerance ?? DEFAULT_CLOCK_TOLERANCE;
    this.maxTokenLifetime = options.maxTokenLifetime ?? DEFAULT_MAX_TOKEN_LIFETIME;
    this.audience = audiences(options.audience);
    this.now = options.now ?? Date.now;
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
    const read = sole === undefined ? readClaims(compact.payload) : undefined;
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
    const json = read ?? readClaims(compact.payload);
    const value = json?.value;
    if (json === undefined || !isObject(value)) {
      throw new WebhookTokenError('invalid_token', 'the claims are not one JSON object in UTF-8');
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
