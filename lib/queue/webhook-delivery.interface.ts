import type { WebhookTokenClaims } from '../token/webhook-claims.interface.js';
import type { WebhookProfile } from '../token/webhook-token.constants.js';

/** The body of an event, serialised once, when it was published. */
export interface DeliveryPayload {
  /** `json` may travel inline in the token; `bytes` are always sent as a body. */
  readonly kind: 'json' | 'bytes';
  /** The exact octets every attempt sends; `undefined` for an event without data. */
  readonly bytes: Uint8Array | undefined;
  /** The media type of the octets. */
  readonly contentType: string;
}

/** What a receiver knows of a verified event besides its body; the token itself is not kept. All of it is JSON. */
export interface ReceivedEvent {
  /** Name of the receiver whose handlers get it. */
  readonly receiver: string;
  readonly claims: WebhookTokenClaims;
  readonly method: 'HEAD' | 'POST';
  readonly profile: WebhookProfile;
  /** Of the data; absent where there is none. */
  readonly contentType?: string;
  readonly bodyVerified: boolean;
}

/**
 * One event on its way to one destination, an endpoint or the handlers of a receiver: all that a queue stores of it.
 *
 * It holds no token and no secret. Each attempt signs anew, with the key of that hour.
 */
export interface WebhookDelivery {
  /** Follows from the event's id and its destination, so that the same event is recorded once. */
  readonly id: string;
  /** The event's id: the claim `txn`, the same over all attempts and all endpoints. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** The endpoint's id; exactly one of `endpointId`, `url` and `received` is set. */
  readonly endpointId?: string;
  /** A destination named by the caller. It may carry a credential in its query: never log it. */
  readonly url?: string;
  /** For an event that came in, was verified and acknowledged, and now goes to this process's handlers. */
  readonly received?: ReceivedEvent;
  readonly payload: DeliveryPayload;
  /** Digest of the event's name, media type and payload: tells a duplicate from another event under the same id. */
  readonly contentDigest?: string;
  /** Overrides the endpoint's audience. */
  readonly audience?: string | readonly string[];
  /** Overrides the endpoint's subject. */
  readonly subject?: string;
  /** Overrides the endpoint's choice of method. */
  readonly method?: DeliveryMethod;
  /** Overrides the endpoint's wire format. */
  readonly profile?: WebhookProfile;
  readonly tenant?: string;
  /** 2 and more for an event that is sent again on demand, which makes it another delivery; absent for the first. */
  readonly round?: number;
  /** Epoch milliseconds. */
  readonly createdAt: number;
}

/** `auto` prefers HEAD with inline data where it fits. */
export type DeliveryMethod = 'auto' | 'HEAD' | 'POST';
