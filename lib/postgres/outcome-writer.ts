import type { WebhookClock } from '../clock/webhook-clock.js';
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
 * While the database is unavailable it retries for as long as a lease lasts. Then another process may have claimed the deliveries,
 * and each of them runs again.
 */
export class OutcomeWriter {
  private pending: PendingOutcome[] = [];
  private writing = false;
  private closed = false;

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
      if (!this.writing) void this.drain();
    });
  }

  /** From now on, a failed write is not retried. */
  close(): void {
    this.closed = true;
  }

  private async drain(): Promise<void> {
    this.writing = true;
    while (this.pending.length > 0) {
      const batch = this.pending;
      this.pending = [];
      await this.writeWithRetries(batch.map(({ outcome }) => outcome));
      for (const { done } of batch) done();
    }
    this.writing = false;
  }

  private async writeWithRetries(outcomes: readonly OutcomeRow[]): Promise<void> {
    const end = this.clock.now() + this.lease;
    for (;;) {
      try {
        return await this.writeBatch(outcomes);
      } catch {
        if (this.closed || this.clock.now() + PAUSE >= end) return;
      }
      const retryAt = this.clock.now() + PAUSE;
      await new Promise<void>((resolve) => this.clock.wakeAt(retryAt, resolve));
    }
  }
}
