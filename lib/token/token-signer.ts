import { Problems } from '../options/problems.js';
import { readOptions } from '../options/read-options.js';
import { object, unchecked } from '../options/rules.js';
import { type Duration, secondsOf } from '../clock/duration.js';
import { randomUUID } from 'node:crypto';
import { WebhookSigningError, WebhookTokenError } from '../errors/webhook.error.js';
import { eventNameRule, isEventName } from './event-name.js';
import { identifierRule, isIdentifier } from './identifier.js';
import { tokenTooLarge } from './decoding.js';
import { isObject, parseJson, structureProblem } from './json.js';
import type { KeyPolicy, KeyWindow } from './keys/key-material.js';
import { parseSigningKey, type SigningKeyInput } from './keys/signing-key.js';
import type { SigningKey } from './keys/token-keys.js';
import { parsePayloadHash, type PayloadHash } from './payload-hash.js';
import { profileProblem, rulesOf, type ProfileRules } from './profiles/profile.js';
import { readSeconds, type TokenClock, isAudience, invalidClaim } from './validate-claims.js';
import {
  DEFAULT_PROFILE,
  DEFAULT_TOKEN_LIFETIME,
  MAX_DATA_DEPTH,
  MAX_TOKEN_BYTES,
  type SignatureAlgorithm,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** Issuer and key of a signer. */
export interface TokenSignerOptions extends KeyPolicy {
  /** The `iss` of the tokens; 1 to 255 characters. */
  readonly issuer: string;
  /** A shared secret (HS256), a key with its algorithm, or a {@link WebhookSigner} for a key outside this process. */
  readonly key: SigningKeyInput;
  /** Time from `iat` to `exp`: seconds, or a string such as `'5m'`; default 300. By default, receivers refuse more than 3600. */
  readonly lifetime?: Duration | undefined;
  /** Default wire format of its tokens; default `'webhook-token'`. */
  readonly profile?: WebhookProfile | undefined;
  /** The current time; default `Date.now`. */
  readonly now?: TokenClock | undefined;
}

/** The event and the options of one token. */
export interface WebhookTokenInput {
  /** `<entity>.<action>`; the draft profiles also allow a single word. */
  readonly event: string;
  /** Inline data: an object that serialises to a JSON object of at most 64 levels. */
  readonly data?: object | undefined;
  /** Digest of the body, `<algorithm>:<hex>`, as `digest` returns it; the same for every wire format. */
  readonly hash?: string | undefined;
  /** Bytes of the body; required with a hash in `swt-draft-00` and ignored in other profiles. */
  readonly size?: number | undefined;
  /** Attempts made before this one; ignored except in `swt-draft-02`. */
  readonly retryCount?: number | undefined;
  /** The ordering key of the event, with its number among the events of that key; only sent in `webhook-token`. */
  readonly order?: { readonly key: string; readonly sequence: number } | undefined;
  /** Whether the body is an envelope of Standard Webhooks; ignored except in `webhook-token`. */
  readonly envelope?: boolean | undefined;
  /** Wire format of this token; default: that of the signer. */
  readonly profile?: WebhookProfile | undefined;
  /** The `aud` of the token; each name 1 to 255 characters. */
  readonly audience?: string | readonly string[] | undefined;
  readonly subject?: string | undefined;
  /** The token's own id (`jti`); default a random UUID. Never reuse one. */
  readonly id?: string | undefined;
  /** The event's id, the same for every attempt to deliver it. */
  readonly txn?: string | undefined;
}

/** Signs tokens. Create one with {@link createTokenSigner}. */
export interface TokenSigner {
  readonly alg: SignatureAlgorithm;
  readonly kid?: string | undefined;
  /** Maximum bytes of inline data; set for a {@link WebhookSigner}. */
  readonly inlineLimit?: number | undefined;
  /**
   * Signs a new token: `iat` and `nbf` are now, `exp` is a lifetime later.
   *
   * @returns the token itself for HMAC keys, a promise for key pairs
   * @throws {@link WebhookTokenError} `invalid_claim` for input that receivers refuse, `invalid_token` for a wire format
   *   that does not allow the key's algorithm, `token_too_large`
   * @throws {@link WebhookPayloadError} `hash_unsupported` for a malformed hash
   * @throws {@link WebhookSigningError} `no_signing_key` outside the key's window, `signing_failed`
   */
  sign(input: WebhookTokenInput): string | Promise<string>;
}

/**
 * Creates a signer. The key is parsed here, once.
 *
 * @throws {@link WebhookConfigurationError} with every problem and its remedy
 */
export function createTokenSigner(options: TokenSignerOptions): TokenSigner {
  readOptions(SIGNER_OPTIONS, options, 'createTokenSigner');
  return new KeyTokenSigner(options);
}

/** The names only: the signer checks the values. */
const SIGNER_OPTIONS = object<TokenSignerOptions>()({
  issuer: unchecked(),
  key: unchecked(),
  lifetime: unchecked(),
  profile: unchecked(),
  now: unchecked(),
  allowWeakSecrets: unchecked(),
});

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

/** Signs with one key: synchronously with a secret, by a promise with any other key. */
class KeyTokenSigner implements TokenSigner {
  readonly alg: SignatureAlgorithm;
  readonly kid: string | undefined;
  readonly inlineLimit: number | undefined;

  private readonly key: SigningKey;
  private readonly window: KeyWindow | undefined;
  private readonly issuer: string;
  private readonly lifetime: number;
  private readonly now: TokenClock;
  private readonly rules: ProfileRules;

  constructor(options: TokenSignerOptions) {
    const problems = new Problems();
    checkShared(options, problems);
    const { key, window, problem } = parseSigningKey(options.key, options);
    if (key === undefined) problems.add('key', problem);
    this.lifetime = secondsOf(options.lifetime, DEFAULT_TOKEN_LIFETIME);
    const profile = options.profile ?? DEFAULT_PROFILE;
    const mismatch = profileProblem(profile, key?.alg);
    if (mismatch !== undefined) problems.add('profile', mismatch);
    problems.throwIfAny();
    this.key = key!;
    this.window = window;
    this.alg = this.key.alg;
    this.kid = this.key.kid;
    this.inlineLimit = this.key.inlineLimit;
    this.issuer = options.issuer;
    this.now = options.now ?? Date.now;
    this.rules = rulesOf(profile);
  }

  sign(input: WebhookTokenInput): string | Promise<string> {
    const rules = input.profile === undefined ? this.rules : this.rulesFor(input.profile);
    const hash = checkInput(input, rules.name);
    const data = input.data === undefined ? undefined : inlineText(input.data);
    const now = readSeconds(this.now);
    if (!maySign(this.window, now)) throw noSigningKey();
    const { size, retryCount, envelope, order } = input;
    const carried = { data, hash, size, retryCount, envelope, order };
    const webhook = rules.writeClaim(input.event, carried);
    const header = JSON.stringify({ alg: this.alg, typ: rules.typ, kid: this.kid });
    const claims = this.claimsText(input, Math.floor(now), webhook);
    const token = this.key.sign(header, claims);
    return typeof token === 'string' ? requireSendable(token) : token.then(requireSendable);
  }

  /** @param webhook - the claim as JSON */
  private claimsText(input: WebhookTokenInput, iat: number, webhook: string): string {
    const claims = JSON.stringify({
      iss: this.issuer,
      sub: input.subject,
      aud: input.audience,
      iat,
      nbf: iat,
      exp: iat + this.lifetime,
      jti: input.id ?? randomUUID(),
      txn: input.txn,
    });
    return `${claims.slice(0, -1)},"webhook":${webhook}}`;
  }

  private rulesFor(profile: WebhookProfile): ProfileRules {
    const problem = profileProblem(profile, this.alg);
    if (problem !== undefined)
      throw new WebhookTokenError('invalid_token', `the profile ${problem}`);
    return rulesOf(profile);
  }
}

/** Checks the options other than the key. */
export function checkShared(
  { issuer, lifetime: given }: Omit<TokenSignerOptions, 'key'>,
  at: Problems,
  nameOfLifetime = 'lifetime',
): void {
  at.require(isIdentifier(issuer), 'issuer', identifierRule('issuer'));
  const lifetime = secondsOf(given, DEFAULT_TOKEN_LIFETIME);
  const isWhole = Number.isInteger(lifetime) && lifetime > 0;
  at.require(isWhole, nameOfLifetime, 'must be a positive whole number of seconds');
}

/** Reports whether a key may sign at a time, in seconds. No tolerance: the clock is the signer's own. */
export function maySign(window: KeyWindow | undefined, now: number): boolean {
  return window === undefined || (window.opens <= now && now < window.closes);
}

/** Every key is outside its window. */
export function noSigningKey(): WebhookSigningError {
  return new WebhookSigningError(
    'no_signing_key',
    'no key is valid for signing now: add a key whose notBefore has passed and whose notAfter has not.',
  );
}

/** Every receiver refuses a larger token, so the signer does first. */
function requireSendable(token: string): string {
  if (token.length <= MAX_TOKEN_BYTES) return token;
  throw tokenTooLarge();
}

/**
 * Checks everything but the data by the rules that receivers apply.
 *
 * @returns the parsed hash
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
    throw invalidClaim('aud', `${identifierRule('the audience')}, or a list of them`);
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

/** Inline data that is serialised already, and accepted by every receiver: it is signed as it is. */
export class InlineJson {
  /** The parsed JSON is not kept: a history may hold thousands of them. */
  private constructor(readonly text: string) {}

  /**
   * @param isRefused - whether receivers refuse the object for another reason
   * @returns `undefined` for anything but the JSON of an object that receivers accept
   */
  static of(text: string, isRefused: (value: object) => boolean): InlineJson | undefined {
    const value = parseJson(text);
    if (!isObject(value) || structureProblem(value, MAX_DATA_DEPTH) !== undefined) return undefined;
    return isRefused(value) ? undefined : new InlineJson(text);
  }
}

/**
 * Serialises inline data and checks the JSON by the rules that receivers apply. The object itself says little, since it
 * may have a toJSON.
 */
function inlineText(data: object): string {
  if (data instanceof InlineJson) return data.text;
  const text = serialize(data);
  if (!text?.startsWith('{')) {
    throw invalidClaim(
      'webhook.data',
      'the JSON of inline data must be an object: send anything else in the body of a POST',
    );
  }
  const problem = structureProblem(parseJson(text), MAX_DATA_DEPTH);
  if (problem !== undefined) throw invalidClaim('webhook.data', `inline data ${problem}`);
  return text;
}

/** @returns `undefined` if a toJSON returns no value */
function serialize(data: object): string | undefined {
  try {
    return JSON.stringify(data);
  } catch {
    // The error of JSON.stringify names members of the data, so it is dropped.
    throw invalidClaim(
      'webhook.data',
      'the data is not JSON: it has a cycle, a BigInt, or a toJSON that throws',
    );
  }
}
