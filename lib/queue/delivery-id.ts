import { hash } from 'node:crypto';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

/**
 * Names a delivery by its event's id and its destination: the same event published twice is one delivery.
 *
 * A digest, since a URL may carry a credential, and ids are logged.
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
