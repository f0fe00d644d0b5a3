import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import type { ClaimedDelivery } from './delivery-row.js';
import type { ClaimRequest } from './delivery-statements.js';
import { LimitedLanes } from './limited-lanes.js';
import { type FreeSlots, LaneDivision } from './lane-division.js';

/** The answer to a {@link ClaimRequest}. */
export interface ClaimResult {
  readonly claimed: readonly ClaimedDelivery[];
  /** If none was claimed: milliseconds until the next one is due, if that is within `lookAhead`. */
  readonly dueIn?: number | undefined;
  /** Lanes that were found to have limits. */
  readonly limitedLanes?: readonly string[] | undefined;
}

/** Claims at most `slots` deliveries of a limited lane. */
export interface LimitedClaimRequest {
  readonly lane: string;
  readonly slots: number;
}

/** A limited lane after a claim. */
export interface LimitedLane {
  readonly lane: string;
  /** Equal for equal limits. */
  readonly limits: string;
  /** Milliseconds until more may be claimed; `undefined` if none is due soon. */
  readonly wait: number | undefined;
  /** Whether more may be claimed once an attempt has ended. */
  readonly isFull: boolean;
}

/** Whether any lane has limits, and the limited lanes with deliveries that are due soon, each with its wait. */
export interface LimitedSearch {
  readonly hasLimits: boolean;
  readonly lanes: readonly Omit<LimitedLane, 'isFull'>[];
}

interface ClaimLoopParts {
  readonly claim: (request: ClaimRequest) => Promise<ClaimResult>;
  /** Returns those of the lanes that have a due delivery. */
  readonly findDueLanes: (lanes: readonly string[]) => Promise<readonly string[]>;
  /** Lanes that it does not return are being claimed from by another process. */
  readonly claimLimited: (lanes: readonly LimitedClaimRequest[]) => Promise<{
    readonly claimed: readonly ClaimedDelivery[];
    readonly lanes: readonly LimitedLane[];
  }>;
  readonly findLimitedLanes: () => Promise<LimitedSearch>;
  /** Called with lanes that have got limits after some of their deliveries were recorded. */
  readonly onNewLimits: (lanes: readonly string[]) => void;
  /** Attempts a delivery and writes the outcome; never rejects. @returns whether an attempt was made */
  readonly run: (delivery: ClaimedDelivery) => Promise<boolean>;
  /** Returns a delivery to the queue that was claimed while the loop was stopped. */
  readonly release: (delivery: ClaimedDelivery) => Promise<void>;
  /** Called once for each outage of the database. */
  readonly onOutage: (error: unknown) => void;
  readonly clock: WebhookClock;
  readonly concurrency: number;
  readonly concurrencyPerDestination: number;
  /** Milliseconds. */
  readonly pollInterval: number;
}

/** Maximum of milliseconds between two claims while the database is unavailable. */
const MAX_PAUSE = 30_000;

/** Milliseconds after which the contending slow lanes with due deliveries are looked for again. */
const LANE_CHECK_INTERVAL = 1_000;

/** A search for limited lanes takes at most 1 part in this many of the time. */
const SEARCH_SHARE = 20;
/** Limited lanes of one claim. */
const LANES_AT_ONCE = 100;

/** Claims due deliveries while there are free slots, and runs each of them. */
export class ClaimLoop {
  private readonly deliveries = new Map<string, ClaimedDelivery>();
  private readonly lanes: LaneDivision;
  private readonly backlog: LaneBacklog;
  private readonly limited = new LimitedLanes();
  /** Epoch milliseconds of the next search for limited lanes. */
  private nextSearch = 0;
  private hasLimits = false;
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
  private pauses = 0;
  private stopped = false;
  private claims = 0;
  private idleListeners: (() => void)[] = [];

  constructor(private readonly parts: ClaimLoopParts) {
    this.lanes = new LaneDivision(parts);
    this.backlog = new LaneBacklog();
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
    if (limitedLanes === 'all') this.nextSearch = 0;
    else for (const lane of limitedLanes) this.limited.set(lane, this.parts.clock.now());
    void this.ask();
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
      } while (this.askAgain && !this.stopped);
      this.pauses = 0;
    } catch (error) {
      if (this.pauses === 0 && !this.stopped) this.parts.onOutage(error);
      this.backlog.forget();
      const pause = this.parts.pollInterval * 2 ** Math.min(this.pauses++, 10);
      next = this.parts.clock.now() + Math.min(pause, MAX_PAUSE);
    }
    this.asking = false;
    if (!this.stopped) this.cancelTimer = this.parts.clock.wakeAt(next, () => this.wake());
    this.notifyIdle();
  }

  /** @returns when to ask again, in epoch milliseconds */
  private async claimAll(): Promise<number> {
    const { clock, pollInterval } = this.parts;
    await this.findDueLanes();
    let free = this.freeByLane();
    for (const lane of this.backlog.lanes) {
      const limit = Math.min(free.lanes[lane] ?? free.elsewhere, this.freeSlots);
      if (limit <= 0 || this.stopped) continue;
      const { claimed } = await this.claim({ lane, limit }, free);
      if (claimed.length < limit) this.backlog.delete(lane);
      free = this.freeByLane();
    }
    // Limited lanes get half of the free slots first, and then what the others leave.
    await this.claimLimited(Math.ceil(this.freeSlots / 2));
    while (this.mayBeMore && this.freeSlots > 0 && !this.stopped) await this.claimOutsideBacklog();
    await this.claimLimited(this.freeSlots);
    if (this.freeSlots <= 0) return clock.now() + pollInterval;
    const isContended = this.contention !== undefined && !this.backlog.isEmpty;
    return Math.min(
      this.nextScan,
      isContended ? this.nextLaneCheck : Infinity,
      this.nextProof(),
      this.limited.nextAfter(clock.now()),
      Math.max(this.nextSearch, clock.now() + 1),
    );
  }

  /** Claims from the limited lanes whose time has come. */
  private async claimLimited(most: number): Promise<void> {
    const { clock, claimLimited } = this.parts;
    if (clock.now() >= this.nextSearch) await this.findLimitedLanes();
    for (let left = most; left > 0 && !this.stopped;) {
      const now = clock.now();
      const request = this.limitedRequest(now, left);
      if (request.length === 0) return;
      for (const { lane } of request) this.limited.ask(lane, now);
      const { claimed, lanes } = await claimLimited(request);
      for (const { lane, wait, isFull, limits } of lanes) {
        this.limited.answer(lane, wait === undefined ? undefined : now + wait, isFull, limits);
      }
      await this.start(claimed);
      left -= claimed.length;
    }
  }

  private limitedRequest(now: number, most: number): LimitedClaimRequest[] {
    const request: LimitedClaimRequest[] = [];
    const due = this.limited.due(now);
    if (due.length === 0) return request;
    const free = this.freeByLane();
    let left = most;
    for (const lane of due) {
      const slots = Math.min(free.lanes[lane] ?? free.elsewhere, left);
      if (slots <= 0) continue;
      request.push({ lane, slots });
      left -= slots;
      if (left <= 0 || request.length === LANES_AT_ONCE) break;
    }
    return request;
  }

  private async findLimitedLanes(): Promise<void> {
    const { clock, pollInterval, findLimitedLanes } = this.parts;
    const start = clock.now();
    this.nextSearch = start + pollInterval;
    const { hasLimits, lanes } = await findLimitedLanes();
    this.hasLimits = hasLimits;
    this.nextSearch = Math.max(this.nextSearch, start + SEARCH_SHARE * (clock.now() - start));
    for (const { lane, wait = 0, limits } of lanes) this.limited.found(lane, start + wait, limits);
  }

  /** When a waiting lane turns out to be slow, which can give it more slots although none of its attempts has ended. */
  private nextProof(): number {
    const now = this.parts.clock.now();
    const times = this.backlog.lanes.map((lane) => this.lanes.provenSlowAt(lane, now) ?? Infinity);
    return Math.min(...times);
  }

  private async claimOutsideBacklog(): Promise<void> {
    const { clock, pollInterval } = this.parts;
    const start = clock.now();
    const from = this.backlog.startOfScan(start);
    const free = this.freeByLane();
    const full = Object.keys(free.lanes).filter((lane) => free.lanes[lane]! <= 0);
    // Set before the claim: a delivery that is recorded while it runs, which it may not see, sets it again.
    this.mayBeMore = false;
    const maxAge = from === undefined ? undefined : start - from;
    const { claimed, dueIn, limitedLanes } = await this.claim(
      { maxAge, limit: this.freeSlots },
      free,
    );
    if (limitedLanes !== undefined) {
      for (const lane of limitedLanes) this.limited.found(lane, start);
      this.parts.onNewLimits(limitedLanes);
    }
    if (claimed.length > 0 || limitedLanes !== undefined) {
      this.mayBeMore = true;
      return;
    }
    this.nextScan = start + (dueIn ?? pollInterval);
    // All other due deliveries are in full lanes.
    this.backlog.recordScan({ from, start, end: clock.now(), full });
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

  private async claim(
    request: Pick<ClaimRequest, 'lane' | 'maxAge' | 'limit'>,
    { lanes, elsewhere: perLane }: FreeSlots,
  ): Promise<ClaimResult> {
    const { claim, pollInterval } = this.parts;
    const checksLimits = this.hasLimits || undefined;
    const result = await claim({
      ...request,
      lookAhead: pollInterval,
      perLane,
      lanes,
      checksLimits,
    });
    await this.start(result.claimed);
    return result;
  }

  private async start(claimed: readonly ClaimedDelivery[]): Promise<void> {
    this.claims += claimed.length;
    if (this.stopped) await Promise.all(claimed.map(this.parts.release));
    else for (const delivery of claimed) void this.run(delivery);
  }

  private async run(delivery: ClaimedDelivery): Promise<void> {
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
    const mayContinue =
      this.limited.freed(lane, clock.now()) || this.limited.due(clock.now()).length > 0;
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
      this.rescanAt = scan.end + Math.max(RESCAN_INTERVAL, RESCAN_SHARE * took);
    }
  }
}
