import { hash } from 'node:crypto';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

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
}: Pick<WebhookDelivery, 'eventId' | 'endpointId' | 'url' | 'tenant' | 'round'>): string {
  const destination = [endpointId ?? null, url ?? null, tenant ?? null];
  const identity = JSON.stringify([
    eventId,
    ...destination,
    ...(round === undefined ? [] : [round]),
  ]);
  return hash('sha256', identity, 'base64url');
}
