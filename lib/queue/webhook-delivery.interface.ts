import type { TraceContext } from '../diagnostics/operation.js';
import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';

/** The body of an event, serialised once, when it was published. */
export interface DeliveryPayload {
  /** `json` may travel inline in the token; `bytes` are always sent as a body. */
  readonly kind: 'json' | 'bytes';
  /** The exact bytes that every attempt sends; `undefined` for an event without data. */
  readonly bytes: Uint8Array | undefined;
  /** The media type of the bytes. */
  readonly contentType: string;
}

/** A verified event without its body and its token. All members are JSON. */
export interface ReceivedEvent {
  /** Name of the receiver whose handlers run. */
  readonly receiver: string;
  readonly claims: WebhookTokenClaims;
  readonly method: 'HEAD' | 'POST';
  readonly profile: WebhookProfile;
  /** The media type of the data; absent if there is none. */
  readonly contentType?: string;
  readonly bodyVerified: boolean;
}

/** What a queue stores of every delivery. */
interface RecordedEvent {
  /** Derived from the event's id and the destination, so that the same event is recorded once. */
  readonly id: string;
  /** The event's id: the claim `txn`, equal in all attempts and for all endpoints. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  readonly payload: DeliveryPayload;
  /**
   * Digest of event name, media type and payload: distinguishes a duplicate from another event with the same id. Absent for a
   * received event, whose receiver compares it before it is recorded.
   */
  readonly contentDigest?: string;
  /** Epoch milliseconds. */
  readonly createdAt: number;
  /** The trace of the publish, or of the request that brought a received event; absent without tracing. */
  readonly trace?: TraceContext;
}

/**
 * A published event for one destination. It contains no token and no secret: each attempt is signed with the key that is
 * current then.
 */
export interface OutgoingDelivery extends RecordedEvent {
  readonly received?: undefined;
  /** The endpoint's id; either `endpointId` or `url` is set. */
  readonly endpointId?: string;
  /** A URL that the caller passed. It may contain a credential: never log it. */
  readonly url?: string;
  /** Overrides the endpoint's audience. */
  readonly audience?: string | readonly string[];
  /** Overrides the endpoint's subject. */
  readonly subject?: string;
  /** Overrides the endpoint's choice of method. */
  readonly method?: DeliveryMethod;
  /** Overrides the endpoint's wire format. */
  readonly profile?: WebhookProfile;
  readonly tenant?: string;
  /** 2 or more for a redelivery that is a delivery of its own; absent for the first. */
  readonly round?: number;
}

/** A received event that was acknowledged, for the handlers of its receiver. It contains no token. */
export interface ReceivedDelivery extends RecordedEvent {
  readonly received: ReceivedEvent;
}

/** What a queue stores: a publisher records outgoing deliveries, a receiver received ones. */
export type WebhookDelivery = OutgoingDelivery | ReceivedDelivery;

/** `auto` prefers HEAD with inline data where it fits. */
export type DeliveryMethod = 'auto' | 'HEAD' | 'POST';
