import { inTime, type WebhookClock } from '../../clock/webhook-clock.js';
import { isWebhookError, WebhookStoreError } from '../../errors/webhook.error.js';
import type { ReceivedDelivery } from '../../queue/webhook-delivery.js';
import { isEnveloped } from '../../request/open-request.js';
import { parseSenderPayload } from '../../request/sender-payload.js';
import { isJsonType, parseJsonPayload } from '../../token/payload.js';
import { MemoryBody } from '../../request/body.js';
import { rulesOf } from '../../token/profiles/profile.js';
import { isTokenProfile } from '../../token/webhook-token.constants.js';
import type { WebhookReception } from '../reception.js';
import { type EventInternals, internalsOf, WebhookEvent } from '../webhook-event.js';
import type { QueuedEvents } from '../receiver-options.resolver.js';

/** The type of a payload without one; it is never read. */
const NO_TYPE = 'application/octet-stream';

/**
 * Serialises a verified event for a queue: its claims, and as the payload its inline data or the exact bytes of its body. The queue
 * recognises it by the id.
 */
async function deliveryOfEvent(
  event: WebhookEvent,
  id: string,
  now: number,
): Promise<ReceivedDelivery> {
  const { receiver, method, profile, contentType, bodyVerified } = event;
  const { webhook } = event.claims;
  const body = await event.rawBody();
  // An empty body is a Buffer too.
  const isBody = body.length > 0 || Buffer.isBuffer(event.data);
  const isInline = !isBody && webhook.data !== undefined;
  // A queue drops payloads only, so inline data is one; the member stays in its place.
  const claims = isInline ? { ...event.claims, webhook: { ...webhook, data: null } } : event.claims;
  const bytes = isInline ? Buffer.from(JSON.stringify(webhook.data)) : isBody ? body : undefined;
  return {
    id,
    eventId: event.id,
    event: event.event,
    received: { receiver, claims, method, profile, bodyVerified, contentType },
    payload: { kind: isInline ? 'json' : 'bytes', bytes, contentType: contentType ?? NO_TYPE },
    createdAt: now,
    trace: internalsOf(event).receiving?.trace,
    orderingKey: event.orderingKey && JSON.stringify([event.issuer, event.orderingKey]),
  };
}

/** Restores the event as it was received, for a run of its handlers. */
export function eventOfDelivery(
  { payload, received }: ReceivedDelivery,
  now: { readonly run: number; readonly signal: AbortSignal; readonly internals: EventInternals },
): WebhookEvent {
  const { profile, contentType } = received;
  // A queue in memory passes the same claims to every run, and a handler may change what it gets.
  const claims = structuredClone(received.claims);
  const { kind, bytes } = payload;
  const stored = Buffer.from(bytes ?? []);
  if (kind === 'json') Object.assign(claims.webhook, { data: JSON.parse(stored.toString()) });
  // An older version stored inline data in the claims, without bytes.
  const isBody = kind === 'bytes' && bytes !== undefined;
  const body = isBody ? stored : Buffer.alloc(0);
  // Its members were counted when it was received, maybe against another limit.
  const fromBody = (): unknown => {
    if (!isTokenProfile(profile) || isEnveloped(profile, claims)) {
      return parseSenderPayload(body, { contentType, ...claims.webhook }, Infinity);
    }
    return contentType !== undefined && isJsonType(contentType)
      ? parseJsonPayload(body, contentType, Infinity)
      : body;
  };
  return new WebhookEvent({
    ...received,
    ...now,
    claims,
    contentType,
    body: new MemoryBody(body),
    isSpooled: false,
    data: isBody ? fromBody() : claims.webhook.data,
    attempt: isTokenProfile(profile) ? rulesOf(profile).attempt(claims.webhook) : undefined,
  });
}

/** Milliseconds a queue may take to record an event, which may have a body of many megabytes. */
const TIME_TO_RECORD = 10_000;

/**
 * Enqueues a reserved event for its handlers. It has no effect if the event is already queued, by a process that crashed before it
 * answered.
 *
 * A queue that answers too late may have recorded the event: the sender repeats it, and the queue recognises it.
 *
 * @throws {@link WebhookStoreError} `store_unavailable`
 */
export async function enqueueEvent(
  { event, identity }: WebhookReception,
  { queue, retry }: QueuedEvents,
  clock: WebhookClock,
): Promise<void> {
  const now = clock.now();
  const record = async (): Promise<void> => {
    const delivery = await deliveryOfEvent(event, identity, now);
    const notBefore = now + retry.waitBefore(1);
    const [receipt] = await queue.enqueue([{ delivery, notBefore }]);
    // A dead letter that its sender repeats is acknowledged again, so it must run again.
    if (receipt?.status === 'dead') await queue.redeliver([delivery.id]);
  };
  try {
    await inTime(clock, TIME_TO_RECORD, record, () => unavailable('did not answer in time'));
  } catch (error) {
    if (isWebhookError(error)) throw error;
    throw unavailable('cannot be reached', error);
  }
}

function unavailable(why: string, cause?: unknown): WebhookStoreError {
  return new WebhookStoreError('store_unavailable', `the queue of received events ${why}`, {
    cause,
  });
}
