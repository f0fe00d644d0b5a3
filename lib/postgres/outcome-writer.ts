import type { WebhookClock } from '../clock/webhook-clock.js';
import { isOutage } from './database-failure.js';
import type { OutcomeRow } from './delivery-row.js';

/** Milliseconds between two attempts to write while the database is unavailable. */
const PAUSE = 1_000;

interface PendingOutcome {
  readonly outcome: OutcomeRow;
  readonly done: () => void;
}

/**
 * Writes the outcomes of attempts in batches: those that arrive during a write go into the next one.
 *
 * While the database is unavailable it retries. If that lasts longer than the lease of a delivery, another process may claim the
 * delivery first: it then runs again, and its outcome here is dropped. Outcomes that fail for another reason are given up after a lease.
 */
export class OutcomeWriter {
  private pending: PendingOutcome[] = [];
  private writing: Promise<void> | undefined;
  private closed = false;
  private endPause = (): void => {};

  /** @param lease - milliseconds */
  constructor(
    private readonly writeBatch: (outcomes: readonly OutcomeRow[]) => Promise<void>,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  /** Resolves when the outcome is written, or given up: the delivery then runs again once its lease has expired. */
  async write(outcome: OutcomeRow): Promise<void> {
    return new Promise((done) => {
      this.pending.push({ outcome, done });
      this.writing ??= this.drain();
    });
  }

  /** Waits for one more write of the pending outcomes. From now on, a failed write is not retried. */
  async close(): Promise<void> {
    this.closed = true;
    this.endPause();
    await this.writing;
  }

  private async drain(): Promise<void> {
    while (this.pending.length > 0) {
      const batch = this.pending;
      this.pending = [];
      await this.writeWithRetries(batch.map(({ outcome }) => outcome));
      for (const { done } of batch) done();
    }
    this.writing = undefined;
  }

  private async writeWithRetries(outcomes: readonly OutcomeRow[]): Promise<void> {
    const end = this.clock.now() + this.lease;
    for (;;) {
      try {
        return await this.writeBatch(outcomes);
      } catch (error) {
        const isOver = !isOutage(error) && this.clock.now() + PAUSE >= end;
        if (this.closed || isOver) return;
      }
      await this.pause();
    }
  }

  private async pause(): Promise<void> {
    await new Promise<void>((resolve) => {
      const cancel = this.clock.wakeAt(this.clock.now() + PAUSE, resolve);
      this.endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
