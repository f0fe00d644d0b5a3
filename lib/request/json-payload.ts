import { hash } from 'node:crypto';
import { WebhookPayloadError } from '../errors/webhook.error.js';
import {
  decodeUtf8,
  isObject,
  parseJson,
  scanJson,
  structureProblem,
  TOO_DEEP,
} from '../token/decoding.js';
import { MAX_DATA_DEPTH, MAX_TOKEN_BYTES } from '../token/webhook-token.constants.js';

const UTF8 = /^utf-?8$/i;
const JSON_TYPE = /^application\/(?:json|[^\s;]+\+json)$/;

/** Whether a content type is JSON: `application/json`, or a `+json` type of RFC 6839. */
export function isJsonType(contentType: string | undefined): boolean {
  return contentType !== undefined && JSON_TYPE.test(mediaType(contentType));
}

/**
 * Parses a verified JSON body as strictly as data in a token.
 *
 * @param maxMembers - names in objects and elements of arrays, at all levels; counted before parsing, because an object
 *   of 500,000 names holds the event loop for seconds
 * @throws {@link WebhookPayloadError} `unsupported_encoding` for an unknown charset, `invalid_payload` for anything that is
 *   not safe JSON; the message never quotes the body
 */
export function parseJsonPayload(bytes: Buffer, contentType: string, maxMembers: number): unknown {
  const text = decode(bytes, charset(contentType));
  const exceeded = scanJson(text, { members: maxMembers, levels: MAX_DATA_DEPTH });
  if (exceeded === 'members') {
    throw invalid(
      `the body has more than ${maxMembers} members; maxJsonMembers of the receiver sets the limit`,
    );
  }
  if (exceeded === 'levels') throw invalid(`the body ${TOO_DEEP}`);
  const value = parseJson(text);
  if (value === undefined) throw invalid('the body is not JSON');
  const problem = structureProblem(value, MAX_DATA_DEPTH);
  if (problem !== undefined) throw invalid(`the body ${problem}`);
  return value;
}

function decode(bytes: Buffer, label: string): string {
  const text = UTF8.test(label) ? decodeUtf8(bytes) : decodeAs(label, bytes);
  if (text === undefined) {
    throw invalid('the body is not valid in the charset that its content type names');
  }
  return text;
}

function decodeAs(label: string, bytes: Buffer): string | undefined {
  let decoder: InstanceType<typeof TextDecoder>;
  try {
    decoder = new TextDecoder(label, { fatal: true, ignoreBOM: true });
  } catch {
    throw new WebhookPayloadError(
      'unsupported_encoding',
      'the charset of the body is not supported: send JSON as UTF-8',
    );
  }
  try {
    return decoder.decode(bytes);
  } catch {
    return undefined;
  }
}

/** The media type without parameters, in lower case. */
export function mediaType(contentType: string): string {
  return (contentType.split(';', 1)[0] ?? '').trim().toLowerCase();
}

/** Whether a content type declares no charset, or UTF-8. */
export function isUtf8(contentType: string): boolean {
  return UTF8.test(charset(contentType));
}

/** RFC 8259 requires UTF-8; another charset is decoded if the sender declares it. */
function charset(contentType: string): string {
  return /;\s*charset\s*=\s*"?([^\s";]+)/i.exec(contentType)?.[1] ?? 'utf-8';
}

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
 * fields; if `payload` is its only field, the JSON in it. Any other body stays a Buffer.
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
  const body = parseJsonPayload(bytes, type, maxMembers);
  return envelope === true && isObject(body) ? body['data'] : body;
}

/** The body of an event in an envelope of Standard Webhooks; without data, it has no member `data`. */
export interface Envelope {
  readonly type: string;
  readonly data?: unknown;
}

/** Whether a parsed body is an envelope of Standard Webhooks. */
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
  if (text === undefined) throw invalid('the form is not UTF-8');
  // Every field has at least a separator of its own.
  if (text.split('&', maxFields + 1).length > maxFields) {
    throw invalid(`the form has more than ${maxFields} fields`);
  }
  const fields = [...new URLSearchParams(text)];
  const [first] = fields;
  if (fields.length === 1 && first![0] === 'payload') {
    return parseJsonPayload(Buffer.from(first![1]), 'application/json', maxFields);
  }
  // Of two fields with one name, another reader may use the other one.
  if (new Set(fields.map(([name]) => name)).size < fields.length) {
    throw invalid('the form has two fields of one name');
  }
  const form: unknown = Object.fromEntries(fields);
  const problem = structureProblem(form, MAX_DATA_DEPTH);
  if (problem !== undefined) throw invalid(`the form ${problem}`);
  return form;
}

function invalid(message: string): WebhookPayloadError {
  return new WebhookPayloadError('invalid_payload', message);
}
