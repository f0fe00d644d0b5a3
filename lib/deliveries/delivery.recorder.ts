import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { waitUntil } from '../clock/deadline.js';
import { WebhookStoreError } from '../errors/webhook-store.error.js';
import { isWebhookError } from '../errors/webhook.error.js';
import type { EnqueuedDelivery } from '../queue/delivery-queue.js';
import type { DeliveryReport } from './webhook.deliverer.js';
import { changeOf } from './delivery-changes.js';
import type { DeliveryChange, DeliveryLog } from './delivery-log.js';
import { RecorderBacklog } from './recorder-backlog.js';
import { RecorderTroubles } from './recorder-troubles.js';

/** Milliseconds until a log that failed is tried again: doubled each time, up to the longest. */
const FIRST_WAIT = 1_000;
const LONGEST_WAIT = 30_000;
/** Milliseconds that a shutdown gives the log, whatever is left of its own time. */
const LEAST_TIME = 1_000;

/**
 * Tells the delivery log what happens, without holding anything up: what comes while the log is at work is told together,
 * in order. While it fails, the news wait, up to a bound.
 */
export class DeliveryRecorder {
  private readonly backlog = new RecorderBacklog();
  private readonly troubles = new RecorderTroubles();
  private telling: Promise<void> | undefined;
  /** News that are done with, told or lost; those that the log is being told. */
  private done = 0;
  private underWay = 0;
  private waiting: { readonly until: number; readonly resolve: () => void }[] = [];
  private wait = FIRST_WAIT;
  private cancelRetry: CancelWake | undefined;

  constructor(
    private readonly log: DeliveryLog | undefined,
    private readonly clock: WebhookClock,
  ) {}

  /**
   * Remembers what the queue has recorded. In a transaction the log joins it, or is told by the first attempt: what is rolled
   * back must leave no trace.
   *
   * @throws {@link WebhookStoreError} only with `tx`, which is broken then
   */
  async enqueued(deliveries: readonly EnqueuedDelivery[], tx?: unknown): Promise<void> {
    const { log } = this;
    if (log === undefined || deliveries.length === 0) return;
    if (tx === undefined) {
      for (const delivery of deliveries) this.backlog.add({ enqueued: delivery });
      this.tell();
    } else if (log.transactional) {
      await recordIn(tx, log, deliveries);
    }
  }

  /** Remembers how a run ended. */
  reported(report: DeliveryReport): void {
    if (this.log !== undefined) this.changed(changeOf(report, this.clock.now()));
  }

  /** Remembers what became of a delivery otherwise. */
  changed(change: DeliveryChange): void {
    if (this.log === undefined) return;
    this.backlog.add({ change });
    this.tell();
  }

  /** Resolves when the log knows all that has happened so far, or cannot be told. */
  async settled(): Promise<void> {
    if (this.telling === undefined) return;
    // Not for what comes meanwhile: where news never end, whoever looks would wait for ever.
    const until = this.done + this.underWay + this.backlog.size;
    const told = new Promise<void>((resolve) => this.waiting.push({ until, resolve }));
    await Promise.race([told, this.telling]);
  }

  /**
   * Tells the log what it has not been told, once more if it has failed.
   *
   * @param deadline - epoch milliseconds after which it waits no longer
   * @returns how many news are lost with this process
   */
  async flush(deadline: number): Promise<number> {
    // Deliveries may have used up the time, and a log in memory takes none.
    const end = Math.max(deadline, this.clock.now() + LEAST_TIME);
    this.retry();
    // What is aborted by the shutdown is told of while the rest is.
    while (this.telling !== undefined && this.clock.now() < end) {
      await waitUntil(this.clock, end, this.telling);
    }
    this.cancelRetry?.();
    return this.backlog.size;
  }

  private tell(): void {
    if (this.telling !== undefined || this.cancelRetry !== undefined) return;
    this.telling = this.tellAll();
  }

  private async tellAll(): Promise<void> {
    // After this turn: what it brings is told together.
    await Promise.resolve();
    while (this.backlog.size > 0) {
      const batch = this.backlog.take();
      this.underWay = batch.news.length;
      try {
        if (batch.enqueued.length > 0) await this.log!.record(batch.enqueued);
        if (batch.changes.length > 0) await this.log!.change(batch.changes);
      } catch (error) {
        this.underWay = 0;
        this.backlog.putBack(batch);
        this.troubles.failed(error);
        this.retryLater();
        break;
      }
      this.wait = FIRST_WAIT;
      this.backlog.told();
      const lost = this.backlog.takeLost();
      this.troubles.worked(lost);
      this.release(this.underWay + lost);
    }
    // In the turn that found nothing left: what comes after it begins anew.
    this.telling = undefined;
    this.waiting = [];
  }

  private release(done: number): void {
    this.done += done;
    this.underWay = 0;
    for (const { until, resolve } of this.waiting) if (until <= this.done) resolve();
    this.waiting = this.waiting.filter(({ until }) => until > this.done);
  }

  private retryLater(): void {
    this.cancelRetry = this.clock.wakeAt(this.clock.now() + this.wait, () => this.retry());
    this.wait = Math.min(this.wait * 2, LONGEST_WAIT);
  }

  private retry(): void {
    this.cancelRetry?.();
    this.cancelRetry = undefined;
    this.tell();
  }
}

async function recordIn(
  tx: unknown,
  log: DeliveryLog,
  deliveries: readonly EnqueuedDelivery[],
): Promise<void> {
  try {
    await log.record(deliveries, { tx });
  } catch (cause) {
    if (isWebhookError(cause)) throw cause;
    throw new WebhookStoreError(
      'store_unavailable',
      'The delivery log could not record in the transaction: roll it back, and publish again.',
      { cause },
    );
  }
}
