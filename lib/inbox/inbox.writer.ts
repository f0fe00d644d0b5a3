import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import type { InboxEntry, InboxSettlement, InboxStore } from './inbox-store.js';

/** Milliseconds that changes are collected for one write. */
const BATCH_TIME = 250;
/** Entries of one write. */
const MAX_BATCH = 500;
/** Entries and settlements that wait for the store at most; later ones are dropped. */
const MAX_BUFFERED = 5_000;
/** Refused requests that are recorded per {@link BATCH_TIME}; 100 a second. Beyond that they are only counted. */
const MAX_REFUSED_PER_BATCH = 25;
/** Milliseconds until a failed write is retried; doubled each time, up to the maximum. */
const FIRST_RETRY = 1_000;
const MAX_RETRY = 60_000;

/** An entry that may still have to be completed, which is done when it is written. */
type PendingInboxEntry = () => InboxEntry | Promise<InboxEntry>;

/**
 * Writes the inbox in the background, in batches. It never delays an answer: what the store does not take in time is dropped and
 * counted. Refused requests have a share of their own, so that a flood of them displaces nothing and costs little.
 */
export class InboxWriter {
  private accepted: PendingInboxEntry[] = [];
  private refused: PendingInboxEntry[] = [];
  private settlements: InboxSettlement[] = [];
  /** Completed entries of a batch that the store has not taken yet. */
  private unwritten: InboxEntry[] = [];
  private writing: Promise<void> | undefined;
  private cancelWake: CancelWake | undefined;
  private retryDelay = FIRST_RETRY;
  private retryAt = 0;
  private failed = false;
  private droppedEntries = 0;

  /** @param onFailure - called for the first failure of an outage */
  constructor(
    private readonly store: InboxStore,
    private readonly clock: WebhookClock,
    private readonly onFailure: (error: unknown) => void,
  ) {}

  /** Entries that were not recorded since the process started. */
  get dropped(): number {
    return this.droppedEntries;
  }

  add(entry: PendingInboxEntry): void {
    if (this.accepted.length >= MAX_BUFFERED) {
      this.droppedEntries++;
      return;
    }
    this.accepted.push(entry);
    this.schedule(BATCH_TIME);
  }

  /** Whether another refused request would be recorded now. If not, it is counted as dropped. */
  takesRefused(): boolean {
    const takes = this.refused.length < MAX_REFUSED_PER_BATCH;
    if (!takes) this.droppedEntries++;
    return takes;
  }

  addRefused(entry: PendingInboxEntry): void {
    this.refused.push(entry);
    this.schedule(BATCH_TIME);
  }

  settle(settlement: InboxSettlement): void {
    if (this.settlements.length >= MAX_BUFFERED) return;
    this.settlements.push(settlement);
    this.schedule(BATCH_TIME);
  }

  /** Writes what was added before this call. While the store fails, it returns after one attempt. */
  async flush(): Promise<void> {
    // A write that is under way may have started before the last entry was added.
    await this.writing;
    await this.write();
  }

  /** Writes for the last time. */
  async close(): Promise<void> {
    await this.flush();
    this.cancelWake?.();
  }

  private schedule(delay: number): void {
    if (this.cancelWake !== undefined) return;
    const at = Math.max(this.clock.now() + delay, this.retryAt);
    this.cancelWake = this.clock.wakeAt(at, () => void this.write());
  }

  private async write(): Promise<void> {
    this.cancelWake?.();
    this.cancelWake = undefined;
    this.writing ??= this.writeAll().finally(() => {
      this.writing = undefined;
    });
    await this.writing;
  }

  private async writeAll(): Promise<void> {
    // What arrives meanwhile waits for the next write: under constant load the buffers never empty.
    const batches = 1 + Math.floor((this.unwritten.length + this.accepted.length) / MAX_BATCH);
    try {
      for (let written = 0; written < batches; written++) await this.writeBatch();
      this.failed = false;
      this.retryDelay = FIRST_RETRY;
      this.retryAt = 0;
      if (this.hasMore()) this.schedule(BATCH_TIME);
    } catch (error) {
      if (!this.failed) this.onFailure(error);
      this.failed = true;
      this.retryAt = this.clock.now() + this.retryDelay;
      this.retryDelay = Math.min(2 * this.retryDelay, MAX_RETRY);
      this.schedule(0);
    }
  }

  private hasMore(): boolean {
    return this.accepted.length + this.refused.length + this.settlements.length > 0;
  }

  private async writeBatch(): Promise<void> {
    // An event may be settled as soon as it is queued; its entry is older, and is written in this batch or before.
    const settled = this.accepted.length <= MAX_BATCH ? [...this.settlements] : [];
    await this.complete();
    if (this.unwritten.length > 0) await this.store.record(this.unwritten);
    this.unwritten = [];
    if (settled.length > 0) await this.store.settle(settled);
    this.settlements.splice(0, settled.length);
  }

  /** Completes the entries of the buffers, up to a batch. */
  private async complete(): Promise<void> {
    if (this.unwritten.length > 0) return;
    const pending = [...this.refused, ...this.accepted.splice(0, MAX_BATCH)];
    this.refused = [];
    for (const entry of pending) {
      try {
        const completed = entry();
        this.unwritten.push(completed instanceof Promise ? await completed : completed);
      } catch {
        this.droppedEntries++;
      }
    }
  }
}
