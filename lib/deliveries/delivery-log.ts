import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { MaybePromise } from '../token/maybe-promise.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';

/** One attempt, without its token and its payload. */
export interface LoggedAttempt {
  /** 1 for the first attempt of its round. */
  readonly attempt: number;
  /** Start time, in epoch milliseconds. */
  readonly at: number;
  readonly method: 'HEAD' | 'POST';
  readonly durationMs: number;
  /** Absent if no answer arrived. */
  readonly statusCode?: number;
  /** Absent if the attempt was acknowledged. */
  readonly reason?: FailureReason;
  /** The first 1024 bytes of the answer's body, with anything that looks like a token removed. */
  readonly answer?: string;
}

/** The state of a delivery. */
export type DeliveryStatus = 'pending' | 'delivered' | 'dead';

/** A new state of a delivery, after an attempt or without one. */
export interface DeliveryChange {
  /** Complete, so that a log that does not know the delivery can insert it. */
  readonly delivery: OutgoingDelivery;
  readonly status: DeliveryStatus;
  /** Attempts made so far in this round. */
  readonly attempts: number;
  /** Epoch milliseconds; with `pending`. */
  readonly nextAttemptAt?: number;
  /** Why the last attempt failed, or why none was made; absent if it has not changed, and with `delivered`. */
  readonly reason?: FailureReason;
  /** The time of the change, in epoch milliseconds. */
  readonly at: number;
  /** Absent if no attempt was made. */
  readonly made?: LoggedAttempt;
}

/** A delivery in the log. */
export interface LoggedDelivery {
  readonly delivery: OutgoingDelivery;
  readonly status: DeliveryStatus;
  readonly attempts: number;
  /** Epoch milliseconds; with `pending`. */
  readonly nextAttemptAt?: number;
  readonly reason?: FailureReason;
  /** The time of the last change, in epoch milliseconds; `createdAt` if there was none. */
  readonly updatedAt: number;
}

/** Selects deliveries; members that are left out match everything. */
export interface DeliveryFilter {
  readonly tenant?: string | undefined;
  readonly endpointId?: string | undefined;
  /** The event's id. */
  readonly eventId?: string | undefined;
  /** The event's name, exactly. */
  readonly event?: string | undefined;
  readonly status?: DeliveryStatus | undefined;
  /** Recorded at this time or later, in epoch milliseconds. */
  readonly since?: number | undefined;
  /** Recorded before this time, in epoch milliseconds. */
  readonly until?: number | undefined;
  /** Pending, and due before this time, in epoch milliseconds. */
  readonly dueBefore?: number | undefined;
  /** Not delivered. Health checks and metrics ask for these only, so that they stay fast in a large log. */
  readonly unfinished?: true | undefined;
}

/** A page: at most `limit` deliveries after `after`. */
export interface DeliveryPageRequest {
  readonly after?: { readonly createdAt: number; readonly id: string } | undefined;
  readonly limit: number;
}

/** The number of deliveries by state, for one endpoint and tenant. */
export interface DeliveryCounts {
  readonly endpointId?: string;
  readonly tenant?: string;
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** The earliest due time of the pending deliveries, in epoch milliseconds. */
  readonly oldestDue?: number;
}

/**
 * Stores deliveries and their attempts, to be inspected and redelivered. The queue decides what is delivered; a log that is
 * unavailable or behind does not stop deliveries.
 *
 * - **Calls arrive in any order.** `record` is called when a delivery is enqueued, `change` with each attempt, and `change` may
 *   come first. `record` does not affect a delivery that is known.
 * - **The newest state wins.** A `pending` change that is older (`at`) than the stored state is ignored, except for its attempt;
 *   of two equally old changes, the later call wins. `delivered` is final: a delivery that two processes attempted is delivered
 *   once one of them succeeded. A change without a `reason` keeps the last one, but `delivered` has none.
 * - **An attempt may be reported more than once.** It is identified by delivery, number and start time, and stored once; a
 *   redelivery counts from 1 again.
 * - **Lists are ordered.** Deliveries: newest first by `createdAt`, then by id in descending order of code units. Attempts:
 *   by start time, then by number.
 * - **Payloads are exact.** The same bytes are returned; no data (`undefined`) differs from 0 bytes.
 *
 * Every implementation must pass the contract suite of `nestjs-webhook-token/testing`.
 */
export abstract class DeliveryLog {
  /** Whether its content survives this process. */
  abstract readonly durable: boolean;

  /** Whether `record` can join a transaction of the caller. If not, deliveries in a transaction are logged by their first attempt. */
  abstract readonly transactional: boolean;

  /**
   * Checks at start-up that the log can be used: by default, it looks for a delivery that does not exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    await this.find('start-up check');
  }

  /** Stores deliveries as pending; known ones stay unchanged. */
  abstract record(
    deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[],
    options?: { readonly tx?: unknown },
  ): MaybePromise<void>;

  /** Stores changes of deliveries. */
  abstract change(changes: readonly DeliveryChange[]): MaybePromise<void>;

  /** Finds a delivery; `undefined` if it is unknown. */
  abstract find(id: string): Promise<LoggedDelivery | undefined>;

  /** Lists the stored attempts of a delivery. */
  abstract attempts(id: string): Promise<readonly LoggedAttempt[]>;

  /** Lists the deliveries that match a filter, in order. */
  abstract list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly LoggedDelivery[]>;

  /** Counts by endpoint and tenant, in any order, without empty groups. The filter's `status` is ignored. */
  abstract counts(filter: DeliveryFilter): Promise<readonly DeliveryCounts[]>;

  /**
   * Deletes deliveries that are not pending and were recorded before a time, with their attempts.
   *
   * @param before - epoch milliseconds
   * @param scope - `tenant`: only the deliveries of this tenant
   * @returns the number of deleted deliveries
   */
  abstract prune(before: number, scope?: { readonly tenant?: string | undefined }): Promise<number>;
}
