import { WebhookTokenError } from '../errors/webhook.error.js';
import {
  type ClaimsJson,
  type CompactToken,
  invalidToken,
  parseCompactToken,
  readClaims,
  readHeader,
  requireSoundStructure,
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
import { type ProfileRules, rulesOf } from './profiles/profile.js';
import { isDraft00Claim } from './profiles/swt-draft-00.profile.js';
import { SWT_DRAFT_02 } from './profiles/swt-draft-02.profile.js';
import { readSeconds, type TokenClock, validateClaims } from './validate-claims.js';
import type { VerifiedWebhookToken, WebhookTokenHeader } from './webhook-claims.interface.js';
import { DEFAULT_PROFILE, type WebhookProfile } from './webhook-token.constants.js';

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
    const candidates = await choice.issuer.candidates(read.header.kid, choice.now);
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
    const json = claims ?? this.readClaims(compact);
    const value = json?.value;
    if (json === undefined || !isObject(value)) {
      throw new WebhookTokenError(
        'invalid_token',
        `the claims must be one JSON object in UTF-8 with at most ${settings.maxJsonMembers} members`,
      );
    }
    requireSoundStructure(json);
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

/**
 * Chooses the rules for a token by configuration, `typ` and shape. It never tries one set of rules after another, so no
 * token is accepted by a mixture of them (RFC 8725, section 3.12). Only enabled profiles are considered:
 *
 * 1. `typ` `SWT` selects swt-draft-02.
 * 2. Data in a form that only swt-draft-00 has (base64, `null`, a reference to a body) selects swt-draft-00.
 * 3. Any other token with `typ` `JWT` is webhook-token.
 * 4. The rest is swt-draft-00, which does not check `typ`.
 */
export class ProfileChoice {
  private readonly webhookToken: boolean;
  private readonly draft00: boolean;
  private readonly draft02: boolean;

  constructor(enabled: readonly WebhookProfile[] = [DEFAULT_PROFILE]) {
    this.webhookToken = enabled.includes('webhook-token');
    this.draft00 = enabled.includes('swt-draft-00');
    this.draft02 = enabled.includes('swt-draft-02');
  }

  /** Reports whether an enabled profile accepts this `typ`; called before the signature is verified. */
  accepts(typ: unknown): boolean {
    if (typ !== undefined && typeof typ !== 'string') return false;
    // A type that differs from the draft's only in case is an error, not a token of another format.
    if (this.draft02 && isType(typ, 'swt')) return typ === SWT_DRAFT_02.typ;
    return this.draft00 || (this.webhookToken && isType(typ, 'jwt'));
  }

  /**
   * The rules for a token with an accepted `typ`.
   *
   * @param webhook - the claim `webhook`, unchecked
   */
  choose(typ: string | undefined, webhook: unknown): ProfileRules {
    return rulesOf(this.profileOf(typ, webhook));
  }

  private profileOf(typ: string | undefined, webhook: unknown): WebhookProfile {
    if (this.draft02 && typ === SWT_DRAFT_02.typ) return 'swt-draft-02';
    if (!this.draft00) return 'webhook-token';
    if (!this.webhookToken || !isType(typ, 'jwt')) return 'swt-draft-00';
    return isObject(webhook) && isDraft00Claim(webhook) ? 'swt-draft-00' : 'webhook-token';
  }
}

/** RFC 7515, section 4.1.9: a media type, case-insensitive, with an optional `application/`. */
function isType(typ: string | undefined, wanted: 'jwt' | 'swt'): boolean {
  // Lower case, because upper case maps the dotless `ı` to `I`.
  return typ !== undefined && typ.toLowerCase().replace(/^application\//, '') === wanted;
}
