import { isObject } from '../json/strict-json.js';
import {
  DEFAULT_PROFILE,
  type SignatureAlgorithm,
  WEBHOOK_PROFILES,
  type WebhookProfile,
} from '../webhook-token.constants.js';
import type { ProfileRules } from './profile-rules.js';
import { isDraft00Claim, SWT_DRAFT_00 } from './swt-draft-00.profile.js';
import { SWT_DRAFT_02 } from './swt-draft-02.profile.js';
import { WEBHOOK_TOKEN } from './webhook-token.profile.js';

const RULES: Readonly<Record<WebhookProfile, ProfileRules>> = {
  'webhook-token': WEBHOOK_TOKEN,
  'swt-draft-00': SWT_DRAFT_00,
  'swt-draft-02': SWT_DRAFT_02,
};

/** The rules of a wire format. */
export function rulesOf(profile: WebhookProfile): ProfileRules {
  return RULES[profile];
}

/**
 * Checks whether a wire format can be signed with an algorithm.
 *
 * @param alg - `undefined` if the key is invalid
 * @returns the problem and its remedy, or `undefined`
 */
export function profileProblem(
  profile: WebhookProfile,
  alg: SignatureAlgorithm | undefined,
): string | undefined {
  if (!WEBHOOK_PROFILES.includes(profile)) return `must be one of ${WEBHOOK_PROFILES.join(', ')}`;
  const { algorithms } = rulesOf(profile);
  return alg === undefined || algorithms.has(alg)
    ? undefined
    : `${profile} has no ${alg}: pass a key for one of ${[...algorithms].join(', ')}`;
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
  admits(typ: unknown): boolean {
    if (typ !== undefined && typeof typ !== 'string') return false;
    // A type that differs from the draft's only in case is an error, not a token of another format.
    if (this.draft02 && isType(typ, 'swt')) return typ === SWT_DRAFT_02.typ;
    return this.draft00 || (this.webhookToken && isType(typ, 'jwt'));
  }

  /**
   * The rules for a token with an admitted `typ`.
   *
   * @param webhook - the claim `webhook`, unchecked
   */
  choose(typ: string | undefined, webhook: unknown): ProfileRules {
    if (this.draft02 && typ === SWT_DRAFT_02.typ) return SWT_DRAFT_02;
    if (!this.draft00) return WEBHOOK_TOKEN;
    if (!this.webhookToken || !isType(typ, 'jwt')) return SWT_DRAFT_00;
    return isObject(webhook) && isDraft00Claim(webhook) ? SWT_DRAFT_00 : WEBHOOK_TOKEN;
  }
}

/** RFC 7515, section 4.1.9: a media type, case-insensitive, with an optional `application/`. */
function isType(typ: string | undefined, wanted: 'jwt' | 'swt'): boolean {
  // Lower case, because upper case maps the dotless `ı` to `I`.
  return typ !== undefined && typ.toLowerCase().replace(/^application\//, '') === wanted;
}
