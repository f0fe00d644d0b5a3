import { AsyncResource } from 'node:async_hooks';
import { type CancelWake, restAfter, type WebhookClock } from '../clock/webhook-clock.js';
import type { ClaimedDelivery } from './delivery-row.js';
import type { ClaimRequest, ClaimResult } from './delivery-table.js';
import { type FreeSlots, LaneDivision } from './lane-division.js';
import type { LimitedLanes } from './limited-lanes.js';

interface ClaimLoopParts {
  readonly limited: LimitedLanes;
  readonly claimDeliveries: (request: ClaimRequest) => Promise<ClaimResult>;
  /** Returns those of the lanes that have a due delivery. */
  readonly findDueLanes: (lanes: readonly string[]) => Promise<readonly string[]>;
  /** Attempts a delivery and writes the outcome; never rejects. @returns whether an attempt was made */
  readonly run: (delivery: ClaimedDelivery) => Promise<boolean>;
  /** Returns a delivery to the queue that was claimed while the loop was stopped. */
  readonly release: (delivery: ClaimedDelivery) => Promise<void>;
  /** Called once for each outage of the database. */
  readonly onOutage: (error: unknown) => void;
  /** Called once for the failures in a row of claims from limited lanes, while the others succeed. */
  readonly onLimitedFailure: (error: unknown) => void;
  readonly concurrency: number;
  readonly concurrencyPerDestination: number;
  /** Milliseconds. */
  readonly pollInterval: number;
  readonly clock: WebhookClock;
}

/** What is known while claims from limited lanes fail. */
interface LimitedOutage {
  readonly error: unknown;
  /** In a row. */
  readonly failures: number;
  isReported: boolean;
  /** Epoch milliseconds. */
  retryAt: number;
}

/** Maximum of milliseconds between two claims while the database is unavailable. */
const MAX_PAUSE = 30_000;

/** Milliseconds after which the contending slow lanes with due deliveries are looked for again. */
const LANE_CHECK_INTERVAL = 1_000;

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
class LaneBacklog {
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

  /** Records a scan: the deliveries that were due until a time, and were not claimed, are in full lanes. */
  recordScan(scan: {
    readonly from: number | undefined;
    readonly until: number;
    readonly start: number;
    readonly end: number;
    readonly full: readonly string[];
  }): void {
    for (const lane of scan.full) this.waiting.add(lane);
    this.until = this.isEmpty ? undefined : Math.max(this.until ?? -Infinity, scan.until);
    if (scan.from === undefined) {
      const took = scan.end - scan.start;
      this.rescanAt = scan.end + Math.max(RESCAN_INTERVAL, restAfter(took, RESCAN_SHARE));
    }
  }
}

/**
 * Claims due deliveries while there are free slots, and runs each of them. The next claim follows
 *
 * - at once after {@link wake}, after a claim that found some, and after an attempt that may have held up others;
 * - by the timer: at the next poll, or earlier when a delivery is due, when a limited lane may start one, or when a lane has
 *   waited long enough to get more slots.
 *
 * It claims and runs in the async context in which it was constructed, so that it joins neither the transaction nor the trace of a
 * call that wakes it.
 */
export class ClaimLoop {
  private readonly background = new AsyncResource('WebhookQueue');
  private readonly deliveries = new Map<string, ClaimedDelivery>();
  private readonly lanes: LaneDivision;
  private readonly backlog = new LaneBacklog();
  private readonly limited: LimitedLanes;
  /** The contending slow lanes, and those of them with due deliveries; `undefined` if none contend. */
  private contention:
    { readonly lanes: ReadonlySet<string>; readonly due: ReadonlySet<string> } | undefined;
  /** Epoch milliseconds at which the due ones are looked for again. */
  private nextLaneCheck = 0;
  private cancelTimer: CancelWake = () => {};
  private asking = false;
  private askAgain = false;
  /** Whether a delivery outside the backlog may be due. */
  private mayBeMore = true;
  /** Epoch milliseconds at which the next delivery is due, or the next poll. */
  private nextScan = 0;
  /** Epoch milliseconds of the last look for due deliveries. */
  private lookedAt = 0;
  private pauses = 0;
  /** Since claims from limited lanes fail, while others succeed. */
  private limitedOutage: LimitedOutage | undefined;
  private stopped = false;
  private claims = 0;
  private idleListeners: (() => void)[] = [];

  constructor(private readonly parts: ClaimLoopParts) {
    this.lanes = new LaneDivision(parts);
    this.limited = parts.limited;
  }

  /** The deliveries that this process has claimed. */
  get running(): readonly ClaimedDelivery[] {
    return [...this.deliveries.values()];
  }

  /** Whether another delivery can start now. */
  get hasFreeSlot(): boolean {
    return !this.stopped && this.freeSlots > 0;
  }

  /**
   * Looks for due deliveries now.
   *
   * @param limitedLanes - limited lanes that may have some; `'all'` to search for such lanes
   */
  wake(limitedLanes: readonly string[] | 'all' = []): void {
    this.mayBeMore = true;
    this.limited.wake(limitedLanes);
    void this.background.runInAsyncScope(this.ask, this);
  }

  /** Claims no more deliveries; resolves when none is running. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.cancelTimer();
    await this.idle();
  }

  /** Claims and runs until no delivery is due or running. */
  async drain(): Promise<void> {
    for (let before = -1; before !== this.claims && !this.stopped; await this.idle()) {
      // A claim that is under way may have started before the last delivery was recorded.
      await this.idle();
      before = this.claims;
      this.wake('all');
    }
  }

  private async idle(): Promise<void> {
    if (!this.isIdle) await new Promise<void>((resolve) => this.idleListeners.push(resolve));
  }

  private get isIdle(): boolean {
    return this.deliveries.size === 0 && !this.asking;
  }

  private get freeSlots(): number {
    return this.parts.concurrency - this.deliveries.size;
  }

  private async ask(): Promise<void> {
    this.askAgain = true;
    if (this.asking || this.stopped) return;
    this.asking = true;
    this.cancelTimer();
    let next: number;
    try {
      do {
        this.askAgain = false;
        next = await this.claimAll();
        // A time that was computed before the clock was set back would be too late.
      } while ((this.askAgain || this.parts.clock.now() < this.lookedAt) && !this.stopped);
      this.pauses = 0;
    } catch (error) {
      if (this.pauses === 0 && !this.stopped) this.parts.onOutage(error);
      this.backlog.forget();
      this.limitedOutage = undefined;
      next = this.afterFailures(this.pauses++);
    }
    this.asking = false;
    if (!this.stopped) this.cancelTimer = this.parts.clock.wakeAt(next, () => this.wake());
    this.notifyIdle();
  }

  /** @returns when to ask again, in epoch milliseconds */
  private async claimAll(): Promise<number> {
    const { clock, pollInterval } = this.parts;
    if (clock.now() < this.lookedAt) this.forgetTimes();
    this.lookedAt = clock.now();
    await this.findDueLanes();
    let free = this.freeByLane();
    for (const lane of this.backlog.lanes) {
      const limit = Math.min(free.lanes[lane] ?? free.elsewhere, this.freeSlots);
      if (limit <= 0 || this.stopped) continue;
      const { claimed } = await this.claimAndStart({ lane, limit }, free);
      if (claimed.length < limit) this.backlog.delete(lane);
      free = this.freeByLane();
    }
    // Limited lanes get half of the free slots first, and then what the others leave.
    await this.claimLimited(Math.ceil(this.freeSlots / 2));
    while (this.mayBeMore && this.freeSlots > 0 && !this.stopped) await this.claimDue();
    // If the database were away, the claim above would have failed too.
    if (this.limitedOutage?.isReported === false) {
      this.limitedOutage.isReported = true;
      this.parts.onLimitedFailure(this.limitedOutage.error);
    }
    await this.claimLimited(this.freeSlots);
    if (this.freeSlots <= 0) return clock.now() + pollInterval;
    const isContended = this.contention !== undefined && !this.backlog.isEmpty;
    return Math.min(
      this.nextScan,
      isContended ? this.nextLaneCheck : Infinity,
      this.nextProof(),
      Math.max(this.limited.next(), this.limitedOutage?.retryAt ?? 0),
    );
  }

  /** When to try again after failures, in epoch milliseconds. @param before - earlier failures in a row */
  private afterFailures(before: number): number {
    const { clock, pollInterval } = this.parts;
    return clock.now() + Math.min(pollInterval * 2 ** Math.min(before, 10), MAX_PAUSE);
  }

  /** What was planned before the clock was set back would come too late. */
  private forgetTimes(): void {
    this.backlog.forget();
    this.limited.forget();
    if (this.limitedOutage !== undefined) this.limitedOutage.retryAt = 0;
    this.nextLaneCheck = 0;
    this.mayBeMore = true;
  }

  /** Claims from the limited lanes whose time has come. A failure must not keep other lanes waiting. */
  private async claimLimited(most: number): Promise<void> {
    if (this.parts.clock.now() < (this.limitedOutage?.retryAt ?? 0)) return;
    try {
      await this.claimFromLimited(most);
      this.limitedOutage = undefined;
    } catch (error) {
      this.mayBeMore = true;
      const { failures = 0, isReported = false } = this.limitedOutage ?? {};
      const retryAt = this.afterFailures(failures);
      this.limitedOutage = { error, failures: failures + 1, isReported, retryAt };
    }
  }

  private async claimFromLimited(most: number): Promise<void> {
    if (await this.limited.search()) this.wake();
    for (let left = most; left > 0 && !this.stopped;) {
      const claimed = await this.limited.claimFromDueLanes(left, () => this.freeByLane());
      if (claimed === undefined) return;
      await this.start(claimed);
      left -= claimed.length;
    }
  }

  /** When a waiting lane turns out to be slow, which can give it more slots although none of its attempts has ended. */
  private nextProof(): number {
    const now = this.parts.clock.now();
    const times = this.backlog.lanes.map((lane) => this.lanes.provenSlowAt(lane, now) ?? Infinity);
    return Math.min(...times);
  }

  private async claimDue(): Promise<void> {
    const { clock, pollInterval } = this.parts;
    const start = clock.now();
    const from = this.backlog.startOfScan(start);
    const free = this.freeByLane();
    const full = Object.keys(free.lanes).filter((lane) => free.lanes[lane]! <= 0);
    // Set before the claim: a delivery that is recorded while it runs, which it may not see, sets it again.
    this.mayBeMore = false;
    const maxAge = from === undefined ? undefined : start - from;
    const { claimed, dueIn, limitedLanes } = await this.claimAndStart(
      { maxAge, limit: this.freeSlots },
      free,
    );
    if (limitedLanes !== undefined) this.limited.discovered(limitedLanes, start);
    let until = start;
    if (claimed.length > 0 || limitedLanes !== undefined) {
      this.mayBeMore = true;
      // A fast lane is full for a moment only, and its next delivery needs no claim of its own.
      const areSlow = full.length > 0 && full.every((lane) => this.lanes.isSlow(lane, start));
      if (limitedLanes !== undefined || dueIn === undefined || !areSlow) return;
      until += dueIn;
    } else this.nextScan = start + (dueIn ?? pollInterval);
    this.backlog.recordScan({ from, until, start, end: clock.now(), full });
    // An attempt of one of them may have ended during the scan.
    const { lanes, elsewhere } = this.freeByLane();
    if (full.some((lane) => (lanes[lane] ?? elsewhere) > 0)) this.askAgain = true;
  }

  /** A slow lane without due deliveries must not keep a slot from one that has some. */
  private async findDueLanes(): Promise<void> {
    const now = this.parts.clock.now();
    const contending = this.lanes.contendingLanes(now);
    if (contending.length === 0) {
      this.contention = undefined;
      return;
    }
    const { lanes } = this.contention ?? {};
    if (now < this.nextLaneCheck && contending.every((lane) => lanes?.has(lane))) return;
    const due = new Set(await this.parts.findDueLanes(contending));
    this.contention = { lanes: new Set(contending), due };
    this.nextLaneCheck = now + LANE_CHECK_INTERVAL;
  }

  private freeByLane(): FreeSlots {
    return this.lanes.freeSlots(this.parts.clock.now(), this.contention?.due);
  }

  private async claimAndStart(
    request: Pick<ClaimRequest, 'lane' | 'maxAge' | 'limit'>,
    { lanes, elsewhere: perLane }: FreeSlots,
  ): Promise<ClaimResult> {
    const { claimDeliveries, pollInterval } = this.parts;
    const checksLimits = this.limited.hasLimits || undefined;
    const result = await claimDeliveries({
      lookAhead: pollInterval,
      perLane,
      lanes,
      checksLimits,
      ...request,
    });
    await this.start(result.claimed);
    return result;
  }

  private async start(claimed: readonly ClaimedDelivery[]): Promise<void> {
    this.claims += claimed.length;
    if (this.stopped) await Promise.all(claimed.map(this.parts.release));
    else for (const delivery of claimed) void this.runInSlot(delivery);
  }

  private async runInSlot(delivery: ClaimedDelivery): Promise<void> {
    const { clock, run } = this.parts;
    const { seq, lane } = delivery;
    const slot = this.lanes.enter(lane, clock.now());
    this.deliveries.set(seq, delivery);
    const wasAttempted = await run(delivery);
    // Its lease may have expired meanwhile, and this process has claimed it again.
    if (this.deliveries.get(seq) === delivery) this.deliveries.delete(seq);
    const wasSlow = this.lanes.isSlow(lane, clock.now());
    this.lanes.leave(slot, clock.now(), wasAttempted);
    // Slow lanes share their slots, so that one of them may let another one continue.
    const mayContinue = this.limited.ended(lane);
    const isHeldUp = this.backlog.has(lane) || (wasSlow && !this.backlog.isEmpty);
    if (this.mayBeMore || mayContinue || isHeldUp) {
      void this.ask();
    }
    this.notifyIdle();
  }

  private notifyIdle(): void {
    if (this.isIdle) for (const resolve of this.idleListeners.splice(0)) resolve();
  }
}
