import type { ReceivedEvent, WebhookDelivery } from '../../queue/webhook-delivery.interface.js';
import { rulesOf } from '../../token/profiles/profile-registry.js';
import type { EventKeeping } from '../event-keeping.js';
import { isJsonType, parseJsonPayload } from '../../request/json-payload.js';
import { MemoryBody } from '../../request/request-body.js';
import { WebhookEvent } from '../webhook-event.js';

/** Stands where an event has no content type; nothing reads it. */
const NO_TYPE = 'application/octet-stream';

/**
 * Makes of a verified event what a queue can keep: its claims, and the exact octets of its body.
 *
 * @param id - the event's identity: the same event, enqueued again, is known
 * @param now - epoch milliseconds
 */
export async function deliveryOfEvent(
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
      ? parseJsonPayload(body, contentType)
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
