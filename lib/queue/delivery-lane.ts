import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** What tells where a delivery goes. */
type LaneFacts = Pick<WebhookDelivery, 'endpointId' | 'url' | 'tenant' | 'received'>;

/** Where a delivery goes, as far as its slots are concerned: an endpoint, the origin of a URL, or the handlers of a receiver. */
export function deliveryLane({ endpointId, url, tenant, received }: LaneFacts): string {
  if (received !== undefined) return JSON.stringify(['receiver', received.receiver]);
  // A record that was damaged must not stop the queue; the egress guard refuses it at its attempt.
  if (endpointId === undefined) return URL.canParse(url!) ? new URL(url!).origin : 'no URL';
  return JSON.stringify([endpointId, tenant ?? null]);
}
