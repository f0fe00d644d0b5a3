import { validateHeaderValue } from 'node:http';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryPayload } from '../queue/webhook-delivery.js';

const JSON_TYPE = 'application/json';
const MEDIA_TYPE = /^[\w!#$&^.+-]+\/[\w!#$&^.+-]+\s*(?:;|$)/;
const JSON_MEDIA_TYPE = /^(?:application\/json|[\w!#$&^.+-]+\/[\w!#$&^.-]+\+json)\s*(?:;|$)/i;

/**
 * Serialises an event's data once: these bytes are signed, sent and stored.
 *
 * @param data - a JSON value, or bytes with a content type; `undefined` for an event without data
 * @throws {@link WebhookDeliveryError} `invalid_data`; its message never quotes the data
 */
export function encodePayload(data: unknown, contentType?: string): DeliveryPayload {
  if (contentType !== undefined && !isMediaType(contentType)) {
    throw invalid("The content type must be a media type, such as 'text/csv'.");
  }
  if (data instanceof Uint8Array) {
    if (contentType === undefined) {
      throw invalid("Bytes need the option contentType, such as 'application/octet-stream'.");
    }
    // Copied, because the caller may reuse its buffer while the delivery waits.
    return { kind: 'bytes', bytes: Buffer.from(data), contentType };
  }
  if (contentType !== undefined && !JSON_MEDIA_TYPE.test(contentType)) {
    throw invalid(
      'Only bytes can be sent with a content type that is not JSON; pass a Buffer, or leave contentType out.',
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
    // The error is not kept as a cause: its message may quote the data.
    throw invalid(`The data is not JSON: ${jsonProblem(data)}.`);
  }
  if (text === undefined) {
    throw invalid('The data is not JSON: it is a function or a symbol; pass a JSON value.');
  }
  return text;
}

/** Says where and why JSON.stringify failed, and what to do. */
function jsonProblem(data: unknown): string {
  try {
    return memberProblem(data, { path: 'data', key: '', parents: [] }) ?? 'it cannot be serialised';
  } catch {
    return 'it is nested too deeply, or reading it throws';
  }
}

interface JsonPosition {
  readonly path: string;
  readonly key: string;
  readonly parents: readonly object[];
}

function memberProblem(given: unknown, { path, key, parents }: JsonPosition): string | undefined {
  let value = given;
  const { toJSON } = (given ?? {}) as { toJSON?: unknown };
  if (typeof toJSON === 'function') {
    try {
      value = toJSON.call(given, key) as unknown;
    } catch {
      return `the toJSON method of ${path} throws; correct it`;
    }
  }
  if (typeof value === 'bigint') {
    return `${path} is a BigInt; convert it to a string or a number`;
  }
  if (typeof value !== 'object' || value === null) return undefined;
  if (parents.includes(value)) {
    return `${path} refers to an object that contains it; remove the cycle`;
  }
  for (const [name, member] of Object.entries(value)) {
    const below = Array.isArray(value) ? `${path}[${name}]` : `${path}${memberPath(name)}`;
    const problem = memberProblem(member, { path: below, key: name, parents: [...parents, value] });
    if (problem !== undefined) return problem;
  }
  return undefined;
}

/** Only names that a programmer would write are shown; others may be data, such as an e-mail address. */
function memberPath(name: string): string {
  return /^[A-Za-z_$][\w$]{0,63}$/.test(name) ? `.${name}` : '[…]';
}

function invalid(message: string): WebhookDeliveryError {
  return new WebhookDeliveryError('invalid_data', message);
}
