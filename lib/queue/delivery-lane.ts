import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** Where a delivery goes, as far as its slots are concerned: an endpoint, the origin of a URL, or the handlers of a receiver. */
export function deliveryLane({ endpointId, url, tenant, received }: WebhookDelivery): string {
  if (received !== undefined) return JSON.stringify(['receiver', received.receiver]);
  if (endpointId === undefined) return new URL(url!).origin;
  return JSON.stringify([endpointId, tenant ?? null]);
}
