import type { FailureReason } from './failure-reason.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** A delivery to record, and the time before which it must not be attempted. */
export interface EnqueuedDelivery {
  readonly delivery: WebhookDelivery;
  /** Epoch milliseconds. */
  readonly notBefore: number;
}

/** What the library decided after one attempt; the queue carries it out. */
export type DeliveryOutcome =
  | { readonly type: 'delivered' }
  /** Attempt it again at `at` (epoch milliseconds), as the next attempt. */
  | { readonly type: 'retry'; readonly at: number; readonly reason: FailureReason }
  /** It was not attempted; ask again at `at` (epoch milliseconds), as the same attempt. */
  | { readonly type: 'defer'; readonly at: number }
  /** Never attempt it again, unless somebody redelivers it. `attempts` were made, which may be none. */
  | { readonly type: 'dead'; readonly reason: FailureReason; readonly attempts: number };

/** The state of a delivery that the queue has recorded before. */
export type KnownDelivery = {
  readonly id: string;
  /** Attempts that have failed in this round; of a delivered one, all attempts. */
  readonly attempts: number;
  /** As the delivery was recorded with. */
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
export interface DeadDelivery {
  readonly delivery: WebhookDelivery;
  readonly attempts: number;
  readonly reason: FailureReason;
  /** Epoch milliseconds. */
  readonly diedAt: number;
}

/** Attempts a delivery once; `attempt` is 1 for the first. */
export type DeliveryHandler = (
  delivery: WebhookDelivery,
  attempt: number,
) => Promise<DeliveryOutcome>;

/** Choices of one call to {@link WebhookQueue.enqueue}. */
export interface EnqueueOptions {
  /** A transaction of the caller's database; only ever given to a queue that is `transactional`. */
  readonly tx?: unknown;
}

/**
 * Holds deliveries until they are done: the port between the publisher and the engine that keeps them.
 *
 * The engine owns durability, leases and timers. The library owns the retry schedule, signing and the
 * meaning of an answer, so that every engine behaves the same.
 *
 * - **Recorded means kept.** When `enqueue` resolves, the deliveries are held as safely as the engine
 *   can. It records all of them or, when it throws, none.
 * - **Once per id.** A delivery whose id is known is not recorded a second time, also not after it was
 *   done, for as long as the engine remembers (each says how long).
 * - **Never lost, sometimes twice.** A delivery leaves the queue by an outcome, and by nothing else. A
 *   handler that throws, a worker that dies, a lease that ends: it runs again, as the same attempt, when
 *   the engine sees fit. A worker whose lease went to another can change nothing with its outcome.
 * - **Attempts are counted by outcomes.** `retry` counts one, `defer` and a throw count none.
 * - **In order, roughly.** Of the deliveries that are due to one destination, the one due first is started
 *   first; equals start in the order they were recorded. Those of another destination may pass by, so that a
 *   slow one does not hold them up. Nothing waits for its predecessor's success.
 *
 * Every implementation must pass the contract suite of `nestjs-webhook-token/testing`.
 */
export abstract class WebhookQueue {
  /** Whether recorded deliveries survive a crash of this process. */
  abstract readonly durable: boolean;

  /** Whether other processes take deliveries from it too, so that an attempt may be made elsewhere. */
  abstract readonly shared: boolean;

  /** Whether `enqueue` can join a transaction of the caller's. */
  abstract readonly transactional: boolean;

  /**
   * Records deliveries, all or none.
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
   * Starts handing due deliveries to the handler; called once. Until then deliveries are only recorded.
   */
  abstract consume(handler: DeliveryHandler): void | Promise<void>;

  /**
   * Tells what it knows of deliveries, without recording anything.
   *
   * @returns one receipt for each id, in their order; `undefined` for an id it does not know
   */
  abstract find(ids: readonly string[]): Promise<readonly (KnownDelivery | undefined)[]>;

  /** The deliveries that were given up, the oldest first. */
  abstract listDead(): Promise<readonly DeadDelivery[]>;

  /**
   * Makes deliveries due now. Dead ones get a new round under their old ids, from the first attempt on; those that
   * wait for their next attempt keep their attempt count. Delivered, running and due deliveries stay as they are.
   *
   * @returns the ids of the deliveries that were changed
   */
  abstract redeliver(ids: readonly string[]): Promise<readonly string[]>;

  /**
   * Takes nothing new, and waits for the running attempts. A queue that is not durable also runs what is
   * due by now, since nobody will later.
   *
   * @param deadline - epoch milliseconds after which it waits no longer
   * @returns how many deliveries were left unfinished; a durable queue keeps them
   */
  abstract stop(deadline: number): Promise<number>;
}
