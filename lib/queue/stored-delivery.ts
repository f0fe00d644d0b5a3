import type { ReceivedEvent, WebhookDelivery } from './webhook-delivery.interface.js';

type LaneFacts = Pick<WebhookDelivery, 'endpointId' | 'url' | 'tenant' | 'received'>;

/** Names the lane of a delivery: its endpoint and tenant, the origin of its URL, or its receiver. */
export function deliveryLane({ endpointId, url, tenant, received }: LaneFacts): string {
  if (received !== undefined) return JSON.stringify(['receiver', received.receiver]);
  // A damaged record must not stop the queue; its attempt fails.
  if (endpointId === undefined) return URL.canParse(url!) ? new URL(url!).origin : 'no URL';
  return JSON.stringify([endpointId, tenant ?? null]);
}

/**
 * A delivery as JSON, with its bytes in base64.
 *
 * A received event is base64 too: its claims may contain characters that a database refuses in JSON, such as U+0000 in
 * PostgreSQL, and an event that cannot be stored could never be acknowledged.
 */
export type StoredDelivery = Omit<WebhookDelivery, 'payload' | 'received'> & {
  readonly payload: { kind: 'json' | 'bytes'; contentType: string; base64?: string };
  readonly received?: string;
};

export function storedDelivery({ received, ...delivery }: WebhookDelivery): StoredDelivery {
  const { kind, contentType, bytes } = delivery.payload;
  const base64 = bytes === undefined ? undefined : Buffer.from(bytes).toString('base64');
  const payload = { kind, contentType, ...(base64 !== undefined && { base64 }) };
  if (received === undefined) return { ...delivery, payload };
  const text = Buffer.from(JSON.stringify(received)).toString('base64');
  return { ...delivery, payload, received: text };
}

export function deliveryOfStored({ received, ...stored }: StoredDelivery): WebhookDelivery {
  const { kind, contentType, base64 } = stored.payload;
  const bytes = base64 === undefined ? undefined : Buffer.from(base64, 'base64');
  const delivery = { ...stored, payload: { kind, contentType, bytes } };
  if (received === undefined) return delivery;
  return { ...delivery, received: receivedOf(received) };
}

/** Names the lane without decoding the payload. */
export function laneOfStored({ received, ...stored }: StoredDelivery): string {
  return deliveryLane(
    received === undefined ? stored : { ...stored, received: receivedOf(received) },
  );
}

function receivedOf(base64: string): ReceivedEvent {
  return JSON.parse(Buffer.from(base64, 'base64').toString()) as ReceivedEvent;
}
