import { WebhookPayloadError } from '../errors/webhook-payload.error.js';
import { digest, parsePayloadHash, samePayloadHash, type PayloadHash } from './payload-hash.js';
import type { WebhookClaim } from './webhook-claims.interface.js';

/** What a verified token demands of the request's body. */
export type PayloadRule =
  /** HEAD: there is no body; the payload is the claim's data. */
  | { readonly kind: 'no-body' }
  /** The body must have this digest. */
  | { readonly kind: 'digest'; readonly hash: PayloadHash }
  /** Nothing authenticates a body, so there must be none. */
  | { readonly kind: 'empty' }
  /** Nothing authenticates a body, and the receiver was told to take it all the same. */
  | { readonly kind: 'unverified' };

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
 * @throws {@link WebhookPayloadError} `hash_unsupported` for a digest on HEAD, or one that cannot be checked
 */
export function payloadRule(
  claim: WebhookClaim,
  method: 'HEAD' | 'POST',
  options: { readonly requireHash: boolean },
): PayloadRule {
  if (method === 'HEAD') {
    if (claim.hash !== undefined) {
      throw new WebhookPayloadError(
        'hash_unsupported',
        'a HEAD request has no body that a hash could be checked on: send POST, or inline data',
      );
    }
    return { kind: 'no-body' };
  }
  if (claim.hash !== undefined) return { kind: 'digest', hash: parsePayloadHash(claim.hash) };
  return options.requireHash ? { kind: 'empty' } : { kind: 'unverified' };
}

/**
 * Holds the body against the rule.
 *
 * @param length - bytes of the body
 * @param computed - digest of the body under the rule's algorithm, as `<algorithm>:<hex>`; only for a `digest` rule
 * @throws {@link WebhookPayloadError} `hash_mismatch` or `hash_required`
 */
export function checkPayload(
  claim: WebhookClaim,
  rule: PayloadRule,
  length: number,
  computed: string | undefined,
): VerifiedPayload {
  if (rule.kind === 'digest' && (computed === undefined || !samePayloadHash(rule.hash, computed))) {
    throw new WebhookPayloadError(
      'hash_mismatch',
      'the body is not the one the token was issued for',
    );
  }
  if (length === 0) {
    return { source: claim.data === undefined ? 'none' : 'data', bodyVerified: true };
  }
  if (rule.kind === 'empty') throw hashRequired();
  return { source: 'body', bodyVerified: rule.kind === 'digest' };
}

/** The refusal of a body that no digest authenticates. */
export function hashRequired(): WebhookPayloadError {
  return new WebhookPayloadError(
    'hash_required',
    'the request has a body and the token has no webhook.hash that authenticates it',
  );
}

/**
 * Checks a body that is at hand against a verified token: rule and check in one.
 *
 * @param request.body - the exact bytes after transfer decoding, before any other decoding
 * @param request.requireHash - refuse a body that no digest authenticates; default `true`
 * @throws {@link WebhookPayloadError} `hash_required`, `hash_mismatch` or `hash_unsupported`
 */
export function verifyWebhookPayload(
  claims: { readonly webhook: WebhookClaim },
  request: {
    readonly method: 'HEAD' | 'POST';
    readonly body?: Uint8Array | undefined;
    readonly requireHash?: boolean | undefined;
  },
): VerifiedPayload {
  const rule = payloadRule(claims.webhook, request.method, {
    requireHash: request.requireHash ?? true,
  });
  // What a HEAD request declares to carry is never read, so it cannot become the payload either.
  const body = rule.kind === 'no-body' ? new Uint8Array() : (request.body ?? new Uint8Array());
  const computed = rule.kind === 'digest' ? digest(rule.hash.algorithm, body) : undefined;
  return checkPayload(claims.webhook, rule, body.length, computed);
}
