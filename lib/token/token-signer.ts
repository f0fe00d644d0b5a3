import { randomUUID } from 'node:crypto';
import {
  type ConfigurationFault,
  WebhookConfigurationError,
  WebhookSigningError,
  WebhookTokenError,
} from '../errors/webhook.error.js';
import { invalidClaim } from './claim-refusals.js';
import { tokenTooLarge } from './compact-token.js';
import { eventNameRule, isEventName } from './event-name.js';
import { identifierRule, isIdentifier } from './identifier.js';
import { isObject, parseJson, structureFault, textNestsDeeper } from './json/strict-json.js';
import type { KeyPolicy } from './keys/key-material.js';
import type { KeyWindow } from './keys/key-window.js';
import { parseSigningKey, type SigningKeyInput } from './keys/signing-key.js';
import type { SigningKey } from './keys/token-key.js';
import { after, type MaybePromise } from './maybe-promise.js';
import { parsePayloadHash, type PayloadHash } from './payload-hash.js';
import { profileFault, rulesOf } from './profiles/profile-choice.js';
import type { ProfileRules } from './profiles/profile-rules.interface.js';
import { readSeconds, type TokenClock } from './token-clock.js';
import { isAudience } from './validate-claims.js';
import {
  DEFAULT_PROFILE,
  DEFAULT_TOKEN_LIFETIME,
  MAX_DATA_DEPTH,
  MAX_TOKEN_BYTES,
  type SignatureAlgorithm,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** Whether a key may be signed with at a time, in seconds; exactly, as the clock is the signer's own. */
export function maySign(window: KeyWindow | undefined, now: number): boolean {
  return window === undefined || (window.opens <= now && now < window.closes);
}

/** Said when a token is wanted at a time for which there is no key. */
export function noSigningKey(): WebhookSigningError {
  return new WebhookSigningError(
    'no_signing_key',
    'no key may be signed with now: give one whose notBefore has come and whose notAfter has not.',
  );
}

/** One expression leaps through the text at a third of what two searches take (benchmark `token`, 6 kB). */
const NAMES_OF_PROTOTYPES = /__proto__|constructor/;

/**
 * Writes the data once, and holds the text against what verifiers accept: what an object becomes as JSON
 * is up to its toJSON.
 */
function inlineDataText(data: object): string {
  const text = serialize(data);
  if (!text?.startsWith('{')) {
    throw invalidClaim(
      'webhook.data',
      'the JSON of inline data must be an object: send anything else in the body of a POST',
    );
  }
  if (textNestsDeeper(text, MAX_DATA_DEPTH)) {
    throw invalidClaim('webhook.data', `inline data nests at most ${MAX_DATA_DEPTH} levels`);
  }
  // JSON.stringify escapes no letter, so that the names cannot hide; the text is parsed only where it has them.
  if (NAMES_OF_PROTOTYPES.test(text) && structureFault(parseJson(text), MAX_DATA_DEPTH)) {
    throw invalidClaim(
      'webhook.data',
      'the data has a member that would replace a prototype: __proto__, or prototype in constructor',
    );
  }
  return text;
}

/** @returns `undefined` where a toJSON gives no value */
function serialize(data: object): string | undefined {
  try {
    return JSON.stringify(data);
  } catch {
    // JSON.stringify's own error names members of the data, so it ends here.
    throw invalidClaim(
      'webhook.data',
      'the data is not JSON: it has a cycle, a BigInt, or a toJSON that throws',
    );
  }
}

/**
 * Holds what is to be signed against what receivers accept, its data aside.
 *
 * @returns the hash, taken apart
 * @throws {@link WebhookTokenError} `invalid_claim`, {@link WebhookPayloadError} `hash_unsupported`
 */
function checkInput(input: WebhookTokenInput, profile: WebhookProfile): PayloadHash | undefined {
  if (!isEventName(input.event, profile)) {
    throw invalidClaim('webhook.event', `the event name must be ${eventNameRule(profile)}`);
  }
  if (input.data !== undefined && !isObject(input.data)) {
    throw invalidClaim(
      'webhook.data',
      'inline data must be an object: send anything else in the body of a POST',
    );
  }
  if (input.audience !== undefined && !isAudience(input.audience)) {
    throw invalidClaim('aud', `${identifierRule('the audience')}, or a list of such texts`);
  }
  requireIdentifier('sub', input.subject);
  requireIdentifier('jti', input.id);
  requireIdentifier('txn', input.txn);
  requireCount('webhook.data.size', 'the size', input.size);
  requireCount('webhook.retry_count', 'the retry count', input.retryCount);
  return input.hash === undefined ? undefined : parsePayloadHash(input.hash);
}

function requireIdentifier(claim: string, value: string | undefined): void {
  if (value !== undefined && !isIdentifier(value)) throw invalidClaim(claim, identifierRule(claim));
}

function requireCount(claim: string, name: string, value: number | undefined): void {
  if (value !== undefined && !(Number.isSafeInteger(value) && value >= 0)) {
    throw invalidClaim(claim, `${name} must be a whole number from 0`);
  }
}

/** Who signs, and with what. */
export interface TokenSignerOptions extends KeyPolicy {
  /** The `iss` of the tokens; 1 to 255 characters. */
  readonly issuer: string;
  /** A shared secret (HS256), a key with its algorithm, or a {@link WebhookSigner} that holds one elsewhere. */
  readonly key: SigningKeyInput;
  /** Seconds from `iat` to `exp`; default 300. Receivers refuse more than 3600 unless they are told otherwise. */
  readonly lifetime?: number | undefined;
  /** The wire format of its tokens, unless one is named for a token; default `'webhook-token'`. */
  readonly profile?: WebhookProfile | undefined;
  /** Where the time comes from; default `Date.now`. */
  readonly now?: TokenClock | undefined;
}

/** What a token announces. */
export interface WebhookTokenInput {
  /** Dotted name, `<entity>.<action>`. */
  readonly event: string;
  /** Inline data: an object whose JSON is an object, nested at most 64 levels. */
  readonly data?: object | undefined;
  /** Digest of the body, `<algorithm>:<hex>`, as `digest` gives it for any wire format. */
  readonly hash?: string | undefined;
  /** Bytes of the body; needed with a hash by `swt-draft-00`, and sent by it alone. */
  readonly size?: number | undefined;
  /** Attempts made before this one; sent by `swt-draft-02` alone. */
  readonly retryCount?: number | undefined;
  /** The wire format of this token; default the signer's. */
  readonly profile?: WebhookProfile | undefined;
  /** Who the token is meant for; each name 1 to 255 characters. */
  readonly audience?: string | readonly string[] | undefined;
  readonly subject?: string | undefined;
  /** The token's own id (`jti`); default a random UUID. One id, one token: never reuse it. */
  readonly id?: string | undefined;
  /** The event's id, the same over all attempts to deliver it. */
  readonly txn?: string | undefined;
}

/** Signs tokens with one key. */
export interface TokenSigner {
  readonly alg: SignatureAlgorithm;
  readonly kid?: string | undefined;
  /** Bytes of inline data that are worth signing: set for a {@link WebhookSigner}, which is not at hand. */
  readonly inlineLimit?: number | undefined;
  /**
   * Signs a fresh token: `iat` and `nbf` now, `exp` a lifetime later.
   *
   * @returns at once for HMAC keys, a promise for key pairs
   * @throws {@link WebhookTokenError} `invalid_claim` for input no receiver would accept, `invalid_token` for a
   *   wire format that has no such algorithm as the key's, `token_too_large`
   * @throws {@link WebhookPayloadError} `hash_unsupported` for a hash of another form
   * @throws {@link WebhookSigningError} `no_signing_key` outside the key's window, `signing_failed`
   */
  sign(input: WebhookTokenInput): MaybePromise<string>;
}

/** What is wrong with the options, whatever the key. */
export function sharedFaults({
  issuer,
  lifetime = DEFAULT_TOKEN_LIFETIME,
}: Omit<TokenSignerOptions, 'key'>): ConfigurationFault[] {
  const faults: ConfigurationFault[] = [];
  if (!isIdentifier(issuer)) faults.push({ path: 'issuer', message: identifierRule('issuer') });
  if (!Number.isInteger(lifetime) || lifetime <= 0) {
    faults.push({ path: 'lifetime', message: 'must be a positive whole number of seconds' });
  }
  return faults;
}

/** Signs with one key; synchronous as long as the key is. */
class KeyTokenSigner implements TokenSigner {
  readonly alg: SignatureAlgorithm;
  readonly kid?: string;
  readonly inlineLimit?: number;

  private readonly key: SigningKey;
  private readonly window: KeyWindow | undefined;
  /** As JSON. */
  private readonly issuer: string;
  private readonly lifetime: number;
  private readonly now: TokenClock;
  private readonly rules: ProfileRules;
  /** The header is the same for every token of a key and a type, so its text is made once. */
  private readonly headers: Readonly<Record<ProfileRules['typ'], string>>;

  constructor(options: TokenSignerOptions) {
    const faults = sharedFaults(options);
    const { key, window, fault } = parseSigningKey(options.key, options);
    if (fault !== undefined) faults.push({ path: 'key', message: fault });
    this.lifetime = options.lifetime ?? DEFAULT_TOKEN_LIFETIME;
    const profile = options.profile ?? DEFAULT_PROFILE;
    const unfit = profileFault(profile, key?.alg);
    if (unfit !== undefined) faults.push({ path: 'profile', message: unfit });
    if (key === undefined || faults.length > 0) throw new WebhookConfigurationError(faults);
    this.key = key;
    this.window = window;
    this.alg = key.alg;
    if (key.kid !== undefined) this.kid = key.kid;
    if (key.inlineLimit !== undefined) this.inlineLimit = key.inlineLimit;
    this.issuer = JSON.stringify(options.issuer);
    this.now = options.now ?? Date.now;
    this.rules = rulesOf(profile);
    const { alg, kid } = key;
    this.headers = {
      JWT: JSON.stringify({ alg, typ: 'JWT', kid }),
      SWT: JSON.stringify({ alg, typ: 'SWT', kid }),
    };
  }

  sign(input: WebhookTokenInput): MaybePromise<string> {
    const rules = input.profile === undefined ? this.rules : this.rulesFor(input.profile);
    const hash = checkInput(input, rules.name);
    const data = input.data === undefined ? undefined : inlineDataText(input.data);
    const now = readSeconds(this.now);
    if (!maySign(this.window, now)) throw noSigningKey();
    const { size, retryCount } = input;
    const webhook = rules.writeClaim(input.event, { data, hash, size, retryCount });
    const claims = this.claimsText(input, Math.floor(now), webhook);
    const token = this.key.sign(this.headers[rules.typ], claims);
    return after(token, requireSendable);
  }

  /** Put together from JSON texts: writing an object of eight members takes longer (benchmark `token`, 300 B). */
  private claimsText(input: WebhookTokenInput, iat: number, webhook: string): string {
    const optional = member('sub', input.subject) + member('aud', input.audience);
    const times = `"iat":${iat},"nbf":${iat},"exp":${iat + this.lifetime}`;
    // Nothing in a UUID wants escaping.
    const jti = input.id === undefined ? `"${randomUUID()}"` : JSON.stringify(input.id);
    return `{"iss":${this.issuer}${optional},${times},"jti":${jti}${member('txn', input.txn)},"webhook":${webhook}}`;
  }

  private rulesFor(profile: WebhookProfile): ProfileRules {
    const fault = profileFault(profile, this.alg);
    if (fault !== undefined) throw new WebhookTokenError('invalid_token', `the profile ${fault}`);
    return rulesOf(profile);
  }
}

/** A member of an object after its first, as JSON. */
function member(name: string, value: string | readonly string[] | undefined): string {
  return value === undefined ? '' : `,"${name}":${JSON.stringify(value)}`;
}

/** A token that every receiver refuses for its size is told to whoever signs it, not to a log over there. */
function requireSendable(token: string): string {
  if (token.length <= MAX_TOKEN_BYTES) return token;
  throw tokenTooLarge();
}

/**
 * Makes a signer; the key is parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every fault and its remedy
 */
export function createTokenSigner(options: TokenSignerOptions): TokenSigner {
  return new KeyTokenSigner(options);
}

/**
 * Signs one token.
 *
 * @throws {@link WebhookTokenError}, {@link WebhookConfigurationError}
 */
export async function signWebhookToken(
  input: WebhookTokenInput,
  options: TokenSignerOptions,
): Promise<string> {
  return createTokenSigner(options).sign(input);
}
