import { SECOND } from '../clock/duration.js';
import { untilAborted, type WebhookClock } from '../clock/webhook-clock.js';
import type { TraceContext } from '../diagnostics/operation.js';
import { WebhookDeliveryError, WebhookSigningError } from '../errors/webhook.error.js';
import type { DeliveryPayload, OutgoingDelivery } from '../queue/webhook-delivery.js';
import { isUtf8Json } from '../token/payload.js';
import { digest } from '../token/payload-hash.js';
import { rulesOf } from '../token/profiles/profile.js';
import { looksLikeBodyReference } from '../token/profiles/swt-draft-00.profile.js';
import { InlineJson, type WebhookTokenInput } from '../token/token-signer.js';
import { receiptOf, type WebhookReceipt } from '../token/webhook-receipt.js';
import {
  DEFAULT_PROFILE,
  MAX_INLINE_BYTES,
  type SentProfile,
} from '../token/webhook-token.constants.js';
import type { Endpoint } from './endpoint.js';
import { signingFailure } from './attempt-result.js';
import { isStandardWebhooks, tokenProfile } from './sent-profile.js';

/** A signed request, ready to be sent. It holds the token and the signature, so never log it. */
export interface ComposedRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer | undefined;
  readonly profile: SentProfile;
  /** Empty if the request has none, because it is a Standard Webhook only. */
  readonly token: string;
  /** Creates the receipt of the token, on demand because few need it. The only part that is safe to log. */
  readonly receipt?: (() => WebhookReceipt) | undefined;
}

/** The attempt that a request belongs to. */
export interface RequestContext {
  /** Counts from 1; some wire formats carry it. Default 1. */
  readonly attempt?: number | undefined;
  /** Sent in headers. */
  readonly trace?: TraceContext | undefined;
  /** Ends the wait for a signature; its reason is `'timeout'` or `'aborted'`. */
  readonly signal?: AbortSignal | undefined;
  /** Headers with the credentials of the endpoint; absent for a request that the application sends itself. */
  readonly credentials?: Readonly<Record<string, string>> | undefined;
}

/**
 * Chooses the method and signs the request: HEAD with inline data if the whole head is small enough for servers and proxies,
 * otherwise POST.
 */
export class RequestComposer {
  /**
   * @param maxHeadBytes - bytes of a HEAD's head, which servers and proxies limit
   * @param inheritedHeaders - headers that the HTTP client adds; they count towards the size of the head
   */
  constructor(
    private readonly clock: WebhookClock,
    private readonly maxHeadBytes: number,
    private readonly inheritedHeaders: () => Readonly<Record<string, string>> | undefined,
  ) {}

  /**
   * @throws {@link WebhookDeliveryError} `invalid_option` if HEAD is required and cannot carry the payload
   * @throws {@link WebhookSigningError} `signing_failed` if the signal ends the wait; its cause is the signal's reason
   */
  async compose(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    context: RequestContext = {},
  ): Promise<ComposedRequest> {
    const wanted = wantedMethod(delivery, endpoint);
    if (wanted === 'POST') return this.composePost(delivery, endpoint, context);
    const head = await this.composeHead(delivery, endpoint, context);
    if (head !== undefined) return head;
    if (wanted === 'HEAD') throw this.headCannotCarry(endpoint);
    return this.composePost(delivery, endpoint, context);
  }

  async composePost(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    context: RequestContext,
  ): Promise<ComposedRequest> {
    const profile = profileOf(delivery, endpoint);
    const isStandard = isStandardWebhooks(profile);
    const body = isStandard
      ? standardBody(delivery, endpoint.envelope)
      : { envelope: false, ...delivery.payload };
    const bytes = body.bytes && asBuffer(body.bytes);
    const format = tokenProfile(profile);
    let token = '';
    if (format !== undefined) {
      const rules = rulesOf(format);
      const algorithm = endpoint.hash ?? rules.defaultHash;
      const hashed = bytes ?? (rules.hashesEmptyBody ? Buffer.alloc(0) : undefined);
      token = await sign(delivery, endpoint, context, {
        hash: hashed && digest(isStandard ? rules.defaultHash : algorithm, hashed),
        size: hashed?.byteLength,
        retryCount: (context.attempt ?? 1) - 1,
        envelope: isStandard ? body.envelope : undefined,
      });
    }
    const signature = isStandard ? this.standardHeaders(delivery, endpoint, bytes!) : {};
    const { contentType } = body;
    const bodyBytes = bytes?.byteLength ?? 0;
    const facts = { method: 'POST', bodyBytes, contentType, token, signature } as const;
    return { body: bytes, ...requestWithoutBody(facts, delivery, endpoint, context) };
  }

  /** Of this attempt: receivers refuse an old time. */
  private standardHeaders(
    { eventId }: OutgoingDelivery,
    { standardWebhooks, label }: Endpoint,
    body: Buffer,
  ): Record<string, string> {
    if (standardWebhooks === undefined) {
      throw new WebhookSigningError(
        'no_signing_key',
        `${label} has no secret of Standard Webhooks: set standardWebhooks: { secret }.`,
      );
    }
    const time = String(Math.floor(this.clock.now() / SECOND));
    return {
      'webhook-id': eventId,
      'webhook-timestamp': time,
      'webhook-signature': standardWebhooks.sign(eventId, time, body),
    };
  }

  /** @returns `undefined` if HEAD cannot be used */
  private async composeHead(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    context: RequestContext,
  ): Promise<ComposedRequest | undefined> {
    const inline = inlineOf(delivery, endpoint);
    // Data that cannot fit is not signed, since that may be a remote call.
    if (inline === undefined || !mayFit(delivery.payload, this.maxHeadBytes)) return undefined;
    const token = await sign(delivery, endpoint, context, inline);
    // 0 bytes are explicit for HEAD: one that declares another length desynchronises the connection.
    const { contentType } = delivery.payload;
    const facts = { method: 'HEAD', bodyBytes: 0, contentType, token } as const;
    const request = requestWithoutBody(facts, delivery, endpoint, context);
    const headers = { ...this.inheritedHeaders(), ...request.headers };
    return headBytes(endpoint.url, headers) > this.maxHeadBytes ? undefined : request;
  }

  /**
   * Rejects an explicit HEAD that can never carry the delivery. A remote signer is not called, so that events are recorded while
   * it is down.
   *
   * @throws {@link WebhookDeliveryError} `invalid_option`
   */
  async requireThatHeadCanCarry(delivery: OutgoingDelivery, endpoint: Endpoint): Promise<void> {
    if (inlineOf(delivery, endpoint) === undefined) throw this.headCannotCarry(endpoint);
    if (endpoint.signer.inlineLimit !== undefined) return;
    try {
      await this.compose(delivery, endpoint);
    } catch (error) {
      // A later attempt may have a key.
      if (signingFailure(error) === undefined) throw error;
    }
  }

  private headCannotCarry({ label, signer }: Endpoint): WebhookDeliveryError {
    const origin = signer.inlineLimit === undefined ? '' : " (its signer's inlineLimit)";
    return new WebhookDeliveryError(
      'invalid_option',
      `HEAD cannot carry this payload to ${label}; use the method 'auto'. HEAD needs a JSON object of at most ${inlineLimit(signer)} bytes${origin} in a request head of at most ${this.maxHeadBytes} bytes. It must not consist of hash, size and hashAlg only, which receivers read as a reference to a body.`,
    );
  }
}

/** The method that the delivery, or else the endpoint, asks for; `auto` is POST for an endpoint that needs it. */
export function wantedMethod(
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
): 'auto' | 'HEAD' | 'POST' {
  const wanted = delivery.method ?? endpoint.method;
  const needsPost = endpoint.state.needsPost || isStandardWebhooks(profileOf(delivery, endpoint));
  return wanted === 'auto' && needsPost ? 'POST' : wanted;
}

/** The inline data of a HEAD; `undefined` if HEAD cannot be used. */
function inlineOf(delivery: OutgoingDelivery, endpoint: Endpoint): InlinePayload | undefined {
  const profile = profileOf(delivery, endpoint);
  const { methods } = rulesOf(tokenProfile(profile) ?? DEFAULT_PROFILE);
  if (isStandardWebhooks(profile) || !methods.has('HEAD')) return undefined;
  return inlinePayload(delivery.payload, inlineLimit(endpoint.signer));
}

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
function inlineLimit({ inlineLimit: limit = MAX_INLINE_BYTES }: Endpoint['signer']): number {
  return Math.min(limit, MAX_INLINE_BYTES);
}

/** Whether the payload may fit into a head: base64url adds a third. */
function mayFit({ bytes }: DeliveryPayload, maxHeadBytes: number): boolean {
  return ((bytes?.byteLength ?? 0) * 4) / 3 <= maxHeadBytes;
}

/** Bytes of the whole head of a HEAD request on the wire. */
function headBytes(url: string, headers: Readonly<Record<string, string>>): number {
  const { pathname, search, host } = new URL(url);
  const all = { ...headers, Host: host, Connection: 'keep-alive' };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.byteLength(`HEAD ${pathname}${search} HTTP/1.1\r\n${lines.join('')}\r\n`);
}

/** A view of exactly these bytes: of any other Uint8Array, axios sends the whole underlying memory. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

function profileOf({ profile }: OutgoingDelivery, endpoint: Endpoint): SentProfile {
  return profile ?? endpoint.profile;
}

async function sign(
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
  { signal }: RequestContext,
  content: Pick<WebhookTokenInput, 'data' | 'hash' | 'size' | 'retryCount' | 'envelope'>,
): Promise<string> {
  const token = endpoint.signer.sign({
    profile: tokenProfile(profileOf(delivery, endpoint)),
    event: delivery.event,
    txn: delivery.eventId,
    audience: delivery.audience ?? endpoint.audience,
    subject: delivery.subject ?? endpoint.subject,
    id: endpoint.jti === 'delivery' ? delivery.id : undefined,
    order: orderOf(delivery),
    ...content,
  });
  return signal === undefined
    ? token
    : untilAborted(token, signal, () => signedTooLate(signal.reason));
}

function signedTooLate(cause: unknown): WebhookSigningError {
  return new WebhookSigningError(
    'signing_failed',
    'the signer took longer than the timeout of the attempt; raise the timeout of the endpoint, or make the signer faster.',
    { cause },
  );
}

function orderOf({ orderingKey, sequence }: OutgoingDelivery): WebhookTokenInput['order'] {
  if (orderingKey === undefined || sequence === undefined) return undefined;
  return { key: orderingKey, sequence };
}

/**
 * The body of a request with the signature of Standard Webhooks: the same bytes in every attempt. Bytes that are not JSON in UTF-8 are
 * never in an envelope.
 *
 * @see https://github.com/standard-webhooks/standard-webhooks/blob/main/spec/standard-webhooks.md#payload-structure
 */
function standardBody(
  { event, payload, occurredAt, createdAt }: OutgoingDelivery,
  envelope: boolean,
): Omit<DeliveryPayload, 'kind'> & { readonly envelope: boolean } {
  const { kind, bytes, contentType } = payload;
  if (kind === 'bytes' && !isUtf8Json(contentType)) return { bytes, contentType, envelope: false };
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

/** What differs between the requests of a delivery. */
interface RequestFacts {
  readonly method: 'HEAD' | 'POST';
  readonly bodyBytes: number;
  readonly contentType: string;
  /** Empty if the request has none. */
  readonly token: string;
  /** The headers of Standard Webhooks. */
  readonly signature?: Readonly<Record<string, string>>;
}

/** The headers of the endpoint replace defaults, and those that authenticate it replace both. */
function requestWithoutBody(
  { token, signature, ...facts }: RequestFacts,
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
  { trace, credentials }: RequestContext,
): ComposedRequest {
  const profile = profileOf(delivery, endpoint);
  const format = tokenProfile(profile);
  const bearer = format && { Authorization: `Bearer ${token}` };
  const secret: Record<string, string> = { ...credentials, ...bearer, ...signature };
  const own = without(endpoint.headers, secret);
  return {
    method: facts.method,
    url: endpoint.url,
    headers: {
      // W3C Trace Context, sections 3.2 and 3.3.
      ...(trace !== undefined && { traceparent: trace.traceparent }),
      ...(trace?.tracestate !== undefined && { tracestate: trace.tracestate }),
      ...without(DEFAULT_HEADERS, { ...own, ...secret }),
      ...own,
      ...secret,
      'Content-Type': facts.contentType,
      'Content-Length': String(facts.bodyBytes),
    },
    profile,
    token,
    receipt: format && (() => receiptOf(token, { ...facts, profile: format })),
  };
}

/** The headers that are not among the others, whatever their case. */
function without(
  headers: Readonly<Record<string, string>>,
  others: Readonly<Record<string, string>>,
): Record<string, string> {
  const taken = new Set(Object.keys(others).map((name) => name.toLowerCase()));
  return Object.fromEntries(
    Object.entries(headers).filter(([name]) => !taken.has(name.toLowerCase())),
  );
}
