import { isObject } from '../json.js';
import { hashOnHead, parsePayloadHash, type PayloadHash } from '../payload-hash.js';
import type { PayloadRule } from '../payload.js';
import { invalidClaim } from '../validate-claims.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import {
  DEFAULT_PROFILE,
  type HashAlgorithm,
  SIGNATURE_ALGORITHMS,
  type SignatureAlgorithm,
  WEBHOOK_PROFILES,
  type WebhookProfile,
} from '../webhook-token.constants.js';
import { isDraft00Claim, SWT_DRAFT_00 } from './swt-draft-00.profile.js';
import { SWT_DRAFT_02 } from './swt-draft-02.profile.js';

/** Members of the claim `webhook`, unchecked. */
export type Members = Readonly<Record<string, unknown>>;

/** What a token contains besides the event name. */
interface CarriedPayload {
  /** The JSON of inline data: an object, checked. */
  readonly data: string | undefined;
  readonly hash: PayloadHash | undefined;
  /** Bytes of the body. */
  readonly size: number | undefined;
  /** Attempts made before this one. */
  readonly retryCount: number | undefined;
  readonly order: { readonly key: string; readonly sequence: number } | undefined;
  /** Whether the body is an envelope; only `webhook-token` can say so. */
  readonly envelope: boolean | undefined;
}

/** The complete rules of one wire format. A token is checked by the rules of one profile only. */
export interface ProfileRules {
  readonly name: WebhookProfile;
  /** The `typ` of signed tokens. */
  readonly typ: 'JWT' | 'SWT';
  readonly algorithms: ReadonlySet<SignatureAlgorithm>;
  readonly methods: ReadonlySet<'HEAD' | 'POST'>;
  /** Whether `nbf` is required, as `webhook`, `iss`, `exp`, `iat` and `jti` are in every profile. */
  readonly requiresNotBefore: boolean;
  /** Whether the configured clock tolerance applies; otherwise it is 0. */
  readonly toleratesSkew: boolean;
  /** Default digest of a sent body. */
  readonly defaultHash: HashAlgorithm;
  /** Whether the token of a POST without a body has the digest of zero bytes. */
  readonly hashesEmptyBody: boolean;

  /**
   * Checks the claim `webhook`, except for its event, and normalises its data.
   *
   * @param maxMembers - maximum members of JSON inside the claim
   * @returns the claim itself, unless the profile encodes data
   * @throws {@link WebhookTokenError} `invalid_claim`
   */
  readClaim(webhook: Members, maxMembers: number): WebhookClaim;

  /**
   * Derives the rule for the body of a request from the token alone, before a byte of the body is read.
   *
   * @throws {@link WebhookPayloadError} `hash_unsupported` for a digest on HEAD or of an unknown form; `hash_required` or
   *   `method_not_allowed` if the wire format requires a digest or has no such method
   */
  payloadRule(
    claim: WebhookClaim,
    method: 'HEAD' | 'POST',
    options: { readonly requireHash: boolean },
  ): PayloadRule;

  /** The sender's attempt number, from 1; `undefined` if the token does not contain it. */
  attempt(claim: WebhookClaim): number | undefined;

  /**
   * Writes the claim `webhook` as JSON.
   *
   * @param event - a valid event name, which needs no escaping
   * @throws {@link WebhookTokenError} `invalid_claim` for anything that this profile cannot carry
   */
  writeClaim(event: string, carried: CarriedPayload): string;
}

/** The wire format of the specification. */
const WEBHOOK_TOKEN: ProfileRules = {
  name: 'webhook-token',
  typ: 'JWT',
  algorithms: new Set(SIGNATURE_ALGORITHMS),
  methods: new Set(['HEAD', 'POST']),
  // The specification lists `nbf` as required, but its own example, which must verify, has none.
  requiresNotBefore: false,
  toleratesSkew: true,
  defaultHash: 'sha256',
  hashesEmptyBody: false,

  readClaim(webhook) {
    if (webhook['data'] !== undefined && !isObject(webhook['data'])) {
      throw invalidClaim('webhook.data', 'webhook.data must be an object');
    }
    if (webhook['hash'] !== undefined && typeof webhook['hash'] !== 'string') {
      throw invalidClaim('webhook.hash', 'webhook.hash must be a string');
    }
    if (webhook['envelope'] !== undefined && typeof webhook['envelope'] !== 'boolean') {
      throw invalidClaim('webhook.envelope', 'webhook.envelope must be a boolean');
    }
    return webhook as unknown as WebhookClaim;
  },

  payloadRule({ hash }, method, { requireHash }) {
    if (method === 'HEAD') {
      if (hash !== undefined) throw hashOnHead();
      return { kind: 'no-body' };
    }
    if (hash !== undefined) {
      return { kind: 'digest', hashes: [parsePayloadHash(hash)], emptyBody: 'data' };
    }
    return requireHash ? { kind: 'empty' } : { kind: 'unverified' };
  },

  attempt: () => undefined,

  writeClaim(event, { data, hash, envelope, order }) {
    const orderMembers =
      order === undefined ? '' : `,"key":${JSON.stringify(order.key)},"seq":${order.sequence}`;
    const hashMember = hash === undefined ? '' : `,"hash":"${hash.algorithm}:${hash.hex}"`;
    const envelopeMember = envelope === undefined ? '' : `,"envelope":${envelope}`;
    const dataMember = data === undefined ? '' : `,"data":${data}`;
    return `{"event":"${event}"${orderMembers}${hashMember}${envelopeMember}${dataMember}}`;
  },
};

const RULES: Readonly<Record<WebhookProfile, ProfileRules>> = {
  'webhook-token': WEBHOOK_TOKEN,
  'swt-draft-00': SWT_DRAFT_00,
  'swt-draft-02': SWT_DRAFT_02,
};

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
