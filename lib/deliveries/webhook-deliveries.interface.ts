import type { Duration } from '../clock/duration.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { DeliveryStatus } from '../queue/delivery-record.js';

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

/** Which deliveries to count. */
export type WebhookDeliveryStatsFilter = Pick<
  WebhookDeliveryFilter,
  'tenant' | 'endpointId' | 'since' | 'until'
>;

/** Limits a call to one tenant; the deliveries of others are reported as unknown. */
export interface WebhookDeliveryScope {
  /** Leave it out for all tenants; `undefined` is refused, since it is most often a mistake. */
  readonly tenant?: string;
}

/** Options of a list. */
export interface DeliveryPageOptions extends WebhookDeliveryScope {
  /** `next` of the page before. */
  readonly after?: string | undefined;
  /** 1 to 500; default 50. */
  readonly limit?: number | undefined;
}

/** Options of a prune. */
export interface PruneOptions extends WebhookDeliveryScope {
  /** Recorded before this Date, or longer ago than this duration, such as `'30d'`. */
  readonly olderThan: Duration | Date;
}

/** A delivery without its payload and tokens; of a URL, only the origin. */
export interface WebhookDeliveryView {
  readonly id: string;
  /** The event's id: `txn` of its tokens. */
  readonly eventId: string;
  /** The event's name. */
  readonly event: string;
  /** Absent for a delivery to a URL. */
  readonly endpointId?: string;
  /** The origin of a URL that was passed to `send`. */
  readonly origin?: string;
  readonly tenant?: string;
  readonly status: DeliveryStatus;
  /** Attempts made so far in this round. */
  readonly attemptsMade: number;
  /** 1; higher for a delivered delivery that was sent again. */
  readonly round: number;
  readonly createdAt: Date;
  readonly updatedAt: Date;
  /** With `pending`. */
  readonly nextAttemptAt?: Date;
  /** Why the last attempt failed, or why none was made; absent once delivered. */
  readonly failureReason?: FailureReason;
}

/** One attempt. */
export interface WebhookAttemptView {
  /** 1 for the first attempt of its round. */
  readonly attempt: number;
  /** Start time. */
  readonly at: Date;
  readonly method: 'HEAD' | 'POST';
  /** Absent if no answer arrived. */
  readonly statusCode?: number;
  /** Milliseconds. */
  readonly durationMs: number;
  /** Absent if the attempt was acknowledged. */
  readonly failureReason?: FailureReason;
  /** The first 1024 bytes of the answer's body. The receiver controls it: escape it before you show it. */
  readonly answer?: string;
}

/** A delivery with its attempts, oldest first. */
export interface WebhookDeliveryDetails extends WebhookDeliveryView {
  readonly attempts: readonly WebhookAttemptView[];
  /** The trace of the publish, 32 hexadecimal digits; absent without tracing. */
  readonly traceId?: string;
}

/** A page of deliveries, newest first. */
export interface WebhookDeliveryPage {
  readonly deliveries: readonly WebhookDeliveryView[];
  /** Pass it as `after` for the next page; absent on the last one. */
  readonly next?: string;
}

/** The body of an event. */
export interface WebhookDeliveryPayload {
  readonly contentType: string;
  /** Empty for an event without data. */
  readonly bytes: Buffer;
}

/** Options of a redelivery. */
export interface RedeliverOptions extends WebhookDeliveryScope {
  /** Returns what would be sent again, and changes nothing; default `false`. */
  readonly dryRun?: boolean | undefined;
  /** Maximum number of deliveries with a filter; 1 to 10,000, default 1,000. */
  readonly limit?: number | undefined;
}

/** Why a delivery was not sent again. */
export type NotRedeliveredReason =
  /** It, or a later round of it, is being attempted or is due; with a filter, it is pending. */
  | 'pending'
  /** It was delivered while it was redelivered. */
  | 'delivered'
  /** The queue has dropped its payload, or the delivery itself, to save space. */
  | 'payload_dropped'
  /** A later round of it exists; only a filter that matches that round sends it again. */
  | 'superseded';

/** The result of one redelivery. */
export interface RedeliveredDelivery {
  readonly id: string;
  readonly redelivered: boolean;
  /** The id of the new delivery, if it is sent as another one; the old one keeps its outcome. */
  readonly as?: string;
  /** Why it was not sent again. */
  readonly reason?: NotRedeliveredReason;
}

/** The result of a call of `redeliver`. */
export interface RedeliverResult {
  readonly deliveries: readonly RedeliveredDelivery[];
  /** Whether the filter matches more than `limit`. */
  readonly more: boolean;
}

/** The number of deliveries by state. */
export interface DeliveryStanding {
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** Milliseconds by which the oldest pending delivery is overdue; 0 if none is. */
  readonly lag: number;
}

/** The deliveries of one endpoint and tenant; without `endpointId`, deliveries to URLs. */
export interface EndpointStanding extends DeliveryStanding {
  readonly endpointId?: string;
  readonly tenant?: string;
}

/** The number of deliveries by state, in total and by endpoint. */
export interface WebhookDeliveryStats extends DeliveryStanding {
  readonly endpoints: readonly EndpointStanding[];
}
