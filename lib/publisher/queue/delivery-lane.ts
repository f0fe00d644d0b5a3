import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** Where a delivery goes, as far as its slots are concerned: an endpoint, or the origin of a URL. */
export function deliveryLane({ endpointId, url, tenant }: WebhookDelivery): string {
  if (endpointId === undefined) return new URL(url!).origin;
  return JSON.stringify([endpointId, tenant ?? null]);
}
