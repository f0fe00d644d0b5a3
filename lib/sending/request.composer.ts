import type { TraceContext } from '../diagnostics/operation.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryPayload, OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import { after, type MaybePromise } from '../token/maybe-promise.js';
import { digest } from '../token/payload-hash.js';
import { looksLikeBodyReference } from '../token/profiles/swt-draft-00.profile.js';
import { rulesOf } from '../token/profiles/profile-choice.js';
import type { ProfileRules } from '../token/profiles/profile-rules.js';
import { InlineJson, type WebhookTokenInput } from '../token/token-signer.js';
import { receiptOf, type WebhookReceipt } from '../token/webhook-receipt.js';
import { MAX_INLINE_BYTES } from '../token/webhook-token.constants.js';
import type { Endpoint } from './endpoint.js';

const OPEN_BRACE = 0x7b;

/** The largest inline data that a signer accepts, in bytes: a remote signer may be billed by the byte. */
function inlineLimit({
  inlineLimit: limit = MAX_INLINE_BYTES,
}: {
  readonly inlineLimit?: number | undefined;
}): number {
  return Math.min(limit, MAX_INLINE_BYTES);
}

/** Payload that can be part of a token: no data, or an object. */
interface InlinePayload {
  readonly data?: InlineJson;
}

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
    inline = checkInline(asBuffer(bytes).toString());
    checkedInline.set(bytes, inline);
  }
  return inline ?? undefined;
}

/** Payloads that were checked: an event has one for all of its destinations and attempts. */
const checkedInline = new WeakMap<Uint8Array, InlinePayload | null>();

/** @returns `null` if receivers would refuse it in a token */
function checkInline(text: string): InlinePayload | null {
  // Receivers of swt-draft-00 would take this shape for a reference to a body, and refuse it without one.
  const data = InlineJson.of(text, looksLikeBodyReference);
  return data === undefined ? null : { data };
}

/** Bytes of `name: value` and the end of its line. */
function headerBytes(name: string, value: string): number {
  return name.length + Buffer.byteLength(value) + ': \r\n'.length;
}

/**
 * Bytes of the head of a HEAD request on the wire, which servers and proxies limit.
 *
 * @param headers - all but Host and Connection, which the connection adds
 */
function headBytes(target: Endpoint, headers: Readonly<Record<string, string>>): number {
  let sum = firstLinesOf(target);
  for (const name in headers) sum += headerBytes(name, headers[name]!);
  return sum;
}

const firstLines = new WeakMap<Endpoint, number>();

/** Bytes of the lines that the URL decides, and of those that are always the same. */
function firstLinesOf(target: Endpoint): number {
  let bytes = firstLines.get(target);
  if (bytes === undefined) {
    const { pathname, search, host } = new URL(target.url);
    const requestLine = `HEAD ${pathname}${search} HTTP/1.1\r\n`;
    const fixed = headerBytes('Host', host) + headerBytes('Connection', 'keep-alive');
    bytes = Buffer.byteLength(requestLine) + fixed + '\r\n'.length;
    firstLines.set(target, bytes);
  }
  return bytes;
}

/** Base64url makes four characters of three bytes, and one character takes at most three bytes of UTF-8 or JSON. */
const BYTES_PER_CHARACTER = 4;
/** Issuer, key id and token id have at most 256 characters each; signature, claim names and our headers take less than 2 kB. */
const MAX_OTHER_BYTES = 3 * 256 * BYTES_PER_CHARACTER + 2_048;

/**
 * Whether the head of a HEAD is small enough, whatever the token will be. If `false`, only a signed request shows it.
 */
export function headSurelyFits(
  { eventId, event, audience = [], subject = '', payload }: OutgoingDelivery,
  target: Endpoint,
  { maxHeadBytes, inheritedHeaders }: Pick<CompositionLimits, 'maxHeadBytes' | 'inheritedHeaders'>,
): boolean {
  const names = [eventId, event, target.subject ?? '', subject]
    .concat(audience, target.audience ?? [])
    .join('');
  const data = ((payload.bytes?.byteLength ?? 0) * 4) / 3;
  const headers = headBytes(target, { ...inheritedHeaders?.(), ...target.headers });
  return headers + data + names.length * BYTES_PER_CHARACTER + MAX_OTHER_BYTES <= maxHeadBytes;
}

const USER_AGENT = 'nestjs-webhook-token';

/** A signed request, ready to be sent. It holds the token, so never log it. */
export interface ComposedRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer;
  readonly token: string;
  /** Creates the receipt, on demand because few need it. The only part that is safe to log. */
  readonly receipt: () => WebhookReceipt;
}

/** Limits for the choice of the method. */
export interface CompositionLimits {
  readonly maxHeadBytes: number;
  /** Counts from 1. */
  readonly attempt: number;
  /** Sent in headers, which count towards the size of the head. */
  readonly trace?: TraceContext | undefined;
  /** Headers that the HTTP client adds; they count towards the size of the head. */
  readonly inheritedHeaders?: (() => Readonly<Record<string, string>> | undefined) | undefined;
}

/**
 * Chooses the method and signs the request: HEAD with inline data if the whole head is small enough for servers and
 * proxies, otherwise POST.
 *
 * @returns synchronously if the signer does
 * @throws {@link WebhookDeliveryError} `invalid_option` if HEAD is required and cannot carry the payload
 */
export function composeRequest(
  delivery: OutgoingDelivery,
  target: Endpoint,
  limits: CompositionLimits,
): MaybePromise<ComposedRequest> {
  const wanted = wantedMethod(delivery, target);
  if (wanted === 'POST') return composePost(delivery, target, limits);
  const inline = inlineOf(delivery, target);
  const head = inline && composeHead(delivery, target, inline, limits);
  return after(head, (composed) => {
    if (composed !== undefined) return composed;
    if (wanted === 'auto') return composePost(delivery, target, limits);
    throw headCannotCarry(target, limits);
  });
}

/**
 * Refuses an explicit HEAD that cannot carry the delivery, without signing it.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function requireInline(
  delivery: OutgoingDelivery,
  target: Endpoint,
  limits: Pick<CompositionLimits, 'maxHeadBytes'>,
): void {
  if (inlineOf(delivery, target) === undefined) throw headCannotCarry(target, limits);
}

/** The inline data of a HEAD; `undefined` if HEAD cannot be used. */
function inlineOf(delivery: OutgoingDelivery, target: Endpoint): InlinePayload | undefined {
  const rules = rulesFor(delivery, target);
  if (!rules.methods.has('HEAD')) return undefined;
  return inlinePayload(delivery.payload, inlineLimit(target.signer));
}

function headCannotCarry(
  target: Endpoint,
  { maxHeadBytes }: Pick<CompositionLimits, 'maxHeadBytes'>,
): WebhookDeliveryError {
  const limit = inlineLimit(target.signer);
  const origin = target.signer.inlineLimit === undefined ? '' : " (its signer's inlineLimit)";
  return new WebhookDeliveryError(
    'invalid_option',
    `HEAD cannot carry this payload to ${target.label}; use the method 'auto'. HEAD needs a JSON object of at most ${limit} bytes${origin} in a request head of at most ${maxHeadBytes} bytes. It must not consist of hash, size and hashAlg only, which receivers read as a reference to a body.`,
  );
}

/** Signs a delivery as a POST request. */
export function composePost(
  delivery: OutgoingDelivery,
  target: Endpoint,
  { attempt, trace }: Pick<CompositionLimits, 'attempt' | 'trace'>,
): MaybePromise<ComposedRequest> {
  const { bytes, contentType } = delivery.payload;
  const body = bytes && asBuffer(bytes);
  const rules = rulesFor(delivery, target);
  const hash = target.hash ?? rules.defaultHash;
  const bodyBytes = body?.byteLength ?? 0;
  const hashed = body ?? (rules.hashesEmptyBody ? Buffer.alloc(0) : undefined);
  const token = sign(delivery, target, {
    hash: hashed && digest(hash, hashed),
    size: hashed?.byteLength,
    retryCount: attempt - 1,
  });
  const facts = { method: 'POST', bodyBytes, contentType, profile: rules.name } as const;
  return after(token, (signed) => ({
    method: 'POST',
    url: target.url,
    headers: headersFor(target, signed, contentType, bodyBytes, trace),
    ...(body !== undefined && { body }),
    token: signed,
    receipt: () => receiptOf(signed, facts),
  }));
}

/** A view of exactly these bytes: of any other Uint8Array, axios sends the whole underlying memory. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** The method that the delivery, or else the destination, asks for; `auto` is POST for a destination that needs it. */
export function wantedMethod(
  delivery: OutgoingDelivery,
  target: Endpoint,
): 'auto' | 'HEAD' | 'POST' {
  const wanted = delivery.method ?? target.method;
  return wanted === 'auto' && target.state.needsPost ? 'POST' : wanted;
}

function rulesFor({ profile }: OutgoingDelivery, target: Endpoint): ProfileRules {
  return rulesOf(profile ?? target.profile);
}

/** @returns `undefined` if the head would be too large */
function composeHead(
  delivery: OutgoingDelivery,
  target: Endpoint,
  inline: InlinePayload,
  { maxHeadBytes, inheritedHeaders, trace }: CompositionLimits,
): MaybePromise<ComposedRequest | undefined> {
  // Base64url adds a third. Data that cannot fit is not signed, since that may be a remote call.
  const payloadBytes = delivery.payload.bytes?.byteLength ?? 0;
  if ((payloadBytes * 4) / 3 > maxHeadBytes) return undefined;
  const contentType = 'application/json';
  const profile = rulesFor(delivery, target).name;
  return after(sign(delivery, target, inline), (token) => {
    // Explicitly 0: a HEAD that declares another length desynchronises the connection.
    const headers = headersFor(target, token, contentType, 0, trace);
    const inherited = inheritedHeaders?.();
    const all = inherited === undefined ? headers : { ...inherited, ...headers };
    if (headBytes(target, all) > maxHeadBytes) return undefined;
    const facts = { method: 'HEAD', bodyBytes: 0, contentType, profile } as const;
    const receipt = (): WebhookReceipt => receiptOf(token, facts);
    return { method: 'HEAD', url: target.url, headers, token, receipt };
  });
}

function sign(
  delivery: OutgoingDelivery,
  target: Endpoint,
  {
    data,
    hash,
    size,
    retryCount,
  }: Pick<WebhookTokenInput, 'data' | 'hash' | 'size' | 'retryCount'>,
): MaybePromise<string> {
  return target.signer.sign({
    data,
    hash,
    size,
    retryCount,
    profile: delivery.profile ?? target.profile,
    event: delivery.event,
    txn: delivery.eventId,
    audience: delivery.audience ?? target.audience,
    subject: delivery.subject ?? target.subject,
    id: target.jti === 'delivery' ? delivery.id : undefined,
  });
}

function headersFor(
  target: Endpoint,
  token: string,
  contentType: string,
  contentLength: number,
  trace: TraceContext | undefined,
): Record<string, string> {
  return {
    ...(trace !== undefined && traceHeaders(trace)),
    ...defaultHeaders(target.headers),
    Authorization: `Bearer ${token}`,
    'Content-Type': contentType,
    'Content-Length': String(contentLength),
  };
}

/** @see W3C Trace Context, sections 3.2 and 3.3 */
function traceHeaders({ traceparent, tracestate }: TraceContext): Record<string, string> {
  return { traceparent, ...(tracestate !== undefined && { tracestate }) };
}

/** Headers that a client would add are explicit, so that the size of the head is known before it is sent. */
const DEFAULT_HEADERS = { Accept: '*/*', 'Accept-Encoding': 'identity', 'User-Agent': USER_AGENT };

function defaultHeaders(own: Endpoint['headers']): Readonly<Record<string, string>> {
  const ownNames = Object.keys(own);
  // Most destinations have no headers of their own.
  if (ownNames.length === 0) return DEFAULT_HEADERS;
  const names = new Set(ownNames.map((name) => name.toLowerCase()));
  const defaults = Object.entries(DEFAULT_HEADERS).filter(
    ([name]) => !names.has(name.toLowerCase()),
  );
  return { ...Object.fromEntries(defaults), ...own };
}
