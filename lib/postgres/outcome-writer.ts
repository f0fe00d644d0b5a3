import type { WebhookClock } from '../clock/webhook-clock.js';
import { isWebhookError } from '../errors/webhook.error.js';
import { isOutage } from './database-failure.js';
import type { OutcomeRow } from './delivery-row.js';

/** Milliseconds between two attempts to write while the database is unavailable. */
const PAUSE = 1_000;

interface OutcomeWriterParts {
  readonly record: (outcomes: readonly OutcomeRow[]) => Promise<void>;
  /** Called for an outcome that cannot be written. */
  readonly onGivenUp: (error: unknown) => void;
  readonly clock: WebhookClock;
  /** Milliseconds. */
  readonly lease: number;
}

interface PendingOutcome {
  readonly outcome: OutcomeRow;
  readonly done: () => void;
  /** Epoch milliseconds. */
  readonly madeAt: number;
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

  constructor(private readonly parts: OutcomeWriterParts) {}

  /**
   * Resolves when the outcome is written, or given up: the delivery then runs again once its lease has expired.
   *
   * @param madeAt - epoch milliseconds
   */
  async write(outcome: OutcomeRow, madeAt: number): Promise<void> {
    return new Promise((done) => {
      this.pending.push({ outcome, done, madeAt });
      this.writing ??= this.drain();
    });
  }

  /**
   * Waits for one more write of the pending outcomes. From now on, a failed write is not retried, and the outcome of an attempt that
   * ends after the connection was closed is dropped.
   */
  async close(): Promise<void> {
    this.closed = true;
    this.endPause();
    await this.writing;
  }

  private async drain(): Promise<void> {
    while (this.pending.length > 0) {
      const batch = this.pending;
      this.pending = [];
      const failed = await this.writeBatch(batch);
      if (failed.length > 0 && !this.closed) await this.pause();
      this.pending.unshift(...failed);
    }
    this.writing = undefined;
  }

  /** @returns those to write again */
  private async writeBatch(batch: readonly PendingOutcome[]): Promise<readonly PendingOutcome[]> {
    const { clock, lease } = this.parts;
    for (;;) {
      try {
        await this.parts.record(batch.map((one) => rowOf(one, clock.now())));
        break;
      } catch (error) {
        const isOver = this.closed || clock.now() + PAUSE >= batch[0]!.madeAt + lease;
        if (isOutage(error) || isWebhookError(error, 'shutting_down')) {
          if (this.closed) break;
        } else if (batch.length > 1) {
          // One by one: an outcome that cannot be written must not keep the others from being written.
          const failed: PendingOutcome[] = [];
          for (const one of batch) failed.push(...(await this.writeBatch([one])));
          return failed;
        } else if (isOver) {
          this.parts.onGivenUp(error);
          break;
        } else return batch;
      }
      await this.pause();
    }
    for (const { done } of batch) done();
    return [];
  }

  private async pause(): Promise<void> {
    const { clock } = this.parts;
    await new Promise<void>((resolve) => {
      const cancel = clock.wakeAt(clock.now() + PAUSE, resolve);
      this.endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}

/** Its times move with a clock that was set back since it was made. */
function rowOf({ outcome, madeAt }: PendingOutcome, now: number): OutcomeRow {
  const { due, overloaded } = outcome;
  const change = now - madeAt;
  if (change >= 0) return outcome;
  return { ...outcome, due: due && due + change, overloaded: overloaded && overloaded + change };
}
