import type { EnqueuedDelivery } from '../../queue/delivery-queue.js';
import type { DeliveryChange } from './delivery-log.js';

/** One thing that the log is to be told. */
export type DeliveryNews =
  | { readonly enqueued: EnqueuedDelivery; readonly change?: undefined; failures?: number }
  | { readonly enqueued?: undefined; readonly change: DeliveryChange; failures?: number };

/** News that are told in one go. */
export interface NewsBatch {
  readonly news: readonly DeliveryNews[];
  readonly enqueued: readonly EnqueuedDelivery[];
  readonly changes: readonly DeliveryChange[];
}

/** Told at once at most. */
const MAX_BATCH = 200;
/** Waiting at most while the log is away, in number and in bytes of payload; then the oldest are lost. */
const MAX_WAITING = 10_000;
const MAX_BYTES = 32 * 1024 * 1024;
/** What the log fails on by itself, this often, is what it cannot take: the others must not wait for it for ever. */
const MAX_FAILURES = 5;

/** What the log has not been told yet, in order. */
export class RecorderBacklog {
  private waiting: DeliveryNews[] = [];
  private bytes = 0;
  private batchSize = MAX_BATCH;
  private lost = 0;

  get size(): number {
    return this.waiting.length;
  }

  add(news: DeliveryNews): void {
    this.waiting.push(news);
    this.bytes += weightOf(news);
    if (this.waiting.length > MAX_WAITING || this.bytes > MAX_BYTES) this.loseOldest();
  }

  /** Takes the next ones out; they are told, or put back. */
  take(): NewsBatch {
    const news = this.waiting.splice(0, this.batchSize);
    const enqueued: EnqueuedDelivery[] = [];
    const changes: DeliveryChange[] = [];
    for (const item of news) {
      this.bytes -= weightOf(item);
      if (item.change === undefined) enqueued.push(item.enqueued);
      else changes.push(item.change);
    }
    return { news, enqueued, changes };
  }

  /** They could not be told: fewer are tried next, until one is alone that the log cannot take, or all can be told. */
  putBack({ news }: NewsBatch): void {
    const [alone] = news;
    if (news.length === 1 && alone !== undefined) {
      alone.failures = (alone.failures ?? 0) + 1;
      if (alone.failures >= MAX_FAILURES) {
        this.lost++;
        return;
      }
    }
    this.batchSize = Math.max(1, news.length >> 1);
    this.waiting.unshift(...news);
    for (const item of news) this.bytes += weightOf(item);
  }

  told(): void {
    this.batchSize = Math.min(this.batchSize * 2, MAX_BATCH);
  }

  /** How many were lost since it was last asked. */
  takeLost(): number {
    const { lost } = this;
    this.lost = 0;
    return lost;
  }

  private loseOldest(): void {
    // A tenth at once, so that a log that is away does not cost a shift of the whole list with every news.
    for (const item of this.waiting.splice(0, Math.ceil(this.waiting.length / 10))) {
      this.bytes -= weightOf(item);
      this.lost++;
    }
  }
}

function weightOf({ enqueued, change }: DeliveryNews): number {
  return (change ?? enqueued).delivery.payload.bytes?.byteLength ?? 0;
}
