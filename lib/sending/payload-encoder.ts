import { validateHeaderValue } from 'node:http';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryPayload } from '../queue/webhook-delivery.interface.js';

const JSON_TYPE = 'application/json';
const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+\s*(?:;|$)/;
const JSON_MEDIA_TYPE = /^(?:application\/json|[\w!#$&^.+-]+\/[\w!#$&^.-]+\+json)\s*(?:;|$)/i;

/**
 * Serialises an event's data, once: what is signed, sent and stored are these octets.
 *
 * @param data - a JSON value, or bytes with a content type; `undefined` for an event without data
 * @throws {@link WebhookDeliveryError} `invalid_data`; its message never quotes the data
 */
export function encodePayload(data: unknown, contentType?: string): DeliveryPayload {
  if (contentType !== undefined && !isMediaType(contentType)) {
    throw invalid("The content type must be a media type like 'text/csv'.");
  }
  if (data instanceof Uint8Array) {
    if (contentType === undefined) {
      throw invalid("Bytes need the option contentType, for example 'application/octet-stream'.");
    }
    // A copy: the caller may go on writing into its buffer while the delivery waits.
    return { kind: 'bytes', bytes: Buffer.from(data), contentType };
  }
  if (contentType !== undefined && !JSON_MEDIA_TYPE.test(contentType)) {
    throw invalid(
      'Only bytes can be sent with a content type that is not JSON: give a Buffer, or leave contentType out.',
    );
  }
  const text = data === undefined ? undefined : serialize(data);
  return {
    kind: 'json',
    bytes: text === undefined ? undefined : Buffer.from(text),
    contentType: contentType ?? JSON_TYPE,
  };
}

function isMediaType(value: unknown): boolean {
  if (typeof value !== 'string' || !MEDIA_TYPE.test(value)) return false;
  try {
    validateHeaderValue('Content-Type', value);
    return true;
  } catch {
    return false;
  }
}

function serialize(data: unknown): string {
  let text: string | undefined;
  try {
    text = JSON.stringify(data) as string | undefined;
  } catch {
    // The error is not kept as a cause: it names members of the data.
    throw invalid('The data is not JSON: it has a cycle, a BigInt, or a toJSON that throws.');
  }
  if (text === undefined)
    throw invalid('The data is not JSON: a function or a symbol is no value.');
  return text;
}

function invalid(message: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_data', message);
}
