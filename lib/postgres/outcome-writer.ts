import { isOutage } from './database-failure.js';
import type { DeliveryLimitTable } from './delivery-limit-table.js';
import type { OutcomeRow } from './delivery-row.js';
import type { DeliveryStatements } from './delivery-statements.js';
import type { KeyTurns } from './key-turns.js';
import type { QueueConnection } from './queue-connection.js';
import type { ResolvedDatabaseQueueOptions } from './queue-options.js';

/** Milliseconds between two attempts to write while the database is unavailable. */
const PAUSE = 1_000;

interface OutcomeWriterParts {
  readonly connection: QueueConnection;
  readonly statements: DeliveryStatements;
  readonly keys: KeyTurns;
  readonly limits: DeliveryLimitTable;
  readonly options: ResolvedDatabaseQueueOptions;
  /** Called for an outcome that cannot be written. */
  readonly onGivenUp: (error: unknown) => void;
}

interface PendingOutcome {
  readonly outcome: OutcomeRow;
  readonly done: () => void;
  /** When it is given up unless there is an outage; epoch milliseconds. */
  readonly end: number;
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

  /** Resolves when the outcome is written, or given up: the delivery then runs again once its lease has expired. */
  async write(outcome: OutcomeRow): Promise<void> {
    const { clock, lease } = this.parts.options;
    return new Promise((done) => {
      this.pending.push({ outcome, done, end: clock.now() + lease });
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
      const failed = await this.writeBatch(batch);
      if (failed.length > 0 && !this.closed) await this.pause();
      this.pending.unshift(...failed);
    }
    this.writing = undefined;
  }

  /** @returns those to write again */
  private async writeBatch(batch: readonly PendingOutcome[]): Promise<readonly PendingOutcome[]> {
    for (;;) {
      try {
        await this.settle(batch.map(({ outcome }) => outcome));
        break;
      } catch (error) {
        const isOver = this.closed || this.parts.options.clock.now() + PAUSE >= batch[0]!.end;
        if (isOutage(error)) {
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

  /** Writes outcomes, then lets others start: the next ones of their keys, and those that wait for a slot of a limited lane. */
  private async settle(outcomes: readonly OutcomeRow[]): Promise<void> {
    const { connection, statements, keys, limits, options } = this.parts;
    const values = [JSON.stringify(outcomes), connection.now, options.clock.now()];
    const released = await connection.query(statements.settle, values);
    const limited = outcomes.filter(({ slot }) => slot !== undefined);
    if (released.length > 0) {
      const seqs = released.map(({ seq }) => seq as string);
      await keys.releaseNext(
        seqs,
        limited.map(({ lane }) => lane),
      );
    }
    if (limited.length > 0) await limits.end(limited);
  }

  private async pause(): Promise<void> {
    const { clock } = this.parts.options;
    await new Promise<void>((resolve) => {
      const cancel = clock.wakeAt(clock.now() + PAUSE, resolve);
      this.endPause = () => {
        cancel();
        resolve();
      };
    });
  }
}
