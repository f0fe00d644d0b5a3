import type { PayloadHash } from '../payload-hash.js';
import type { PayloadRule } from '../payload-rule.js';
import type { WebhookClaim } from '../webhook-claims.interface.js';
import type {
  HashAlgorithm,
  SignatureAlgorithm,
  WebhookProfile,
} from '../webhook-token.constants.js';

/** Members of the claim `webhook`, before anything is known of them. */
export type Members = Readonly<Record<string, unknown>>;

/** What a token carries besides the event's name. */
interface CarriedPayload {
  /** The JSON text of inline data: an object, checked. */
  readonly data: string | undefined;
  /** Digest of the body. */
  readonly hash: PayloadHash | undefined;
  /** Bytes of the body. */
  readonly size: number | undefined;
  /** Attempts made before this one. */
  readonly retryCount: number | undefined;
}

/** The rules of one wire format, complete: no other profile is ever asked about the same token. */
export interface ProfileRules {
  readonly name: WebhookProfile;
  /** The `typ` its tokens are sent with. */
  readonly typ: 'JWT' | 'SWT';
  readonly algorithms: ReadonlySet<SignatureAlgorithm>;
  readonly methods: ReadonlySet<'HEAD' | 'POST'>;
  /** Whether a token without `nbf` is refused, as each is without `webhook`, `iss`, `exp`, `iat` or `jti`. */
  readonly requiresNotBefore: boolean;
  /** Whether clocks may differ by the configured tolerance, or not at all. */
  readonly toleratesSkew: boolean;
  /** Digest of a sent body, where nobody names one. */
  readonly defaultHash: HashAlgorithm;
  /** Whether a POST without a body carries the digest of zero bytes. */
  readonly hashesEmptyBody: boolean;

  /**
   * Checks the claim `webhook`, whose event is checked already, and brings its data into one form.
   *
   * @param maxMembers - members that JSON inside the claim may have
   * @returns the claim itself, unless the wire has data in a form of its own
   * @throws {@link WebhookTokenError} `invalid_claim`
   */
  readClaim(webhook: Members, maxMembers: number): WebhookClaim;

  /**
   * Says what the body of a request by one of {@link methods} must be, before a byte of it is read.
   *
   * @throws {@link WebhookPayloadError} `hash_required` or `hash_unsupported`
   */
  payloadRule(
    claim: WebhookClaim,
    method: 'HEAD' | 'POST',
    options: { readonly requireHash: boolean },
  ): PayloadRule;

  /** The sender's attempt number, from 1; `undefined` where the token does not say. */
  attempt(claim: WebhookClaim): number | undefined;

  /**
   * Writes the claim `webhook` as JSON.
   *
   * @param event - a name that was held against its grammar, in which nothing wants escaping
   * @throws {@link WebhookTokenError} `invalid_claim` for what this wire format cannot carry
   */
  writeClaim(event: string, carried: CarriedPayload): string;
}
