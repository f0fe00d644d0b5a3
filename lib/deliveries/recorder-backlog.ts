import type { EnqueuedDelivery } from '../queue/delivery-queue.js';
import type { DeliveryChange } from './delivery-log.js';

/** One thing that the log is to be told. */
export type DeliveryNews =
  | { readonly enqueued: EnqueuedDelivery; readonly change?: undefined; refusedAt?: number }
  | { readonly enqueued?: undefined; readonly change: DeliveryChange; refusedAt?: number };

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

/** What the log has not been told yet, in order. */
export class RecorderBacklog {
  private waiting: DeliveryNews[] = [];
  private bytes = 0;
  private batchSize = MAX_BATCH;
  private lost = 0;
  /** Batches that the log took. */
  private successes = 0;

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

  /**
   * They could not be told: fewer are tried next. One alone goes behind the others, which may be what the log can take; when it
   * fails again after others did not, it is lost.
   */
  putBack({ news }: NewsBatch): void {
    this.batchSize = Math.max(1, news.length >> 1);
    const [first] = news;
    if (first === undefined) return;
    for (const item of news) this.bytes += weightOf(item);
    if (news.length > 1) {
      this.waiting.unshift(...news);
    } else if (first.refusedAt !== undefined && first.refusedAt < this.successes) {
      this.bytes -= weightOf(first);
      this.lost++;
    } else {
      first.refusedAt = this.successes;
      this.waiting.push(first);
    }
  }

  told(): void {
    this.successes++;
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
