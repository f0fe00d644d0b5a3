import { hash } from 'node:crypto';
import type { ReplayClaim } from '../replay/replay-store.js';
import { isTokenProfile } from '../token/webhook-token.constants.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import type { WebhookEvent } from './webhook-event.js';

/** The replay claim by which an event is recognised when it is repeated. */
export function replayClaim(
  event: WebhookEvent,
  digest: string | undefined,
  { clockTolerance, replayWindow, replayLease, clock, scheme }: ResolvedReceiver,
): ReplayClaim {
  const { receiver, issuer, id, jti, claims, profile } = event;
  const { partner } = scheme;
  // A sender of its own signs in the name of the receiver's only issuer, so its ids are the `txn` of that issuer's tokens.
  const isPartner = partner !== undefined && !isTokenProfile(profile);
  // A txn and a jti with the same value are different identities.
  const tokenKey = isPartner
    ? identity(receiver, partner, 'txn', id)
    : identity(receiver, issuer, 'jti', jti);
  // Rounded up, since stores take whole milliseconds and `exp` may have a fraction.
  const replayUntil = Math.ceil((claims.exp + clockTolerance) * 1_000);
  return {
    key: claims.txn === undefined ? tokenKey : identity(receiver, issuer, 'txn', id),
    tokenKey,
    fingerprint:
      digest === undefined
        ? contentFingerprint(event.event, event.data)
        : sha256(`${event.event}\n${digest}`),
    replayUntil,
    keepUntil: Math.max(replayUntil, clock.now() + replayWindow),
    lease: replayLease,
    issuer,
  };
}

/** The replay claim by which a run of a queued event is recognised: by its delivery. The event itself is `done` as soon as it is queued. */
export function handledClaim(
  deliveryId: string,
  { receiver, issuer }: WebhookEvent,
  { replayWindow, replayLease, clock }: ResolvedReceiver,
): ReplayClaim {
  const key = identity(receiver, issuer, 'handled', deliveryId);
  const now = clock.now();
  // The delivery id identifies the content too, and there is no token.
  return {
    key,
    tokenKey: key,
    fingerprint: key,
    replayUntil: now + replayLease,
    keepUntil: now + replayWindow,
    lease: replayLease,
    issuer,
  };
}

/** Length-prefixed, so that no choice of issuer and id collides with another pair. */
function identity(...parts: readonly string[]): string {
  let text = '';
  for (const part of parts) text += `${part.length}:${part}`;
  return sha256(text);
}

/**
 * Identifies the content of an event by its value, however it was sent: an event may first arrive in the token and then, after
 * a proxy refused the long header, as a body, and a sender may order its members differently. Numbers that are the same for a
 * handler are equal, such as 9007199254740992 and 9007199254740993.
 *
 * @param value - from `JSON.parse`, nested at most 64 levels; `undefined` for no data
 */
export function contentFingerprint(event: string, value: unknown): string {
  return sha256(`${event}\n${value === undefined ? '' : JSON.stringify(sortMembers(value))}`);
}

/** No member can replace a prototype here: data with such a name is refused before. */
function sortMembers(value: unknown): unknown {
  // A number beyond the range of a double, for which JSON.stringify would write null. No data has a member of this name.
  if (value === Infinity || value === -Infinity) return { ['__proto__']: String(value) };
  if (typeof value !== 'object' || value === null) return value;
  if (Array.isArray(value)) return value.map(sortMembers);
  const sorted: Record<string, unknown> = {};
  for (const name of Object.keys(value).sort()) {
    sorted[name] = sortMembers((value as Record<string, unknown>)[name]);
  }
  return sorted;
}

function sha256(text: string): string {
  return hash('sha256', text, 'base64url');
}
