import type { CancelWake, WebhookClock } from '../clock/webhook-clock.js';

/** Milliseconds between two rounds. */
const INTERVAL = 5_000;

/**
 * Deletes deliveries past their retention in the background. A large deletion is spread over batches, each followed by a
 * rest as long as itself.
 */
export class RetentionTimer {
  private cancelTimer: CancelWake = () => {};
  private stopped = false;

  /** @param deleteBatch - resolves with whether more may be left */
  constructor(
    private readonly deleteBatch: () => Promise<boolean>,
    private readonly clock: WebhookClock,
  ) {}

  start(): void {
    this.schedule(INTERVAL);
  }

  stop(): void {
    this.stopped = true;
    this.cancelTimer();
  }

  private schedule(wait: number): void {
    if (this.stopped) return;
    const at = this.clock.now() + wait;
    this.cancelTimer = this.clock.wakeAt(at, () => void this.runRound());
  }

  private async runRound(): Promise<void> {
    let rest = INTERVAL;
    try {
      const start = this.clock.now();
      if (await this.deleteBatch()) rest = Math.min(INTERVAL, this.clock.now() - start);
    } catch {
      // The claim loop reports that the database is unavailable; the next round tries again.
    }
    this.schedule(rest);
  }
}
