import type { FailureReason } from './failure-reason.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** A delivery to record, and the time before which it must not be attempted. */
export interface EnqueuedDelivery<Delivery extends WebhookDelivery = WebhookDelivery> {
  readonly delivery: Delivery;
  /** Epoch milliseconds. */
  readonly notBefore: number;
}

/** The result of one run of a delivery, which the queue records. */
export type DeliveryOutcome =
  | { readonly type: 'delivered' }
  /** The attempt failed; the next one is due at `at` (epoch milliseconds). */
  | { readonly type: 'retry'; readonly at: number; readonly reason: FailureReason }
  /** No attempt was made; the same attempt is due at `at` (epoch milliseconds). A queue need not store the reason. */
  | { readonly type: 'defer'; readonly at: number; readonly reason?: FailureReason }
  /** The delivery is given up after `attempts`, which may be 0; only `redeliver` revives it. */
  | { readonly type: 'dead'; readonly reason: FailureReason; readonly attempts: number };

/** The state of a delivery that the queue has recorded before. */
export type KnownDelivery = {
  readonly id: string;
  /** Failed attempts of this round; if the delivery is done, all of its attempts. */
  readonly attempts: number;
  /** The digest that the delivery was recorded with. */
  readonly contentDigest?: string;
} & (
  | {
      readonly status: 'pending';
      /** Epoch milliseconds. */
      readonly nextAttemptAt: number;
      readonly reason?: FailureReason;
    }
  | { readonly status: 'delivered' }
  | { readonly status: 'dead'; readonly reason: FailureReason }
);

/** The answer to one enqueued delivery: recorded now, or known from before. */
export type DeliveryReceipt = { readonly id: string; readonly status: 'recorded' } | KnownDelivery;

/** A delivery that was given up. */
export interface DeadDelivery<Delivery extends WebhookDelivery = WebhookDelivery> {
  readonly delivery: Delivery;
  readonly attempts: number;
  readonly reason: FailureReason;
  /** Epoch milliseconds. */
  readonly diedAt: number;
}

/** The deliveries that a queue holds, besides delivered ones. */
export interface QueueCounts {
  /** Waiting, due or running. */
  readonly pending: number;
  /** Those that `listDead` lists. */
  readonly dead: number;
}

/** Attempts a delivery once; `attempt` is 1 for the first. */
export type DeliveryHandler = (
  delivery: WebhookDelivery,
  attempt: number,
) => Promise<DeliveryOutcome>;

/** Options of {@link WebhookQueue.enqueue}. */
export interface EnqueueOptions {
  /** A transaction of the caller's database; passed only to a queue that is `transactional`. */
  readonly tx?: unknown;
}

/**
 * The port between the library and the engine that stores its deliveries.
 *
 * The engine is responsible for durability, leases and timers. The library is responsible for the retry schedule,
 * signing and the meaning of a response, so that deliveries behave the same on every engine.
 *
 * - **Durable once recorded.** When `enqueue` resolves, the deliveries are stored as safely as the engine can. It
 *   records all of them or, if it throws, none.
 * - **Once per id.** A delivery whose id is known is not recorded again, even after it is done, for as long as the
 *   engine remembers it.
 * - **At least once.** Only an outcome ends a delivery. If the handler throws, the worker dies or its lease expires,
 *   the delivery runs again as the same attempt. A worker whose lease has expired cannot record an outcome.
 * - **Outcomes count attempts.** `retry` counts one; `defer` and a thrown error count none.
 * - **Ordered per destination.** Of the deliveries that are due to one destination, the one due first starts first;
 *   deliveries due at the same time start in the order they were recorded. A later one does not wait for the success
 *   of an earlier one.
 * - **Fair between destinations.** A destination that is slow or has a backlog does not hold up the others.
 *
 * Every implementation must pass the contract suite of `nestjs-webhook-token/testing`.
 */
export abstract class WebhookQueue {
  /** Whether recorded deliveries survive a crash of this process. */
  abstract readonly durable: boolean;

  /** Whether other processes consume from it too, so that an attempt may be made by any of them. */
  abstract readonly shared: boolean;

  /** Whether `enqueue` can join a transaction of the caller. */
  abstract readonly transactional: boolean;

  /**
   * Records all of the deliveries or none.
   *
   * @returns one receipt for each delivery, in their order
   * @throws {@link WebhookStoreError} `store_full`, `store_unavailable`
   * @throws {@link WebhookDeliveryError} `shutting_down` once `stop` was called
   */
  abstract enqueue(
    deliveries: readonly EnqueuedDelivery[],
    options?: EnqueueOptions,
  ): Promise<readonly DeliveryReceipt[]>;

  /**
   * Starts to run due deliveries; called once. Before that, deliveries are only recorded.
   */
  abstract consume(handler: DeliveryHandler): void | Promise<void>;

  /**
   * Looks deliveries up.
   *
   * @returns the state of each id, in their order; `undefined` for an unknown id
   */
  abstract find(ids: readonly string[]): Promise<readonly (KnownDelivery | undefined)[]>;

  /** Lists dead deliveries, the oldest first. */
  abstract listDead(): Promise<readonly DeadDelivery[]>;

  /**
   * Makes deliveries due now. Dead ones get a new round under their old ids, from the first attempt on; those that
   * wait for their next attempt keep their attempt count. Delivered, running and due deliveries stay as they are.
   *
   * @returns the ids of the deliveries that were changed
   */
  abstract redeliver(ids: readonly string[]): Promise<readonly string[]>;

  /** Counts deliveries. Optional: the metrics of a queued receiver call it, so it must be fast in a large queue. */
  counts?(): Promise<QueueCounts>;

  /**
   * Runs every delivery that is due by the queue's clock, and resolves when none is due or running. Optional:
   * `flushDeliveries` of `nestjs-webhook-token/testing` calls it.
   */
  flush?(): Promise<void>;

  /**
   * Refuses new deliveries and waits for the running attempts. A queue that is not durable also runs deliveries
   * that are due now, because they are lost with the process.
   *
   * @param deadline - epoch milliseconds at which it stops waiting
   * @returns the number of unfinished deliveries; a durable queue keeps them
   */
  abstract stop(deadline: number): Promise<number>;
}
