import { hash } from 'node:crypto';
import type { OutgoingDelivery } from './webhook-delivery.interface.js';

/**
 * Derives a delivery's id from its event's id and its destination, so that an event published twice is one delivery.
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
