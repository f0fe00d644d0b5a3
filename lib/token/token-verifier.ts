import { WebhookTokenError } from '../errors/webhook.error.js';
import {
  type ClaimsJson,
  type CompactToken,
  invalidToken,
  parseCompactToken,
  readClaims,
  readHeader,
  requireSoundStructure,
} from './compact-token.js';
import { isObject } from './decoding.js';
import type { IssuerKeys, KeySource, TrustedIssuers } from './keys/key-ring.js';
import type { VerificationKey } from './keys/token-keys.js';
import type { ProfileChoice } from './profiles/profile.js';
import { readSeconds, type TokenClock, validateClaims } from './validate-claims.js';
import type { VerifiedWebhookToken, WebhookTokenHeader } from './webhook-claims.interface.js';

/** The checked options of a verifier. */
export interface VerifierSettings {
  readonly keys: KeySource;
  /** Seconds by which two clocks may differ. */
  readonly clockTolerance: number;
  /** Maximum seconds between `iat` and `exp`. */
  readonly maxTokenLifetime: number;
  /** Members that the claims may have, at all levels. */
  readonly maxJsonMembers: number;
  /** Names of this receiver; empty if none is configured. */
  readonly audience: readonly string[];
  readonly now: TokenClock;
  readonly profiles: ProfileChoice;
}

/** Verifies tokens of trusted issuers. Create one with {@link createTokenVerifier}. */
export class TokenVerifier {
  /** @hidden */
  constructor(readonly settings: VerifierSettings) {}

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
    const header = readCheckedHeader(compact, this.settings.profiles);
    return after(this.settings.keys.ring(), (trusted) => {
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
    return this.settings.profiles.choose(typ, webhook).toleratesSkew
      ? this.settings.clockTolerance
      : 0;
  }

  /** With a single issuer, the claims are not even parsed before the signature is verified. With several, `iss` selects the keys. */
  private choose(trusted: TrustedIssuers, compact: CompactToken): IssuerChoice {
    // A slow key must not make a token expire, so the time is read before the signature is verified.
    const now = readSeconds(this.settings.now);
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
        `the claims must be one JSON object in UTF-8 with at most ${this.settings.maxJsonMembers} members`,
      );
    }
    requireSoundStructure(json);
    const rules = this.settings.profiles.choose(header.typ, value['webhook']);
    if (!rules.algorithms.has(key.alg)) {
      throw new WebhookTokenError('invalid_token', `${rules.name} does not allow ${key.alg}`);
    }
    const verified = validateClaims(value, {
      rules,
      issuer: issuer.issuer,
      audience: this.settings.audience,
      now,
      clockTolerance: this.settings.clockTolerance,
      maxTokenLifetime: this.settings.maxTokenLifetime,
      maxJsonMembers: this.settings.maxJsonMembers,
    });
    return {
      header,
      claims: verified,
      key: { issuer: issuer.issuer, alg: key.alg, kid: key.kid },
      profile: rules.name,
    };
  }

  private readClaims(compact: CompactToken): ClaimsJson | undefined {
    return readClaims(compact.payload, this.settings.maxJsonMembers);
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
  if (!profiles.accepts(header['typ'])) throw invalidToken();
  return header as unknown as WebhookTokenHeader;
}

/** A key has one algorithm; a token that names another was not signed with this key. */
export function candidatesFor(
  { alg }: Pick<WebhookTokenHeader, 'alg'>,
  keys: readonly VerificationKey[],
): readonly VerificationKey[] {
  if (keys.length === 0) throw invalidToken('unknown_key');
  const candidates = keys.filter((key) => key.alg === alg);
  if (candidates.length === 0) throw invalidToken();
  return candidates;
}

/** Tries one key after another; without promises if they are secrets. */
export function keyThatSigned(
  token: CompactToken,
  [key, ...others]: readonly VerificationKey[],
): MaybePromise<VerificationKey | undefined> {
  if (key === undefined) return undefined;
  return after(key.verify(token), (isValid) => (isValid ? key : keyThatSigned(token, others)));
}

/** A value, or a promise of it: secrets and keys in memory are synchronous, everything else is not. */
type MaybePromise<T> = T | Promise<T>;

/** Continues with a value, synchronously if it is available: each `await` costs a microtask (benchmark `receive`). */
function after<T, R>(
  value: MaybePromise<T>,
  onValue: (value: T) => MaybePromise<R>,
): MaybePromise<R> {
  return isThenable(value) ? value.then(onValue) : onValue(value);
}

/** By its shape: a promise of another realm that was taken for a value would be a truthy verdict. */
function isThenable<T>(value: MaybePromise<T>): value is Promise<T> {
  return typeof (value as { then?: unknown } | null | undefined)?.then === 'function';
}
