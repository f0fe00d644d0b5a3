import { type CancelWake, SystemClock, type WebhookClock } from '../clock/webhook-clock.js';
import { WebhookConfigurationError, WebhookDeliveryError } from '../errors/webhook.error.js';
import { waitAfterThrow, wasAttempt } from './delivery-progress.js';
import {
  type DeadDelivery,
  type DeliveryHandler,
  type DeliveryOutcome,
  WebhookQueue,
  type DeliveryReceipt,
  type EnqueuedDelivery,
  type KnownDelivery,
  type QueueCounts,
} from './webhook-queue.js';
import { FinishedDeliveries } from './finished-deliveries.js';
import {
  PendingDeliveries,
  type PendingDelivery,
  type TakenDelivery,
} from './pending-deliveries.js';
import type { WebhookDelivery } from './webhook-delivery.interface.js';

/** Limits of an {@link InProcessQueue}. */
export interface InProcessQueueOptions {
  /** Attempts that run at once; default 50. */
  readonly concurrency?: number | undefined;
  /**
   * Attempts that run at once to one endpoint, or to one origin of URLs that callers pass; default a quarter of
   * `concurrency`, at least 1. Endpoints that take longer than a second share a fifth of `concurrency`.
   */
  readonly concurrencyPerDestination?: number | undefined;
  /** Pending deliveries, running ones included; default 10,000. */
  readonly maxPending?: number | undefined;
  /** Bytes of pending and dead deliveries; default 64 MiB. Payloads of dead deliveries are dropped first. */
  readonly maxBytes?: number | undefined;
  /** The last delivered ids that are remembered; default 10,000. */
  readonly rememberFinished?: number | undefined;
  /**
   * The last dead deliveries that are remembered; default 10,000. A forgotten one is no longer listed, and its id can
   * be recorded again.
   */
  readonly rememberDead?: number | undefined;
  /** Default: the system clock. */
  readonly clock?: WebhookClock | undefined;
}

/**
 * Keeps deliveries in memory. **A crash loses them**: use it in development, in tests, and for events that may be lost.
 *
 * Number and bytes are limited; a full queue refuses new deliveries. Each instance serves one publisher.
 */
export class InProcessQueue extends WebhookQueue {
  override readonly durable = false;
  override readonly shared = false;
  override readonly transactional = false;

  private readonly concurrency: number;
  private readonly clock: WebhookClock;
  private readonly pending: PendingDeliveries;
  private readonly finished: FinishedDeliveries;

  private handler: DeliveryHandler | undefined;
  private running = 0;
  private pumpScheduled = false;
  private armed: { readonly at: number; readonly cancel: CancelWake } | undefined;
  private stopping = false;
  private closed = false;
  /** Called after each run. */
  private readonly watchers = new Set<() => void>();

  /** @throws {@link WebhookConfigurationError} if a limit is not a positive whole number */
  constructor(options: InProcessQueueOptions = {}) {
    super();
    const {
      concurrency = 50,
      concurrencyPerDestination = Math.max(1, Math.floor(concurrency / 4)),
      maxPending = 10_000,
      maxBytes = 64 * 1024 * 1024,
      rememberFinished = 10_000,
      rememberDead = 10_000,
      clock = new SystemClock(),
    } = options;
    const bounds = {
      concurrency,
      ...(options.concurrencyPerDestination !== undefined && { concurrencyPerDestination }),
      maxPending,
      maxBytes,
      rememberFinished,
      rememberDead,
    };
    const faults = Object.entries(bounds)
      .filter(([, bound]) => !Number.isSafeInteger(bound) || bound < 1)
      .map(([name]) => ({ path: `queue.${name}`, message: 'must be a positive whole number' }));
    if (faults.length > 0) throw new WebhookConfigurationError(faults);
    this.concurrency = concurrency;
    this.clock = clock;
    this.pending = new PendingDeliveries(maxPending, maxBytes, {
      concurrency,
      concurrencyPerDestination,
    });
    this.finished = new FinishedDeliveries(rememberFinished, rememberDead);
  }

  /** Pending deliveries, running ones included. */
  get size(): number {
    return this.pending.size;
  }

  override async enqueue(
    deliveries: readonly EnqueuedDelivery[],
  ): Promise<readonly DeliveryReceipt[]> {
    this.refuseWhenStopping();
    const receipts =
      deliveries.length === 1 ? [this.enqueueOne(deliveries[0]!)] : this.enqueueAll(deliveries);
    this.schedulePump();
    return receipts;
  }

  override consume(handler: DeliveryHandler): void {
    if (this.handler !== undefined) {
      throw new WebhookConfigurationError([
        {
          path: 'publisher.queue',
          message: 'already serves another publisher; create a queue of its own for each',
        },
      ]);
    }
    this.handler = handler;
    this.schedulePump();
  }

  override async find(ids: readonly string[]): Promise<readonly (KnownDelivery | undefined)[]> {
    return ids.map((id) => this.receiptOf(id));
  }

  override async listDead(): Promise<readonly DeadDelivery[]> {
    return this.finished.listDead();
  }

  override async counts(): Promise<QueueCounts> {
    return { pending: this.pending.size, dead: this.finished.deadCount };
  }

  override async redeliver(ids: readonly string[]): Promise<readonly string[]> {
    this.refuseWhenStopping();
    const now = this.clock.now();
    const dead = new Map(
      ids
        .flatMap((id) => this.finished.findDead(id) ?? [])
        .map(({ delivery }) => [delivery.id, delivery]),
    );
    this.pending.requireRoomFor([...dead.values()]);
    const changed = [...new Set(ids)].filter((id) => {
      const delivery = dead.get(id);
      if (delivery === undefined) return this.pending.bringForward(id, now);
      this.finished.forgetDead(id);
      this.add(delivery, now);
      return true;
    });
    this.schedulePump();
    return changed;
  }

  override async stop(deadline: number): Promise<number> {
    this.stopping = true;
    await this.drain(deadline);
    this.closed = true;
    this.disarm();
    return this.pending.size;
  }

  override async flush(): Promise<void> {
    await new Promise<void>((resolve) => this.whenDrained(resolve));
  }

  private async drain(deadline: number): Promise<void> {
    let cancel: CancelWake = () => {};
    await new Promise<void>((resolve) => {
      cancel = this.clock.wakeAt(deadline, resolve);
      this.whenDrained(resolve);
    });
    cancel();
  }

  private whenDrained(resolve: () => void): void {
    const check = (): void => {
      if (!this.isDrained()) return;
      this.watchers.delete(check);
      resolve();
    };
    this.watchers.add(check);
    this.schedulePump();
    check();
  }

  private isDrained(): boolean {
    if (this.running > 0) return false;
    const { nextDue } = this.pending;
    return this.handler === undefined || nextDue === undefined || nextDue > this.clock.now();
  }

  private refuseWhenStopping(): void {
    if (this.stopping) {
      throw new WebhookDeliveryError(
        'shutting_down',
        'The delivery queue is stopped, because the application is shutting down.',
      );
    }
  }

  private receiptOf(id: string): KnownDelivery | undefined {
    return this.pending.receipt(id) ?? this.finished.receipt(id);
  }

  /** Most calls record one delivery, which needs no lists (benchmark `send`). */
  private enqueueOne({ delivery, notBefore }: EnqueuedDelivery): DeliveryReceipt {
    const known = this.receiptOf(delivery.id);
    if (known !== undefined) return known;
    this.pending.requireRoomFor([delivery]);
    return this.add(delivery, notBefore);
  }

  private enqueueAll(deliveries: readonly EnqueuedDelivery[]): DeliveryReceipt[] {
    const fresh = new Map(
      deliveries
        .filter(({ delivery }) => this.receiptOf(delivery.id) === undefined)
        .map(({ delivery }) => [delivery.id, delivery]),
    );
    this.pending.requireRoomFor([...fresh.values()]);
    return deliveries.map(
      ({ delivery, notBefore }) => this.receiptOf(delivery.id) ?? this.add(delivery, notBefore),
    );
  }

  private add(delivery: WebhookDelivery, due: number): DeliveryReceipt {
    this.pending.add(delivery, due);
    this.finished.shrinkTo(this.pending.freeBytes);
    return { id: delivery.id, status: 'recorded' };
  }

  /** Runs handlers in a later microtask: `enqueue` must return before an attempt begins. */
  private schedulePump(): void {
    const { nextDue } = this.pending;
    if (
      nextDue === undefined ||
      this.handler === undefined ||
      this.closed ||
      this.running >= this.concurrency
    ) {
      return;
    }
    if (nextDue <= this.clock.now()) {
      if (this.pumpScheduled) return;
      this.pumpScheduled = true;
      queueMicrotask(() => {
        this.pumpScheduled = false;
        this.pump();
      });
    } else if (this.armed === undefined || nextDue < this.armed.at) {
      this.disarm();
      this.armed = { at: nextDue, cancel: this.clock.wakeAt(nextDue, () => this.wake()) };
    }
  }

  private wake(): void {
    this.armed = undefined;
    this.pump();
  }

  private disarm(): void {
    this.armed?.cancel();
    this.armed = undefined;
  }

  private pump(): void {
    const now = this.clock.now();
    while (!this.closed && this.running < this.concurrency) {
      const taken = this.pending.takeDue(now);
      if (taken === undefined) break;
      void this.run(taken);
    }
    this.schedulePump();
  }

  private async run(taken: TakenDelivery): Promise<void> {
    const { entry } = taken;
    this.running++;
    let outcome: DeliveryOutcome | undefined;
    try {
      outcome = await this.handler!(entry.delivery, entry.attempts + 1);
    } catch {
      // The handler has logged the error; the delivery runs again.
    }
    this.running--;
    this.pending.release(taken, this.clock.now(), wasAttempt(outcome));
    this.settle(entry, outcome);
    this.schedulePump();
    for (const check of this.watchers) check();
  }

  private settle(entry: PendingDelivery, outcome: DeliveryOutcome | undefined): void {
    switch (outcome?.type) {
      case 'delivered':
        this.pending.remove(entry);
        this.finished.addDelivered(entry.delivery, entry.attempts + 1);
        break;
      case 'dead':
        this.bury(entry, outcome);
        break;
      case 'retry':
        entry.attempts++;
        entry.throws = 0;
        entry.reason = outcome.reason;
        this.pending.putBack(entry, outcome.at);
        break;
      case 'defer':
        entry.throws = 0;
        this.pending.putBack(entry, outcome.at);
        break;
      default:
        this.pending.putBack(entry, this.clock.now() + waitAfterThrow(entry.throws++));
    }
  }

  private bury(
    entry: PendingDelivery,
    { attempts, reason }: Extract<DeliveryOutcome, { type: 'dead' }>,
  ): void {
    const { delivery, bytes } = entry;
    this.pending.remove(entry);
    this.finished.addDead({ delivery, attempts, reason, diedAt: this.clock.now() }, bytes);
    this.finished.shrinkTo(this.pending.freeBytes);
  }
}
