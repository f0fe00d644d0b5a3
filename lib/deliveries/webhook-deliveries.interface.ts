import type { FailureReason } from '../queue/failure-reason.js';
import type { DeliveryStatus } from './delivery-log.js';

/**
 * Which deliveries. A member that is left out matches everything. An unknown member and one that is `undefined` are refused: a
 * mistake must not widen what is found, least of all what is sent again.
 */
export interface WebhookDeliveryFilter {
  readonly tenant?: string;
  readonly endpointId?: string;
  /** The event's id. */
  readonly eventId?: string;
  /** The event's name, exactly. */
  readonly event?: string;
  readonly status?: DeliveryStatus;
  /** Recorded at this time or later. */
  readonly since?: Date;
  /** Recorded before this time. */
  readonly until?: Date;
}

/** Limits a call to one tenant; the deliveries of others are reported as unknown. */
export interface WebhookDeliveryScope {
  /** Leave it out for all tenants; `undefined` is refused, since it is most often a mistake. */
  readonly tenant?: string;
}

/** Which part of a list. */
export interface DeliveryPageOptions extends WebhookDeliveryScope {
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** 1 to 500; default 50. */
  readonly limit?: number | undefined;
}

/** How a delivery stands: no payload, no token, and of a URL the origin only. */
export interface WebhookDeliveryView {
  readonly id: string;
  /** The event's id: `txn` of its tokens. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** Absent for a URL. */
  readonly endpointId?: string;
  /** Of a URL that the caller of `send` named. */
  readonly origin?: string;
  readonly tenant?: string;
  readonly status: DeliveryStatus;
  /** Attempts made so far in this round. */
  readonly attemptsMade: number;
  /** 1, and more for one that was sent again after it was delivered. */
  readonly round: number;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** With `pending`. */
  readonly nextAttemptAt?: Date;
  /** Of the last attempt that failed, or why there was none; absent once it was delivered. */
  readonly failureReason?: FailureReason;
}

/** One attempt. */
export interface WebhookAttemptView {
  /** 1 for the first of its round. */
  readonly attempt: number;
  /** When it began. */
  readonly at: Date;
  readonly method: 'HEAD' | 'POST';
  /** Absent when no answer came. */
  readonly statusCode?: number;
  /** Milliseconds. */
  readonly durationMs: number;
  /** Absent when it was acknowledged. */
  readonly failureReason?: FailureReason;
  /** The first 1024 bytes of the answer's body. It is the receiver's: escape it before it is shown. */
  readonly answer?: string;
}

/** A delivery with its attempts, the first first. */
export interface WebhookDeliveryDetails extends WebhookDeliveryView {
  readonly attempts: readonly WebhookAttemptView[];
}

/** A part of a list, the newest first. */
export interface WebhookDeliveryPage {
  readonly deliveries: readonly WebhookDeliveryView[];
  /** Where the rest begins; absent where there is none. */
  readonly next?: string;
}

/** The body of an event. */
export interface WebhookDeliveryPayload {
  readonly contentType: string;
  /** Empty for an event without data. */
  readonly bytes: Buffer;
}

/** How a redelivery goes about. */
export interface RedeliverOptions extends WebhookDeliveryScope {
  /** Changes nothing, and tells what would be sent again; default `false`. */
  readonly dryRun?: boolean | undefined;
  /** Deliveries of one call, with a filter; 1 to 10,000, default 1,000. */
  readonly limit?: number | undefined;
}

/** Why a delivery was not sent again. */
export type NotRedeliveredReason =
  /** It is on its way, or a later round of it is. */
  | 'pending'
  /** The queue has delivered it, and the log has not been told. */
  | 'delivered'
  /** A later round of it exists, which a filter takes in its place where it asks for it. */
  | 'superseded';

/** What became of one delivery in a redelivery. */
export interface RedeliveredDelivery {
  readonly id: string;
  readonly redelivered: boolean;
  /** The id that it is sent under now, where that is another: a delivered one stays what it was. */
  readonly as?: string;
  /** Why not. */
  readonly reason?: NotRedeliveredReason;
}

/** What became of a redelivery. */
export interface RedeliverResult {
  readonly deliveries: readonly RedeliveredDelivery[];
  /** Whether the filter matches more than `limit`. */
  readonly more: boolean;
}

/** How many deliveries stand how. */
export interface DeliveryStanding {
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** For how many milliseconds the pending one that is due first has been overdue; 0 where none is. */
  readonly lag: number;
}

/** The deliveries of one endpoint; without `endpointId` those to URLs. */
export interface EndpointStanding extends DeliveryStanding {
  readonly endpointId?: string;
  readonly tenant?: string;
}

/** How deliveries stand, in all and by endpoint. */
export interface WebhookDeliveryStats extends DeliveryStanding {
  readonly endpoints: readonly EndpointStanding[];
}
