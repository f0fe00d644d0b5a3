import { hash } from 'node:crypto';
import type { ReplayClaim } from '../../replay/replay-store.js';
import type { WebhookEvent } from '../webhook-event.js';

/** Retention and lease times of a replay claim. */
interface ReplayHorizon {
  /** Seconds after `exp` for which a token still verifies. */
  readonly clockTolerance: number;
  /** Milliseconds for which a sender may repeat an event. */
  readonly window: number;
  /** Milliseconds after which a reservation expires unless it is extended. */
  readonly lease: number;
  /** Epoch milliseconds. */
  readonly now: number;
}

/**
 * The claim by which an event is recognised when it is repeated.
 *
 * @param fingerprint - of event name and data
 */
export function replayClaim(
  event: WebhookEvent,
  fingerprint: string,
  horizon: ReplayHorizon,
): ReplayClaim {
  const { receiver, issuer, id, jti } = event;
  // A txn and a jti with the same value are different identities.
  const tokenKey = identity(receiver, issuer, 'jti', jti);
  const key = event.claims.txn === undefined ? tokenKey : identity(receiver, issuer, 'txn', id);
  // Rounded up, since stores take whole milliseconds and `exp` may have a fraction.
  const replayUntil = Math.ceil((event.claims.exp + horizon.clockTolerance) * 1_000);
  return {
    key,
    tokenKey,
    fingerprint,
    replayUntil,
    keepUntil: Math.max(replayUntil, horizon.now + horizon.window),
    lease: horizon.lease,
    issuer,
  };
}

/**
 * The claim by which a run of a queued event is recognised: by its delivery. The event itself is `done` as soon as it is queued.
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
  // The delivery id identifies the content too, and there is no token.
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

/** Length-prefixed, so that no choice of issuer and id collides with another pair. */
function identity(...parts: readonly string[]): string {
  let text = '';
  for (const part of parts) text += `${part.length}:${part}`;
  return hash('sha256', text, 'base64url');
}
