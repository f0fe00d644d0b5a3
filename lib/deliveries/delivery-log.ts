import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { FailureReason } from '../queue/failure-reason.js';
import type { WebhookDelivery } from '../queue/webhook-delivery.interface.js';

/** What is remembered of one attempt: neither the token nor what was sent. */
export interface LoggedAttempt {
  /** 1 for the first of its round. */
  readonly attempt: number;
  /** When it began, in epoch milliseconds. */
  readonly at: number;
  readonly method: 'HEAD' | 'POST';
  readonly durationMs: number;
  /** Absent when no answer came. */
  readonly statusCode?: number;
  /** Absent when it was acknowledged. */
  readonly reason?: FailureReason;
  /** The first 1024 bytes of the answer's body as text; what looks like a token is taken out of it. */
  readonly answer?: string;
}

/** Where a delivery stands. */
export type DeliveryStatus = 'pending' | 'delivered' | 'dead';

/** What an attempt, or the end of a delivery without one, has changed. */
export interface DeliveryChange {
  /** Whole, so that one the log has not heard of is recorded with it. */
  readonly delivery: WebhookDelivery;
  readonly status: DeliveryStatus;
  /** Attempts made so far in this round. */
  readonly attempts: number;
  /** Epoch milliseconds; with `pending`. */
  readonly nextAttemptAt?: number;
  /** Of the last attempt that failed, or why there was none; absent where it has not changed, and with `delivered`. */
  readonly reason?: FailureReason;
  /** When it was so, in epoch milliseconds. */
  readonly at: number;
  /** Absent where none was made. */
  readonly made?: LoggedAttempt;
}

/** A delivery as the log remembers it. */
export interface LoggedDelivery {
  readonly delivery: WebhookDelivery;
  readonly status: DeliveryStatus;
  readonly attempts: number;
  /** Epoch milliseconds; with `pending`. */
  readonly nextAttemptAt?: number;
  readonly reason?: FailureReason;
  /** When it came to be so, in epoch milliseconds; `createdAt` for one of which only `record` has told. */
  readonly updatedAt: number;
}

/** Which deliveries; what is left out is not asked for. */
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
}

/** A page: of those behind `after`, at most `limit`. */
export interface DeliveryPageRequest {
  readonly after?: { readonly createdAt: number; readonly id: string } | undefined;
  readonly limit: number;
}

/** How deliveries stand, in numbers. */
export interface DeliveryCounts {
  readonly endpointId?: string;
  readonly tenant?: string;
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** When the pending delivery that is due first became due, or becomes so; epoch milliseconds. */
  readonly oldestDue?: number;
}

/**
 * Remembers deliveries and their attempts, for people to look at and to send again. The queue decides what is delivered; a
 * log that is away or behind holds nothing up.
 *
 * - **It may hear of a delivery by any call first.** `record` comes when one is enqueued, `change` with each attempt, and the
 *   second may overtake the first: what is known already is not taken back to `pending`.
 * - **The newest stands.** A `pending` that is older (`at`) than what is known changes nothing, though its attempt is kept; of two
 *   equally old, the one told later stands. `delivered` stays for good: a delivery that two processes ran was delivered once one
 *   of them did. A change without a `reason` leaves the last one, but `delivered` has none.
 * - **An attempt is told once or more.** The same attempt of the same delivery, by its number and its beginning, is kept once; a
 *   delivery that is redelivered counts from 1 again.
 * - **In order.** Deliveries are listed the newest first, by `createdAt`, then by id, the greater code units first; attempts in the
 *   order they were made, by their beginning, then by number.
 * - **Octet by octet.** A payload comes back as it was told: no data (`undefined`) is not the same as 0 bytes.
 *
 * Every implementation must pass the contract suite of `nestjs-webhook-token/testing`.
 */
export abstract class DeliveryLog {
  /** Whether what it remembers survives this process. */
  abstract readonly durable: boolean;

  /** Whether `record` can join a transaction of the caller's; one that cannot is not told of deliveries in one. */
  abstract readonly transactional: boolean;

  /**
   * Checks at start-up that the log can be used: by default, it looks for a delivery that does not exist.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`, which is retried for some seconds; any other error fails start-up
   */
  async check(): Promise<void> {
    await this.find('start-up check');
  }

  /** Remembers deliveries as pending; those it knows stay as they are. */
  abstract record(
    deliveries: readonly EnqueuedDelivery[],
    options?: { readonly tx?: unknown },
  ): Promise<void>;

  /** Remembers what became of deliveries. */
  abstract change(changes: readonly DeliveryChange[]): Promise<void>;

  /** The delivery of this id; `undefined` for one it does not know. */
  abstract find(id: string): Promise<LoggedDelivery | undefined>;

  /** The attempts of a delivery, all that are remembered. */
  abstract attempts(id: string): Promise<readonly LoggedAttempt[]>;

  /** The deliveries that a filter asks for, in order. */
  abstract list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly LoggedDelivery[]>;

  /** Counts by endpoint and tenant, in any order and without empty ones; the filter's `status` is not looked at. */
  abstract counts(filter: DeliveryFilter): Promise<readonly DeliveryCounts[]>;

  /**
   * Forgets deliveries that are not pending and were recorded before a time, with their attempts.
   *
   * @param before - epoch milliseconds
   * @param scope - with a `tenant`, of that one only
   * @returns how many
   */
  abstract prune(before: number, scope?: { readonly tenant?: string | undefined }): Promise<number>;
}
