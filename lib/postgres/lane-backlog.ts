import { restAfter } from '../clock/webhook-clock.js';

/** Milliseconds that scans overlap, for deliveries of transactions that commit late. */
const OVERLAP = 5_000;
/** Minimum of milliseconds between two scans of the whole backlog. */
const RESCAN_INTERVAL = 5_000;
/** Scans of the whole backlog take at most 1 part in this many of the time. */
const RESCAN_SHARE = 20;

/**
 * The lanes with due deliveries but without a free slot.
 *
 * A claim has to skip the due deliveries of full lanes, and a slow endpoint may have many. They are skipped once: later claims start
 * where that scan ended, and a lane that gets a free slot is claimed from by itself.
 */
export class LaneBacklog {
  private readonly waiting = new Set<string>();
  /** Epoch milliseconds until which due deliveries are in these lanes only; `undefined` if there are no such lanes. */
  private until: number | undefined;
  /** Epoch milliseconds of the next scan of the whole backlog, which also finds deliveries whose lease has expired. */
  private rescanAt = 0;

  get lanes(): readonly string[] {
    return [...this.waiting];
  }

  get isEmpty(): boolean {
    return this.waiting.size === 0;
  }

  has(lane: string): boolean {
    return this.waiting.has(lane);
  }

  delete(lane: string): void {
    this.waiting.delete(lane);
    if (this.isEmpty) this.forget();
  }

  /** Makes the next claim scan the whole backlog. */
  forget(): void {
    this.waiting.clear();
    this.until = undefined;
    this.rescanAt = 0;
  }

  /** @returns epoch milliseconds of the first due time to claim; `undefined` for the earliest */
  startOfScan(now: number): number | undefined {
    return now >= this.rescanAt || this.until === undefined ? undefined : this.until - OVERLAP;
  }

  /** Records a scan that found only deliveries of full lanes. */
  recordScan(scan: {
    readonly from: number | undefined;
    readonly start: number;
    readonly end: number;
    readonly full: readonly string[];
  }): void {
    for (const lane of scan.full) this.waiting.add(lane);
    this.until = this.isEmpty ? undefined : scan.start;
    if (scan.from === undefined) {
      const took = scan.end - scan.start;
      this.rescanAt = scan.end + Math.max(RESCAN_INTERVAL, restAfter(took, RESCAN_SHARE));
    }
  }
}
