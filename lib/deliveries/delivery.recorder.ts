import { type CancelWake, waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { errorName, isWebhookError, WebhookStoreError } from '../errors/webhook.error.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { MadeAttempt } from '../sending/attempt-result.js';
import { PublisherLog } from '../sending/publisher-log.js';
import type { DeliveryChange, DeliveryLog, LoggedAttempt, LoggedDelivery } from './delivery-log.js';
import type { DeliveryReport } from './webhook.deliverer.js';

/**
 * What a run has changed.
 *
 * @param at - epoch milliseconds
 */
function changeOf(
  { delivery, attempt, outcome, made }: DeliveryReport,
  at: number,
): DeliveryChange {
  const facts = { delivery, at, ...(made !== undefined && { made: loggedAttempt(made) }) };
  switch (outcome.type) {
    case 'delivered':
      return { ...facts, status: 'delivered', attempts: attempt };
    case 'retry':
      return {
        ...facts,
        status: 'pending',
        attempts: attempt,
        nextAttemptAt: outcome.at,
        reason: outcome.reason,
      };
    case 'defer':
      // Put off, which counts no attempt, also where one was cut off.
      return { ...facts, status: 'pending', attempts: attempt - 1, nextAttemptAt: outcome.at };
    case 'dead':
      return { ...facts, status: 'dead', attempts: outcome.attempts, reason: outcome.reason };
  }
}

/** What a new round under the old id changes. */
export function changeOfRedrive({ delivery }: LoggedDelivery, at: number): DeliveryChange {
  return { delivery, status: 'pending', attempts: 0, nextAttemptAt: at, at };
}

function loggedAttempt({ result, at, answer }: MadeAttempt): LoggedAttempt {
  const { attempt, method, durationMs, statusCode } = result;
  return {
    attempt,
    at,
    method,
    durationMs,
    ...(statusCode !== undefined && { statusCode }),
    ...(result.outcome !== 'acknowledged' && { reason: result.reason }),
    ...(answer !== undefined && { answer }),
  };
}

/** Tells once that the delivery log fails, and once that it works again. */
class RecorderTroubles {
  private readonly logger = new PublisherLog();
  private isFailing = false;

  failed(error: unknown): void {
    if (this.isFailing) return;
    this.isFailing = true;
    this.logger.warn(
      () =>
        `The delivery log fails (${nameOf(error)}): deliveries go on, and what became of them is told to it when it works again.`,
    );
  }

  /** @param lost - news that it will not be told any more */
  worked(lost: number): void {
    if (!this.isFailing && lost === 0) return;
    this.isFailing = false;
    const rest =
      lost === 0
        ? ''
        : `; it was not told of ${lost} changes, which it refused or which were too many to keep`;
    this.logger.log(() => `The delivery log works again${rest}.`);
  }
}

/** A stranger's message may quote what was to be stored. */
function nameOf(error: unknown): string {
  if (isWebhookError(error)) return `${error.code}: ${error.message}`;
  return errorName(error);
}

/** One thing that the log is to be told. */
type DeliveryNews =
  | { readonly enqueued: EnqueuedDelivery; readonly change?: undefined; refusedAt?: number }
  | { readonly enqueued?: undefined; readonly change: DeliveryChange; refusedAt?: number };

/** News that are told in one go. */
interface NewsBatch {
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
class RecorderBacklog {
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
