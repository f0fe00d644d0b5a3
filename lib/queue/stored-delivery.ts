import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** A delivery as JSON, for an engine that stores such: its octets are base64. No token, no secret. */
export type StoredDelivery = Omit<WebhookDelivery, 'payload'> & {
  readonly payload: { kind: 'json' | 'bytes'; contentType: string; base64?: string };
};

export function storedDelivery(delivery: WebhookDelivery): StoredDelivery {
  const { kind, contentType, bytes } = delivery.payload;
  const base64 = bytes === undefined ? undefined : Buffer.from(bytes).toString('base64');
  const payload = { kind, contentType, ...(base64 !== undefined && { base64 }) };
  return { ...delivery, payload };
}

export function deliveryOfStored(stored: StoredDelivery): WebhookDelivery {
  const { kind, contentType, base64 } = stored.payload;
  const bytes = base64 === undefined ? undefined : Buffer.from(base64, 'base64');
  return { ...stored, payload: { kind, contentType, bytes } };
}
