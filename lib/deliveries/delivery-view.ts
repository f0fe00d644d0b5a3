import {
  type DeliveryAttempt,
  type DeliveryKeyState,
  type DeliveryStatus,
  type FailureReason,
  originOf,
} from '../queue/webhook-delivery.js';
import type { DeliveryCounts } from '../queue/webhook-queue.js';
import type { ListedOutgoing } from './redelivery.js';

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
  /** With an ordering key, its number among the deliveries of its endpoint and key is `sequence`. */
  readonly orderingKey?: string;
  readonly sequence?: number;
  /**
   * `waiting`: it waits for an earlier one of its key. `blocking`: it is dead, and the later ones of its key wait until it is
   * redelivered or skipped.
   */
  readonly keyState?: DeliveryKeyState;
  /** It is due, and may be waiting for its endpoint's `concurrency` or `rateLimit`, or for the end of a pause of the receiver. */
  readonly limited?: true;
  /** The queue has dropped its payload, so it cannot be sent again. */
  readonly payloadDropped?: true;
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
  /** The claims and the key of its token; absent if it was signed with none, or if no request was made. */
  readonly token?: {
    readonly jti: string;
    readonly txn: string;
    readonly event: string;
    readonly issuedAt: Date;
    readonly expiresAt: Date;
    readonly alg: string;
    readonly kid?: string;
  };
}

/** A delivery with its attempts, oldest first. */
export interface WebhookDeliveryDetails extends WebhookDeliveryView {
  readonly attempts: readonly WebhookAttemptView[];
  /** The trace of the publish, 32 hexadecimal digits; absent without tracing. */
  readonly traceId?: string;
}

/** The result of {@link WebhookDeliveries.erase}. */
export interface ErasureResult {
  /** How many deliveries were deleted. */
  readonly erased: number;
  /** Whether nothing is left. If not, deliveries are being attempted: call it again. */
  readonly isComplete: boolean;
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

/** The number of deliveries by state, in total and by endpoint. */
export interface WebhookDeliveryStats {
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** Of the pending deliveries, those that wait for another one of their ordering key. */
  readonly held: number;
  /** Milliseconds by which the oldest of the other pending deliveries is overdue; 0 if none is. */
  readonly lag: number;
  /** By endpoint and tenant; without `endpointId`, deliveries to URLs. */
  readonly endpoints: readonly (Omit<WebhookDeliveryStats, 'endpoints'> & {
    readonly endpointId?: string;
    readonly tenant?: string;
  })[];
}

/** The number of deliveries by state. */
export type DeliveryStanding = Omit<WebhookDeliveryStats, 'endpoints'>;

/** A delivery without its payload, and of its URL only the origin. */
export function viewOf(listed: ListedOutgoing, now: number): WebhookDeliveryView {
  const { delivery, status, attempts, nextAttemptAt, reason, updatedAt, keyState } = listed;
  const { id, eventId, event, endpointId, tenant, round = 1, createdAt } = delivery;
  const { orderingKey, sequence } = delivery;
  const isDue = nextAttemptAt !== undefined && nextAttemptAt <= now;
  return {
    id,
    eventId,
    event,
    endpointId,
    origin: originOf(delivery.url),
    tenant,
    status,
    attemptsMade: attempts,
    orderingKey,
    sequence,
    keyState,
    limited: isDue ? listed.isLimited : undefined,
    payloadDropped: listed.payloadDropped,
    round,
    createdAt: new Date(createdAt),
    updatedAt: new Date(updatedAt),
    nextAttemptAt: nextAttemptAt === undefined ? undefined : new Date(nextAttemptAt),
    failureReason: reason,
  };
}

export function traceIdOf({ trace }: ListedOutgoing['delivery']): string | undefined {
  return trace?.traceparent.split('-')[1];
}

export function attemptViewOf(
  recorded: DeliveryAttempt,
  { delivery: { eventId: txn, event } }: ListedOutgoing,
): WebhookAttemptView {
  const { attempt, at, method = 'POST', durationMs, statusCode, reason, answer, signed } = recorded;
  const [jti, issuedAt, expiresAt, alg, kid] = signed ?? [];
  return {
    attempt,
    at: new Date(at),
    method,
    statusCode,
    durationMs,
    failureReason: reason,
    answer,
    token:
      jti === undefined
        ? undefined
        : {
            jti,
            txn,
            event,
            issuedAt: new Date(issuedAt! * 1_000),
            expiresAt: new Date(expiresAt! * 1_000),
            alg: alg!,
            kid,
          },
  };
}

export function statsOf(counts: readonly DeliveryCounts[], now: number): WebhookDeliveryStats {
  const endpoints = counts.map(
    ({ endpointId, tenant, pending, delivered, dead, held = 0, oldestDue = now }) => ({
      endpointId,
      tenant,
      pending,
      delivered,
      dead,
      held,
      lag: Math.max(0, now - oldestDue),
    }),
  );
  const all: DeliveryStanding = endpoints.reduce(
    (sum, { pending, delivered, dead, held, lag }) => ({
      pending: sum.pending + pending,
      delivered: sum.delivered + delivered,
      dead: sum.dead + dead,
      held: sum.held + held,
      lag: Math.max(sum.lag, lag),
    }),
    { pending: 0, delivered: 0, dead: 0, held: 0, lag: 0 },
  );
  return { ...all, endpoints };
}
