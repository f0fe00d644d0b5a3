import { createHash, hash } from 'node:crypto';
import type { ReplayClaim } from '../../replay/replay-store.js';
import { canonicalJson } from '../../token/canonical-json.js';
import type { WebhookEvent } from '../webhook-event.js';

/** How long what is remembered. */
export interface ReplayHorizon {
  /** Seconds by which the clocks may differ: so long after `exp` a token still verifies. */
  readonly clockTolerance: number;
  /** Milliseconds over which a sender may repeat an event. */
  readonly window: number;
  /** Milliseconds a handler has before its reservation wants extending. */
  readonly lease: number;
  /** Epoch milliseconds. */
  readonly now: number;
}

/** Says by what an event is recognised when it comes again. */
export function replayClaim(event: WebhookEvent, horizon: ReplayHorizon): ReplayClaim {
  const { receiver, issuer, id, jti } = event;
  // A txn and a jti that happen to be the same text are two different things.
  const tokenKey = identity(receiver, issuer, 'jti', jti);
  const key = event.claims.txn === undefined ? tokenKey : identity(receiver, issuer, 'txn', id);
  const replayUntil = event.claims.exp * 1_000 + horizon.clockTolerance * 1_000;
  return {
    key,
    tokenKey,
    fingerprint: fingerprint(event),
    replayUntil,
    keepUntil: Math.max(replayUntil, horizon.now + horizon.window),
    lease: horizon.lease,
    issuer,
  };
}

/** Length-prefixed, so that no choice of issuer and id can spell another pair. */
function identity(...parts: readonly string[]): string {
  const text = parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join('');
  return hash('sha256', text, 'base64url');
}

/**
 * Digests what happened, not how it was sent: the same event may first come inline and then, after a
 * proxy refused so long a header, as a body, and a sender that builds it anew may order its members in
 * another way. JSON is therefore compared as its parsed value, an object being a set of members.
 */
function fingerprint(event: WebhookEvent): string {
  const name = `${event.event}\n`;
  if (!Buffer.isBuffer(event.data)) {
    return hash('sha256', name + canonicalJson(event.data), 'base64url');
  }
  return createHash('sha256').update(name).update(event.data).digest('base64url');
}
