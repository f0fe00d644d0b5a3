import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';
import { laneOfStored } from '../queue/stored-delivery.js';
import type { ClaimedJob, ClaimRequest } from './job-statements.js';
import { LaneSlots } from '../queue/lane-slots.js';

/** What the loop is made of. */
interface ClaimLoopParts {
  readonly claim: (request: ClaimRequest) => Promise<readonly ClaimedJob[]>;
  readonly nextDue: (after: number, until: number) => Promise<number | undefined>;
  /** Attempts a job and settles it; never rejects. */
  readonly run: (job: ClaimedJob) => Promise<void>;
  /** Gives a job back that was claimed too late. */
  readonly giveBack: (job: ClaimedJob) => Promise<void>;
  /** Told once for each time that the database could not be asked. */
  readonly onOutage: (error: unknown) => void;
  readonly clock: WebhookClock;
  readonly concurrency: number;
  readonly concurrencyPerDestination: number;
  /** Milliseconds. */
  readonly pollInterval: number;
}

/** Milliseconds, doubled each time, up to which the database is left alone while it is away. */
const LONGEST_PAUSE = 30_000;

/**
 * Claims due jobs whenever there is room for them and runs each by itself.
 *
 * It asks at once when it is woken, when a slot gets free behind which something may wait, and when something becomes due;
 * otherwise as often as the poll interval says, for what other processes have recorded.
 */
export class ClaimLoop {
  private readonly jobs = new Map<string, ClaimedJob>();
  private readonly lanes: LaneSlots;
  private cancelTimer: CancelWake = () => {};
  private asking = false;
  private askAgain = false;
  /** Whether something that is due may still lie in the database. */
  private mayBeMore = true;
  private pauses = 0;
  private stopped = false;
  private onIdle: () => void = () => {};

  constructor(private readonly parts: ClaimLoopParts) {
    this.lanes = new LaneSlots(parts.concurrencyPerDestination);
  }

  /** The jobs in this process's hands. */
  get running(): readonly ClaimedJob[] {
    return [...this.jobs.values()];
  }

  /** Looks for due jobs now. */
  wake(): void {
    this.mayBeMore = true;
    void this.ask();
  }

  /** Claims nothing more; resolves when nothing runs. */
  async stop(): Promise<void> {
    this.stopped = true;
    this.cancelTimer();
    if (this.isIdle) return;
    await new Promise<void>((resolve) => (this.onIdle = resolve));
  }

  private get isIdle(): boolean {
    return this.jobs.size === 0 && !this.asking;
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
      const pause = this.parts.pollInterval * 2 ** Math.min(this.pauses++, 10);
      next = this.parts.clock.now() + Math.min(pause, LONGEST_PAUSE);
    }
    this.asking = false;
    if (this.stopped) this.tellIdle();
    else this.cancelTimer = this.parts.clock.wakeAt(next, () => this.wake());
  }

  /** @returns when to ask again, in epoch milliseconds */
  private async claimAll(): Promise<number> {
    const { clock, pollInterval, concurrency } = this.parts;
    while (this.jobs.size < concurrency && !this.stopped) {
      if ((await this.claimSome()) > 0) continue;
      this.mayBeMore = this.lanes.someFull;
      break;
    }
    const now = clock.now();
    const poll = now + pollInterval;
    if (this.jobs.size >= concurrency) return poll;
    return (await this.parts.nextDue(now, poll)) ?? poll;
  }

  private async claimSome(): Promise<number> {
    const { clock, concurrency, concurrencyPerDestination, claim, giveBack } = this.parts;
    const jobs = await claim({
      now: clock.now(),
      limit: concurrency - this.jobs.size,
      perLane: concurrencyPerDestination,
      lanes: this.lanes.left,
    });
    if (this.stopped) await Promise.all(jobs.map(giveBack));
    else for (const job of jobs) void this.run(job);
    return jobs.length;
  }

  private async run(job: ClaimedJob): Promise<void> {
    const lane = laneOf(job);
    this.jobs.set(job.id, job);
    this.lanes.enter(lane);
    await this.parts.run(job);
    this.jobs.delete(job.id);
    this.lanes.leave(lane);
    if (this.stopped) this.tellIdle();
    else if (this.mayBeMore) void this.ask();
  }

  private tellIdle(): void {
    if (this.isIdle) this.onIdle();
  }
}

/** A record that was damaged must not end the process: its run fails, as every run of it will, and it waits. */
function laneOf({ data }: ClaimedJob): string {
  try {
    return laneOfStored(data.delivery);
  } catch {
    return 'damaged';
  }
}
