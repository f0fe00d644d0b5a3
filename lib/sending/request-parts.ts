import type { TraceContext } from '../diagnostics/operation.js';
import type { DeliveryPayload, OutgoingDelivery } from '../queue/webhook-delivery.js';
import { looksLikeBodyReference } from '../token/profiles/swt-draft-00.profile.js';
import { InlineJson } from '../token/token-signer.js';
import { MAX_INLINE_BYTES } from '../token/webhook-token.constants.js';
import type { Endpoint } from './endpoint.js';

/** Payload that can be part of a token: no data, or an object. */
interface InlinePayload {
  readonly data?: InlineJson;
}

const OPEN_BRACE = 0x7b;

/** Payloads that were checked, `null` if refused: an event has one for all of its endpoints and attempts. */
const checkedInline = new WeakMap<Uint8Array, InlinePayload | null>();

/**
 * Reads the payload as the token's inline data.
 *
 * @param limit - bytes that may be signed; default 6000
 * @returns `undefined` if it must be sent as a body: it is not an object, exceeds the limit, or is refused by receivers in
 * a token
 */
export function inlinePayload(
  { kind, bytes, contentType }: DeliveryPayload,
  limit = MAX_INLINE_BYTES,
): InlinePayload | undefined {
  if (kind !== 'json' || contentType !== 'application/json') return undefined;
  if (bytes === undefined) return {};
  if (bytes.byteLength > limit || bytes[0] !== OPEN_BRACE) return undefined;
  let inline = checkedInline.get(bytes);
  if (inline === undefined) {
    // Receivers of swt-draft-00 would take this shape for a reference to a body, and refuse it without one.
    const data = InlineJson.of(asBuffer(bytes).toString(), looksLikeBodyReference);
    inline = data === undefined ? null : { data };
    checkedInline.set(bytes, inline);
  }
  return inline ?? undefined;
}

/** The largest inline data that a signer accepts, in bytes: a remote signer may be billed by the byte. */
export function inlineLimit({ inlineLimit: limit = MAX_INLINE_BYTES }: Endpoint['signer']): number {
  return Math.min(limit, MAX_INLINE_BYTES);
}

/** Whether the payload may fit into a head: base64url adds a third. */
export function mayFit({ bytes }: DeliveryPayload, maxHeadBytes: number): boolean {
  return ((bytes?.byteLength ?? 0) * 4) / 3 <= maxHeadBytes;
}

/** Bytes of the whole head of a HEAD request on the wire. */
export function headBytes(url: string, headers: Readonly<Record<string, string>>): number {
  const { pathname, search, host } = new URL(url);
  const all = { ...headers, Host: host, Connection: 'keep-alive' };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.byteLength(`HEAD ${pathname}${search} HTTP/1.1\r\n${lines.join('')}\r\n`);
}

/** A view of exactly these bytes: of any other Uint8Array, axios sends the whole underlying memory. */
export function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** The body of a POST, and its media type. */
interface WireBody {
  readonly bytes: Uint8Array | undefined;
  readonly contentType: string;
  /** Whether the data is the member `data` of the body. */
  readonly envelope: boolean;
}

/** The body of a request with a token. */
export function plainBody({ payload: { bytes, contentType } }: OutgoingDelivery): WireBody {
  return { bytes, contentType, envelope: false };
}

/**
 * The body of a request with the signature of Standard Webhooks: the same bytes in every attempt. Bytes that are not JSON are never in an
 * envelope.
 *
 * @see https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
 */
export function standardBody(
  { event, payload, occurredAt, createdAt }: OutgoingDelivery,
  envelope: boolean,
): WireBody {
  const { kind, bytes, contentType } = payload;
  if (kind === 'bytes') return { bytes, contentType, envelope: false };
  // Libraries that verify it parse the body as JSON, so it is never empty.
  if (!envelope) return { bytes: bytes ?? Buffer.from('null'), contentType, envelope };
  const timestamp = new Date(occurredAt ?? createdAt).toISOString();
  const head = `{"type":"${event}","timestamp":"${timestamp}"`;
  const parts = bytes === undefined ? [head, '}'] : [`${head},"data":`, bytes, '}'];
  return {
    bytes: Buffer.concat(parts.map((part) => Buffer.from(part as string))),
    contentType: 'application/json',
    envelope,
  };
}

/** Headers that a client would add are explicit, so that the size of the head is known before it is sent. */
const DEFAULT_HEADERS = {
  Accept: '*/*',
  'Accept-Encoding': 'identity',
  'User-Agent': 'nestjs-webhook-token',
};

/** What differs between the requests to an endpoint. */
interface HeaderFacts {
  readonly contentType: string;
  readonly bodyBytes: number;
  /** The headers that authenticate it. */
  readonly credentials: Readonly<Record<string, string>>;
  readonly trace: TraceContext | undefined;
}

/** The headers of a request; those of the endpoint replace defaults, and its credentials replace both. */
export function headersFor(
  { headers }: Endpoint,
  { contentType, bodyBytes, credentials, trace }: HeaderFacts,
): Record<string, string> {
  const secret = namesOf(credentials);
  const own = Object.entries(headers).filter(([name]) => !secret.has(name.toLowerCase()));
  const taken = new Set([...secret, ...namesOf(headers)]);
  const defaults = Object.entries(DEFAULT_HEADERS).filter(
    ([name]) => !taken.has(name.toLowerCase()),
  );
  return {
    // W3C Trace Context, sections 3.2 and 3.3.
    ...(trace !== undefined && { traceparent: trace.traceparent }),
    ...(trace?.tracestate !== undefined && { tracestate: trace.tracestate }),
    ...Object.fromEntries([...defaults, ...own]),
    ...credentials,
    'Content-Type': contentType,
    'Content-Length': String(bodyBytes),
  };
}

function namesOf(headers: Readonly<Record<string, string>>): Set<string> {
  return new Set(Object.keys(headers).map((name) => name.toLowerCase()));
}
