import type {
  OutgoingDelivery,
  ReceivedDelivery,
  ReceivedEvent,
  WebhookDelivery,
} from './webhook-delivery.js';

/**
 * A delivery as JSON, with its bytes in base64.
 *
 * A received event is base64 too: its claims may contain characters that a database refuses in JSON, such as U+0000 in
 * PostgreSQL, and an event that cannot be stored could never be acknowledged.
 */
export type StoredDelivery =
  | (Omit<OutgoingDelivery, 'payload'> & { readonly payload: StoredPayload })
  | (Omit<ReceivedDelivery, 'payload' | 'received'> & {
      readonly payload: StoredPayload;
      readonly received: string;
    });

interface StoredPayload {
  readonly kind: 'json' | 'bytes';
  readonly contentType: string;
  readonly base64?: string;
  /** It had bytes, which were dropped. */
  readonly dropped?: true;
}

export function storedDelivery(delivery: WebhookDelivery): StoredDelivery {
  const { kind, contentType, bytes } = delivery.payload;
  const base64 = bytes === undefined ? undefined : Buffer.from(bytes).toString('base64');
  const payload = { kind, contentType, ...(base64 !== undefined && { base64 }) };
  if (delivery.received === undefined) return { ...delivery, payload };
  const received = Buffer.from(JSON.stringify(delivery.received)).toString('base64');
  return { ...delivery, payload, received };
}

export function deliveryOfStored(stored: StoredDelivery): WebhookDelivery {
  const { kind, contentType, base64 } = stored.payload;
  const bytes = base64 === undefined ? undefined : Buffer.from(base64, 'base64');
  const payload = { kind, contentType, bytes };
  if (stored.received === undefined) return { ...stored, payload };
  return { ...stored, payload, received: receivedOf(stored.received) };
}

export function receivedOf(base64: string): ReceivedEvent {
  return JSON.parse(Buffer.from(base64, 'base64').toString()) as ReceivedEvent;
}
