import { WebhookPayloadError } from '../errors/webhook.error.js';
import {
  createDigest,
  type PayloadHash,
  samePayloadHash,
  type WebhookDigest,
} from './payload-hash.js';
import { hashMismatch, hashOnEmptyBody, hashRequired } from './payload-refusals.js';
import { rulesOf } from './profiles/profile-choice.js';
import type { WebhookClaim } from './webhook-claims.interface.js';
import {
  DEFAULT_PROFILE,
  type HashAlgorithm,
  type WebhookProfile,
} from './webhook-token.constants.js';

/** What a verified token demands of the request's body. */
export type PayloadRule =
  /** HEAD: there is no body; the payload is the claim's data. */
  | { readonly kind: 'no-body' }
  | DigestRule
  /** Nothing authenticates a body, so there must be none. */
  | { readonly kind: 'empty' }
  /** Nothing authenticates a body, and the receiver was told to take it all the same. */
  | { readonly kind: 'unverified' };

/** The body must have these digests: one, or the two of a dual stamp. */
interface DigestRule {
  readonly kind: 'digest';
  readonly hashes: readonly PayloadHash[];
  /** Bytes the body must have, and the request declare; where the wire format names them. */
  readonly size?: number;
  /** What an empty body with the right digest means: the payload is the claim's data, there is none, or a refusal. */
  readonly emptyBody: 'data' | 'none' | 'refused';
}

/** The digests a rule asks for, taken in one pass: one an algorithm, and none where none is asked for. */
export class BodyDigests {
  private readonly running = new Map<HashAlgorithm, WebhookDigest>();
  private readonly wanted: readonly HashAlgorithm[];

  constructor(rule: PayloadRule) {
    this.wanted = rule.kind === 'digest' ? rule.hashes.map(({ algorithm }) => algorithm) : [];
    for (const algorithm of this.wanted) {
      if (!this.running.has(algorithm)) this.running.set(algorithm, createDigest(algorithm));
    }
  }

  /** Takes the next piece of the body in. */
  update(chunk: Uint8Array): this {
    for (const digest of this.running.values()) digest.update(chunk);
    return this;
  }

  /** Ends the computation: `<algorithm>:<hex>`, one for each hash of the rule. */
  digests(): readonly string[] {
    const computed = new Map<HashAlgorithm, string>();
    for (const [algorithm, digest] of this.running) computed.set(algorithm, digest.digest());
    return this.wanted.map((algorithm) => computed.get(algorithm)!);
  }
}

/** What carries the event's data. */
export interface VerifiedPayload {
  /** `body`: the request's body. `data`: the claim's data. `none`: the event has no data. */
  readonly source: 'body' | 'data' | 'none';
  /** Whether the token authenticates the body; `true` where there is none. */
  readonly bodyVerified: boolean;
}

/**
 * Says what the body must be, from the token alone: before a byte of it is read.
 *
 * @param options.profile - the wire format the token was read by
 * @throws {@link WebhookPayloadError} `hash_unsupported` for a digest on HEAD, or one that cannot be checked;
 *   `hash_required` where the wire format wants one; `method_not_allowed` where it has no such method
 */
export function payloadRule(
  claim: WebhookClaim,
  method: 'HEAD' | 'POST',
  options: { readonly requireHash: boolean; readonly profile: WebhookProfile },
): PayloadRule {
  const rules = rulesOf(options.profile);
  if (!rules.methods.has(method)) {
    const methods = [...rules.methods];
    throw new WebhookPayloadError(
      'method_not_allowed',
      `a token of ${rules.name} is sent by ${methods.join(' or ')}`,
      { methods },
    );
  }
  return rules.payloadRule(claim, method, options);
}

/**
 * Holds the body against the rule.
 *
 * @param length - bytes of the body
 * @param computed - digests of the body, as `<algorithm>:<hex>`, one for each hash of a `digest` rule
 * @throws {@link WebhookPayloadError} `hash_mismatch`, `hash_required` or `hash_unsupported`
 */
export function checkPayload(
  claim: WebhookClaim,
  rule: PayloadRule,
  length: number,
  computed: readonly string[],
): VerifiedPayload {
  const inline = claim.data === undefined ? 'none' : 'data';
  switch (rule.kind) {
    case 'no-body':
      return { source: inline, bodyVerified: true };
    case 'digest': {
      const holds =
        (rule.size === undefined || rule.size === length) &&
        rule.hashes.every((hash, i) => samePayloadHash(hash, computed[i] ?? ''));
      if (!holds) throw hashMismatch();
      if (length > 0) return { source: 'body', bodyVerified: true };
      if (rule.emptyBody === 'refused') throw hashOnEmptyBody();
      return { source: rule.emptyBody === 'none' ? 'none' : inline, bodyVerified: true };
    }
    case 'empty':
      if (length > 0) throw hashRequired();
      return { source: inline, bodyVerified: true };
    case 'unverified':
      return length > 0
        ? { source: 'body', bodyVerified: false }
        : { source: inline, bodyVerified: true };
  }
}

/**
 * Checks a body that is at hand against a verified token: rule and check in one.
 *
 * @param request.body - the exact bytes after transfer decoding, before any other decoding
 * @param request.requireHash - refuse a body that no digest authenticates; default `true`. The profiles of
 *   the drafts have no body without a digest, whatever is said here
 * @param request.profile - the verified token's `profile`; default `'webhook-token'`
 * @throws {@link WebhookPayloadError} `hash_required`, `hash_mismatch`, `hash_unsupported` or
 *   `method_not_allowed`
 */
export function verifyWebhookPayload(
  claims: { readonly webhook: WebhookClaim },
  request: {
    readonly method: 'HEAD' | 'POST';
    readonly body?: Uint8Array | undefined;
    readonly requireHash?: boolean | undefined;
    readonly profile?: WebhookProfile | undefined;
  },
): VerifiedPayload {
  const rule = payloadRule(claims.webhook, request.method, {
    requireHash: request.requireHash ?? true,
    profile: request.profile ?? DEFAULT_PROFILE,
  });
  // What a HEAD request declares to carry is never read, so it cannot become the payload either.
  const body = rule.kind === 'no-body' ? new Uint8Array() : (request.body ?? new Uint8Array());
  const computed = new BodyDigests(rule).update(body).digests();
  return checkPayload(claims.webhook, rule, body.length, computed);
}
