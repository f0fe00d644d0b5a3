import { type CancelWake, repeat, type WebhookClock } from '../clock/webhook-clock.js';
import type { InboxEntry, InboxSettlement, InboxStore } from './inbox-store.js';

/** Milliseconds that changes are collected for one write. */
const BATCH_TIME = 250;
/** Entries of one write. */
const MAX_BATCH = 500;
/** Entries and settlements that wait for the store at most; later ones are dropped. */
const MAX_BUFFERED = 5_000;
/** Bytes of headers and payloads that wait for the store at most; later entries are recorded without them. */
const MAX_BUFFERED_BYTES = 8 * 1024 * 1024;
/** Bytes of headers and payloads in one write, which must not block the event loop for long. */
const MAX_BATCH_BYTES = 1024 * 1024;
/**
 * Refused requests, and duplicates, that are recorded per {@link BATCH_TIME}; 100 a second each. Beyond that they are only counted.
 */
const MAX_REPEATED_PER_BATCH = 25;
/** Milliseconds between two deletions of expired entries. */
const EXPIRY_INTERVAL = 60_000;
/** Milliseconds until a failed write is retried; doubled each time, up to the maximum. */
const FIRST_RETRY = 1_000;
const MAX_RETRY = 60_000;
/**
 * Milliseconds until a settlement without an entry is repeated: another process may not have written the entry yet, because it collects
 * a batch or its write has failed. After the last repetition the settlement is dropped.
 */
const REPEAT_WAITS = [1_000, 4_000, 16_000, 64_000];
/** Settlements that wait for their entry at most; later ones are dropped. */
const MAX_UNMATCHED = 1_000;

/** An entry that may still have to be completed, which is done when it is written. */
type CompleteEntry = () => InboxEntry | Promise<InboxEntry>;

interface PendingInboxEntry {
  readonly complete: CompleteEntry;
  /** Bytes of its headers and payload. */
  readonly bytes: number;
}

/** A settlement whose entry was unknown. */
interface UnmatchedSettlement {
  readonly settlement: InboxSettlement;
  readonly repetitions: number;
  /** When it is repeated next, in epoch milliseconds. */
  readonly at: number;
}

/** Requests that anyone, or the holder of one token, can repeat without end. */
type RepeatedKind = 'refused' | 'duplicate';

/**
 * Writes the inbox in the background, in batches. It never delays an answer: what the store does not take in time is dropped and
 * counted, headers and payloads first. Refused requests and duplicates have a share of their own each, so that a flood of them
 * displaces nothing and costs little.
 */
export class InboxWriter {
  private accepted: PendingInboxEntry[] = [];
  private repeated: Record<RepeatedKind, CompleteEntry[]> = { refused: [], duplicate: [] };
  private settlements: InboxSettlement[] = [];
  /** By the id of the delivery. */
  private readonly unmatched = new Map<string, UnmatchedSettlement>();
  /** Completed entries of a batch that the store has not taken yet. */
  private unwritten: InboxEntry[] = [];
  /** Bytes of headers and payloads that wait, and of those in {@link unwritten}. */
  private bufferedBytes = 0;
  private unwrittenBytes = 0;
  private writing: Promise<void> | undefined;
  private wake: { readonly at: number; readonly cancel: CancelWake } | undefined;
  private retryDelay = FIRST_RETRY;
  private retryAt = 0;
  private failed = false;
  private droppedEntries = 0;
  private stopExpiry: CancelWake = () => {};

  /** @param onFailure - called for the first failure of an outage */
  constructor(
    private readonly store: InboxStore,
    private readonly clock: WebhookClock,
    private readonly onFailure: (error: unknown) => void,
  ) {}

  /** Has the store delete expired entries from now on. A failure is made up for by the next round, or by another process. */
  start(): void {
    const { store, clock } = this;
    this.stopExpiry = repeat(clock, EXPIRY_INTERVAL, async () => store.deleteExpired(clock.now()));
  }

  /** Entries that were not recorded since the process started. */
  get dropped(): number {
    return this.droppedEntries;
  }

  /** @param bytes - of its headers and payload, for which {@link takesContent} has asked */
  add(complete: CompleteEntry, bytes = 0): void {
    if (this.accepted.length >= MAX_BUFFERED) {
      this.droppedEntries++;
      return;
    }
    this.accepted.push({ complete, bytes });
    this.bufferedBytes += bytes;
    this.schedule(BATCH_TIME);
  }

  /** Whether an entry may keep its headers and payload until it is written. */
  takesContent(bytes: number): boolean {
    return this.bufferedBytes + bytes <= MAX_BUFFERED_BYTES;
  }

  /** Whether another one would be recorded now. If not, it is counted as dropped. */
  takesRepeated(kind: RepeatedKind): boolean {
    const takes = this.repeated[kind].length < MAX_REPEATED_PER_BATCH;
    if (!takes) this.droppedEntries++;
    return takes;
  }

  addRepeated(kind: RepeatedKind, complete: CompleteEntry): void {
    this.repeated[kind].push(complete);
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
    this.stopExpiry();
    for (const [id, one] of this.unmatched) this.unmatched.set(id, { ...one, at: 0 });
    await this.flush();
    this.wake?.cancel();
  }

  private schedule(delay: number): void {
    const at = Math.max(this.clock.now() + delay, this.retryAt);
    if (this.wake !== undefined && this.wake.at <= at) return;
    this.wake?.cancel();
    this.wake = { at, cancel: this.clock.wakeAt(at, () => void this.write()) };
  }

  private async write(): Promise<void> {
    this.wake?.cancel();
    this.wake = undefined;
    this.writing ??= this.writeAll().finally(() => {
      this.writing = undefined;
    });
    await this.writing;
  }

  private async writeAll(): Promise<void> {
    // What arrives meanwhile waits for the next write: under constant load the buffers never empty.
    let left = this.unwritten.length + this.accepted.length;
    try {
      do left -= await this.writeBatch();
      while (left > 0);
      this.failed = false;
      this.retryDelay = FIRST_RETRY;
      this.retryAt = 0;
      if (this.hasMore()) this.schedule(BATCH_TIME);
      const repeatAt = Math.min(...[...this.unmatched.values()].map(({ at }) => at));
      if (repeatAt !== Infinity) this.schedule(repeatAt - this.clock.now());
    } catch (error) {
      if (!this.failed) this.onFailure(error);
      this.failed = true;
      this.retryAt = this.clock.now() + this.retryDelay;
      this.retryDelay = Math.min(2 * this.retryDelay, MAX_RETRY);
      this.schedule(0);
    }
  }

  private hasMore(): boolean {
    const { refused, duplicate } = this.repeated;
    const waiting = [this.accepted, refused, duplicate, this.settlements];
    return waiting.some(({ length }) => length > 0);
  }

  /** @returns how many entries were written, at least 1 */
  private async writeBatch(): Promise<number> {
    const batch = this.unwritten.length === 0 ? this.takeBatch() : [];
    // An event may be settled as soon as it is queued; its entry is older, and is written in this batch or before.
    const isLast = this.accepted.length === 0;
    const count = isLast ? this.settlements.length : 0;
    for (const complete of batch) await this.complete(complete);
    const written = Math.max(batch.length, this.unwritten.length, 1);
    if (this.unwritten.length > 0) await this.store.record(this.unwritten);
    this.unwritten = [];
    this.bufferedBytes -= this.unwrittenBytes;
    this.unwrittenBytes = 0;
    if (isLast) await this.writeSettlements(count);
    return written;
  }

  /** @param count - of new settlements to write, besides those that are repeated */
  private async writeSettlements(count: number): Promise<void> {
    const now = this.clock.now();
    const repeated = [...this.unmatched.values()].filter(({ at }) => at <= now);
    const added = this.settlements.slice(0, count);
    const batch = [...repeated, ...added.map((settlement) => ({ settlement, repetitions: 0 }))];
    if (batch.length === 0) return;
    const answer = await this.store.settle(batch.map(({ settlement }) => settlement));
    this.settlements.splice(0, count);
    const unknown = new Set(answer ?? []);
    for (const { settlement, repetitions } of batch) {
      const { deliveryId } = settlement;
      this.unmatched.delete(deliveryId);
      const wait = REPEAT_WAITS[repetitions];
      if (!unknown.has(deliveryId) || wait === undefined || this.unmatched.size >= MAX_UNMATCHED)
        continue;
      this.unmatched.set(deliveryId, {
        settlement: { ...settlement, isRepeated: true },
        repetitions: repetitions + 1,
        at: now + wait,
      });
    }
  }

  /** Takes the next entries from the buffers, as many as one write may have. */
  private takeBatch(): CompleteEntry[] {
    const batch = [...this.repeated.refused, ...this.repeated.duplicate];
    this.repeated = { refused: [], duplicate: [] };
    let count = 0;
    for (const { bytes } of this.accepted) {
      if (count === MAX_BATCH || (count > 0 && this.unwrittenBytes + bytes > MAX_BATCH_BYTES))
        break;
      this.unwrittenBytes += bytes;
      count++;
    }
    return [...batch, ...this.accepted.splice(0, count).map(({ complete }) => complete)];
  }

  private async complete(complete: CompleteEntry): Promise<void> {
    try {
      this.unwritten.push(await complete());
    } catch {
      this.droppedEntries++;
    }
  }
}
