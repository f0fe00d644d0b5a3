import { WebhookTokenError } from '../errors/webhook.error.js';
import {
  type ClaimsJson,
  type CompactToken,
  invalidToken,
  parseCompactToken,
  readClaims,
  readHeader,
  soundClaims,
} from './decoding.js';
import { isObject } from './json.js';
import {
  type HmacKey,
  type IssuerKeys,
  KeyRing,
  type KeySource,
  type TrustedIssuers,
  type VerificationKey,
} from './keys/token-keys.js';
import type { ProfileChoice } from './profiles/profile.js';
import { readSeconds, type TokenClock, validateClaims } from './validate-claims.js';
import type { VerifiedWebhookToken, WebhookTokenHeader } from './webhook-claims.interface.js';

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
   * @returns the token itself if all keys are secrets in the options, otherwise a promise
   * @throws {@link WebhookTokenError}; a rejection if the result is a promise
   */
  verify(token: string): VerifiedWebhookToken | Promise<VerifiedWebhookToken> {
    const { keys } = this.settings;
    return keys instanceof KeyRing && keys.hasOnlySecrets
      ? this.verifyHmac(token, keys)
      : this.verifyAsync(token, keys);
  }

  private async verifyAsync(token: string, keys: KeySource): Promise<VerifiedWebhookToken> {
    const read = this.read(token);
    const choice = this.choose(await keys.ring(), read);
    const { kid, alg } = read.header;
    const candidates = await choice.issuer.candidates(kid, choice.now, alg);
    const key = await keyThatSigned(read.compact, candidatesFor(read.header, candidates));
    return this.accept(read, choice, key);
  }

  /** The same steps without a promise, since HMAC is synchronous. */
  private verifyHmac(token: string, ring: KeyRing): VerifiedWebhookToken {
    const read = this.read(token);
    const choice = this.choose(ring, read);
    const candidates = choice.issuer.candidates(read.header.kid, choice.now) as readonly HmacKey[];
    const key = candidatesFor(read.header, candidates).find((one) => one.verify(read.compact));
    return this.accept(read, choice, key);
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

  /** Reads the form and the header, without a look at the claims. */
  private read(token: string): ReadToken {
    const compact = parseCompactToken(token);
    const { header, problem } = readHeader(compact.header);
    if (header === undefined || problem !== undefined) throw invalidToken();
    if (!this.settings.profiles.accepts(header['typ'])) throw invalidToken();
    return { compact, header: header as unknown as WebhookTokenHeader };
  }

  /** With a single issuer, the claims are not even parsed before the signature is verified. With several, `iss` selects the keys. */
  private choose(trusted: TrustedIssuers, { compact }: ReadToken): IssuerChoice {
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

  private accept(
    { compact, header }: ReadToken,
    { issuer, claims, now }: IssuerChoice,
    key: VerificationKey | undefined,
  ): VerifiedWebhookToken {
    if (key === undefined) throw invalidToken('bad_signature');
    const { settings } = this;
    const value = soundClaims(claims ?? this.readClaims(compact), settings.maxJsonMembers);
    const rules = settings.profiles.choose(header.typ, value['webhook']);
    if (!rules.algorithms.has(key.alg)) {
      throw new WebhookTokenError('invalid_token', `${rules.name} does not allow ${key.alg}`);
    }
    const expected = { rules, issuer: issuer.issuer, now, settings };
    return {
      header,
      claims: validateClaims(value, expected),
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

/** A key has one algorithm; a token that names another was not signed with this key. */
export function candidatesFor<Key extends VerificationKey>(
  { alg }: Pick<WebhookTokenHeader, 'alg'>,
  keys: readonly Key[],
): readonly Key[] {
  if (keys.length === 0) throw invalidToken('unknown_key');
  const candidates = keys.filter((key) => key.alg === alg);
  if (candidates.length === 0) throw invalidToken();
  return candidates;
}

export async function keyThatSigned(
  token: CompactToken,
  keys: readonly VerificationKey[],
): Promise<VerificationKey | undefined> {
  for (const key of keys) if (await key.verify(token)) return key;
  return undefined;
}
