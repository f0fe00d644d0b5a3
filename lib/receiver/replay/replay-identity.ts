import { hash } from 'node:crypto';
import type { ReplayClaim } from '../../replay/replay-store.js';
import type { WebhookEvent } from '../webhook-event.js';

/** How long what is remembered. */
interface ReplayHorizon {
  /** Seconds by which the clocks may differ: so long after `exp` a token still verifies. */
  readonly clockTolerance: number;
  /** Milliseconds over which a sender may repeat an event. */
  readonly window: number;
  /** Milliseconds a handler has before its reservation wants extending. */
  readonly lease: number;
  /** Epoch milliseconds. */
  readonly now: number;
}

/**
 * Says by what an event is recognised when it comes again.
 *
 * @param mark - its fingerprint
 */
export function replayClaim(
  event: WebhookEvent,
  mark: string,
  horizon: ReplayHorizon,
): ReplayClaim {
  const { receiver, issuer, id, jti } = event;
  // A txn and a jti that happen to be the same text are two different things.
  const tokenKey = identity(receiver, issuer, 'jti', jti);
  const key = event.claims.txn === undefined ? tokenKey : identity(receiver, issuer, 'txn', id);
  // Rounded up, since stores take whole milliseconds and `exp` may have a fraction.
  const replayUntil = Math.ceil((event.claims.exp + horizon.clockTolerance) * 1_000);
  return {
    key,
    tokenKey,
    fingerprint: mark,
    replayUntil,
    keepUntil: Math.max(replayUntil, horizon.now + horizon.window),
    lease: horizon.lease,
    issuer,
  };
}

/**
 * Says by what a run of a queued event is recognised: by the delivery, apart from the event at the door, which is done as soon
 * as it is queued.
 *
 * @param now - epoch milliseconds
 */
export function handledClaim(
  deliveryId: string,
  { receiver, issuer }: WebhookEvent,
  horizon: Omit<ReplayHorizon, 'clockTolerance'>,
): ReplayClaim {
  const { window, lease, now } = horizon;
  const key = identity(receiver, issuer, 'handled', deliveryId);
  // An id says what it is of: there is no other content, and no token.
  return {
    key,
    tokenKey: key,
    fingerprint: key,
    replayUntil: now + lease,
    keepUntil: now + window,
    lease,
    issuer,
  };
}

/** Length-prefixed, so that no choice of issuer and id can spell another pair. */
function identity(...parts: readonly string[]): string {
  const text = parts.map((part) => `${Buffer.byteLength(part)}:${part}`).join('');
  return hash('sha256', text, 'base64url');
}
