import { hash } from 'node:crypto';
import { inTime } from '../clock/webhook-clock.js';
import { isWebhookError, WebhookReplayError, WebhookStoreError } from '../errors/webhook.error.js';
import type { ReplayClaim, ReplayReservation, ReplayVerdict } from '../replay/replay-store.js';
import { isTokenProfile } from '../token/webhook-token.constants.js';
import type { ResolvedReceiver } from './receiver-options.interface.js';
import type { WebhookEvent } from './webhook-event.js';

/** Milliseconds for which an event waits for its reservation. */
const RESERVING_TIME = 9_000;

/**
 * Reserves an event in the receiver's replay store.
 *
 * @param digest - of the body, if it identifies the content; otherwise the value of the data does
 * @returns `undefined` for a duplicate of an event that was handled before
 * @throws {@link WebhookReplayError}, {@link WebhookStoreError}
 */
export async function reserveEvent(
  event: WebhookEvent,
  digest: string | undefined,
  receiver: ResolvedReceiver,
): Promise<ReplayReservation | undefined> {
  const claim = replayClaim(event, digest, receiver);
  const verdict = await reserveInTime(claim, receiver).catch(storeFailed);
  switch (verdict.status) {
    case 'reserved':
      return verdict.reservation;
    case 'done':
      if (receiver.onDuplicate === 'reject') throw replayed();
      return undefined;
    case 'in-progress':
      throw new WebhookReplayError('in_progress', 'the same event is being handled now');
    case 'conflict':
      throw new WebhookReplayError(
        'replayed',
        'the id was used before with other content; a new event needs a new id',
      );
  }
}

function storeFailed(error: unknown): never {
  if (isWebhookError(error)) throw error;
  throw new WebhookStoreError('store_unavailable', 'the replay store cannot be reached', {
    cause: error,
  });
}

/**
 * Asks the replay store for a reservation.
 *
 * @throws what the store throws, and an error if it does not answer within {@link RESERVING_TIME}
 */
export async function reserveInTime(
  claim: ReplayClaim,
  { replayStore, clock }: Pick<ResolvedReceiver, 'replayStore' | 'clock'>,
): Promise<ReplayVerdict> {
  // A custom store may throw synchronously.
  const reserving = (async () => replayStore.reserve(claim))();
  try {
    return await inTime(clock, RESERVING_TIME, async () => reserving, noAnswer);
  } catch (error) {
    void releaseLate(reserving, replayStore);
    throw error;
  }
}

/** Frees an event that was reserved too late; otherwise its sender could not repeat it before the lease ends. */
async function releaseLate(
  reserving: Promise<ReplayVerdict>,
  store: ResolvedReceiver['replayStore'],
): Promise<void> {
  try {
    const verdict = await reserving;
    if (verdict.status === 'reserved') await store.release(verdict.reservation);
  } catch {
    // The lease ends.
  }
}

/** The error for a store that does not answer in time. */
export function noAnswer(): Error {
  return new Error('the replay store did not answer');
}

/** The error for a duplicate. */
export function replayed(): WebhookReplayError {
  return new WebhookReplayError('replayed', 'the event was handled before');
}

/** The replay claim by which an event is recognised when it is repeated. */
function replayClaim(
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
