import { hash } from 'node:crypto';
import { receivedOf, type StoredDelivery } from './stored-delivery.js';
import type { OutgoingDelivery, WebhookDelivery } from './webhook-delivery.js';
import type { DeliveryFacts } from './webhook-queue.js';

/**
 * Derives a delivery's id from its event's id and its endpoint, so that an event published twice is one delivery.
 *
 * It is a digest because ids are logged and a URL may contain a credential.
 */
export function deliveryId({
  eventId,
  endpointId,
  url,
  tenant,
  round,
}: Pick<OutgoingDelivery, 'eventId' | 'endpointId' | 'url' | 'round'> & {
  readonly tenant?: string | undefined;
}): string {
  // What is undefined becomes null.
  const identity = [eventId, endpointId, url, tenant];
  if (round !== undefined) identity.push(String(round));
  return hash('sha256', JSON.stringify(identity), 'base64url');
}

/** Names the lane of a delivery: its endpoint and tenant, the origin of its URL, or its receiver. */
export function deliveryLane(delivery: WebhookDelivery | StoredDelivery | DeliveryFacts): string {
  const { received } = delivery;
  if (received === undefined) return endpointLane(delivery);
  const { receiver } = typeof received === 'string' ? receivedOf(received) : received;
  return JSON.stringify(['receiver', receiver]);
}

/** Names the lane of an endpoint, or of the origin of a URL. */
export function endpointLane({
  endpointId,
  url,
  tenant,
}: Pick<OutgoingDelivery, 'endpointId' | 'url'> & {
  readonly tenant?: string | undefined;
}): string {
  // A damaged record must not stop the queue; its attempt fails.
  if (endpointId === undefined) return URL.canParse(url!) ? new URL(url!).origin : 'no URL';
  return JSON.stringify([endpointId, tenant ?? null]);
}
