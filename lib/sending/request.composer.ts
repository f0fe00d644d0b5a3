import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type { DeliveryPayload, WebhookDelivery } from '../queue/webhook-delivery.interface.js';
import { parseJson, structureFault } from '../token/json/strict-json.js';
import { after, type MaybePromise } from '../token/maybe-promise.js';
import { digest } from '../token/payload-hash.js';
import { looksLikeBodyReference } from '../token/profiles/swt-draft-00.profile.js';
import { rulesOf } from '../token/profiles/profile-choice.js';
import type { ProfileRules } from '../token/profiles/profile-rules.js';
import type { WebhookTokenInput } from '../token/token-signer.js';
import { receiptOf, type WebhookReceipt } from '../token/webhook-receipt.js';
import { MAX_DATA_DEPTH, MAX_INLINE_BYTES } from '../token/webhook-token.constants.js';
import type { DeliveryTarget } from './delivery-target.js';

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
  readonly data?: object;
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
  const text = Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString();
  const data = parseJson(text) as object;
  // Receivers of swt-draft-00 would take this shape for a reference to a body, and refuse it without one.
  if (looksLikeBodyReference(data)) return undefined;
  return structureFault(data, MAX_DATA_DEPTH) === undefined ? { data } : undefined;
}

/**
 * Bytes of a request's head on the wire, which servers and proxies limit.
 *
 * @param headers - all but Host and Connection, which the connection adds
 */
function requestHeadBytes(
  method: string,
  url: string,
  headers: Readonly<Record<string, string>>,
): number {
  const { pathname, search, host } = new URL(url);
  const lines = [
    `${method} ${pathname}${search} HTTP/1.1`,
    `Host: ${host}`,
    'Connection: keep-alive',
    ...Object.entries(headers).map(([name, value]) => `${name}: ${value}`),
  ];
  const LINE_END = 2;
  return lines.reduce((sum, line) => sum + Buffer.byteLength(line) + LINE_END, LINE_END);
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
  /** Headers that the HTTP client adds; they count towards the size of the head. */
  readonly inheritedHeaders?: (() => Readonly<Record<string, string>>) | undefined;
}

/**
 * Chooses the method and signs the request: HEAD with inline data if the whole head is small enough for servers and
 * proxies, otherwise POST.
 *
 * @returns synchronously if the signer does
 * @throws {@link WebhookDeliveryError} `invalid_option` if HEAD is required and cannot carry the payload
 */
export function composeRequest(
  delivery: WebhookDelivery,
  target: DeliveryTarget,
  limits: CompositionLimits,
): MaybePromise<ComposedRequest> {
  const wanted = wantedMethod(delivery, target);
  if (wanted === 'POST') return composePost(delivery, target, limits.attempt);
  const inline = inlineOf(delivery, target);
  const head = inline && composeHead(delivery, target, inline, limits);
  return after(head, (composed) => {
    if (composed !== undefined) return composed;
    if (wanted === 'auto') return composePost(delivery, target, limits.attempt);
    throw headCannotCarry(target, limits);
  });
}

/**
 * Refuses an explicit HEAD that cannot carry the delivery, without signing it.
 *
 * @throws {@link WebhookDeliveryError} `invalid_option`
 */
export function requireInline(
  delivery: WebhookDelivery,
  target: DeliveryTarget,
  limits: Pick<CompositionLimits, 'maxHeadBytes'>,
): void {
  if (inlineOf(delivery, target) === undefined) throw headCannotCarry(target, limits);
}

/** The inline data of a HEAD; `undefined` if HEAD cannot be used. */
function inlineOf(delivery: WebhookDelivery, target: DeliveryTarget): InlinePayload | undefined {
  const rules = rulesFor(delivery, target);
  if (!rules.methods.has('HEAD')) return undefined;
  return inlinePayload(delivery.payload, inlineLimit(target.signer));
}

function headCannotCarry(
  target: DeliveryTarget,
  { maxHeadBytes }: Pick<CompositionLimits, 'maxHeadBytes'>,
): WebhookDeliveryError {
  const limit = inlineLimit(target.signer);
  const origin = target.signer.inlineLimit === undefined ? '' : " (its signer's inlineLimit)";
  return new WebhookDeliveryError(
    'invalid_option',
    `HEAD cannot carry this payload to ${target.label}: it takes a JSON object of at most ${limit} bytes${origin} in a request head of at most ${maxHeadBytes} bytes, not of the shape { hash, size } with no other member than hashAlg, which reads as a reference to a body. Use the method 'auto'.`,
  );
}

/**
 * Signs a delivery as a POST request.
 *
 * @param attempt - counts from 1
 */
export function composePost(
  delivery: WebhookDelivery,
  target: DeliveryTarget,
  attempt: number,
): MaybePromise<ComposedRequest> {
  const { bytes, contentType } = delivery.payload;
  const body = bytes && asBuffer(bytes);
  const rules = rulesFor(delivery, target);
  const hash = target.hash ?? rules.defaultHash;
  const bodyBytes = body?.byteLength ?? 0;
  const hashed = body ?? (rules.hashesEmptyBody ? Buffer.alloc(0) : undefined);
  const token = sign(delivery, target, {
    ...(hashed && { hash: digest(hash, hashed), size: hashed.byteLength }),
    retryCount: attempt - 1,
  });
  const facts = { method: 'POST', bodyBytes, contentType, profile: rules.name } as const;
  return after(token, (signed) => ({
    method: 'POST',
    url: target.url,
    headers: headersFor(target, signed, contentType, bodyBytes),
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
  delivery: WebhookDelivery,
  target: DeliveryTarget,
): 'auto' | 'HEAD' | 'POST' {
  const wanted = delivery.method ?? target.method;
  return wanted === 'auto' && target.state.needsPost ? 'POST' : wanted;
}

function rulesFor({ profile }: WebhookDelivery, target: DeliveryTarget): ProfileRules {
  return rulesOf(profile ?? target.profile);
}

/** @returns `undefined` if the head would be too large */
function composeHead(
  delivery: WebhookDelivery,
  target: DeliveryTarget,
  inline: InlinePayload,
  { maxHeadBytes, inheritedHeaders }: CompositionLimits,
): MaybePromise<ComposedRequest | undefined> {
  // Base64url adds a third. Data that cannot fit is not signed, since that may be a remote call.
  const payloadBytes = delivery.payload.bytes?.byteLength ?? 0;
  if ((payloadBytes * 4) / 3 > maxHeadBytes) return undefined;
  const contentType = 'application/json';
  const profile = rulesFor(delivery, target).name;
  return after(sign(delivery, target, inline), (token) => {
    // Explicitly 0: a HEAD that declares another length desynchronises the connection.
    const headers = headersFor(target, token, contentType, 0);
    const all = { ...inheritedHeaders?.(), ...headers };
    if (requestHeadBytes('HEAD', target.url, all) > maxHeadBytes) return undefined;
    const facts = { method: 'HEAD', bodyBytes: 0, contentType, profile } as const;
    const receipt = (): WebhookReceipt => receiptOf(token, facts);
    return { method: 'HEAD', url: target.url, headers, token, receipt };
  });
}

function sign(
  delivery: WebhookDelivery,
  target: DeliveryTarget,
  carried: Pick<WebhookTokenInput, 'data' | 'hash' | 'size' | 'retryCount'>,
): MaybePromise<string> {
  return target.signer.sign({
    ...carried,
    profile: delivery.profile ?? target.profile,
    event: delivery.event,
    txn: delivery.eventId,
    audience: delivery.audience ?? target.audience,
    subject: delivery.subject ?? target.subject,
    id: target.jti === 'delivery' ? delivery.id : undefined,
  });
}

function headersFor(
  target: DeliveryTarget,
  token: string,
  contentType: string,
  contentLength: number,
): Record<string, string> {
  return {
    ...defaultHeaders(target.headers),
    Authorization: `Bearer ${token}`,
    'Content-Type': contentType,
    'Content-Length': String(contentLength),
  };
}

/** Headers that a client would add are explicit, so that the size of the head is known before it is sent. */
const DEFAULT_HEADERS = { Accept: '*/*', 'Accept-Encoding': 'identity', 'User-Agent': USER_AGENT };

function defaultHeaders(own: DeliveryTarget['headers']): Readonly<Record<string, string>> {
  const names = new Set(Object.keys(own).map((name) => name.toLowerCase()));
  // Most destinations have no headers of their own.
  if (names.size === 0) return DEFAULT_HEADERS;
  const defaults = Object.entries(DEFAULT_HEADERS).filter(
    ([name]) => !names.has(name.toLowerCase()),
  );
  return { ...Object.fromEntries(defaults), ...own };
}
