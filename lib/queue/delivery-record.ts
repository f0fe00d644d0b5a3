import type { FailureReason } from './failure-reason.js';
import type {
  OutgoingDelivery,
  ReceivedDelivery,
  WebhookDelivery,
} from './webhook-delivery.interface.js';

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
   * The queue deleted the payload of a finished delivery to save space. It cannot be sent again, and `payload.bytes`
   * is `undefined`.
   */
  readonly payloadDropped?: true | undefined;
}

/** A delivery as a queue stores it. */
export interface DeliveryRecord<
  Delivery extends WebhookDelivery = WebhookDelivery,
> extends DeliveryState {
  readonly delivery: Delivery;
}

/** A delivery without its payload, which can be large. */
export type DeliveryFacts = Omit<OutgoingDelivery, 'payload'> | Omit<ReceivedDelivery, 'payload'>;

/** A record in a list. */
export interface ListedDelivery<Facts extends DeliveryFacts = DeliveryFacts> extends DeliveryState {
  readonly delivery: Facts;
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
  /** The first 1024 bytes of the answer's body, with anything that looks like a token removed. */
  readonly answer?: string | undefined;
}

/** Selects deliveries; members that are left out match everything. */
export interface DeliveryFilter {
  readonly tenant?: string | undefined;
  readonly endpointId?: string | undefined;
  /** Name of the receiver of a received event. */
  readonly receiver?: string | undefined;
  /** The event's id. */
  readonly eventId?: string | undefined;
  /** The event's name, exactly. */
  readonly event?: string | undefined;
  readonly status?: DeliveryStatus | undefined;
  /** Recorded at this time or later, in epoch milliseconds. */
  readonly since?: number | undefined;
  /** Recorded before this time, in epoch milliseconds. */
  readonly until?: number | undefined;
}

/** A page: at most `limit` deliveries after `after`. */
export interface DeliveryPageRequest {
  readonly after?: { readonly createdAt: number; readonly id: string } | undefined;
  readonly limit: number;
}

/** The number of deliveries by state, for one endpoint and tenant, or for the events of one receiver. */
export interface DeliveryCounts {
  readonly endpointId?: string | undefined;
  readonly tenant?: string | undefined;
  readonly receiver?: string | undefined;
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** The earliest due time of the pending deliveries, in epoch milliseconds. */
  readonly oldestDue?: number | undefined;
}

/** Selects the deliveries to count. */
export interface DeliveryCountFilter extends Pick<
  DeliveryFilter,
  'tenant' | 'endpointId' | 'receiver' | 'since' | 'until'
> {
  /** Counts only what is not delivered, which stays fast in a large queue; `delivered` is 0 then. */
  readonly unfinished?: true | undefined;
}
