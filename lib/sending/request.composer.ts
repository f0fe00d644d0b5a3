import type { TraceContext } from '../diagnostics/operation.js';
import { WebhookDeliveryError, WebhookSigningError } from '../errors/webhook.error.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.js';
import type { WebhookClock } from '../clock/webhook-clock.js';
import { digest } from '../token/payload-hash.js';
import { rulesOf, type ProfileRules } from '../token/profiles/profile.js';
import type { WebhookTokenInput } from '../token/token-signer.js';
import { receiptOf, type WebhookReceipt } from '../token/webhook-receipt.js';
import { DEFAULT_PROFILE, type SentProfile } from '../token/webhook-token.constants.js';
import type { Endpoint } from './endpoint.js';
import {
  asBuffer,
  headBytes,
  headersFor,
  inlineLimit,
  inlinePayload,
  mayFit,
  plainBody,
  standardBody,
} from './request-parts.js';
import { isStandardWebhooks, tokenProfile } from './sent-profile.js';
import { signingFailure, untilAborted } from './signing-failure.js';

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

const MS_PER_SECOND = 1_000;

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
    const body = isStandard ? standardBody(delivery, endpoint.envelope) : plainBody(delivery);
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
    const facts = { method: 'POST', bodyBytes: bytes?.byteLength ?? 0, contentType } as const;
    return {
      ...requestOf(facts, { token, signature }, delivery, endpoint, context),
      body: bytes,
    };
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
    const time = String(Math.floor(this.clock.now() / MS_PER_SECOND));
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
    const facts = { method: 'HEAD', bodyBytes: 0, contentType } as const;
    const request = requestOf(facts, { token, signature: {} }, delivery, endpoint, context);
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
function inlineOf(
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
): ReturnType<typeof inlinePayload> {
  const profile = profileOf(delivery, endpoint);
  if (isStandardWebhooks(profile) || !tokenRules(profile).methods.has('HEAD')) return undefined;
  return inlinePayload(delivery.payload, inlineLimit(endpoint.signer));
}

function profileOf({ profile }: OutgoingDelivery, endpoint: Endpoint): SentProfile {
  return profile ?? endpoint.profile;
}

function tokenRules(profile: SentProfile): ProfileRules {
  return rulesOf(tokenProfile(profile) ?? DEFAULT_PROFILE);
}

async function sign(
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
  { signal }: RequestContext,
  content: Pick<WebhookTokenInput, 'data' | 'hash' | 'size' | 'retryCount' | 'envelope'>,
): Promise<string> {
  const token = endpoint.signer.sign({
    ...content,
    profile: tokenProfile(profileOf(delivery, endpoint)),
    event: delivery.event,
    txn: delivery.eventId,
    audience: delivery.audience ?? endpoint.audience,
    subject: delivery.subject ?? endpoint.subject,
    id: endpoint.jti === 'delivery' ? delivery.id : undefined,
    order: orderOf(delivery),
  });
  return signal === undefined ? token : untilAborted(token, signal);
}

function orderOf({ orderingKey, sequence }: OutgoingDelivery): WebhookTokenInput['order'] {
  if (orderingKey === undefined || sequence === undefined) return undefined;
  return { key: orderingKey, sequence };
}

interface RequestFacts {
  readonly method: 'HEAD' | 'POST';
  readonly bodyBytes: number;
  readonly contentType: string;
}

interface Credentials {
  /** Empty if the request has none. */
  readonly token: string;
  /** The headers of Standard Webhooks. */
  readonly signature: Readonly<Record<string, string>>;
}

/** A request without its body. */
function requestOf(
  facts: RequestFacts,
  { token, signature }: Credentials,
  delivery: OutgoingDelivery,
  endpoint: Endpoint,
  { trace, credentials = {} }: RequestContext,
): ComposedRequest {
  const profile = profileOf(delivery, endpoint);
  const format = tokenProfile(profile);
  const bearer: Record<string, string> =
    format === undefined ? {} : { Authorization: `Bearer ${token}` };
  return {
    method: facts.method,
    url: endpoint.url,
    headers: headersFor(endpoint, {
      ...facts,
      credentials: { ...credentials, ...bearer, ...signature },
      trace,
    }),
    profile,
    token,
    receipt: format && (() => receiptOf(token, { ...facts, profile: format })),
  };
}
