import type { WebhookClock } from '../clock/webhook-clock.js';
import { WebhookDeliveryError } from '../errors/webhook.error.js';
import type {
  DeliveryAttempt,
  DeliveryFacts,
  DeliveryLimits,
  DeliveryRecord,
  DeliveryRun,
  DeliveryState,
  DeliveryKeyState,
  DeliveryStatus,
  WebhookDelivery,
} from './webhook-delivery.js';

/** A delivery to record, and the time before which it must not be attempted. */
export interface EnqueuedDelivery<Delivery extends WebhookDelivery = WebhookDelivery> {
  readonly delivery: Delivery;
  /** Epoch milliseconds. */
  readonly notBefore: number;
  /** The limits of its lane, which replace those that the queue knows; absent for a lane that has none, or had none before. */
  readonly limits?: DeliveryLimits | undefined;
}

/** Attempts a delivery once; `attempt` is 1 for the first. */
export type DeliveryHandler = (delivery: WebhookDelivery, attempt: number) => Promise<DeliveryRun>;

export interface EnqueueOptions {
  /** A transaction of the caller's database; passed only to a queue that is `transactional`. */
  readonly tx?: unknown;
  /**
   * Called with what `enqueue` would return, possibly more than once: if it throws, nothing is recorded, and the call rejects with its
   * error. A queue that cannot record and check in one step calls it ahead.
   */
  readonly check?: ((records: readonly (DeliveryRecord | undefined)[]) => void) | undefined;
}

/** A record in a list. */
export interface ListedDelivery<Facts extends DeliveryFacts = DeliveryFacts> extends DeliveryState {
  readonly delivery: Facts;
}

/** Selects deliveries; members that are left out match everything. */
export interface DeliveryFilter {
  readonly tenant?: string | undefined;
  readonly endpointId?: string | undefined;
  /** The subject that the event was published with. */
  readonly subject?: string | undefined;
  /** Name of the receiver of a received event. */
  readonly receiver?: string | undefined;
  /** The event's id. */
  readonly eventId?: string | undefined;
  /** The event's name, exactly. */
  readonly event?: string | undefined;
  readonly status?: DeliveryStatus | undefined;
  /** The part in the order of its key; only `list` reads it. */
  readonly keyState?: DeliveryKeyState | undefined;
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
  /** With `step`: when the time begins in which they were recorded, in epoch milliseconds. */
  readonly at?: number | undefined;
  readonly pending: number;
  readonly delivered: number;
  readonly dead: number;
  /** Of the pending deliveries, those that wait for another one of their key; absent if none do. */
  readonly held?: number | undefined;
  /**
   * The earliest due time of the other pending deliveries, in epoch milliseconds. In a limited lane it should be neither earlier
   * than the last start, nor than the time when the limits allow the next one: a delivery that waits for a limit is not late.
   */
  readonly oldestDue?: number | undefined;
}

/** Counts whose times and steps are multiples of so many milliseconds, 5 minutes, can be fast in a large queue. */
export const COUNT_GRAIN = 300_000;

/** Selects the deliveries to count. */
export interface DeliveryCountFilter extends Pick<
  DeliveryFilter,
  'tenant' | 'endpointId' | 'receiver' | 'since' | 'until'
> {
  /** Counts only what is not delivered, which stays fast in a large queue; `delivered` is 0 then. */
  readonly unfinished?: true | undefined;
  /** Also groups by the time of recording, in steps of so many milliseconds from `since` to `until`; both are required then. */
  readonly step?: number | undefined;
}

/**
 * The port between the library and the engine that stores its deliveries with their attempts.
 *
 * The engine is responsible for durability, leases, timers and history. The library is responsible for the retry
 * schedule, signing and the meaning of a response, so that deliveries behave the same on every engine.
 *
 * - **Durable once recorded.** When `enqueue` resolves, the deliveries are stored as safely as the engine can. It
 *   records all of them or, if it throws, none, unless the connection broke before the answer.
 * - **Once per id.** A delivery whose id is known is not recorded again, even after it is done, for as long as the
 *   engine remembers it.
 * - **At least once.** Only an outcome ends a delivery. If the handler throws, the worker dies or its lease expires,
 *   the delivery runs again as the same attempt. A worker whose lease has expired cannot record an outcome.
 * - **Runs of received events.** If the worker dies, the run of a received event counts as an attempt without a record, since its
 *   handlers may have killed the worker. A lease that expires while the worker lives need not count. A queue that counts none runs
 *   such an event without an end.
 * - **One step.** An outcome and its attempt are recorded together: `find`, `list` and `attempts` never show one
 *   without the other.
 * - **Outcomes count attempts.** `retry` counts one; `defer` and a thrown error count none. A `defer` without a
 *   reason keeps the last one.
 * - **Ordered per endpoint.** Of the deliveries that are due to one endpoint, the one due first starts first;
 *   deliveries due at the same time start in the order they were recorded. A later one does not wait for the success
 *   of an earlier one.
 * - **Ordered by key.** Of the deliveries with the same lane (see `deliveryLane`) and ordering key, one runs at a time, in
 *   the order in which they were recorded, whatever their due times are. It holds its key until it is delivered or dead, or, if
 *   its outcome `blocksKey`, until it is redelivered or skipped. Other keys do not wait for it. The queue sets the
 *   `sequence` of each: the first number of a key is arbitrary, each next one is larger by one.
 * - **Limited together.** The limits of a lane hold for all processes together. A token bucket with `burst` tokens gets
 *   `perSecond` of them a second, and each start takes one; `concurrency` counts running attempts, and a lease that expires
 *   ends one. After an overload the lane pauses, then its rate starts at half of what it was, at least at a sixteenth of the limit,
 *   without a burst; it recovers the whole limit within 10 minutes. A new limit applies once a delivery is recorded or attempted
 *   with it, or `limitLane` is called. Deliveries that wait for a limit delay no other lane.
 * - **Fair between endpoints.** An endpoint that is slow or has a backlog does not hold up the others.
 * - **In the context of `consume`.** The handler runs in the async context of `consume`, never in that of a call that makes a
 *   delivery due: it would join the caller's transaction and trace.
 * - **Payloads are exact.** The same bytes are returned; no data (`undefined`) differs from 0 bytes. A queue may drop payloads of
 *   deliveries that are done (`payloadDropped`): it then changes nothing else, and still recognises their ids.
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
   * @returns for each delivery, in their order: what was recorded under its id before, or `undefined` if it was
   *   recorded now
   * @throws {@link WebhookStoreError} `store_full`, `store_unavailable`
   * @throws {@link WebhookDeliveryError} `shutting_down` once `stop` was called
   */
  abstract enqueue(
    deliveries: readonly EnqueuedDelivery[],
    options?: EnqueueOptions,
  ): Promise<readonly (DeliveryRecord | undefined)[]>;

  /**
   * Starts to run due deliveries; called once. Before that, deliveries are only recorded.
   */
  abstract consume(handler: DeliveryHandler): void | Promise<void>;

  /**
   * Looks deliveries up.
   *
   * @returns the record of each id, in their order; `undefined` for an unknown id
   */
  abstract find(ids: readonly string[]): Promise<readonly (DeliveryRecord | undefined)[]>;

  /** Lists the deliveries that match, newest first by `createdAt`, then by id in descending order of code units. */
  abstract list(
    filter: DeliveryFilter,
    page: DeliveryPageRequest,
  ): Promise<readonly ListedDelivery[]>;

  /**
   * Lists the attempts of a delivery in all its rounds, by start time. A queue may keep only the last ones, at
   * least 20.
   */
  abstract attempts(id: string): Promise<readonly DeliveryAttempt[]>;

  /** Counts by endpoint and tenant, or by receiver, in any order, without empty groups. */
  abstract counts(filter: DeliveryCountFilter): Promise<readonly DeliveryCounts[]>;

  /**
   * Makes deliveries due now. Dead ones get a new round under their old ids, from the first attempt on; those that
   * wait for their next attempt keep their attempt count. Delivered, running and due deliveries stay as they are.
   *
   * @returns the ids of the deliveries that were changed
   */
  abstract redeliver(ids: readonly string[]): Promise<readonly string[]>;

  /**
   * Releases the keys of dead deliveries that block them. They stay dead, and have lost their turn: `redeliver` then sends
   * them at once.
   *
   * @returns the ids of the deliveries that were changed
   */
  abstract skip(ids: readonly string[]): Promise<readonly string[]>;

  /**
   * Deletes deliveries that are not pending and were recorded before a time, with their attempts.
   *
   * @param before - epoch milliseconds
   * @param scope - `tenant`: only the deliveries of this tenant
   * @returns the number of deleted deliveries
   */
  abstract prune(before: number, scope?: { readonly tenant?: string | undefined }): Promise<number>;

  /**
   * Deletes all deliveries that match a filter, pending ones too, with their attempts and payloads. The later ones of an ordering
   * key continue. One that is being attempted stays until another call: its request may still be sent.
   *
   * @param filter - one with at least one member
   * @returns the number of deleted deliveries
   */
  abstract erase(filter: DeliveryFilter): Promise<number>;

  /**
   * Replaces the limits of a lane now, for those of its deliveries that wait. Optional: without it, others are set with the next
   * delivery that is recorded or attempted, and removed with the next attempt.
   */
  limitLane?(lane: string, limits: DeliveryLimits): Promise<void>;

  /**
   * Runs every delivery that is due by the queue's clock, and resolves when none is due or running. Optional:
   * `flushDeliveries` of `nestjs-webhook-token/testing` calls it.
   */
  flush?(): Promise<void>;

  /**
   * Checks for the health indicator that deliveries can be recorded. Optional: without it, `skip` is called with an unknown id, which
   * changes nothing, but fails on a server that is read-only.
   *
   * @throws {@link WebhookStoreError} `store_unavailable`
   */
  check?(): Promise<void>;

  /**
   * Refuses new deliveries and waits for the running attempts. A queue that is not durable also runs deliveries
   * that are due now, because they are lost with the process.
   *
   * @param deadline - epoch milliseconds at which it stops waiting
   * @returns the number of unfinished deliveries; a durable queue keeps them
   */
  abstract stop(deadline: number): Promise<number>;
}

/** A run of a delivery, and whose it was: the deliverer's, or that of the worker of received events. */
export interface ObservedRun extends DeliveryRun {
  readonly consumer: object;
  readonly delivery: WebhookDelivery;
}

/**
 * Called with every run of this process, before its queue records the outcome. Empty outside of tests: the testing kit
 * observes from its import on, since a queue may run a delivery before the test asks.
 */
export const runObservers = new Set<(run: ObservedRun) => void>();

/** Checks that a queue can record deliveries. */
export async function checkQueue(queue: WebhookQueue): Promise<void> {
  await (queue.check === undefined ? queue.skip(['health check']) : queue.check());
}

/** Milliseconds before the end of a shutdown at which runs are aborted, or a tenth of it if that is shorter. */
const RECORDING_TIME = 500;

/**
 * Stops a queue by a deadline. Runs that have not ended shortly before it are aborted, so that a durable queue still records that they
 * are due: otherwise their leases and slots would have to expire.
 *
 * @param timeout - milliseconds
 * @returns deliveries that are unfinished
 */
export async function stopQueue(
  queue: WebhookQueue,
  clock: WebhookClock,
  timeout: number,
  abort: () => void,
): Promise<number> {
  const deadline = clock.now() + timeout;
  const abortAt = deadline - Math.min(RECORDING_TIME, timeout / 10);
  const cancel = queue.durable ? clock.wakeAt(abortAt, abort) : undefined;
  const left = await queue.stop(deadline);
  cancel?.();
  return left;
}

export function queueStopped(): WebhookDeliveryError {
  return new WebhookDeliveryError(
    'shutting_down',
    'The delivery queue is stopped, because the application is shutting down.',
  );
}
