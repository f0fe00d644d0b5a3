import { hash } from 'node:crypto';
import type { OutgoingDelivery, ReceivedEvent, WebhookDelivery } from './webhook-delivery.js';

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
export function deliveryLane(delivery: WebhookDelivery): string {
  if (delivery.received !== undefined) return receiverLane(delivery.received);
  return endpointLane(delivery);
}

export function receiverLane({ receiver }: ReceivedEvent): string {
  return JSON.stringify(['receiver', receiver]);
}

/** The lane of an endpoint, or of a URL's origin. */
export function endpointLane({
  endpointId,
  url,
  tenant,
}: Pick<OutgoingDelivery, 'endpointId' | 'url' | 'tenant'>): string {
  // A damaged record must not stop the queue; its attempt fails.
  if (endpointId === undefined) return URL.canParse(url!) ? new URL(url!).origin : 'no URL';
  return JSON.stringify([endpointId, tenant ?? null]);
}
