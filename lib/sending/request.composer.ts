import type { TraceContext } from '../diagnostics/operation.js';
import {
  isWebhookError,
  WebhookDeliveryError,
  WebhookSigningError,
} from '../errors/webhook.error.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { DeliveryPayload, OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import { digest } from '../token/payload-hash.js';
import { looksLikeBodyReference } from '../token/profiles/swt-draft-00.profile.js';
import { rulesOf } from '../token/profiles/profile-choice.js';
import type { ProfileRules } from '../token/profiles/profile-rules.js';
import { InlineJson, type WebhookTokenInput } from '../token/token-signer.js';
import { receiptOf, type WebhookReceipt } from '../token/webhook-receipt.js';
import { MAX_INLINE_BYTES } from '../token/webhook-token.constants.js';
import type { Endpoint } from './endpoint.js';

/** A signed request, ready to be sent. It holds the token, so never log it. */
export interface ComposedRequest {
  readonly method: 'HEAD' | 'POST';
  readonly url: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly body?: Buffer | undefined;
  readonly token: string;
  /** Creates the receipt, on demand because few need it. The only part that is safe to log. */
  readonly receipt: () => WebhookReceipt;
}

/** The attempt that a request belongs to. */
export interface RequestContext {
  /** Counts from 1; some wire formats carry it. Default 1. */
  readonly attempt?: number | undefined;
  /** Sent in headers. */
  readonly trace?: TraceContext | undefined;
  /** Ends the wait for a signature; its reason is `'timeout'` or `'aborted'`. */
  readonly signal?: AbortSignal | undefined;
}

type Headers = Readonly<Record<string, string>>;

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
    private readonly maxHeadBytes: number,
    private readonly inheritedHeaders: () => Headers | undefined,
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
    const { bytes, contentType } = delivery.payload;
    const body = bytes && asBuffer(bytes);
    const rules = rulesFor(delivery, endpoint);
    const hashed = body ?? (rules.hashesEmptyBody ? Buffer.alloc(0) : undefined);
    const token = await sign(delivery, endpoint, context, {
      hash: hashed && digest(endpoint.hash ?? rules.defaultHash, hashed),
      size: hashed?.byteLength,
      retryCount: (context.attempt ?? 1) - 1,
    });
    const bodyBytes = body?.byteLength ?? 0;
    const facts = { method: 'POST', bodyBytes, contentType, profile: rules.name } as const;
    const headers = headersFor(endpoint, token, facts, context);
    return {
      method: 'POST',
      url: endpoint.url,
      headers,
      body,
      token,
      receipt: () => receiptOf(token, facts),
    };
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

  /** @returns `undefined` if HEAD cannot be used */
  private async composeHead(
    delivery: OutgoingDelivery,
    endpoint: Endpoint,
    context: RequestContext,
  ): Promise<ComposedRequest | undefined> {
    const inline = inlineOf(delivery, endpoint);
    // Base64url adds a third. Data that cannot fit is not signed, since that may be a remote call.
    const payloadBytes = delivery.payload.bytes?.byteLength ?? 0;
    if (inline === undefined || (payloadBytes * 4) / 3 > this.maxHeadBytes) return undefined;
    const token = await sign(delivery, endpoint, context, inline);
    const { name } = rulesFor(delivery, endpoint);
    // Explicitly 0 bytes: a HEAD that declares another length desynchronises the connection.
    const facts = {
      method: 'HEAD',
      bodyBytes: 0,
      contentType: 'application/json',
      profile: name,
    } as const;
    const headers = headersFor(endpoint, token, facts, context);
    const all = { ...this.inheritedHeaders(), ...headers };
    if (headBytes(endpoint.url, all) > this.maxHeadBytes) return undefined;
    return {
      method: 'HEAD',
      url: endpoint.url,
      headers,
      token,
      receipt: () => receiptOf(token, facts),
    };
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
  return wanted === 'auto' && endpoint.state.needsPost ? 'POST' : wanted;
}

/**
 * The failure reason for an error of the signer.
 *
 * @returns `undefined` for other errors
 */
export function signingFailure(error: unknown): FailureReason | undefined {
  if (NO_KEY.some((code) => isWebhookError(error, code))) return 'no_signing_key';
  if (!isWebhookError(error, 'signing_failed')) return undefined;
  return error.cause === 'aborted' ? 'aborted' : 'signing_failed';
}

/** Errors that a later attempt may not meet: each is retried until the operator has corrected its cause, so no event is lost. */
const NO_KEY = [
  'no_signing_key',
  // A key provider that is unavailable has no key for now.
  'keys_unavailable',
  'sealed_secret_unreadable',
  'endpoint_unreadable',
  // The provider's current key does not fit the wire format; a later one may.
  'invalid_token',
] as const;

/** Payload that can be part of a token: no data, or an object. */
interface InlinePayload {
  readonly data?: InlineJson;
}

const OPEN_BRACE = 0x7b;

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

/** Payloads that were checked, `null` if refused: an event has one for all of its endpoints and attempts. */
const checkedInline = new WeakMap<Uint8Array, InlinePayload | null>();

/** The inline data of a HEAD; `undefined` if HEAD cannot be used. */
function inlineOf(delivery: OutgoingDelivery, endpoint: Endpoint): InlinePayload | undefined {
  if (!rulesFor(delivery, endpoint).methods.has('HEAD')) return undefined;
  return inlinePayload(delivery.payload, inlineLimit(endpoint.signer));
}

/** The largest inline data that a signer accepts, in bytes: a remote signer may be billed by the byte. */
function inlineLimit({ inlineLimit: limit = MAX_INLINE_BYTES }: Endpoint['signer']): number {
  return Math.min(limit, MAX_INLINE_BYTES);
}

function rulesFor({ profile }: OutgoingDelivery, endpoint: Endpoint): ProfileRules {
  return rulesOf(profile ?? endpoint.profile);
}

async function sign(
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
  { signal }: RequestContext,
  content: Pick<WebhookTokenInput, 'data' | 'hash' | 'size' | 'retryCount'>,
): Promise<string> {
  const token = endpoint.signer.sign({
    ...content,
    profile: delivery.profile ?? endpoint.profile,
    event: delivery.event,
    txn: delivery.eventId,
    audience: delivery.audience ?? endpoint.audience,
    subject: delivery.subject ?? endpoint.subject,
    id: endpoint.jti === 'delivery' ? delivery.id : undefined,
  });
  return typeof token === 'string' || signal === undefined ? token : untilAborted(token, signal);
}

/** Waits for a signature until the attempt ends; a later signature is dropped. */
async function untilAborted(token: Promise<string>, signal: AbortSignal): Promise<string> {
  let stop = (): void => undefined;
  const late = new Promise<never>((_, reject) => {
    stop = () => reject(tooLate(signal.reason));
  });
  if (signal.aborted) stop();
  else signal.addEventListener('abort', stop);
  try {
    return await Promise.race([token, late]);
  } finally {
    signal.removeEventListener('abort', stop);
  }
}

function tooLate(cause: unknown): WebhookSigningError {
  return new WebhookSigningError(
    'signing_failed',
    'the signer took longer than the timeout of the attempt; raise the timeout of the endpoint, or make the signer faster.',
    { cause },
  );
}

/** A view of exactly these bytes: of any other Uint8Array, axios sends the whole underlying memory. */
function asBuffer(bytes: Uint8Array): Buffer {
  return Buffer.isBuffer(bytes)
    ? bytes
    : Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength);
}

/** Headers that a client would add are explicit, so that the size of the head is known before it is sent. */
const DEFAULT_HEADERS = {
  Accept: '*/*',
  'Accept-Encoding': 'identity',
  'User-Agent': 'nestjs-webhook-token',
};

function headersFor(
  { headers: own }: Endpoint,
  token: string,
  { contentType, bodyBytes }: { readonly contentType: string; readonly bodyBytes: number },
  { trace }: RequestContext,
): Record<string, string> {
  const names = new Set(Object.keys(own).map((name) => name.toLowerCase()));
  const headers: Record<string, string> = {};
  if (trace !== undefined) {
    // W3C Trace Context, sections 3.2 and 3.3.
    headers['traceparent'] = trace.traceparent;
    if (trace.tracestate !== undefined) headers['tracestate'] = trace.tracestate;
  }
  for (const [name, value] of Object.entries(DEFAULT_HEADERS)) {
    if (!names.has(name.toLowerCase())) headers[name] = value;
  }
  return {
    ...headers,
    ...own,
    Authorization: `Bearer ${token}`,
    'Content-Type': contentType,
    'Content-Length': String(bodyBytes),
  };
}

/** Bytes of the whole head of a HEAD request on the wire. */
function headBytes(url: string, headers: Headers): number {
  const { pathname, search, host } = new URL(url);
  const all = { ...headers, Host: host, Connection: 'keep-alive' };
  const lines = Object.entries(all).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.byteLength(`HEAD ${pathname}${search} HTTP/1.1\r\n${lines.join('')}\r\n`);
}
