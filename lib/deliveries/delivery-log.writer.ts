import { type CancelWake, waitUntil, type WebhookClock } from '../clock/webhook-clock.js';
import { errorName, isWebhookError, WebhookStoreError } from '../errors/webhook.error.js';
import type { OutgoingDelivery } from '../queue/webhook-delivery.interface.js';
import type { EnqueuedDelivery } from '../queue/webhook-queue.js';
import type { Attempt } from '../sending/attempt-result.js';
import { isThenable } from '../token/maybe-promise.js';
import { PublisherLog } from '../signing/publisher-log.js';
import type { DeliveryChange, DeliveryLog, LoggedAttempt } from './delivery-log.js';
import { MemoryDeliveryLog } from './memory-delivery.log.js';
import type { DeliveryReport } from './webhook.deliverer.js';

/** Milliseconds until a failed write is retried; doubled each time, up to the maximum. */
const FIRST_RETRY = 1_000;
const MAX_RETRY = 30_000;
/** Milliseconds that a shutdown grants the log, even if deliveries have used up the shutdown's own time. */
const MIN_FLUSH_TIME = 1_000;
/** Milliseconds that a publish or an attempt waits for a log that is slow. */
const MAX_WRITE_WAIT = 1_000;

/**
 * Writes delivery changes to the {@link DeliveryLog} in the background.
 *
 * Changes that arrive during a write are batched into the next one, in order. If the log fails, changes are buffered, up to a
 * bound, and retried with backoff; deliveries go on without it.
 *
 * A durable log is written before the queue: the outcome of an attempt reaches the log before the queue records it, so that a
 * crash in between repeats the attempt rather than losing its outcome. Each waits for a slow log for one second at most.
 */
export class DeliveryLogWriter {
  private readonly buffer = new ChangeBuffer();
  private readonly outage = new LogOutage();
  private isWriting = false;
  private writing: Promise<void> | undefined;
  /** Entries written or dropped so far, and entries of the current batch. */
  private completed = 0;
  private inFlight = 0;
  private waiting: { readonly target: number; readonly resolve: () => void }[] = [];
  private retryDelay = FIRST_RETRY;
  private cancelRetry: CancelWake | undefined;

  /** A log that takes changes at once and without failing. A subclass may do neither. */
  private readonly memory: MemoryDeliveryLog | undefined;

  constructor(
    private readonly log: DeliveryLog | undefined,
    private readonly clock: WebhookClock,
  ) {
    if (log?.constructor === MemoryDeliveryLog) this.memory = log as MemoryDeliveryLog;
  }

  /**
   * Records deliveries that the queue has accepted. With `tx`, a transactional log records them in it; another log learns of
   * them from the first attempt, since a rolled-back transaction must leave no trace.
   *
   * @throws {@link WebhookStoreError} only with `tx`, which then can only be rolled back
   */
  enqueued(
    deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[],
    tx?: unknown,
  ): Promise<void> | undefined {
    const { log } = this;
    if (log === undefined || deliveries.length === 0) return undefined;
    if (tx === undefined && this.memory !== undefined) {
      void this.memory.record(deliveries);
      return undefined;
    }
    if (tx === undefined) {
      for (const enqueued of deliveries) this.buffer.add({ enqueued });
      this.write();
      return this.writtenIfDurable();
    }
    return log.transactional ? recordIn(tx, log, deliveries) : undefined;
  }

  /** Records the outcome of an attempt; to be awaited before the queue records it. */
  attempted(report: DeliveryReport): Promise<void> | undefined {
    if (this.log === undefined) return undefined;
    this.changed(changeOf(report, this.clock.now()));
    // Nothing is lost with a deferral: the queue repeats it.
    return report.outcome.type === 'defer' ? undefined : this.writtenIfDurable();
  }

  /** Records any other change of a delivery. */
  changed(change: DeliveryChange): void {
    if (this.log === undefined) return;
    if (this.memory !== undefined) {
      void this.memory.change([change]);
      return;
    }
    this.buffer.add({ change });
    this.write();
  }

  /** Resolves once every change recorded before this call is written, or the log has failed. */
  async flushed(): Promise<void> {
    if (this.writing === undefined) return;
    // Wait for the current changes only; under constant load the buffer never empties.
    const target = this.completed + this.inFlight + this.buffer.size;
    const written = new Promise<void>((resolve) => this.waiting.push({ target, resolve }));
    await Promise.race([written, this.writing]);
  }

  /**
   * Writes what is buffered, for the last time.
   *
   * @param deadline - epoch milliseconds; a log gets at least a second
   * @returns how many changes are lost with this process
   */
  async close(deadline: number): Promise<number> {
    const end = Math.max(deadline, this.clock.now() + MIN_FLUSH_TIME);
    this.retry();
    // Attempts that the shutdown aborts are recorded meanwhile.
    while (this.writing !== undefined && this.clock.now() < end) {
      await waitUntil(this.clock, end, this.writing);
    }
    this.cancelRetry?.();
    return this.inFlight + this.buffer.size;
  }

  /** What is only in memory would not survive a crash anyway. */
  private writtenIfDurable(): Promise<void> | undefined {
    if (this.log?.durable !== true || this.writing === undefined) return undefined;
    return waitUntil(this.clock, this.clock.now() + MAX_WRITE_WAIT, this.flushed());
  }

  private write(): void {
    const { log } = this;
    if (log === undefined || this.isWriting || this.cancelRetry !== undefined) return;
    this.isWriting = true;
    const writing = this.writeAll(log);
    // A log in memory has written it all by now.
    if (this.isWriting) this.writing = writing;
  }

  private async writeAll(log: DeliveryLog): Promise<void> {
    // Batches what the current turn of the event loop still adds.
    if (log.durable) await Promise.resolve();
    while (this.buffer.size > 0) {
      const batch = this.buffer.take();
      this.inFlight = batch.entries.length;
      try {
        const recorded = batch.enqueued.length > 0 && log.record(batch.enqueued);
        if (isThenable(recorded)) await recorded;
        const changed = batch.changes.length > 0 && log.change(batch.changes);
        if (isThenable(changed)) await changed;
      } catch (error) {
        this.inFlight = 0;
        this.buffer.putBack(batch);
        this.outage.began(error);
        this.retryLater();
        break;
      }
      this.retryDelay = FIRST_RETRY;
      this.buffer.written();
      const dropped = this.buffer.takeDropped();
      this.outage.ended(dropped);
      this.release(this.inFlight + dropped);
    }
    // Cleared in the same turn that found the buffer empty, so that the next change starts a new write.
    this.isWriting = false;
    this.writing = undefined;
    this.waiting = [];
  }

  private release(completed: number): void {
    this.completed += completed;
    this.inFlight = 0;
    for (const { target, resolve } of this.waiting) if (target <= this.completed) resolve();
    this.waiting = this.waiting.filter(({ target }) => target > this.completed);
  }

  private retryLater(): void {
    const at = this.clock.now() + this.retryDelay;
    this.cancelRetry = this.clock.wakeAt(at, () => this.retry());
    this.retryDelay = Math.min(this.retryDelay * 2, MAX_RETRY);
  }

  private retry(): void {
    this.cancelRetry?.();
    this.cancelRetry = undefined;
    this.write();
  }
}

async function recordIn(
  tx: unknown,
  log: DeliveryLog,
  deliveries: readonly EnqueuedDelivery<OutgoingDelivery>[],
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

/** @param at - epoch milliseconds */
function changeOf(
  { delivery, attempt, outcome, made }: DeliveryReport,
  at: number,
): DeliveryChange {
  if (outcome.type === 'delivered' && made !== undefined) {
    // By far the most frequent change.
    return { delivery, at, made: loggedAttempt(made), status: 'delivered', attempts: attempt };
  }
  const facts = made === undefined ? { delivery, at } : { delivery, at, made: loggedAttempt(made) };
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
      // A deferral is not an attempt, even if one was aborted.
      return {
        ...facts,
        status: 'pending',
        attempts: attempt - 1,
        nextAttemptAt: outcome.at,
        ...(outcome.reason !== undefined && { reason: outcome.reason }),
      };
    case 'dead':
      return { ...facts, status: 'dead', attempts: outcome.attempts, reason: outcome.reason };
  }
}

function loggedAttempt({ result, at, answer }: Attempt): LoggedAttempt {
  const { attempt, method, durationMs, statusCode } = result;
  const logged: { -readonly [Name in keyof LoggedAttempt]: LoggedAttempt[Name] } = {
    attempt,
    at,
    method,
    durationMs,
  };
  if (statusCode !== undefined) logged.statusCode = statusCode;
  if (result.outcome !== 'acknowledged') logged.reason = result.reason;
  if (answer !== undefined) logged.answer = answer;
  return logged;
}

/** Entries of one write, at most. */
const MAX_BATCH = 200;
/** Buffered entries and bytes of payload, at most, while the log fails; beyond it the oldest are dropped. */
const MAX_BUFFERED = 10_000;
const MAX_BUFFERED_BYTES = 32 * 1024 * 1024;

/** An enqueued delivery or a change that the log does not hold yet. */
type PendingLogEntry = (
  | { readonly enqueued: EnqueuedDelivery<OutgoingDelivery>; readonly change?: undefined }
  | { readonly enqueued?: undefined; readonly change: DeliveryChange }
) & {
  /** How many batches the log had accepted when it refused this entry alone. */
  refusedAt?: number;
};

interface LogBatch {
  readonly entries: readonly PendingLogEntry[];
  readonly enqueued: readonly EnqueuedDelivery<OutgoingDelivery>[];
  readonly changes: readonly DeliveryChange[];
}

/** Entries that wait to be written, in order. */
class ChangeBuffer {
  private entries: PendingLogEntry[] = [];
  private bytes = 0;
  private batchSize = MAX_BATCH;
  private dropped = 0;
  private acceptedBatches = 0;

  get size(): number {
    return this.entries.length;
  }

  add(entry: PendingLogEntry): void {
    this.entries.push(entry);
    this.bytes += payloadBytes(entry);
    if (this.entries.length > MAX_BUFFERED || this.bytes > MAX_BUFFERED_BYTES) this.dropOldest();
  }

  take(): LogBatch {
    const entries = this.entries.splice(0, this.batchSize);
    const enqueued: EnqueuedDelivery<OutgoingDelivery>[] = [];
    const changes: DeliveryChange[] = [];
    for (const entry of entries) {
      this.bytes -= payloadBytes(entry);
      if (entry.change === undefined) enqueued.push(entry.enqueued);
      else changes.push(entry.change);
    }
    return { entries, enqueued, changes };
  }

  /**
   * Returns a batch that the log refused; the next one is half as large, which isolates an entry that the log cannot take. Such
   * an entry moves behind the others, and is dropped if it fails again while others succeed.
   */
  putBack({ entries }: LogBatch): void {
    this.batchSize = Math.max(1, entries.length >> 1);
    const [first] = entries;
    if (first === undefined) return;
    for (const entry of entries) this.bytes += payloadBytes(entry);
    if (entries.length > 1) {
      this.entries.unshift(...entries);
    } else if (first.refusedAt !== undefined && first.refusedAt < this.acceptedBatches) {
      this.bytes -= payloadBytes(first);
      this.dropped++;
    } else {
      first.refusedAt = this.acceptedBatches;
      this.entries.push(first);
    }
  }

  written(): void {
    this.acceptedBatches++;
    this.batchSize = Math.min(this.batchSize * 2, MAX_BATCH);
  }

  /** Returns how many entries were dropped since the last call. */
  takeDropped(): number {
    const { dropped } = this;
    this.dropped = 0;
    return dropped;
  }

  private dropOldest(): void {
    // A tenth at once: shifting the whole list for every new entry would be slow.
    for (const entry of this.entries.splice(0, Math.ceil(this.entries.length / 10))) {
      this.bytes -= payloadBytes(entry);
      this.dropped++;
    }
  }
}

function payloadBytes({ enqueued, change }: PendingLogEntry): number {
  return (change ?? enqueued).delivery.payload.bytes?.byteLength ?? 0;
}

/** Logs the beginning and the end of an outage of the delivery log, once each. */
class LogOutage {
  private readonly logger = new PublisherLog();
  private isOngoing = false;

  began(error: unknown): void {
    if (this.isOngoing) return;
    this.isOngoing = true;
    this.logger.warn(
      () =>
        `The delivery log failed (${describeError(error)}). Deliveries continue; their changes are buffered and written when it is available again.`,
    );
  }

  /** @param dropped - changes that will never be written */
  ended(dropped: number): void {
    if (!this.isOngoing && dropped === 0) return;
    this.isOngoing = false;
    const loss =
      dropped === 0
        ? ''
        : `; ${dropped} changes were dropped because it refused them or the buffer was full`;
    this.logger.log(() => `The delivery log is available again${loss}.`);
  }
}

/** The message of a foreign error may quote what was to be stored. */
function describeError(error: unknown): string {
  return isWebhookError(error) ? `${error.code}: ${error.message}` : errorName(error);
}
