import { hash } from 'node:crypto';
import { decodeUtf8 } from '../token/decoding.js';
import { isObject, structureProblem } from '../token/json.js';
import { invalidPayload, isJsonType, mediaType, parseJsonPayload } from '../token/payload.js';
import { MAX_DATA_DEPTH, MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';

/** How a sender writes the data of an event into the body. */
interface PayloadForm {
  /** The header, which no sender signs; `undefined` stands for JSON. */
  readonly contentType: string | undefined;
  /** Whether the data is the member `data` of the body. */
  readonly envelope?: boolean | undefined;
}

/**
 * Reads the data of an event from a body that its sender has signed.
 *
 * JSON is read as UTF-8 whatever charset the header names, since an intermediary could change that. A form becomes an object of its
 * fields; if `payload` is its only field, the JSON in it. Fields named `name[]` are a list. An empty body is `undefined`. Any other body
 * stays a Buffer.
 *
 * @param maxMembers - names and elements in JSON, or fields of a form
 * @throws {@link WebhookPayloadError} `invalid_payload`
 */
export function parseSenderPayload(
  bytes: Buffer,
  { contentType, envelope }: PayloadForm,
  maxMembers: number,
): unknown {
  const type = contentType === undefined ? 'application/json' : mediaType(contentType);
  if (type === 'application/x-www-form-urlencoded') return parseForm(bytes, maxMembers);
  if (!isJsonType(type)) return bytes;
  if (bytes.length === 0) return undefined;
  const body = parseJsonPayload(bytes, type, maxMembers);
  return envelope === true && isObject(body) ? body['data'] : body;
}

/** The body of an event in an envelope of Standard Webhooks; without data, it has no member `data`. */
export interface Envelope {
  readonly type: string;
  readonly data?: unknown;
}

export function isEnvelope(body: unknown): body is Envelope {
  if (!isObject(body) || typeof body['type'] !== 'string') return false;
  return (
    Object.hasOwn(body, 'data') ||
    Object.keys(body).every((name) => name === 'type' || name === 'timestamp')
  );
}

/**
 * The digest that identifies the content of an envelope with large data; `undefined` for small data, whose value identifies it. Only the
 * data counts, so that a sender can change the format between two attempts.
 */
export function envelopeDigest(body: Buffer): string | undefined {
  const [head] = ENVELOPE_HEAD.exec(body.toString('latin1', 0, MAX_HEAD)) ?? [];
  const data = head === undefined ? body : body.subarray(head.length, -1);
  return data.length <= MAX_TOKEN_BYTES ? undefined : `sha256:${hash('sha256', data)}`;
}

/** How this package begins an envelope; one that begins otherwise counts as a whole. */
const ENVELOPE_HEAD = /^\{"type":"[\w.-]+","timestamp":"[\w:.+-]+","data":/;
const MAX_HEAD = 256;

function parseForm(bytes: Buffer, maxFields: number): unknown {
  const text = decodeUtf8(bytes);
  if (text === undefined) throw invalidPayload('the form is not UTF-8');
  // Every field has at least a separator of its own.
  if (text.split('&', maxFields + 1).length > maxFields) {
    throw invalidPayload(`the form has more than ${maxFields} fields`);
  }
  const fields = [...new URLSearchParams(text)];
  const [first] = fields;
  if (fields.length === 1 && first![0] === 'payload') {
    return parseJsonPayload(Buffer.from(first![1]), 'application/json', maxFields);
  }
  const byName = new Map<string, string | string[]>();
  for (const [name, value] of fields) {
    const before = byName.get(name);
    if (Array.isArray(before)) before.push(value);
    // Of two fields with one name, another reader may use the other one.
    else if (before !== undefined) throw invalidPayload('the form has two fields of one name');
    else byName.set(name, name.endsWith('[]') ? [value] : value);
  }
  const form: unknown = Object.fromEntries(byName);
  const problem = structureProblem(form, MAX_DATA_DEPTH);
  if (problem !== undefined) throw invalidPayload(`the form ${problem}`);
  return form;
}
