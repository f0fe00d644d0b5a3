import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { laneOfStored } from '../queue/stored-delivery.js';
import type { ClaimedJob, ClaimRequest, ClaimResult } from './job-statements.js';
import { LaneSlots, type FreeSlots } from '../queue/lane-slots.js';

interface ClaimLoopParts {
  readonly claim: (request: ClaimRequest) => Promise<ClaimResult>;
  /** Returns those of the lanes that have a due job. */
  readonly findDueLanes: (lanes: readonly string[], now: number) => Promise<readonly string[]>;
  /** Attempts a job and writes the outcome; never rejects. @returns whether a request was made */
  readonly run: (job: ClaimedJob) => Promise<boolean>;
  /** Returns a job to the queue that was claimed while the loop was stopped. */
  readonly release: (job: ClaimedJob) => Promise<void>;
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

/** Claims due jobs while there are free slots, and runs each of them. */
export class ClaimLoop {
  private readonly jobs = new Map<string, ClaimedJob>();
  private readonly lanes: LaneSlots;
  private readonly backlog: LaneBacklog;
  /** The contending slow lanes with due jobs; `undefined` if none contend. */
  private dueLanes: ReadonlySet<string> | undefined;
  /** Epoch milliseconds at which they are looked for again. */
  private nextLaneCheck = 0;
  private cancelTimer: CancelWake = () => {};
  private asking = false;
  private askAgain = false;
  /** Whether a job outside the backlog may be due. */
  private mayBeMore = true;
  /** Epoch milliseconds at which the next job is due, or the next poll. */
  private nextScan = 0;
  private pauses = 0;
  private stopped = false;
  private claimed = 0;
  private idleListeners: (() => void)[] = [];

  constructor(private readonly parts: ClaimLoopParts) {
    this.lanes = new LaneSlots(parts);
    this.backlog = new LaneBacklog();
  }

  /** The jobs that this process has claimed. */
  get running(): readonly ClaimedJob[] {
    return [...this.jobs.values()];
  }

  /** Whether another job can start now. */
  get hasFreeSlot(): boolean {
    return !this.stopped && this.freeSlots > 0;
  }

  /** Looks for due jobs now. */
  wake(): void {
    this.mayBeMore = true;
    void this.ask();
  }

  /** Claims no more jobs; resolves when none is running. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.cancelTimer();
    await this.idle();
  }

  /** Claims and runs until no job is due or running. */
  async drain(): Promise<void> {
    for (let before = -1; before !== this.claimed && !this.stopped; await this.idle()) {
      // A claim that is under way may have started before the last job was recorded.
      await this.idle();
      before = this.claimed;
      this.wake();
    }
  }

  private async idle(): Promise<void> {
    if (!this.isIdle) await new Promise<void>((resolve) => this.idleListeners.push(resolve));
  }

  private get isIdle(): boolean {
    return this.jobs.size === 0 && !this.asking;
  }

  private get freeSlots(): number {
    return this.parts.concurrency - this.jobs.size;
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
      if (limit <= 0) continue;
      const { jobs } = await this.claim({ lane, limit }, free);
      if (jobs.length < limit) this.backlog.delete(lane);
      free = this.freeByLane();
    }
    while (this.mayBeMore && this.freeSlots > 0 && !this.stopped) await this.claimOutsideBacklog();
    return this.freeSlots > 0 ? this.nextScan : clock.now() + pollInterval;
  }

  private async claimOutsideBacklog(): Promise<void> {
    const { clock, pollInterval } = this.parts;
    const start = clock.now();
    const dueSince = this.backlog.startOfScan(start);
    const free = this.freeByLane();
    const full = Object.keys(free.lanes).filter((lane) => free.lanes[lane]! <= 0);
    // Set before the claim: a job that is recorded while it runs, which it may not see, sets it again.
    this.mayBeMore = false;
    const { jobs, nextDue } = await this.claim({ dueSince, limit: this.freeSlots }, free);
    if (jobs.length > 0) {
      this.mayBeMore = true;
      return;
    }
    this.nextScan = nextDue ?? start + pollInterval;
    // All other due jobs are in full lanes.
    this.backlog.recordScan({ from: dueSince, start, end: clock.now(), full });
  }

  /** A slow lane without due jobs must not keep a slot from one that has some. */
  private async findDueLanes(): Promise<void> {
    const now = this.parts.clock.now();
    const contending = this.lanes.contendingLanes(now);
    if (contending.length === 0) {
      this.dueLanes = undefined;
    } else if (this.dueLanes === undefined || now >= this.nextLaneCheck) {
      this.dueLanes = new Set(await this.parts.findDueLanes(contending, now));
      this.nextLaneCheck = now + this.parts.pollInterval;
    }
  }

  private freeByLane(): FreeSlots {
    return this.lanes.freeSlots(this.parts.clock.now(), this.dueLanes);
  }

  private async claim(
    request: Pick<ClaimRequest, 'lane' | 'dueSince' | 'limit'>,
    { lanes, elsewhere: perLane }: FreeSlots,
  ): Promise<ClaimResult> {
    const { clock, claim, release, pollInterval } = this.parts;
    const now = clock.now();
    const result = await claim({ ...request, now, lookAhead: now + pollInterval, perLane, lanes });
    this.claimed += result.jobs.length;
    if (this.stopped) await Promise.all(result.jobs.map(release));
    else for (const job of result.jobs) void this.run(job);
    return result;
  }

  private async run(job: ClaimedJob): Promise<void> {
    const { clock, run } = this.parts;
    const lane = laneOf(job);
    const slot = this.lanes.enter(lane, clock.now());
    this.jobs.set(job.id, job);
    const wasAttempted = await run(job);
    this.jobs.delete(job.id);
    const wasSlow = this.lanes.isSlow(lane, clock.now());
    this.lanes.leave(slot, clock.now(), wasAttempted);
    // Slow lanes share their slots, so that one of them may let another one continue.
    if (this.mayBeMore || this.backlog.has(lane) || (wasSlow && !this.backlog.isEmpty)) {
      void this.ask();
    }
    this.notifyIdle();
  }

  private notifyIdle(): void {
    if (this.isIdle) for (const resolve of this.idleListeners.splice(0)) resolve();
  }
}

/** Milliseconds that scans overlap, for jobs that a transaction or another clock dates back. */
const OVERLAP = 5_000;
/** Minimum of milliseconds between two scans of the whole backlog. */
const RESCAN_INTERVAL = 5_000;
/** Scans of the whole backlog take at most 1 part in this many of the time. */
const RESCAN_SHARE = 20;

/**
 * The lanes with due jobs but without a free slot.
 *
 * A claim has to skip the due jobs of full lanes, and a slow endpoint may have many. They are skipped once: later claims start
 * where that scan ended, and a lane that gets a free slot is claimed from by itself.
 */
class LaneBacklog {
  private readonly waiting = new Set<string>();
  /** Epoch milliseconds until which due jobs are in these lanes only; `undefined` if there are no such lanes. */
  private until: number | undefined;
  /** Epoch milliseconds of the next scan of the whole backlog, which also finds jobs whose lease has expired. */
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

  /** Records a scan that found only jobs of full lanes. */
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

/** A damaged record must not stop the process: its attempt fails, and is retried. */
function laneOf({ data }: ClaimedJob): string {
  try {
    return laneOfStored(data.delivery);
  } catch {
    return 'damaged';
  }
}
