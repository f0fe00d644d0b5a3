import { hash } from 'node:crypto';
import type { TraceContext } from '../diagnostics/operation.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import type { ReceivedProfile, SentProfile } from '../token/webhook-token.constants.js';
import { waitAfterThrow } from './retry-schedule.js';

/**
 * A verified event without its data and its token. All members are JSON. Inline data is the payload, of the kind `json`, and
 * `claims.webhook.data` is `null` in its place.
 */
export interface ReceivedEvent {
  /** Name of the receiver whose handlers run. */
  readonly receiver: string;
  readonly claims: WebhookTokenClaims;
  readonly method: 'HEAD' | 'POST';
  readonly profile: ReceivedProfile;
  /** The media type of the data; absent if there is none. */
  readonly contentType?: string;
  readonly bodyVerified: boolean;
}

/** What a queue stores of every delivery. */
interface RecordedEvent {
  /** Derived from the event's id and the endpoint, so that the same event is recorded once. */
  readonly id: string;
  /** The event's id: the claim `txn`, equal in all attempts and for all endpoints. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** The body, serialised once, when the event was published. */
  readonly payload: {
    /** `json` may travel inline in the token; `bytes` are always sent as a body. */
    readonly kind: 'json' | 'bytes';
    /** The exact bytes that every attempt sends; `undefined` for an event without data. */
    readonly bytes: Uint8Array | undefined;
    /** The media type of the bytes. */
    readonly contentType: string;
  };
  /**
   * Digest of event name, media type and payload: distinguishes a duplicate from another event with the same id. Absent for a
   * received event, whose receiver compares it before it is recorded.
   */
  readonly contentDigest?: string;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  /** The trace of the publish, or of the request that brought a received event; absent without tracing. */
  readonly trace?: TraceContext;
  /** Deliveries of one endpoint or receiver with the same key run one at a time, in the order in which they were recorded. */
  readonly orderingKey?: string;
  /**
   * The number of the delivery among those of its lane and key, which its queue sets when it records the delivery. One that is
   * recorded with a number has had its turn before: it waits for none, and none waits for it.
   */
  readonly sequence?: number;
}

/**
 * A published event for one endpoint. It contains no token and no secret: each attempt is signed with the key that is
 * current then.
 */
export interface OutgoingDelivery extends RecordedEvent {
  readonly received?: undefined;
  /** The endpoint's id; either `endpointId` or `url` is set. */
  readonly endpointId?: string;
  /** A URL that the caller passed. It may contain a credential: never log it. */
  readonly url?: string;
  readonly tenant?: string;
  /** Overrides the endpoint's audience. */
  readonly audience?: string | readonly string[];
  /** Overrides the endpoint's subject. */
  readonly subject?: string;
  /** Overrides the endpoint's choice of method. */
  readonly method?: DeliveryMethod;
  /** Overrides the endpoint's wire format. */
  readonly profile?: SentProfile;
  /** 2 or more for a redelivery that is a delivery of its own; absent for the first. */
  readonly round?: number;
  /** It is given up at this time, in epoch milliseconds; absent if only the retry schedule limits it. */
  readonly expiresAt?: number;
  /** When the event was published, in epoch milliseconds; with `round`, whose delivery was created later. */
  readonly occurredAt?: number;
}

/** A received event that was acknowledged, for the handlers of its receiver. It contains no token. */
export interface ReceivedDelivery extends RecordedEvent {
  readonly received: ReceivedEvent;
}

/** What a queue stores: a publisher records outgoing deliveries, a receiver received ones. */
export type WebhookDelivery = OutgoingDelivery | ReceivedDelivery;

/** A delivery without its payload, which can be large. */
export type DeliveryFacts = Omit<OutgoingDelivery, 'payload'> | Omit<ReceivedDelivery, 'payload'>;

/** The body of an event. */
export type DeliveryPayload = WebhookDelivery['payload'];

/** `auto` prefers HEAD with inline data where it fits. */
export type DeliveryMethod = 'auto' | 'HEAD' | 'POST';

/** The state of a delivery. One that is being attempted is `pending`. */
export type DeliveryStatus = 'pending' | 'delivered' | 'dead';

/** The state of a delivery, which changes with each attempt. */
export interface DeliveryState {
  readonly status: DeliveryStatus;
  /** Attempts of this round that ended: failed ones while it is pending, all of them once it is delivered or dead. */
  readonly attempts: number;
  /** Epoch milliseconds; with `pending`. */
  readonly nextAttemptAt?: number | undefined;
  /** Why the last attempt failed, or why none was made; absent once delivered. */
  readonly reason?: FailureReason | undefined;
  /** The time of the last change, in epoch milliseconds; `createdAt` if there was none. */
  readonly updatedAt: number;
  /**
   * The queue dropped the payload of a finished delivery, by `keepPayloads` or to save space. It cannot be sent again, and
   * `payload.bytes` is `undefined`.
   */
  readonly payloadDropped?: true | undefined;
  /** Once it is due, it may have to wait for the limits of its lane; absent while it is attempted. */
  readonly isLimited?: true | undefined;
  /** Its part in the order of its key; absent if it waits for none, and none has to be released from it. */
  readonly keyState?: DeliveryKeyState | undefined;
}

/**
 * `waiting`: a pending delivery that waits for an earlier one of its key. `blocking`: a dead one for which the later ones of
 * its key wait, until it is redelivered or skipped.
 */
export type DeliveryKeyState = 'waiting' | 'blocking';

/** A delivery as a queue stores it. */
export interface DeliveryRecord<
  Delivery extends WebhookDelivery = WebhookDelivery,
> extends DeliveryState {
  readonly delivery: Delivery;
}

/** One attempt: an HTTP request for an outgoing delivery, a run of the handlers for a received one. */
export interface DeliveryAttempt {
  /** 1 for the first attempt of its round. */
  readonly attempt: number;
  /** Start time, in epoch milliseconds. */
  readonly at: number;
  readonly durationMs: number;
  /** The method of the request; absent for a received event. */
  readonly method?: 'HEAD' | 'POST' | undefined;
  /** Absent if no answer arrived. */
  readonly statusCode?: number | undefined;
  /** Absent if the attempt succeeded. */
  readonly reason?: FailureReason | undefined;
  /**
   * The first 1024 bytes of the answer's body, with anything that looks like a token removed; for a received event, what
   * its handlers threw.
   */
  readonly answer?: string | undefined;
  /** Of the last request; absent if none was signed with a token, and for a received event. */
  readonly signed?: SignedFacts | undefined;
}

/**
 * What the token of a request said and nothing else can tell later: the other claims are those of the delivery. The token itself is
 * never stored. A list, since a queue stores one with each attempt; times are seconds since the epoch.
 */
export type SignedFacts = readonly [
  jti: string,
  issuedAt: number,
  expiresAt: number,
  alg: string,
  kid?: string,
];

/** Why an attempt failed. Safe to log and to store: contains no part of the request or the response. */
export type FailureReason =
  /** The attempt's deadline passed. */
  | 'timeout'
  /** The host name did not resolve. */
  | 'dns'
  | 'connection_refused'
  | 'connection_reset'
  /** The certificate is invalid, or the handshake failed. */
  | 'tls'
  /** The head of the response exceeds the limit; with an HttpService that changes requests, also its body. */
  | 'response_too_large'
  /** The response is not HTTP. */
  | 'malformed_response'
  /** The egress guard refuses the URL or its addresses. */
  | 'destination_blocked'
  /** The request cannot be built, for example because a HEAD cannot carry the payload. */
  | 'invalid_request'
  /** The endpoint no longer exists; or, of a pending delivery, it is not known yet to the process that looked. */
  | 'unknown_endpoint'
  /** The endpoint is disabled: by request, because it answered 410, or because it kept failing. */
  | 'endpoint_disabled'
  /** No attempt was made: the endpoint is paused, and the delivery waits until it is resumed. */
  | 'endpoint_paused'
  /** No attempt was made yet: the last ones to the endpoint failed, and its circuit breaker is open. */
  | 'circuit_open'
  /** No attempt was made yet: the receiver has asked to wait, by 429 or `Retry-After`, or its answers time out. */
  | 'endpoint_overloaded'
  /** The signer failed, returned no valid signature, or exceeded the attempt's timeout. */
  | 'signing_failed'
  /** No signing key is valid now, the key provider failed, or a stored secret or credential cannot be decrypted. */
  | 'no_signing_key'
  /** The token endpoint of the endpoint's OAuth 2 credentials issued no access token. */
  | 'credentials_unavailable'
  /** The egress proxy cannot be reached, or refuses the connection. */
  | 'proxy_failed'
  /** No connection could be opened: this process or its system has reached its limit of open files. */
  | 'too_many_open_files'
  /** It was not delivered in the time that the publish set by `expiresIn`. */
  | 'expired'
  /** The application shut down while the attempt ran. */
  | 'aborted'
  /** A handler of a queued received event failed. */
  | 'handler_failed'
  /** No handler of this process matches a queued received event. */
  | 'event_unhandled'
  /** The process died, or was killed, in the last run of a queued received event. */
  | 'process_died'
  /** Any other network failure. */
  | 'network'
  /** The receiver answered with this status. */
  | `http_${number}`;

/** What happens to a delivery after one run. */
export type DeliveryOutcome =
  | { readonly type: 'delivered' }
  /** The attempt failed; the next one is due at `at` (epoch milliseconds). */
  | { readonly type: 'retry'; readonly at: number; readonly reason: FailureReason }
  /** No attempt counts, also not one that a shutdown aborted; the same attempt is due at `at` (epoch milliseconds). */
  | { readonly type: 'defer'; readonly at: number; readonly reason?: FailureReason | undefined }
  /**
   * The delivery is given up after `attempts`, which may be 0; only `redeliver` revives it. With `blocksKey`, the later ones
   * of its ordering key wait until it is redelivered or skipped.
   */
  | {
      readonly type: 'dead';
      readonly reason: FailureReason;
      readonly attempts: number;
      readonly blocksKey?: boolean | undefined;
    };

/**
 * How fast the deliveries of one lane may start, in all processes together. Without `concurrency` and `perSecond` there is no
 * limit.
 */
export interface DeliveryLimits {
  /** Attempts that run at once. */
  readonly concurrency?: number | undefined;
  /** Attempts a second on average; may be below 1. */
  readonly perSecond?: number | undefined;
  /** With `perSecond`: attempts that may start at once after a rest. */
  readonly burst?: number | undefined;
  /** Epoch milliseconds. A change ends the pause and the slower rate of an earlier overload. */
  readonly since?: number | undefined;
}

/** One run of a delivery, which the queue records in one step. */
export interface DeliveryRun {
  readonly outcome: DeliveryOutcome;
  /** Absent if no attempt was made. */
  readonly attempt?: DeliveryAttempt | undefined;
  /** The current limits of its lane, which replace those that the queue knows; absent if they are unknown. */
  readonly limits?: DeliveryLimits | undefined;
  /**
   * The receiver is overloaded. If its lane is limited, none of its deliveries starts before this time (epoch milliseconds), and
   * its rate is lower for a while.
   */
  readonly overloadedUntil?: number | undefined;
}

/**
 * Derives a delivery's id from its event's id and its endpoint, so that an event published twice is one delivery.
 *
 * It is a digest because ids are logged and a URL may contain a credential.
 */
export function deliveryId({
  eventId,
  endpointId,
  url,
  tenant,
  round,
}: Pick<OutgoingDelivery, 'eventId' | 'endpointId' | 'url' | 'round'> & {
  readonly tenant?: string | undefined;
}): string {
  // What is undefined becomes null.
  const identity = [eventId, endpointId, url, tenant];
  if (round !== undefined) identity.push(String(round));
  return hash('sha256', JSON.stringify(identity), 'base64url');
}

/** Names the lane of a delivery: its endpoint and tenant, the origin of its URL, or its receiver. */
export function deliveryLane(delivery: DeliveryFacts): string {
  const { received } = delivery;
  if (received === undefined) return endpointLane(delivery);
  return JSON.stringify(['receiver', received.receiver]);
}

/** Names the lane of an endpoint, or of the origin of a URL. */
export function endpointLane({
  endpointId,
  url,
  tenant,
}: Pick<OutgoingDelivery, 'endpointId' | 'url'> & {
  readonly tenant?: string | undefined;
}): string {
  // A damaged record must not stop the queue; its attempt fails.
  if (endpointId === undefined) return originOf(url) ?? 'no URL';
  return JSON.stringify([endpointId, tenant ?? null]);
}

/** The part of a URL that is safe to show: its path and its query may hold credentials. `undefined` for an invalid one. */
export function originOf(url: string | undefined): string | undefined {
  return url !== undefined && URL.canParse(url) ? new URL(url).origin : undefined;
}

/** Whether a delivery that is recorded is numbered, and waits for the earlier ones of its key. */
export function takesTurn({ orderingKey, sequence }: WebhookDelivery): boolean {
  return orderingKey !== undefined && sequence === undefined;
}

/** What a run changes of a delivery. */
interface RunState {
  readonly status: DeliveryStatus;
  /** Attempts of this round. */
  readonly attempts: number;
  /** How often in a row the handler threw. */
  readonly throws: number;
  readonly reason?: FailureReason | undefined;
  /** When it is due again, in epoch milliseconds; while it is pending. */
  readonly due?: number | undefined;
  /** Whether it keeps its ordering key although it is dead. */
  readonly blocksKey?: boolean | undefined;
}

/**
 * The state of a pending delivery after a run.
 *
 * @param before - with the reason of the last failed attempt, which a `defer` without one keeps
 * @param run - `undefined` if the handler threw
 * @param now - epoch milliseconds
 */
export function stateAfterRun(
  { attempts, throws, reason }: Pick<RunState, 'attempts' | 'throws' | 'reason'>,
  run: DeliveryRun | undefined,
  now: number,
): RunState {
  const pending = { status: 'pending', attempts, throws: 0 } as const;
  if (run === undefined) {
    return { ...pending, throws: throws + 1, reason, due: now + waitAfterThrow(throws) };
  }
  const { outcome } = run;
  switch (outcome.type) {
    case 'delivered':
      return { status: 'delivered', attempts: attempts + 1, throws: 0 };
    case 'dead':
      return {
        status: 'dead',
        attempts: outcome.attempts,
        throws: 0,
        reason: outcome.reason,
        blocksKey: outcome.blocksKey,
      };
    case 'retry':
      return { ...pending, attempts: attempts + 1, reason: outcome.reason, due: outcome.at };
    case 'defer':
      return { ...pending, reason: outcome.reason ?? reason, due: outcome.at };
  }
}
