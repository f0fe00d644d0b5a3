import { randomUUID } from 'node:crypto';
import { WebhookConfigurationError } from '../errors/webhook-configuration.error.js';
import { WebhookTokenError } from '../errors/webhook-token.error.js';
import { tokenTooLarge } from './compact-token.js';
import { inlineDataText } from './inline-data.js';
import type { KeyWindow } from './keys/key-window.js';
import { profileFault } from './profiles/profile-fault.js';
import type { ProfileRules } from './profiles/profile-rules.interface.js';
import { rulesOf } from './profiles/profile-registry.js';
import { parseSigningKey } from './keys/signing-key.js';
import { maySign, noSigningKey } from './signing-time.js';
import { readSeconds, type TokenClock } from './token-clock.js';
import { checkInput } from './token-input.checks.js';
import { after, type MaybePromise } from './maybe-promise.js';
import type { SigningKey } from './keys/token-key.js';
import { sharedFaults } from './token-signer.checks.js';
import type {
  TokenSigner,
  TokenSignerOptions,
  WebhookTokenInput,
} from './token-signer.interface.js';
import {
  DEFAULT_PROFILE,
  DEFAULT_TOKEN_LIFETIME,
  MAX_TOKEN_BYTES,
  type SignatureAlgorithm,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** Signs with one key; synchronous as long as the key is. */
export class KeyTokenSigner implements TokenSigner {
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
    const hash = checkInput(input);
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
