import type { PayloadHash } from '../payload-hash.js';
import type { PayloadRule } from '../payload-rule.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import type {
  HashAlgorithm,
  SignatureAlgorithm,
  WebhookProfile,
} from '../webhook-token.constants.js';

/** Members of the claim `webhook`, unchecked. */
export type Members = Readonly<Record<string, unknown>>;

/** What a token contains besides the event name. */
interface CarriedPayload {
  /** The JSON of inline data: an object, checked. */
  readonly data: string | undefined;
  /** Digest of the body. */
  readonly hash: PayloadHash | undefined;
  /** Bytes of the body. */
  readonly size: number | undefined;
  /** Attempts made before this one. */
  readonly retryCount: number | undefined;
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
   * Derives the rule for the body of a request by one of {@link methods}, before a byte of it is read.
   *
   * @throws {@link WebhookPayloadError} `hash_required` or `hash_unsupported`
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
