import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';

/** Jobs removed in one statement. */
export const REMOVED_AT_ONCE = 1_000;
/** Milliseconds between two rounds. */
const INTERVAL = 5_000;
interface JobMaintenanceParts {
  /** Makes jobs due again whose process has died. */
  readonly releaseExpired: () => Promise<void>;
  /** Removes some delivered jobs past their retention; resolves with their number. */
  readonly removeDelivered: (limit: number) => Promise<number>;
  readonly clock: WebhookClock;
}

/**
 * Takes back the leases of crashed processes and removes delivered jobs past their retention, in the background.
 *
 * pg-boss does both too, by scanning its whole table each time, and removes jobs once an hour or day. Here each round reads
 * the jobs that it changes. A large removal is spread over batches, each followed by a rest as long as itself.
 */
export class JobMaintenance {
  private cancelTimer: CancelWake = () => {};
  private stopped = false;

  constructor(private readonly parts: JobMaintenanceParts) {}

  start(): void {
    const { clock } = this.parts;
    this.schedule(clock.now() + INTERVAL);
  }

  stop(): void {
    this.stopped = true;
    this.cancelTimer();
  }

  private schedule(at: number): void {
    if (this.stopped) return;
    this.cancelTimer = this.parts.clock.wakeAt(at, () => void this.runRound());
  }

  private async runRound(): Promise<void> {
    const { clock, releaseExpired, removeDelivered } = this.parts;
    let rest = INTERVAL;
    try {
      await releaseExpired();
      const start = clock.now();
      const removed = await removeDelivered(REMOVED_AT_ONCE);
      if (removed === REMOVED_AT_ONCE) rest = Math.min(INTERVAL, clock.now() - start);
    } catch {
      // The claim loop reports that the database is away; the next round tries again.
    }
    this.schedule(clock.now() + rest);
  }
}
