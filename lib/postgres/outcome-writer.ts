import type { WebhookClock } from '../clock/webhook-clock.js';
import { progressAfter } from '../queue/delivery-progress.js';
import type { DeliveryOutcome } from '../queue/webhook-queue.js';
import type { ClaimedJob, Settlement } from './job-statements.js';

/**
 * What becomes of a job by the outcome of its attempt.
 *
 * @param outcome - `undefined` where the handler threw
 */
export function settlementOf(
  { id, claim, data }: ClaimedJob,
  outcome: DeliveryOutcome | undefined,
  now: number,
): Settlement {
  switch (outcome?.type) {
    case 'delivered':
      return { id, claim, state: 'completed', output: { attempts: data.attempts + 1 } };
    case 'dead': {
      const { reason } = outcome;
      return { id, claim, state: 'failed', output: { attempts: outcome.attempts, reason } };
    }
    default:
      return { id, claim, state: 'retry', change: progressAfter(data, outcome, now) };
  }
}

/** Milliseconds between two tries while the database is away. */
const PAUSE = 1_000;

interface Waiting {
  readonly settlement: Settlement;
  readonly done: () => void;
}

/**
 * Writes what became of attempts, as many at once as have gathered while the last were written.
 *
 * While the database is away it tries again, for as long as the lease would have held: afterwards the jobs belong to
 * another process, and the write would change nothing.
 */
export class Settlements {
  private waiting: Waiting[] = [];
  private writing = false;
  private closed = false;

  constructor(
    private readonly write: (settlements: readonly Settlement[]) => Promise<void>,
    private readonly clock: WebhookClock,
    private readonly lease: number,
  ) {}

  /** Resolves when it is written, or given up: its job then runs again when its lease has ended. */
  async settle(settlement: Settlement): Promise<void> {
    return new Promise((done) => {
      this.waiting.push({ settlement, done });
      if (!this.writing) void this.drain();
    });
  }

  /** Tries nothing a second time from now on. */
  close(): void {
    this.closed = true;
  }

  private async drain(): Promise<void> {
    this.writing = true;
    while (this.waiting.length > 0) {
      const batch = this.waiting;
      this.waiting = [];
      await this.persist(batch.map(({ settlement }) => settlement));
      for (const { done } of batch) done();
    }
    this.writing = false;
  }

  private async persist(settlements: readonly Settlement[]): Promise<void> {
    const end = this.clock.now() + this.lease;
    for (;;) {
      try {
        return await this.write(settlements);
      } catch {
        if (this.closed || this.clock.now() + PAUSE >= end) return;
      }
      const again = this.clock.now() + PAUSE;
      await new Promise<void>((resolve) => this.clock.wakeAt(again, resolve));
    }
  }
}
