import { inTime, type WebhookClock } from '../../clock/webhook-clock.js';
import { isWebhookError, WebhookStoreError } from '../../errors/webhook.error.js';
import type { ReceivedEvent, WebhookDelivery } from '../../queue/webhook-delivery.interface.js';
import { isJsonType, parseJsonPayload } from '../../request/json-payload.js';
import { MemoryBody } from '../../request/request-body.js';
import { rulesOf } from '../../token/profiles/profile-choice.js';
import type { WebhookReception } from '../replay/webhook-reception.js';
import { type EventKeeping, WebhookEvent } from '../webhook-event.js';
import type { QueuedEvents } from './queued-events.resolver.js';

/** Stands where an event has no content type; nothing reads it. */
const NO_TYPE = 'application/octet-stream';

/**
 * Makes of a verified event what a queue can keep: its claims, and the exact octets of its body.
 *
 * @param id - the event's identity: the same event, enqueued again, is known
 * @param now - epoch milliseconds
 */
async function deliveryOfEvent(
  event: WebhookEvent,
  id: string,
  now: number,
): Promise<WebhookDelivery> {
  const { receiver, claims, method, profile, contentType, bodyVerified } = event;
  const received: ReceivedEvent = {
    receiver,
    claims,
    method,
    profile,
    bodyVerified,
    ...(contentType !== undefined && { contentType }),
  };
  const body = await event.rawBody();
  // Data that came inline lies in the claims, and is no Buffer; an empty body is still one.
  const isBody = body.length > 0 || Buffer.isBuffer(event.data);
  return {
    id,
    eventId: event.id,
    event: event.event,
    received,
    payload: {
      kind: 'bytes',
      bytes: isBody ? body : undefined,
      contentType: contentType ?? NO_TYPE,
    },
    createdAt: now,
  };
}

/**
 * Makes the event again, as it was at the door.
 *
 * @param now.run - how often it has been given to its handlers, this time included
 * @param now.keeping - what the receiver keeps with it
 */
export function eventOfDelivery(
  { payload }: WebhookDelivery,
  received: ReceivedEvent,
  now: { readonly run: number; readonly signal: AbortSignal; readonly keeping: EventKeeping },
): WebhookEvent {
  const { claims, profile, contentType } = received;
  const { bytes } = payload;
  const body = Buffer.from(bytes ?? []);
  const fromBody = (): unknown =>
    contentType !== undefined && isJsonType(contentType)
      ? // Its members were counted when it was received, maybe against another limit.
        parseJsonPayload(body, contentType, Infinity)
      : body;
  return new WebhookEvent({
    ...received,
    ...now,
    contentType,
    body: new MemoryBody(body),
    data: bytes === undefined ? claims.webhook.data : fromBody(),
    attempt: rulesOf(profile).attempt(claims.webhook),
  });
}

/** Milliseconds a queue has to record an event; it may hold a body of many megabytes. */
const TIME_TO_RECORD = 10_000;

/**
 * Records an event that was let in, for its handlers to get it later. One that is recorded already, by a process that
 * crashed before it could say so, is left as it is.
 *
 * A queue that has answered too late may have recorded it all the same: it is sent again then, and known.
 *
 * @throws {@link WebhookStoreError} where it cannot be recorded
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
    // It was given up, and its sender sends it once more: to be acknowledged it must have another chance.
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
